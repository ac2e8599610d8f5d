"""Digests of bytes, and lines as patches know them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import sha1
    from hashlib import sha256 as sha2
else:
    # hashlib loads OpenSSL, which takes as long as to apply a patch. As the standard library's own random does, try
    # the lean modules first; a build of Python may leave them out.
    try:
        from _sha1 import sha1

        if sys.version_info >= (3, 12):
            from _sha2 import sha256 as sha2
        else:
            from _sha256 import sha256 as sha2
    except ImportError:
        from hashlib import sha1
        from hashlib import sha256 as sha2


def sha256(data: bytes) -> str:
    """Return the SHA-256 of data as 64 hexadecimal digits."""
    return sha2(data).hexdigest()


def git_blob(data: bytes) -> str:
    """Return the id that git gives to a blob of these bytes (git manual, hash-object)."""
    return sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


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
    return sha2(line).hexdigest()[:16]
