"""Why a tree is no known release: for the message only, on the way to a refusal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from stack.digest import git_blob
from stack.errors import Malformed
from stack.fingerprint import digest_lines, known_lines, versions
from stack.state import INIT, LAZY_INIT, Evidence, Standing, State, judge
from stack.store import Release, Store
from stack.timeline import UNNAMED, Found, Point, Timeline, same_bytes, timeline
from stack.tree import Kind


def examine(store: Store, found: Mapping[str, Found], wanted: str | None) -> State:
    """Return the state of a tree that is neither base nor result of any release.

    It may still be partly applied, or a mixture; if not, each file that differs says how.
    wanted: the release that the user believes it is; differences are then told against it.
    """
    lines = {release.name: timeline(release) for release in store.releases}
    states = [judge(release, lines[release.name], found) for release in store.releases]
    for standing in (Standing.PARTLY, Standing.MIXED):
        for state in states:
            if state.standing is standing:
                return state
    # Not before: a step of a series can be without them.
    known = [found[path] for path in (INIT, LAZY_INIT) if path in found]
    if known and all(one.entry.kind in (Kind.ABSENT, Kind.BELOW) for one in known):
        return State(Standing.OTHER, None, 0, (), f"it has neither {INIT} nor {LAZY_INIT}")
    closest = _closest(states, found, wanted)
    assert closest.release is not None
    files = tuple(
        evidence if evidence.spans else _explain(evidence.path, closest.release, lines, found)
        for evidence in closest.files
    )
    closest = closest._replace(files=files)
    return _forked(closest, found) or _fixed_or_drifted(closest, found)


def _forked(state: State, found: Mapping[str, Found]) -> State | None:
    """Return the state of a fork that has the stack in, or None."""
    from stack.fork import recognise

    assert state.release is not None
    placed = recognise(state.release, found)
    if placed is None:
        return None
    lines = [f"{one.path}:{one.lines[0]}" for one in placed]
    note = f"the stack is in, recovered from the bytes: {', '.join(lines) or 'its files are the pinned ones'}"
    total = state.total
    if missing := [one.path for one in state.files if one.spans and one.spans[-1][1] < total]:
        note += f"; not in, apply --fork would complete it: {', '.join(missing)}"
    return state._replace(standing=Standing.FORKED, note=note)


def _fixed_or_drifted(state: State, found: Mapping[str, Found]) -> State:
    init = found.get(INIT)
    if init is None or init.entry.kind is not Kind.FILE or _known(state, INIT):
        return state
    from stack.defect import read_init

    reading = read_init(init.entry.data)
    if reading.error:
        return state._replace(note=f"{INIT} cannot be read as Python: {reading.error}")
    if reading.reexport_line is None and reading.forwarder_line is not None:
        note = (
            f"no re-export of the flag, and it is forwarded at line {reading.forwarder_line}, by upstream or by a stack"
        )
        return state._replace(standing=Standing.FIXED, note=f"{note} that is not one of these (by source reading)")
    if reading.reexport_line is None:
        return state._replace(note=f"{INIT} does not re-export the flag (by source reading)")
    return state._replace(note=f"the defect is in: {INIT}:{reading.reexport_line} re-exports the flag")


def _known(state: State, path: str) -> bool:
    return any(evidence.path == path and evidence.spans for evidence in state.files)


def _closest(states: Sequence[State], found: Mapping[str, Found], wanted: str | None) -> State:
    """Return the state against the wanted release, or the one with most in common; newest wins."""
    for state in states:
        if state.release and state.release.name == wanted:
            return state

    def likeness(state: State) -> tuple[int, int]:
        assert state.release is not None
        known = sum(bool(evidence.spans) for evidence in state.files)
        return known, _common_lines(state.release, found)

    return max(reversed(states), key=likeness)


def _common_lines(release: Release, found: Mapping[str, Found]) -> int:
    total = 0
    for path in release.base:
        plain = found[path].entry.data.replace(b"\r\n", b"\n")
        digests = Counter(digest_lines(plain))
        total += sum((digests & Counter(known_lines(release, path))).values())
    return total


def _explain(path: str, release: Release, lines: Mapping[str, Timeline], found: Mapping[str, Found]) -> Evidence:
    """Return the evidence for a file that is at no step of the release: what kind of different."""
    seen = found[path]
    points = lines[release.name][path]
    if seen.entry.kind is Kind.ABSENT:
        return Evidence(path, (), "missing", None, "is missing")
    if seen.entry.kind is not Kind.FILE:
        via = f" (through {seen.entry.via})" if seen.entry.via else ""
        return Evidence(path, (), seen.entry.kind.value, None, f"is a {seen.entry.kind.value}{via}")
    if any(point.blob is not None and same_bytes(seen, point) for point in points):
        bit = "has the executable bit" if seen.entry.executable else "lacks the executable bit"
        return Evidence(path, (), "executable bit", None, f"{bit} (mode {seen.entry.mode:04o})")
    if points[0].blob is None:
        return Evidence(path, (), "in the way", None, "exists already; the stack would make it")
    if any(_contradicts(seen, point) for point in points):
        raise Malformed(
            f"{release.label}: {path}: its pin and its blob id in the patches are not of the same bytes",
            "The stack is damaged, not the tree: apply.py lint.",
        )
    if (other := _other_release(path, seen, release, lines)) is not None:
        return Evidence(path, (), "another release", None, f"is that of {other}")
    return _edited(path, seen, points, release)


def _contradicts(seen: Found, point: Point) -> bool:
    """Whether the file is that of one of a point's two records, and not that of the other."""
    if point.sha256 is None or point.blob in (None, UNNAMED):
        return False
    return (seen.sha256 == point.sha256) != (seen.blob == point.blob)


def _other_release(path: str, seen: Found, release: Release, lines: Mapping[str, Timeline]) -> str | None:
    for name, points in lines.items():
        if name != release.name and any(same_bytes(seen, point) for point in points.get(path, ())):
            return name
    return None


def _edited(path: str, seen: Found, points: tuple[Point, ...], release: Release) -> Evidence:
    plain = seen.entry.data.replace(b"\r\n", b"\n")
    expected = f"expected {(points[0].sha256 or '')[:12]}..., found {(seen.sha256 or '')[:12]}..."
    if plain != seen.entry.data and git_blob(plain) in {point.blob for point in points}:
        line = seen.entry.data.count(b"\n", 0, seen.entry.data.index(b"\r\n")) + 1
        note = f"differs in line endings only: CRLF instead of LF, from line {line} on ({expected})"
        return Evidence(path, (), "line endings", line, note)
    line = first_difference(digest_lines(seen.entry.data), versions(release, path))
    return Evidence(path, (), "edited", line, f"differs from line {line} on ({expected})")


def first_difference(lines: Sequence[bytes], known: Iterable[Sequence[bytes]]) -> int:
    """Return the first line (1-based) at which lines leaves the version that it is most like.

    lines and known are line digests (stack.fingerprint).
    """
    counted = Counter(lines)

    def likeness(version: Sequence[bytes]) -> int:
        return sum((counted & Counter(version)).values())

    best = max(known, key=likeness)
    same = 0
    while same < min(len(best), len(lines)) and best[same] == lines[same]:
        same += 1
    return same + 1
