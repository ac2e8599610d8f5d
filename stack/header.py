"""What stands before the diff: mail lines, the message, and DEP-3 fields as its last paragraph.

Mail lines first, so that git am takes the patch; the fields last, so that they survive git am and
lintian, gbp and dpkg-source find them (DEP-3, "Patch Tagging Guidelines").
"""

from __future__ import annotations

from typing import NamedTuple

from stack.errors import Malformed

MAIL = ("From", "Date", "Subject")


class Header(NamedTuple):
    """The parts of a head: author, date and subject as they stand, paragraphs, DEP-3 fields."""

    author: str
    date: str
    subject: str
    body: tuple[str, ...]
    """The message's paragraphs without the fields, each as its lines joined by newlines."""
    fields: tuple[tuple[str, str], ...]


def parse_header(head: bytes, name: str) -> Header:
    """Return the header; raise Malformed with `name` and the line.

    head: a patch file up to its `---` line, as stack.patch gives it.
    """
    try:
        lines = head.decode("ascii").split("\n")[:-2]
    except UnicodeDecodeError as error:
        line = head.count(b"\n", 0, error.start) + 1
        raise Malformed(f"{name}:{line}: the header is ASCII, this is not") from error
    mail = []
    for number, key in enumerate(MAIL, 1):
        row = lines[number - 1] if len(lines) >= number else ""
        if not row.startswith(f"{key}: ") or row != row.rstrip():
            raise Malformed(f"{name}:{number}: expected a mail line '{key}: ...'")
        mail.append(row.removeprefix(f"{key}: "))
    if lines[len(MAIL) :][:1] != [""]:
        raise Malformed(f"{name}:{len(MAIL) + 1}: expected an empty line after the mail lines")
    paragraphs = "\n".join(lines[len(MAIL) + 1 :]).split("\n\n")
    fields = _fields(paragraphs[-1], name, len(lines))
    return Header(mail[0], mail[1], mail[2], tuple(paragraphs[:-1]), fields)


def _fields(paragraph: str, name: str, end: int) -> tuple[tuple[str, str], ...]:
    rows = paragraph.split("\n")
    fields = []
    for number, row in enumerate(rows, end - len(rows) + 1):
        key, colon, value = row.partition(": ")
        if not colon or not value.strip() or not key.replace("-", "").isalnum():
            raise Malformed(f"{name}:{number}: the last paragraph holds DEP-3 fields, this is none")
        fields.append((key, value))
    return tuple(fields)


def slug(subject: str) -> str:
    """Return the file name that git format-patch makes of a subject (format_sanitized_subject).

    >>> slug("forward the flag: now")
    'forward-the-flag-now'
    """
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._") else "-" for c in subject)
    while "--" in kept or ".." in kept:
        kept = kept.replace("--", "-").replace("..", ".")
    return kept.strip("-").rstrip(".-")[:52]
