"""Exact application: a hunk stands at its stated line, byte for byte, or it is refused.

No fuzz, no offset, no whitespace option. Where a hunk does not match, the other places where it
would are found for the message; they are never used.
"""

from __future__ import annotations

from collections.abc import Sequence

from stack.errors import Malformed, Refused
from stack.patch import Hunk

MOST_PLACES = 100
MOST_WORK = 1 << 27
"""Bytes. A thousand patches of one file may find two thousand lines in it; seconds, not hours."""
_LINE = 16


class Work:
    """What a stack may cost: the bytes of a file each time that a patch goes over it, and as much as 16 for a line."""

    def __init__(self) -> None:
        self._left = MOST_WORK

    def go_over(self, size: int, lines: int, where: str) -> None:
        """Count a file; raise Malformed, with `where`, when it is one too many."""
        self._left -= size + _LINE * lines
        if self._left < 0:
            raise Malformed(
                f"{where}: the patches of the stack go over large files too often",
                "No real stack comes near this limit: read the stack before you trust it.",
            )


def side(hunk: Hunk, reverse: bool) -> tuple[int, tuple[bytes, ...], tuple[bytes, ...]]:
    """Return a hunk from one direction: the line (1-based) where it stands, what it wants there,
    and what it puts in its place."""
    start, want, put = (hunk.new, hunk.after, hunk.before) if reverse else (hunk.old, hunk.before, hunk.after)
    # diff counts from the line before an empty range (POSIX, diff -u).
    return start if want else start + 1, want, put


def apply_hunks(lines: Sequence[bytes], hunks: Sequence[Hunk], reverse: bool, where: str) -> list[bytes]:
    """Return the lines of the other image.

    lines: the file, each line with its newline. where: patch and path, for messages.
    Raises Refused, with the line and the one other place where the hunk would match.
    """
    result: list[bytes] = []
    done = 0
    for number, hunk in enumerate(hunks, 1):
        start, want, put = side(hunk, reverse)
        found = tuple(lines[start - 1 : start - 1 + len(want)])
        if found != want:
            raise _mismatch(lines, start, want, f"{where}: hunk {number}")
        result += lines[done : start - 1]
        result += put
        done = start - 1 + len(want)
    if result and not result[-1].endswith(b"\n") and done < len(lines):
        raise Refused(f"{where}: the file goes on after the last line that the patch knows")
    result += lines[done:]
    return result


def places(lines: Sequence[bytes], want: Sequence[bytes]) -> list[int]:
    """Return the line numbers (1-based) at which want stands in lines: none for an empty want.

    At most MOST_PLACES: a hostile file could hold one at every line.
    """
    if want and not want[-1].endswith(b"\n"):  # it can only be the end of the file
        first = len(lines) - len(want)
        return [first + 1] if first >= 0 and tuple(lines[first:]) == tuple(want) else []
    # The newline before the first line keeps a long line from matching at each of its bytes.
    text, needle = b"\n" + b"".join(lines), b"\n" + b"".join(want)
    found: list[int] = []
    at, line, counted = text.find(needle) if want else -1, 1, 0
    while at >= 0 and len(found) < MOST_PLACES:
        line, counted = line + text.count(b"\n", counted, at), at
        found.append(line)
        at = text.find(needle, at + 1)
    return found


def _mismatch(lines: Sequence[bytes], start: int, want: Sequence[bytes], where: str) -> Refused:
    found = lines[start - 1 : start - 1 + len(want)]
    same = 0
    while same < len(found) and found[same] == want[same]:
        same += 1
    message = f"{where} does not match at line {start + same}"
    others = places(lines, want)
    if len(others) == 1:
        message += f"; it would match at line {others[0]}"
    elif others:
        message += f"; it would match at {len(others)} places, which one is not known"
    return Refused(message)
