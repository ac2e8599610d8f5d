"""Lines known by digest only: where a hunk stands can be checked without the file.

A digested line is 16 hexadecimal digits and a newline, so that the engine's own exact application
works on digests as it does on lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stack.digest import line_digest, split_lines
from stack.errors import Malformed, Refused
from stack.hunk import Work, apply_hunks
from stack.patch import FileChange, Hunk
from stack.store import Release


def digest_lines(data: bytes) -> list[bytes]:
    """Return the digested lines of a file."""
    return [_digested(line) for line in split_lines(data)]


def known_lines(release: Release, path: str) -> list[bytes]:
    """Return the digested lines of a file of the release's base; none for one that it has not."""
    return [f"{digest}\n".encode() for digest in release.fingerprint.get(path, {"lines": ()})["lines"]]


def step_lines(lines: Sequence[bytes], change: FileChange, where: str, work: Work) -> list[bytes]:
    """Return the digested lines after one change; raise Refused where a hunk does not stand."""
    work.go_over(0, len(lines), where)
    hunks = [_digested_hunk(hunk) for hunk in change.hunks]
    return apply_hunks(lines, hunks, reverse=False, where=where)


def versions(release: Release, path: str) -> Iterator[Sequence[bytes]]:
    """Yield the digested lines of a file of the release before the stack and after each patch that changes it.

    Raises Malformed where they are not the lines that the patches expect.
    """
    current: Sequence[bytes] = known_lines(release, path)
    work = Work()
    yield current
    for name, change in release.changes.get(path, ()):
        try:
            current = step_lines(current, change, f"{name}: {path}", work)
        except Refused as error:
            raise Malformed(
                f"{release.label}/fingerprint.json: {path}: not the lines that the patches expect: {error}",
                "The stack is damaged, not the tree: apply.py lint.",
            ) from error
        yield current


def _digested(line: bytes) -> bytes:
    return f"{line_digest(line)}\n".encode()


def _digested_hunk(hunk: Hunk) -> Hunk:
    before, after = (tuple(map(_digested, side)) for side in (hunk.before, hunk.after))
    return hunk._replace(before=before, after=after, lines=())
