r"""The series file: one patch name a line, in the order of application.

The grammar is the part of quilt's that quilt, gbp, dpkg-source and git quiltimport read alike: LF,
a final newline, no options, no blanks; a comment has its `#` in the first column.
"""

from __future__ import annotations

from stack.digest import split_lines
from stack.errors import Malformed

_START = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_REST = _START | frozenset("._+-")
MOST = 10_000
"""A series names at most so many patches; more is a mistake or an attack."""


def parse_series(data: bytes, name: str) -> tuple[str, ...]:
    """Return the patch names in order; raise Malformed with `name` and the line.

    >>> parse_series(b"# ours\n0001-a.patch\n", "series/1")
    ('0001-a.patch',)
    """
    if (count := data.count(b"\n")) > MOST:
        raise Malformed(f"{name}: {count} lines; a series has at most {MOST}")
    lines = split_lines(data)
    names: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.startswith(b"#"):
            patch = _patch_name(line, f"{name}:{number}")
            if names.setdefault(patch, number) != number:
                raise Malformed(f"{name}:{number}: {patch} is listed twice (line {names[patch]})")
        elif not line.endswith(b"\n") or b"\r" in line:
            raise Malformed(f"{name}:{number}: a line ends in LF alone, the last one too")
    if not names:
        raise Malformed(f"{name}: names no patch", "An empty series would pass for a fix.")
    return tuple(names)


def _patch_name(line: bytes, where: str) -> str:
    if b"\r" in line or not line.endswith(b"\n"):
        raise Malformed(f"{where}: a line ends in LF alone, the last one too")
    text = line[:-1].decode("ascii", "backslashreplace")
    if not _is_name(text):
        raise Malformed(
            f"{where}: {text[:80]!r} is not a bare patch name",
            "One name a line: no blank, option, path or comment beside it.",
        )
    return text


def _is_name(text: str) -> bool:
    plain = text[:1] in _START and _REST.issuperset(text)
    return plain and text.endswith(".patch") and len(text) <= 200
