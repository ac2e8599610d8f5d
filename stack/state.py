"""The state of a tree, named by digest: computed once, printed by status, obeyed by all.

A tree is at step k of a release when the bytes and the executable bit of every touched file are
those after k patches. No file of state, time stamp, version text or reverse check is asked.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from stack.errors import Refused
from stack.store import Release, Store
from stack.timeline import Found, Point, Spans, Timeline, common_steps, measure, spans_of, timeline
from stack.tree import Entry

INIT = "torch_musa/__init__.py"
LAZY_INIT = "torch_musa/core/_lazy_init.py"


class Standing(str, Enum):
    """Where a tree stands on the fix."""

    PRISTINE = "pristine"
    APPLIED = "applied"
    PARTLY = "partly applied"
    MIXED = "mixed"
    FORKED = "applied to a fork"
    FIXED = "fixed upstream"
    DRIFTED = "drifted"
    OTHER = "not torch_musa"


class Evidence(NamedTuple):
    """What one touched file is.

    spans: the steps of the release's timeline whose file it is; none for a file that is not known.
    kind: a short name of what it is; line: the first line that differs; note: the rest, for people.
    """

    path: str
    spans: Spans
    kind: str
    line: int | None = None
    note: str = ""


class State(NamedTuple):
    """The state of a tree against `release`: the one it is, or for a drifted tree the closest."""

    standing: Standing
    release: Release | None
    applied: int
    files: tuple[Evidence, ...]
    note: str = ""

    @property
    def total(self) -> int:
        """How many patches the release's series has."""
        return len(self.release.series) if self.release else 0

    @property
    def pinned(self) -> bool:
        """Whether the tree is some step of the release's series, to the byte."""
        return self.standing in (Standing.PRISTINE, Standing.PARTLY, Standing.APPLIED)


def identify(store: Store, entries: Mapping[str, Entry], wanted: str | None = None) -> State:
    """Return the state of the tree whose touched files are `entries`, one for each of store.paths.

    wanted: the release that the user believes it is; it only decides between equal bases.
    Raises Refused when the bytes are those of several bases, Malformed for a broken stack.
    """
    found = measure(entries)
    release = _pinned_release(store, found, wanted)
    if release:
        state = judge(release, timeline(release), found)
        if state.standing is not Standing.DRIFTED:
            return state
    from stack.drift import examine

    return examine(store, found, wanted)


def _pinned_release(store: Store, found: Mapping[str, Found], wanted: str | None) -> Release | None:
    """Return the release whose base or result the tree is, by reading pins alone."""
    releases = [
        release
        for release in store.releases
        if any(
            all(found[path].sha256 == pins.get(path) for path in release.paths)
            for pins in (release.base, release.result)
        )
    ]
    releases = [release for release in releases if wanted in (None, release.name)] or releases
    if len(releases) > 1:
        names = ", ".join(release.name for release in releases)
        raise Refused(f"the tree is the base of several stacks: {names}", "Name one: --release.")
    return releases[0] if releases else None


def check_believed(root: str, state: State, believed: str | None, tip: str) -> None:
    """Raise Refused when the tree at root is another release than the user believes; tip: `{}` is the one it is."""
    if state.pinned and state.release and believed not in (None, state.release.name):
        name = state.release.name
        raise Refused(f"{root}: is {name} by digest, not {believed} as --release says", tip.format(name))


def judge(release: Release, points: Timeline, found: Mapping[str, Found]) -> State:
    """Return the state against one release. A DRIFTED one says nothing yet of why."""
    total = len(release.series)
    files = tuple(_evidence(path, points[path], spans_of(found[path], points[path]), total) for path in release.paths)
    common = common_steps(evidence.spans for evidence in files)
    if common:
        step = common[-1][-1]
        standing = Standing.PARTLY
        if step in (0, total):
            standing = Standing.APPLIED if step else Standing.PRISTINE
        return State(standing, release, step, files)
    mixed = all(evidence.spans for evidence in files)
    return State(Standing.MIXED if mixed else Standing.DRIFTED, release, 0, files)


def _evidence(path: str, points: tuple[Point, ...], spans: Spans, total: int) -> Evidence:
    if not spans:
        return Evidence(path, (), "not known")
    if spans[-1][1] == total:
        return Evidence(path, spans, "patched" if spans[0][0] else "as released")
    if spans[0][0] == 0:
        return Evidence(path, spans, "as released" if points[0].blob is not None else "absent, as released")
    return Evidence(path, spans, f"after patch {spans[0][0]} of {total}")
