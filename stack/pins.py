"""Pins: the SHA-256 of each touched file, in the format that `sha256sum -c` reads."""

from __future__ import annotations

from collections.abc import Mapping

from stack.digest import sha256, split_lines
from stack.errors import Malformed
from stack.paths import check_path

_HEX = frozenset(b"0123456789abcdef")
MOST = 10_000
"""Files that a stack may touch; more is a mistake or an attack."""


def parse_pins(data: bytes, name: str) -> dict[str, str]:
    """Return path -> SHA-256; raise Malformed with `name` and the line.

    The lines are sorted by path, so that two writers of one set of pins write the same bytes.
    """
    pins: dict[str, str] = {}
    last = ""
    if (count := data.count(b"\n")) > MOST:
        raise Malformed(f"{name}: {count} lines; a stack touches at most {MOST} files")
    for number, line in enumerate(split_lines(data), 1):
        digest, path = line[:64], line[66:-1].decode("ascii", "backslashreplace")
        if line[64:66] + line[-1:] != b"  \n" or not _HEX.issuperset(digest):
            raise Malformed(f"{name}:{number}: not a line of sha256sum ('<64 hex digits>  <path>')")
        if check_path(path, f"{name}:{number}") <= last:
            raise Malformed(f"{name}:{number}: {path} is out of order or listed twice")
        pins[path] = digest.decode()
        last = path
    if not pins:
        raise Malformed(f"{name}: pins no file")
    return pins


def pins_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the SHA-256 of each file by its path."""
    return {path: sha256(data) for path, data in files.items()}


def format_pins(pins: Mapping[str, str]) -> bytes:
    """Return the pins as `sha256sum` would print them, sorted by path."""
    return "".join(f"{pins[path]}  {path}\n" for path in sorted(pins)).encode()
