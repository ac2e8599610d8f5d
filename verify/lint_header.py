"""The rules for what stands before the diff: mail lines, reason, condition for dropping, DEP-3."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from stack.errors import StackError
from stack.header import Header, parse_header
from stack.patch import Patch

if TYPE_CHECKING:
    from verify.lint import Problem

HEADER_RULES = {
    "header-form": "From, Date and Subject in this order, ASCII, then the message",
    "header-from": "From is 'Name <address>'",
    "header-date": "Date is a mail date (RFC 5322) with a zone, not in the future",
    "header-subject": "Subject has no [PATCH], no final full stop and at most 72 characters",
    "header-slug": "the file name is the number and the slug that git makes of the subject",
    "header-width": "lines of the message have at most 80 characters and no trailing blanks",
    "body-reason": "the message says why, in a paragraph of its own",
    "body-drop": "the message has a paragraph that starts 'Drop this patch when'",
    "dep3-fields": "Origin, Bug, Forwarded, Applied-Upstream and Last-Update, once each, no others",
    "dep3-values": "the fields have the values that DEP-3 allows",
    "dep3-date": "Last-Update is an ISO date, not before Date and not in the future",
}
FIELDS = ("Origin", "Bug", "Forwarded", "Applied-Upstream", "Last-Update")
_URL = r"https://[^\s,]+"
VALUES = {
    "Origin": rf"(upstream|backport|vendor|other)(, {_URL})?",
    "Bug": _URL,
    "Forwarded": rf"no|not-needed|{_URL}",
    "Applied-Upstream": rf"[0-9][A-Za-z0-9.+]*, {_URL}|no",
    "Last-Update": r"\d{4}-\d{2}-\d{2}",
}


def check_header(patch: Patch, slug: Callable[[str], str]) -> Iterator[Problem]:
    """Yield the findings about one patch's head."""
    from verify.lint import Problem

    try:
        header = parse_header(patch.head, patch.name)
    except StackError as error:
        where, _, message = str(error).partition(": ")
        yield Problem("header-form", where, message)
        return
    for rule, message in _findings(header, patch, slug):
        yield Problem(rule, patch.name, message)


def _findings(header: Header, patch: Patch, slug: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    if not re.fullmatch(r"[^<>]+ <[^<>@\s]+@[^<>@\s]+>", header.author):
        yield "header-from", f"From is {header.author!r}"
    subject = header.subject
    if "[PATCH" in subject or subject.endswith(".") or len(subject) > 72:
        yield "header-subject", f"Subject is {subject!r}"
    name = patch.name.rsplit("/", 1)[-1]
    if name[5:] != f"{slug(subject)}.patch":
        yield "header-slug", f"the subject's slug is {slug(subject)}"
    yield from _body(header)
    yield from _fields(header)
    yield from _dates(header)


def _body(header: Header) -> Iterator[tuple[str, str]]:
    for line in "\n\n".join(header.body).split("\n"):
        if len(line) > 80 or line != line.rstrip():
            yield "header-width", f"a long line, or one with trailing blanks: {line[:40]!r}..."
    drops = [text for text in header.body if text.startswith("Drop this patch when ")]
    if not drops:
        yield "body-drop", "no paragraph says when to drop the patch"
    if not any(text.strip() for text in header.body if text not in drops):
        yield "body-reason", "no paragraph says why"


def _fields(header: Header) -> Iterator[tuple[str, str]]:
    names = tuple(key for key, _ in header.fields)
    if sorted(names) != sorted(FIELDS):
        yield "dep3-fields", f"has {', '.join(names)}; expected {', '.join(FIELDS)}"
    for key, value in header.fields:
        if key in VALUES and not re.fullmatch(VALUES[key], value):
            yield "dep3-values", f"{key}: {value!r} is not a value of this field"


def _dates(header: Header) -> Iterator[tuple[str, str]]:
    from datetime import date, datetime, timedelta, timezone
    from email.utils import parsedate_to_datetime

    tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
    written = None
    try:
        written = parsedate_to_datetime(header.date)
        if written.tzinfo is None or written > tomorrow:
            yield "header-date", f"Date {header.date!r} has no zone, or lies in the future"
    except (TypeError, ValueError, IndexError, OverflowError):
        yield "header-date", f"Date {header.date!r} is not a mail date"
    try:
        updated = date.fromisoformat(dict(header.fields).get("Last-Update", ""))
    except ValueError:
        yield "dep3-date", "Last-Update is not an ISO date"
        return
    if updated > tomorrow.date() or (written and updated < written.date()):
        yield "dep3-date", f"Last-Update {updated} lies before Date, or in the future"
