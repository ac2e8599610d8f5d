"""Exact application: a hunk stands at its line, byte for byte, or it is refused."""

from __future__ import annotations

import time

import pytest

from stack.digest import split_lines
from stack.errors import Refused
from stack.hunk import apply_hunks, places
from stack.patch import Hunk


def hunk(old: int, before: bytes, after: bytes, new: int = 0) -> Hunk:
    return Hunk(old, new or old, tuple(split_lines(before)), tuple(split_lines(after)), (), 1)


def run(data: bytes, *hunks: Hunk, reverse: bool = False) -> bytes:
    return b"".join(apply_hunks(split_lines(data), hunks, reverse, "x"))


APPLIED = {
    "middle": (b"a\nb\nc\n", (hunk(2, b"b\n", b"B\n"),), b"a\nB\nc\n"),
    "whole": (b"a\n", (hunk(1, b"a\n", b"b\n"),), b"b\n"),
    "made": (b"", (hunk(0, b"", b"a\n", 1),), b"a\n"),
    "emptied": (b"a\n", (hunk(1, b"a\n", b"", 0),), b""),
    "inserted": (b"a\nb\n", (hunk(1, b"a\nb\n", b"a\nx\nb\n"),), b"a\nx\nb\n"),
    "deleted-by-zero-context": (b"a\nb\nc\n", (hunk(2, b"b\n", b"", 1),), b"a\nc\n"),
    "two": (b"a\nb\nc\nd\n", (hunk(1, b"a\n", b"A\nx\n"), hunk(4, b"d\n", b"D\n", 5)), b"A\nx\nb\nc\nD\n"),
    "last-line-gets-newline": (b"a\nb", (hunk(2, b"b", b"b\n"),), b"a\nb\n"),
    "last-line-loses-newline": (b"a\nb\n", (hunk(2, b"b\n", b"b"),), b"a\nb"),
    "carriage-returns": (b"a\r\nb\rc\n", (hunk(2, b"b\rc\n", b"b\n"),), b"a\r\nb\n"),
}


@pytest.mark.parametrize("before, hunks, after", APPLIED.values(), ids=APPLIED)
def test_applies_forward_and_back(before: bytes, hunks: tuple[Hunk, ...], after: bytes) -> None:
    assert run(before, *hunks) == after
    assert run(after, *hunks, reverse=True) == before


REFUSED = {
    "shifted-once": (b"x\na\nb\n", hunk(1, b"a\nb\n", b"A\n"), "does not match at line 1; it would match at line 2"),
    "shifted-up": (b"a\nb\n", hunk(2, b"a\nb\n", b"A\n"), "at line 2; it would match at line 1"),
    "two-places": (b"x\na\na\n", hunk(1, b"a\n", b"A\n"), "at line 1; it would match at 2 places"),
    "nowhere": (b"x\n", hunk(1, b"a\n", b"A\n"), "does not match at line 1"),
    "differs-later": (b"a\nb\nX\n", hunk(1, b"a\nb\nc\n", b"A\n"), "does not match at line 3"),
    "file-too-short": (b"a\n", hunk(1, b"a\nb\n", b"A\n"), "does not match at line 2"),
    "beyond-the-end": (b"a\n", hunk(9, b"b\n", b"A\n"), "does not match at line 9"),
    "blank-at-end": (b"a \n", hunk(1, b"a\n", b"A\n"), "does not match at line 1"),
    "carriage-return": (b"a\r\n", hunk(1, b"a\n", b"A\n"), "does not match at line 1"),
    "no-newline": (b"a", hunk(1, b"a\n", b"A\n"), "does not match at line 1"),
    "newline-too-many": (b"a\n", hunk(1, b"a", b"A"), "does not match at line 1"),
    "substring-of-a-line": (b"x\nba\n", hunk(1, b"a\n", b"A\n"), "does not match at line 1"),
    "goes-on-after-the-last-line": (b"a\nb\n", hunk(1, b"a\n", b"a"), "goes on after the last line"),
}


@pytest.mark.parametrize("data, one, message", REFUSED.values(), ids=REFUSED)
def test_refuses_a_hunk_that_does_not_stand_where_it_says(data: bytes, one: Hunk, message: str) -> None:
    with pytest.raises(Refused) as caught:
        run(data, one)
    assert str(caught.value).startswith("x") and message in str(caught.value)
    assert ("it would match" in str(caught.value)) == ("it would match" in message)


def test_equal_functions_that_swapped_places_are_told_by_their_line() -> None:
    data = b"def f():\n  a\n\n" * 3
    one = hunk(4, b"def f():\n  a\n\n", b"def f():\n  b\n\n")
    assert run(data, one) == b"def f():\n  a\n\ndef f():\n  b\n\ndef f():\n  a\n\n"


@pytest.mark.parametrize(
    "data, want, lines",
    [
        (b"a\nb\na\nb\n", b"a\nb\n", [1, 3]),
        (b"a\na\na\n", b"a\na\n", [1, 2]),
        (b"xa\na\n", b"a\n", [2]),
        (b"a\nb\na", b"a", [3]),
        (b"a\nb", b"a\n", [1]),
        (b"a\n", b"", []),
        (b"", b"a\n", []),
        (b"\n\n\n", b"\n\n", [1, 2]),
        (b"a\n" * 500, b"a\n", list(range(1, 101))),
    ],
    ids=["two", "overlapping", "not-in-a-line", "end-of-file", "not-at-end", "nothing", "empty-file", "blank", "many"],
)
def test_names_the_places_where_lines_stand(data: bytes, want: bytes, lines: list[int]) -> None:
    assert places(split_lines(data), split_lines(want)) == lines


HOSTILE = {
    "one-long-line": (b"a" * 8_000_000, b"a" * 4_000_000),
    "one-long-line-inside": (b"a" * 8_000_000 + b"\n", b"a" * 4_000_000 + b"\n"),
    "equal-lines": (b"a\n" * 1_000_000, b"a\n" * 1_000 + b"b\n"),
    "empty-lines": (b"\n" * 2_000_000, b"\n" * 1_000_000 + b"a\n"),
}


@pytest.mark.parametrize("data, want", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_does_not_take_quadratic_time(data: bytes, want: bytes) -> None:
    lines, needle = split_lines(data), split_lines(want)
    start = time.process_time()
    places(lines, needle)
    assert time.process_time() - start < 5  # quadratic would be minutes


def test_ten_thousand_hunks_apply_in_one_pass() -> None:
    data = b"".join(b"%d\n" % number for number in range(100_000))
    hunks = [hunk(number + 1, b"%d\n" % number, b"x\n") for number in range(0, 100_000, 10)]
    start = time.process_time()
    assert run(run(data, *hunks), *hunks, reverse=True) == data
    assert time.process_time() - start < 5
