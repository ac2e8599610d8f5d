"""What each touched file of a release is after 0, 1, ... n of its patches.

A file's history is a few *points*, each with the steps for which it holds: a stack of a thousand
patches on a thousand files has two thousand points, not a million.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from stack.digest import git_blob, sha256
from stack.errors import Malformed
from stack.patch import ABSENT, FileChange
from stack.store import Release
from stack.tree import Entry, Kind

UNNAMED = ""
# Files that a message names one by one.
_NAMED = 10


class Point(NamedTuple):
    """A file during the steps first..last; blob is None where it is absent.

    blob is UNNAMED where only patches without an index line, which change a mode alone, have touched
    the file; its pin then tells the bytes. sha256 is None where no pin names the bytes."""

    first: int
    last: int
    blob: str | None
    executable: bool
    sha256: str | None


Timeline = Mapping[str, tuple[Point, ...]]
Spans = tuple[tuple[int, int], ...]
"""Ranges of steps, both ends included, in order and apart."""


class Found(NamedTuple):
    """An entry of a tree with its digests, taken once; both are None unless it is a file."""

    entry: Entry
    blob: str | None
    sha256: str | None


def measure(entries: Mapping[str, Entry]) -> dict[str, Found]:
    """Return the entries with their digests."""
    return {
        path: Found(entry, git_blob(entry.data), sha256(entry.data))
        if entry.kind is Kind.FILE
        else Found(entry, None, None)
        for path, entry in entries.items()
    }


def timeline(release: Release) -> Timeline:
    """Return the points of each touched file.

    Raises Malformed where the patches do not chain, or disagree with the pins about which files
    there are. That the digests agree with the bytes is proven when a plan is made.
    """
    total = len(release.patches)
    history: dict[str, list[Point]] = {}
    for step, patch in enumerate(release.patches, 1):
        for change in patch.files:
            points = history.setdefault(change.path, [])
            if not points:
                pin = release.base.get(change.path)
                blob = UNNAMED if change.old_blob is None else change.old_blob
                points.append(Point(0, total, blob, change.old_mode == 0o755, pin))
            before = points.pop()
            _check_chain(before, change, patch.name)
            points.append(before._replace(last=step - 1))
            points.append(_point_after(before, change, step, total))
    for path, points in history.items():
        points[-1] = points[-1]._replace(sha256=release.result.get(path))
        if points[0].blob == ABSENT:
            points[0] = points[0]._replace(blob=None)
    _check_pinned(release, history)
    return {path: tuple(points) for path, points in history.items()}


def _check_chain(before: Point, change: FileChange, name: str) -> None:
    absent = before.blob in (None, ABSENT)
    same = before.blob == UNNAMED or change.old_blob in (None, before.blob)
    same = same and before.executable == (change.old_mode == 0o755)
    if absent != (change.old_mode is None) or not (absent or same):
        raise Malformed(f"{name}: {change.path}: does not start from what the patches before it leave")


def _point_after(before: Point, change: FileChange, step: int, total: int) -> Point:
    if change.new_mode is None:
        return Point(step, total, None, False, None)
    executable = change.new_mode == 0o755
    if change.new_blob is None:
        return before._replace(first=step, last=total, executable=executable)
    return Point(step, total, change.new_blob, executable, None)


def _check_pinned(release: Release, history: Mapping[str, list[Point]]) -> None:
    passing = [path for path, points in history.items() if points[0].blob is None and points[-1].blob is None]
    for path in passing:
        raise Malformed(
            f"{release.label}: {path}: is made and removed again within the series: no pin tells whose file it is",
            "Leave it out of both patches: a stack has no use for it.",
        )
    for name, pins, at in (("base", release.base, 0), ("result", release.result, -1)):
        present = {path for path, points in history.items() if points[at].blob is not None}
        if present != set(pins):
            odd = sorted(present ^ set(pins))
            more = f" and {len(odd) - _NAMED} more" if len(odd) > _NAMED else ""
            raise Malformed(
                f"{release.label}/{name}.sha256: pins and patches disagree about {', '.join(odd[:_NAMED])}{more}"
            )


def spans_of(found: Found, points: tuple[Point, ...]) -> Spans:
    """Return the steps at which the file has the bytes and the executable bit that were found."""
    return tuple(
        (point.first, point.last)
        for point in points
        if same_bytes(found, point) and (point.blob is None or point.executable == found.entry.executable)
    )


def same_bytes(found: Found, point: Point) -> bool:
    """Whether the bytes found are those of this point; absent is the same as absent."""
    if point.blob is None:
        return found.entry.kind is Kind.ABSENT
    known = found.blob == point.blob or found.blob is not None and point.blob == UNNAMED
    return known and point.sha256 in (None, found.sha256)


def common_steps(spans: Iterable[Spans]) -> Spans:
    """Return the steps that all of them have.

    >>> common_steps([((0, 0), (3, 5)), ((2, 4),)])
    ((3, 4),)
    """
    common: Spans | None = None
    for one in spans:
        common = one if common is None else _meet(common, one)
    return common or ()


def _meet(left: Spans, right: Spans) -> Spans:
    met: list[tuple[int, int]] = []
    one = other = 0
    while one < len(left) and other < len(right):
        (a, b), (c, d) = left[one], right[other]
        if max(a, c) <= min(b, d):
            met.append((max(a, c), min(b, d)))
        if b < d:
            one += 1
        else:
            other += 1
    return tuple(met)
