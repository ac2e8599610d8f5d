"""The verifier is verified: the level that tests/mutants.py names catches each planted fault, and none below does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stack.state import identify
from stack.store import Store
from stack.tree import Tree
from tests.mutants import MUTANTS, Mutant
from tests.runtime_helpers import STACKS, edit, patched
from verify.finding import Level, Status
from verify.ladder import climb
from verify.report.record import LEVELS, Report, Standing, at, conclusion, standing, verdict
from verify.report.text import to_text
from verify.subject import subject_of_tree

NEEDS_TORCH = (Level.SIMULATED, Level.HARDWARE)


def climbed(tree: Path, level: Level) -> Report:
    """Judge a tree up to a level, as the command does."""
    store = Store(str(STACKS))
    with Tree(str(tree)) as opened:
        entries = opened.read_all(store.paths)
        state = identify(store, entries)
    return climb(subject_of_tree(tree, store, state, entries), level.value, sys.executable, lambda text: None)


def refuting(report: Report) -> list[Level]:
    """Return the levels that refute the fix, lowest first."""
    return [level for level in LEVELS if standing(report, level) is Standing.REFUTED]


def planted(tmp_path: Path, mutant: Mutant) -> Path:
    """Return a patched specimen with one fault."""
    return edit(patched(tmp_path / "tree"), mutant.path, [(mutant.old, mutant.new)])


def test_without_a_fault_no_level_refutes(tmp_path: Path) -> None:
    report = climbed(patched(tmp_path / "tree"), Level.IMPORT)
    assert refuting(report) == []
    assert verdict(report)


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(mutant, marks=[pytest.mark.torch] if mutant.caught_by in NEEDS_TORCH else []) for mutant in MUTANTS],
    ids=lambda mutant: mutant.id,
)
def test_the_lowest_level_that_can_catch_a_fault_does(tmp_path: Path, mutant: Mutant) -> None:
    report = climbed(planted(tmp_path, mutant), mutant.caught_by)
    assert refuting(report)[:1] == [mutant.caught_by]
    assert not verdict(report)
    refuted = [finding.check for finding in at(report, mutant.caught_by) if finding.status is Status.REFUTED]
    assert not mutant.check or mutant.check in refuted
    assert f"{mutant.caught_by.value} refuted" in conclusion(report)
    assert f"\n{mutant.caught_by.value}: refuted, " in to_text(report)


def test_the_levels_share_the_faults() -> None:
    found = {level: sum(mutant.caught_by is level for mutant in MUTANTS) for level in LEVELS}
    assert len({mutant.id for mutant in MUTANTS}) == len(MUTANTS) >= 20
    assert found[Level.IMPORT] and found[Level.SIMULATED]
