"""Pins: the format of sha256sum, sorted, with paths inside the tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import INIT, STACKS

from stack.digest import sha256
from stack.errors import Malformed
from stack.pins import MOST, format_pins, parse_pins

A, B = b"a" * 64, b"b" * 64
REFUSED = {
    "empty": (b"", ""),
    "no-final-newline": (A + b"  x", ":1"),
    "crlf": (A + b"  x\r\n", ":1"),
    "short": (A[1:] + b"  x\n", ":1"),
    "upper-case": (A.upper() + b"  x\n", ":1"),
    "binary-marker": (A + b" *x\n", ":1"),
    "one-blank": (A + b" x\n", ":1"),
    "empty-line": (A + b"  x\n\n", ":2"),
    "no-path": (A + b"  \n", ":1"),
    "escaped": (b"\\" + A + b"  x\n", ":1"),
    "comment": (b"# x\n", ":1"),
    "unsorted": (A + b"  y\n" + B + b"  x\n", ":2"),
    "twice": (A + b"  x\n" + B + b"  x\n", ":2"),
    "parent": (A + b"  ../x\n", ":1"),
    "absolute": (A + b"  /x\n", ":1"),
    "git": (A + b"  .git/config\n", ":1"),
    "space": (A + b"  x y\n", ":1"),
    "too-many": (b"".join(A + b"  %08d\n" % number for number in range(MOST + 1)), ""),
    "latin-1": (A + b"  \xe4\n", ":1"),
}


@pytest.mark.parametrize("data, line", REFUSED.values(), ids=REFUSED)
def test_refuses_pins_that_sha256sum_would_not_write(data: bytes, line: str) -> None:
    with pytest.raises(Malformed) as caught:
        parse_pins(data, "base.sha256")
    assert str(caught.value).startswith(f"base.sha256{line}: ")


def test_writes_what_it_reads() -> None:
    data = A + b"  a/x\n" + B + b"  b\n"
    assert parse_pins(data, "p") == {"a/x": "a" * 64, "b": "b" * 64}
    assert format_pins({"b": "b" * 64, "a/x": "a" * 64}) == data


def test_sha256sum_agrees_with_the_pins(specimen: Path) -> None:
    base = STACKS / "patches" / "2.7.1+specimen" / "base.sha256"
    check = ["sha256sum", "--strict", "-c", str(base)]
    assert subprocess.run(check, cwd=specimen, capture_output=True).returncode == 0
    (specimen / INIT).write_bytes(b"")
    assert subprocess.run(check, cwd=specimen, capture_output=True).returncode == 1
    assert parse_pins(base.read_bytes(), "p")[INIT] != sha256(b"")
