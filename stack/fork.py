"""A fork: a tree whose own edits stand around the hunks. Placed exactly and uniquely, or not at all.

The file that the fix was reasoned about, core/_lazy_init.py, must still be the pinned one. In every other file of the
package each hunk must match, byte for byte, at one place and no other, in the order of the patch, and must be found
again as uniquely on the way back: what was applied is recovered from the bytes. Test files that a fork has edited or
removed are left out, and that is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from stack.digest import split_lines
from stack.errors import Refused
from stack.fingerprint import digest_lines, versions
from stack.hunk import apply_hunks, places, side
from stack.patch import FileChange
from stack.plan import File, Plan, Step, fold
from stack.state import LAZY_INIT
from stack.store import Release
from stack.timeline import Found, spans_of, timeline
from stack.tree import Entry, Kind

TESTS = "tests/"
# Lines of the file around the most likely place that are looked at for what the fork has put between or taken out.
_AROUND = 3
# What a search may cost. Files and hunks of any real stack stay thousands of times below.
_MOST_SEARCHED = 1 << 28
"""Bytes: the size of a file, the fork's or the pinned one's, times the hunks that are looked for in it."""
_DIGESTED = 17
"""Bytes of a digested line."""
_MOST_EXPLAINED = 20
"""Hunks of one file whose most likely place is looked for."""
_COMPARED, _COMPARED_EACH, _CANDIDATES = 400, 16, 50
"""What that search looks at: lines of a hunk, times that a line of it comes again, places."""


class Placement(NamedTuple):
    """Where one hunk would go.

    kind: "unique", "changed" (its context is not there), "ambiguous", "out of order", "in already", or "too large".
    lines: the places found (1-based), for a changed one the place that is most like it.
    differing: for a changed one, the lines that differ there: what the patch expects, what the file has.
    """

    patch: str
    path: str
    number: int
    stated: int
    kind: str
    lines: tuple[int, ...]
    differing: tuple[tuple[str, str], ...] = ()


class _Change(NamedTuple):
    """What one patch does to a file; before and after: the pinned file there, as digested lines (stack.fingerprint)."""

    patch: str
    file: FileChange
    before: Sequence[bytes]
    after: Sequence[bytes]


class ForkPlan(NamedTuple):
    """A plan for a fork: where the hunks go, and the test files that stay as they are, with the reason.

    already: files that the plan leaves as they are since they have what the stack makes of them.
    """

    release: Release
    plan: Plan
    placements: tuple[Placement, ...]
    left_out: tuple[str, ...]
    already: tuple[str, ...]


def plan_fork(
    release: Release, found: Mapping[str, Found], has_folder: Callable[[str], bool], reverse: bool
) -> ForkPlan | tuple[Placement, ...]:
    """Plan the stack of a release on a fork, or the way back; where a hunk has no place, return the placements instead.

    has_folder: whether a directory is there, by path. Raises Refused where a file of the package cannot be placed into
    at all, core/_lazy_init.py first of all.
    """
    points = timeline(release)
    images: dict[str, File | None] = {}
    placed: list[Placement] = []
    left_out: list[str] = []
    for path in release.paths:
        entry = found[path].entry
        image = File(entry.data, entry.executable) if entry.kind is Kind.FILE else None
        changes = release.steps(path)
        spans = spans_of(found[path], points[path])
        if spans and path.startswith(TESTS) and _would_need_folder(path, image, reverse, has_folder):
            left_out.append(f"{path}: this tree has no directory for it")
        elif spans:
            step = spans[0][0]
            images[path] = fold(image, reversed(changes[:step]) if reverse else changes[step:], reverse)
        elif path.startswith(TESTS):
            left_out.append(f"{path}: {_why_left(entry)}")
        elif path == LAZY_INIT or image is None:
            raise Refused(f"{path}: is not the pinned file of {release.name}")
        else:
            placements, after = place(release, path, image.data, reverse)
            placed += placements
            bit = _executable(image.executable, changes, reverse)
            if bit is None:
                raise Refused(f"{path}: its executable bit is not the one that the stack of {release.name} changes")
            images[path] = File(after, bit) if after is not None else None
    if any(one.kind not in ("unique", "in already") for one in placed):
        return tuple(placed)
    plan = Plan(_steps(found, images), frozenset(release.about["directories"]))
    changed = {step.path for step in plan.steps}
    in_before = {path for path in images if not reverse and points[path][0].blob != found[path].blob} - changed
    return ForkPlan(release, plan, tuple(placed), tuple(left_out), tuple(sorted(in_before)))


def _would_need_folder(path: str, image: File | None, reverse: bool, has_folder: Callable[[str], bool]) -> bool:
    return image is None and not reverse and not has_folder(path.rpartition("/")[0])


def _why_left(entry: Entry) -> str:
    return "edited in this tree" if entry.kind is Kind.FILE else f"{entry.kind.value} in this tree"


def _executable(bit: bool, changes: Sequence[tuple[str, FileChange | None]], reverse: bool) -> bool | None:
    """Return a file's executable bit after the changes, or None where it is not the one that they start from."""
    for _, change in reversed(changes) if reverse else changes:
        if change is None or change.old_mode is None or change.new_mode is None:
            continue
        start, end = (change.new_mode, change.old_mode) if reverse else (change.old_mode, change.new_mode)
        if start != end and bit != (start == 0o755):
            return None
        bit = end == 0o755 if start != end else bit
    return bit


def _steps(found: Mapping[str, Found], images: Mapping[str, File | None]) -> tuple[Step, ...]:
    def now(path: str) -> File | None:
        entry = found[path].entry
        return File(entry.data, entry.executable) if entry.kind is Kind.FILE else None

    return tuple(Step(path, found[path].entry, image) for path, image in sorted(images.items()) if image != now(path))


def place(release: Release, path: str, data: bytes, reverse: bool) -> tuple[list[Placement], bytes | None]:
    """Place every hunk of the series in one file; return the placements, and the result if all have their place.

    A hunk that is in already changes nothing. The result is returned only if the way back leads to `data` again.
    """
    lines = split_lines(data)
    placed: list[Placement] = []
    changes = _pinned_changes(release, path)
    largest = max(len(data), *(len(change.before) * _DIGESTED for change in changes))
    if sum(len(change.file.hunks) for change in changes) * largest > _MOST_SEARCHED:
        return [Placement(changes[0].patch, path, 1, 0, "too large", ())], None
    for change in reversed(changes) if reverse else changes:
        here = _place_change(change, lines, reverse)
        placed += here
        if any(one.kind not in ("unique", "in already") for one in here):
            return placed, None
        lines = _moved(change.file, here, lines, reverse)
    after = b"".join(lines)
    if after != data and not _leads_back(changes, data, after, reverse):
        placed[-1] = placed[-1]._replace(kind="ambiguous")
        return placed, None
    return placed, after


def _pinned_changes(release: Release, path: str) -> list[_Change]:
    """Return what happens to a file, with the pinned file before and after each change."""
    known = list(versions(release, path))
    return [
        _Change(name, change, before, after)
        for (name, change), before, after in zip(release.changes[path], known, known[1:], strict=False)
    ]


def _place_change(change: _Change, lines: Sequence[bytes], reverse: bool) -> list[Placement]:
    placed: list[Placement] = []
    end = 0
    for number, hunk in enumerate(change.file.hunks, 1):
        stated, want, put = side(hunk, reverse)
        at = _sites(lines, want, put)
        kind = "unique"
        differing: tuple[tuple[str, str], ...] = ()
        if len(at) > 1:
            kind = "ambiguous"
        elif at and (there := _surrounding(lines, at[0], want, put)):
            kind, at = ("in already", [there]) if _tells(change, put, reverse) else ("ambiguous", [at[0], there])
        elif at and at[0] <= end:
            kind = "out of order"
        elif not at and len(already := _already(lines, want, put)) == 1 and _tells(change, put, reverse):
            kind, at = "in already", already
        elif not at:
            kind = "changed"
            if number <= _MOST_EXPLAINED:
                at, differing = _most_like(lines, want, stated)
        end = at[0] + len(want) - 1 if kind == "unique" else end
        placed.append(Placement(change.patch, change.file.path, number, stated, kind, tuple(at), differing))
    return placed


def _tells(change: _Change, put: Sequence[bytes], reverse: bool) -> bool:
    """Whether lines that stand there tell that the hunk is in: the pinned file has them with it, once, and not without.

    Lines that were there anyway, or that another hunk puts as well, tell nothing.
    """
    without, with_it = (change.after, change.before) if reverse else (change.before, change.after)
    digested = digest_lines(b"".join(put))
    return not places(without, digested) and len(places(with_it, digested)) == 1


def _sites(lines: Sequence[bytes], block: Sequence[bytes], other: Sequence[bytes]) -> list[int]:
    """Return where a block stands and the other side of its hunk could: a line without a newline is the last one."""
    found = places(lines, block)
    if other and not other[-1].endswith(b"\n"):
        return [start for start in found if start + len(block) - 1 == len(lines)]
    return found


def _already(lines: Sequence[bytes], want: Sequence[bytes], put: Sequence[bytes]) -> list[int]:
    """Return where the other side of a hunk stands, if that can show that the hunk is in.

    A line that it puts there can. A hunk that only takes lines out leaves none: then they must be gone from the
    whole file, and from between two lines that are there. A line before the gap alone would be there in any case.
    """
    if _only_takes_out(want, put):
        gone = set(want).difference(put)
        between = len(put) > 1 and want[0] == put[0] and want[-1] == put[-1]
        if not between or not gone or not gone.isdisjoint(lines):
            return []
    return _sites(lines, put, want)


def _surrounding(lines: Sequence[bytes], at: int, want: Sequence[bytes], put: Sequence[bytes]) -> int:
    """Return where the other side of a hunk stands around its own side, or 0.

    A hunk that only puts lines in, at the start or the end of a file, finds its context after that as before.
    """
    if not _only_takes_out(put, want):
        return 0
    found = (start for start in _sites(lines, put, want) if start <= at <= start + len(put) - len(want))
    return next(found, 0)


def _only_takes_out(want: Sequence[bytes], put: Sequence[bytes]) -> bool:
    """Whether a hunk puts no line of its own."""
    rest = iter(want)
    return len(put) < len(want) and all(line in rest for line in put)


def _moved(change: FileChange, placed: Sequence[Placement], lines: Sequence[bytes], reverse: bool) -> list[bytes]:
    """Return the lines after the hunks that have a place, each moved to its own."""
    hunks = [
        hunk._replace(new=one.lines[0]) if reverse else hunk._replace(old=one.lines[0])
        for hunk, one in zip(change.hunks, placed, strict=True)
        if one.kind == "unique"
    ]
    return apply_hunks(lines, hunks, reverse, change.path)


def _leads_back(changes: Sequence[_Change], data: bytes, after: bytes, reverse: bool) -> bool:
    """Whether the opposite direction finds each hunk again at one place, and gives the same bytes."""
    lines = split_lines(after)
    for change in changes if reverse else reversed(changes):
        back = _place_change(change, lines, not reverse)
        if any(one.kind != "unique" for one in back):
            return False
        lines = _moved(change.file, back, lines, not reverse)
    return b"".join(lines) == data


def _most_like(
    lines: Sequence[bytes], want: Sequence[bytes], stated: int
) -> tuple[list[int], tuple[tuple[str, str], ...]]:
    """Return the place with most of the wanted lines, nearest to the stated one, and what differs there."""
    starts = _candidates(lines, want, stated)

    def likeness(start: int) -> tuple[int, int]:
        same = sum(a == b for a, b in zip(lines[start - 1 : start - 1 + len(want)], want, strict=False))
        return same, -abs(start - stated)

    if not starts:
        return [], ()
    best = max(starts, key=likeness)
    here = lines[best - 1 : best - 1 + len(want)]
    first = next((at for at, pair in enumerate(zip(want, here, strict=False)) if pair[0] != pair[1]), 0)
    skip = max(0, first - _AROUND) if len(want) > _COMPARED else 0
    want = want[skip : skip + _COMPARED]
    shown = lines[max(0, best - 1 + skip - _AROUND) : best - 1 + skip + len(want) + _AROUND]
    return [best], tuple(_differing(want, shown))


def _candidates(lines: Sequence[bytes], want: Sequence[bytes], stated: int) -> list[int]:
    """Return the places that most lines speak for. Linear in both: a hostile patch has a hunk of a million lines."""
    offsets: dict[bytes, list[int]] = {}
    for offset, line in enumerate(want):
        if line != b"\n" and len(known := offsets.setdefault(line, [])) < _COMPARED_EACH:
            known.append(offset)
    votes = Counter(max(1, at - offset) for at, line in enumerate(lines, 1) for offset in offsets.get(line, ()))
    return sorted(votes, key=lambda start: (-votes[start], abs(start - stated)))[:_CANDIDATES]


def _differing(want: Sequence[bytes], here: Sequence[bytes]) -> Iterator[tuple[str, str]]:
    """Yield the lines that differ, aligned: what the patch expects, what the file has there."""
    from difflib import SequenceMatcher

    for kind, first, last, start, end in SequenceMatcher(None, want, here, autojunk=False).get_opcodes():
        if kind != "equal" and (kind != "insert" or 0 < first < len(want)):
            for expected, found in zip_longest(want[first:last], here[start:end], fillvalue=b""):
                yield _show(expected), _show(found)


def _show(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace").rstrip("\n")


def recognise(release: Release, found: Mapping[str, Found]) -> tuple[Placement, ...] | None:
    """Return the places at which the stack's hunks are in the package of a fork, or None where the fix is not in.

    In the files of the first patch, the fix itself, every hunk must be found at one place, and the file without them
    must take them there again; or the file is the pinned one of a later step.
    """
    points = timeline(release)
    fix = {change.path for change in release.patches[0].files}
    placed: list[Placement] = []
    for path in release.paths:
        spans = spans_of(found[path], points[path])
        entry = found[path].entry
        if path.startswith(TESTS):
            continue
        if spans:
            if path in fix and spans[-1][1] == 0:
                return None
        elif path == LAZY_INIT or entry.kind is not Kind.FILE:
            return None
        else:
            placements, before = place(release, path, entry.data, reverse=True)
            bit = _executable(entry.executable, release.steps(path), reverse=True)
            if before is None or bit is None or any(one.kind != "unique" for one in placements):
                return None
            placed += placements
    return tuple(placed)


def describe(placement: Placement) -> list[str]:
    """Return a placement as lines for people."""
    name = placement.patch.rsplit("/", 1)[-1]
    at = ", ".join(map(str, placement.lines))
    what = {
        "unique": f"matches exactly at line {at} and nowhere else (stated: line {placement.stated})",
        "ambiguous": f"matches at several places, could not be found again, or may be in already: lines {at}",
        "out of order": f"matches at line {at}, before the hunk that stands before it in the patch",
        "in already": f"is in already, at line {at}",
        "too large": "and the others are not looked for: the file has too many bytes for so many hunks",
        "changed": f"does not match: its context changed; most like it at line {at or 'none'}",
    }[placement.kind]
    lines = [f"{placement.path}: {name}, hunk {placement.number} {what}"]
    if placement.differing:
        width = max(len(expected) for expected, _ in placement.differing)
        width = min(max(width, len("expected")), 60)
        lines.append(f"  {'expected':<{width}} | found")
        lines += [f"  {expected[:width]:<{width}} | {found[:60]}" for expected, found in placement.differing[:12]]
    return lines
