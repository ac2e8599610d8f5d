"""RECORD, the list of an installed distribution's files with their digests and sizes.

A row is `path,algorithm=digest,size`, the digest in URL-safe base64 without padding; digest and size may be empty
(Python packaging specifications, "Recording installed projects"). Only the rows of changed files are made anew, and in
them only the fields that they have: order, quoting, line ends and all other rows keep every byte.
"""

from __future__ import annotations

import base64
import csv
import hashlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from stack.digest import split_lines
from stack.errors import Refused

MOST_LINES = 500_000
"""Lines that a RECORD may have: several times those of the largest distributions."""


class Row(NamedTuple):
    """One row: its bytes with the line end, the number of its first line, and its fields."""

    data: bytes
    line: int
    fields: tuple[str, ...]

    @property
    def path(self) -> str:
        return self.fields[0] if self.fields else ""


def read_rows(data: bytes, where: str) -> list[Row]:
    """Return the rows in order; raise Refused for what is no CSV in UTF-8."""
    return list(_rows(data, where))


def _rows(data: bytes, where: str) -> Iterator[Row]:
    if (count := data.count(b"\n")) > MOST_LINES:
        raise Refused(f"{where}: {count} lines; at most {MOST_LINES} are read")
    held: list[bytes] = []
    first, quoted = 1, False
    for number, line in enumerate(split_lines(data), 1):
        first = first if held else number
        held.append(line)
        quoted ^= line.count(b'"') % 2 == 1  # a quoted name may hold a newline: the row goes on
        if not quoted:
            yield _row(b"".join(held), first, where)
            held = []
    if held:
        raise Refused(f"{where}:{first}: a quotation mark is never closed")


def _row(data: bytes, line: int, where: str) -> Row:
    try:
        text = data.rstrip(b"\r\n").decode()
        return Row(data, line, tuple(next(csv.reader([text], strict=True), ())))
    except (ValueError, csv.Error) as error:
        raise Refused(f"{where}:{line}: is no row of a RECORD: {error}") from error


def digest_of(data: bytes, algorithm: str = "sha256") -> str:
    """Return the digest field of a file.

    >>> digest_of(b"")
    'sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU'
    """
    digest = hashlib.new(algorithm, data).digest()
    return f"{algorithm}={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def agrees(row: Row, data: bytes) -> bool:
    """Whether a row is that of these bytes, as far as it says anything."""
    return row.fields[1:] == _fields(row, data)


def _fields(row: Row, data: bytes) -> tuple[str, str]:
    algorithm = row.fields[1].partition("=")[0]
    digest = ""
    if algorithm:
        # Every Python has these; another algorithm could not be checked by whoever reads the row.
        digest = digest_of(data, algorithm if algorithm in hashlib.algorithms_guaranteed else "sha256")
    return digest, str(len(data)) if row.fields[2] else ""


def rewritten(data: bytes, files: Mapping[str, bytes | None], where: str) -> bytes:
    """Return RECORD for files that have these bytes now; None takes a file's row out.

    A file without a row gets none. Raises Refused, with the line, where a file's row is not one of three fields.
    """
    return b"".join(_rewritten(row, files, where) for row in read_rows(data, where))


def _rewritten(row: Row, files: Mapping[str, bytes | None], where: str) -> bytes:
    if row.path not in files:
        return row.data
    content = files[row.path]
    if content is None:
        return b""
    check_fields(row, where)
    if agrees(row, content):
        return row.data
    end = row.data[len(row.data.rstrip(b"\r\n")) :]
    # Digest and size hold no comma, so that what stands before them is the name, quoted or not.
    name = row.data[: len(row.data) - len(end)].rsplit(b",", 2)[0]
    return b",".join([name, *(field.encode() for field in _fields(row, content))]) + end


def check_fields(row: Row, where: str) -> None:
    """Raise Refused where a row has not three fields."""
    if len(row.fields) != 3:
        raise Refused(f"{where}:{row.line}: has {len(row.fields)} fields; a row of RECORD has three")


def appended(data: bytes, files: Mapping[str, bytes]) -> bytes:
    """Return RECORD with a row at its end for each of the files."""
    end = b"" if not data or data.endswith(b"\n") else b"\n"
    return data + end + b"".join(f"{path},{digest_of(files[path])},{len(files[path])}\n".encode() for path in files)
