"""Digests of bytes, and lines as patches know them."""

from __future__ import annotations

import hashlib


def sha256(data: bytes) -> str:
    """Return the SHA-256 of data as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def git_blob(data: bytes) -> str:
    """Return the id that git gives to a blob of these bytes (git manual, hash-object)."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def split_lines(data: bytes) -> list[bytes]:
    r"""Split at \n only, each line with its \n; CR, VT, FF, U+0085 and U+2028 are payload.

    >>> split_lines(b"a\rb\nc")
    [b'a\rb\n', b'c']
    """
    lines = data.split(b"\n")
    last = lines.pop()
    whole = [line + b"\n" for line in lines]
    return [*whole, last] if last else whole


def line_digest(line: bytes) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of one line, its newline included."""
    return hashlib.sha256(line).hexdigest()[:16]
