"""The simulated level: the carried tests on a stand-in card, with the fix and without it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from verify import child
from verify.finding import Finding, Level, Status

_SCRIPT = Path(__file__).parent / "standin" / "session.py"
_SECONDS = 900.0
_REASON_LENGTH = 300


class Sides(NamedTuple):
    """Two prepared trees: the one to judge, and the same without the fix.

    unpatched: None when it cannot be had from the bytes. The red side is then the same tree with
    the flag put into the module's own dict right after import, which recreates the defect exactly.
    """

    tree: Path
    unpatched: Path | None


class _Run(NamedTuple):
    """What the session child sent, and what makes a finding from it."""

    outcomes: Mapping[str, Mapping[str, Any]]
    how: str

    def value(self, name: str) -> tuple[Any, str]:
        """Return a piece's value and an empty text, or None and the reason why there is none."""
        outcome = self.outcomes[name]
        if outcome["problem"]:
            return None, f"{outcome['problem']}\n{outcome['output'][-_REASON_LENGTH:]}".strip()
        if isinstance(outcome["value"], dict) and "unprepared" in outcome["value"]:
            return None, f"torch_musa cannot be imported here: {outcome['value']['unprepared']}"
        return outcome["value"], ""

    def finding(
        self,
        check: str,
        claim: str,
        status: Status,
        detail: str = "",
        side: str = "tree",
        data: Any = None,
    ) -> Finding:
        return Finding(Level.SIMULATED, check, claim, status, self.how, detail, side, data or {})


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
        return _stopped(_Run({}, how), f"the child {result.reason()}")
    how = f"on the stand-in device, torch {result.value['torch']}, Python {result.value['python']}"
    return _judge(_Run(result.value["outcomes"], how), tests, must_be_red)


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


def _judge(run: _Run, tests: Sequence[str], must_be_red: Collection[str]) -> list[Finding]:
    """Return all findings.

    When the level can prove nothing here, the tests are one that did not run.
    """
    before = []
    for judge in (_can_run, _gates, _card):
        before.append(judge(run))
        if before[-1].status is not Status.PROVEN:
            reason = f"stopped by {before[-1].check}"
            return [*before, run.finding(*_TESTS, Status.NOT_RUN, reason)]
    draws = [_replayed(run), _defect_shows(run)]
    files = [_File(run, test, must_be_red) for test in tests]
    return [*before, *draws, *(one for file in files for one in (*file.green(), *file.red()))]


def _stopped(run: _Run, reason: str) -> list[Finding]:
    """Return the findings of a level that could not even start."""
    later = f"stopped by {_CAN_RUN[0]}"
    return [
        run.finding(*_CAN_RUN, Status.NOT_RUN, reason),
        run.finding(*_TESTS, Status.NOT_RUN, later),
    ]


def _can_run(run: _Run) -> Finding:
    reasons = [f"{side}: {run.value(f'draws {side}')[1]}" for side in ("tree", "unpatched")]
    reasons = [reason for reason in reasons if not reason.endswith(": ")]
    status = Status.NOT_RUN if reasons else Status.PROVEN
    return run.finding(*_CAN_RUN, status, "\n".join(reasons))


def _gates(run: _Run) -> Finding:
    stashed, reason = run.value("gate")
    if reason:
        return run.finding(*_GATES, Status.NOT_RUN, f"the probe failed: {reason}")
    seen = ", ".join(
        f"{mode}: {off} with False, {on} with True" for mode, (off, on) in stashed.items()
    )
    if any(off > 0 or on == 0 for off, on in stashed.values()):
        detail = f"this torch cannot show the defect and proves nothing here (stashed {seen})"
        return run.finding(*_GATES, Status.NOT_RUN, detail)
    return run.finding(*_GATES, Status.PROVEN, f"random states stashed: {seen}")


def _card(run: _Run) -> Finding:
    wrong, reason = run.value("card")
    if reason or wrong:
        return run.finding(*_CARD, Status.REFUTED, reason or "; ".join(wrong))
    return run.finding(*_CARD, Status.PROVEN)


def _replayed(run: _Run) -> Finding:
    draws, _ = run.value("draws tree")
    claim = "the recompute draws the numbers of the forward pass, on every card"
    differ = _differing(draws)
    status = Status.REFUTED if differ else Status.PROVEN
    return run.finding("draws-replay", claim, status, differ, data={"draws": draws})


def _defect_shows(run: _Run) -> Finding:
    draws, _ = run.value("draws unpatched")
    claim = "without the fix the recompute draws other numbers, on every card"
    equal = [mode for mode, drawn in draws.items() if len(drawn["differ"]) < drawn["cards"]]
    detail = (
        f"the draws are equal without the fix: {', '.join(equal)}" if equal else _differing(draws)
    )
    status = Status.REFUTED if equal else Status.PROVEN
    return run.finding("defect-shows", claim, status, detail, "unpatched", {"draws": draws})


def _differing(draws: Mapping[str, Mapping[str, Any]]) -> str:
    """Return in which modes and on which cards the two passes drew different numbers."""
    differ = [
        f"{mode}: {', '.join(drawn['differ'])}" for mode, drawn in draws.items() if drawn["differ"]
    ]
    return f"the draws differ ({'; '.join(differ)})" if differ else ""


class _File:
    """One carried test file on both sides."""

    def __init__(self, run: _Run, test: str, must_be_red: Collection[str]) -> None:
        self._run = run
        self._test = test
        self._red = [name for name in must_be_red if name.partition("::")[0] == test]

    def green(self) -> Iterator[Finding]:
        """Judge the tree: every test must pass."""
        ran, results = self._ran("tree")
        yield ran
        for node, result in results.items():
            passed = result["outcome"] == "passed"
            yield self._finding(node, "passes", passed, "" if passed else _told(result), "tree")

    def red(self) -> Iterator[Finding]:
        """Judge the unpatched side: the named tests must fail by an assertion, the others pass."""
        ran, results = self._ran("unpatched")
        yield ran
        for node, result in results.items():
            yield (
                self._judge_red(node, result)
                if self._is_red(node)
                else self._judge_other(node, result)
            )

    def _judge_red(self, node: str, result: Mapping[str, Any]) -> Finding:
        claim = "fails without the fix, by an assertion of its own"
        told = _told(result)
        if result["outcome"] == "passed":
            told = "passes without the fix: the test is vacuous"
        good = result["outcome"] == "failed" and bool(result["asserted"])
        return self._finding(node, claim, good, told, "unpatched")

    def _judge_other(self, node: str, result: Mapping[str, Any]) -> Finding:
        passed = result["outcome"] == "passed"
        told = "" if passed else f"is not said to show the defect, yet {_told(result)}"
        return self._finding(
            node, "passes without the fix too, for it is not about it", passed, told, "unpatched"
        )

    def _ran(self, side: str) -> tuple[Finding, Mapping[str, Any]]:
        """Return the finding that the file was collected whole, and its tests' results."""
        value, reason = self._run.value(f"tests {side} {self._test}")
        results: Mapping[str, Any] = value["tests"] if value else {}
        problem = reason or "\n".join(value["errors"]) or self._missing(results)
        status = Status.REFUTED if problem else Status.PROVEN
        claim = f"the tests of {self._test} run, each that must show the defect among them"
        told = problem or f"{len(results)} tests"
        return self._run.finding(f"carried-file:{self._test}", claim, status, told, side), results

    def _missing(self, results: Mapping[str, Any]) -> str:
        if not results:
            return "no test was collected"
        names = {_function(node) for node in results}
        return ", ".join(f"{name} was not collected" for name in self._red if name not in names)

    def _is_red(self, node: str) -> bool:
        return _function(node) in self._red

    def _finding(self, node: str, claim: str, good: bool, told: str, side: str) -> Finding:
        status = Status.PROVEN if good else Status.REFUTED
        return self._run.finding(f"carried-test:{node}", f"{node} {claim}", status, told, side)


def _function(node: str) -> str:
    """Return a node identifier without its parameters."""
    return node.partition("[")[0]


def _told(result: Mapping[str, Any]) -> str:
    """Tell how a test ended, for a finding's detail."""
    if result["outcome"] in ("passed", "skipped", "xfailed", "xpassed"):
        return (
            f"{result['outcome']}: {result['message']}"
            if result["message"]
            else str(result["outcome"])
        )
    place = f" at {result['where']}" if result["where"] else ""
    return f"{result['outcome']}{place}: {result['kind']}: {result['message']}"
