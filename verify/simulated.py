"""The simulated level: the carried tests on a stand-in card, with the fix and without it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from verify import child
from verify.carried import Run, judge_file
from verify.finding import Finding, Level, Status

_SCRIPT = Path(__file__).parent / "standin" / "session.py"
_SECONDS = 900.0


class Sides(NamedTuple):
    """Two prepared trees: the one to judge, and the same without the fix.

    unpatched: None when it cannot be had from the bytes. The red side is then the same tree with
    the flag put into the module's own dict right after import, which recreates the defect exactly.
    """

    tree: Path
    unpatched: Path | None


def check_simulated(
    sides: Sides,
    tests: Sequence[str],
    python: str,
    progress: Callable[[str], None],
    must_be_red: Collection[str],
    seconds: float = 120.0,
) -> list[Finding]:
    """Run the carried tests, and probes of our own, on both sides.

    sides: the prepared trees; each holds the test files. Nothing is written there.
    tests: the carried test files, relative to the trees' roots.
    python: an interpreter that has torch and pytest. progress: called with short texts while it
    runs.
    must_be_red: the tests that the fix is there for, as node identifiers without parameters
    (`tests/a.py::TestA::test_b`). Each must fail on the unpatched side by an assertion of its own.
    All other collected tests must pass on both sides.
    seconds: the time limit of each probe and each test file on each side.

    Returns findings in a fixed order: whether the level can run and prove anything here, the
    stand-in card's self-check, the draws of both sides, and each test of both sides.
    """
    order = {
        "tree": str(sides.tree.absolute()),
        "unpatched": str(sides.unpatched.absolute()) if sides.unpatched else None,
        "tests": list(tests),
        "seconds": seconds,
    }
    result = child.run(python, _SCRIPT, [json.dumps(order)], seconds=_SECONDS, progress=progress)
    if result.problem:
        how = f"on the stand-in device, with {python}"
        return _stopped(Run(Level.SIMULATED, {}, how), f"the child {result.reason()}")
    how = f"on the stand-in device, torch {result.value['torch']}, Python {result.value['python']}"
    first, *others = _judge(Run(Level.SIMULATED, result.value["outcomes"], how), tests, must_be_red)
    return [first._replace(data={"versions": {"torch": result.value["torch"]}}), *others]


_CAN_RUN = ("can-run", "both sides can be imported on this torch with stand-in cards")
_GATES = (
    "torch-asks-for-the-flag",
    "this torch's checkpoint asks for the flag before it preserves random state",
)
_CARD = (
    "card-draws-are-its-own",
    "every draw on a stand-in card comes from that card's generator and from no other",
)
_TESTS = ("carried-tests", "the carried tests pass on the tree and fail without the fix")


def _judge(run: Run, tests: Sequence[str], must_be_red: Collection[str]) -> list[Finding]:
    """Return all findings.

    When the level can prove nothing here, the tests are one that did not run.
    """
    before = []
    for judge in (_can_run, _gates, _card):
        before.append(judge(run))
        if before[-1].status is not Status.PROVEN:
            reason = f"stopped by {before[-1].check}"
            return [*before, run.finding(*_TESTS, Status.NOT_RUN, reason)]
    draws = [*_replayed(run), *_defect_shows(run)]
    files = [judge_file(run, test, must_be_red) for test in tests]
    return [*before, *draws, *(finding for file in files for finding in file)]


def _stopped(run: Run, reason: str) -> list[Finding]:
    """Return the findings of a level that could not even start."""
    later = f"stopped by {_CAN_RUN[0]}"
    return [
        run.finding(*_CAN_RUN, Status.NOT_RUN, reason),
        run.finding(*_TESTS, Status.NOT_RUN, later),
    ]


def _can_run(run: Run) -> Finding:
    reasons = [f"{side}: {run.value(f'draws {side}')[1]}" for side in ("tree", "unpatched")]
    reasons = [reason for reason in reasons if not reason.endswith(": ")]
    status = Status.NOT_RUN if reasons else Status.PROVEN
    return run.finding(*_CAN_RUN, status, "\n".join(reasons))


def _gates(run: Run) -> Finding:
    stashed, reason = run.value("gate")
    if reason:
        return run.finding(*_GATES, Status.NOT_RUN, f"the probe failed: {reason}")
    seen = ", ".join(f"{mode}: {off} with False, {on} with True" for mode, (off, on) in stashed.items())
    if any(off > 0 or on == 0 for off, on in stashed.values()):
        detail = f"this torch cannot show the defect and proves nothing here (stashed {seen})"
        return run.finding(*_GATES, Status.NOT_RUN, detail)
    return run.finding(*_GATES, Status.PROVEN, f"random states stashed: {seen}")


def _card(run: Run) -> Finding:
    wrong, reason = run.value("card")
    if reason or wrong:
        return run.finding(*_CARD, Status.REFUTED, reason or "; ".join(wrong))
    return run.finding(*_CARD, Status.PROVEN)


def _replayed(run: Run) -> Iterator[Finding]:
    drawn, _ = run.value("draws tree")
    for mode, draws in drawn.items():
        claim = f"the recompute draws the numbers of the forward pass, on every card ({mode})"
        differ = _differing(draws)
        status = Status.REFUTED if differ else Status.PROVEN
        yield run.finding(f"draws-{mode}", claim, status, differ, data=draws)


def _defect_shows(run: Run) -> Iterator[Finding]:
    drawn, _ = run.value("draws unpatched")
    for mode, draws in drawn.items():
        claim = f"without the fix the recompute draws other numbers, on every card ({mode})"
        shows = len(draws["differ"]) == draws["cards"]
        detail = _differing(draws) if shows else "the draws are equal without the fix"
        status = Status.PROVEN if shows else Status.REFUTED
        yield run.finding(f"draws-{mode}", claim, status, detail, "unpatched", draws)


def _differing(draws: Mapping[str, Any]) -> str:
    """Return on which cards the two passes drew different numbers."""
    return f"the draws differ on {', '.join(draws['differ'])}" if draws["differ"] else ""
