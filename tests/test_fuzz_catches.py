"""The fuzz tests are tested: each of these faults in the engine makes the property that is named here fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

import pytest
import test_fuzz
import test_fuzz_parsers
from fuzz_strategies import BLOCKS, cases
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from stack import commands, fork, hunk, journal, patch, plan, state, timeline, transaction
from stack.errors import StackError
from stack.patch import Hunk

FEW = settings(
    max_examples=250,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.generate,),
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)

Property = tuple[Any, tuple[Any, ...]]
WAY: Property = (
    test_fuzz.test_apply_gives_the_new_tree_and_unapply_the_old_one,
    (cases(), st.integers(0, 3), st.booleans()),
)
DRIFT: Property = (
    test_fuzz.test_a_tree_that_differs_in_one_touched_file_is_refused_and_left_as_it_is,
    (test_fuzz.spoiled(),),
)
FORK: Property = (
    test_fuzz.test_a_fork_is_patched_as_gnu_patch_would_or_refused_and_unapply_is_the_way_back,
    (test_fuzz.forks(),),
)
DAMAGE: Property = (
    test_fuzz_parsers.test_a_damaged_patch_comes_to_the_bytes_of_git_and_gnu_patch_or_is_refused_by_name,
    (cases(1), st.data()),
)
PLACES: Property = (
    test_fuzz_parsers.test_a_hunk_is_found_at_every_place_where_its_lines_stand,
    (BLOCKS, st.booleans(), st.integers(0, 60), st.integers(0, 6)),
)
Set = Callable[[Any, str, Any], None]


def _hunk_one_line_late(set_: Set) -> None:
    right = hunk.side

    def late(one: Hunk, reverse: bool) -> Any:
        start, want, put = right(one, reverse)
        return start + 1, want, put

    set_(hunk, "side", late)


def _marker_is_lost(set_: Set) -> None:
    set_(patch._Section, "_strip_newline", lambda self, lines: None)


def _lines_of_python(set_: Set) -> None:
    for module in (patch, plan):
        set_(module, "split_lines", lambda data: data.splitlines(keepends=True))


def _mode_is_kept(set_: Set) -> None:
    set_(transaction, "_mode", lambda like, executable: like.mode)


def _mode_is_not_looked_at(set_: Set) -> None:
    def spans(found: Any, points: Iterable[Any]) -> Any:
        return tuple((point.first, point.last) for point in points if timeline.same_bytes(found, point))

    set_(state, "spans_of", spans)


def _digest_is_not_looked_at(set_: Set) -> None:
    set_(timeline, "same_bytes", lambda found, point: (point.blob is None) == (found.blob is None))


def _reverse_stands_at_the_old_line(set_: Set) -> None:
    def old(one: Hunk, reverse: bool) -> Any:
        want, put = (one.after, one.before) if reverse else (one.before, one.after)
        return one.old if want else one.old + 1, want, put

    set_(hunk, "side", old)


def _dry_run_writes(set_: Set) -> None:
    right = commands.apply
    set_(commands, "apply", lambda root, of, how: right(root, of, how._replace(dry_run=False)))


def _emptied_folder_stays(set_: Set) -> None:
    set_(transaction, "_emptied_folders", lambda tree, plan: iter(()))
    set_(journal, "remove_empty", lambda tree, path: False)


def _made_folder_is_always_kept(set_: Set) -> None:
    set_(transaction, "remove_empty", lambda tree, path: False)


def _drift_is_pristine(set_: Set) -> None:
    right = commands.identify

    def wrong(*args: Any) -> Any:
        found = right(*args)
        drifted = found.standing is state.Standing.DRIFTED
        return found._replace(standing=state.Standing.PRISTINE) if drifted else found

    set_(commands, "identify", wrong)


def _first_place_is_good_enough(set_: Set) -> None:
    right = fork.places
    set_(fork, "places", lambda lines, want: right(lines, want)[:1])
    set_(fork, "_leads_back", lambda *args: True)


def _fork_keeps_its_mode(set_: Set) -> None:
    set_(fork, "_executable", lambda bit, changes, reverse: bit)


def _places_do_not_overlap(set_: Set) -> None:
    def apart(lines: list[bytes], want: list[bytes]) -> list[int]:
        found: list[int] = []
        for at in hunk.places(lines, want):
            if not found or at >= found[-1] + len(want):
                found.append(at)
        return found

    set_(test_fuzz_parsers, "places", apart)


def _a_line_may_differ(set_: Set) -> None:
    def lenient(lines: list[bytes], hunks: Iterable[Hunk], reverse: bool, where: str) -> list[bytes]:
        result, done = [], 0
        for one in hunks:
            start, want, put = hunk.side(one, reverse)
            result += [*lines[done : start - 1], *put]
            done = start - 1 + len(want)
        return result + list(lines[done:])

    set_(plan, "apply_hunks", lenient)


def _short_hunk_is_taken(set_: Set) -> None:
    right = patch._Section._parsed

    def recount(self: Any) -> Any:
        start = self.at
        for at in range(start, self.end):
            if patch._COUNTS.match(self.lines[at]):
                self.at = at
                (old, new), _ = self._counted([self.end, self.end])
                first, second = (word.partition(b",")[0] for word in self.lines[at].split(b" ")[1:3])
                spans = [word if one == 1 else b"%s,%d" % (word, one) for word, one in ((first, old), (second, new))]
                self.lines[at] = b"@@ %s %s @@\n" % tuple(spans)
        self.at = start
        return right(self)

    set_(patch._Section, "_parsed", recount)


FAULTS: dict[str, tuple[Callable[[Set], None], Property]] = {
    "hunk-one-line-late": (_hunk_one_line_late, WAY),
    "marker-is-lost": (_marker_is_lost, WAY),
    "lines-of-python": (_lines_of_python, WAY),
    "mode-is-kept": (_mode_is_kept, WAY),
    "mode-is-not-looked-at": (_mode_is_not_looked_at, DRIFT),
    "digest-is-not-looked-at": (_digest_is_not_looked_at, DRIFT),
    "drift-is-pristine": (_drift_is_pristine, DRIFT),
    "reverse-stands-at-the-old-line": (_reverse_stands_at_the_old_line, WAY),
    "dry-run-writes": (_dry_run_writes, WAY),
    "emptied-folder-stays": (_emptied_folder_stays, WAY),
    "made-folder-is-always-kept": (_made_folder_is_always_kept, WAY),
    "first-place-is-good-enough": (_first_place_is_good_enough, FORK),
    "fork-keeps-its-mode": (_fork_keeps_its_mode, FORK),
    "places-do-not-overlap": (_places_do_not_overlap, PLACES),
    "a-line-may-differ": (_a_line_may_differ, DAMAGE),
    "short-hunk-is-taken": (_short_hunk_is_taken, DAMAGE),
}


def _without_settings(property_: Any) -> FunctionType:
    """Return the body of a property, free of the settings that hypothesis has put on it."""
    body = property_.hypothesis.inner_test
    return FunctionType(body.__code__, body.__globals__, body.__name__)


@pytest.mark.parametrize("fault, check", FAULTS.values(), ids=FAULTS)
def test_a_fault_in_the_engine_is_caught(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[Set], None], check: Property
) -> None:
    property_, drawn = check
    fault(monkeypatch.setattr)
    with pytest.raises((AssertionError, StackError)):
        FEW(given(*drawn)(_without_settings(property_)))()
