"""The carried tests: what their outcomes on both sides come to, wherever they ran."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from verify.finding import Finding, Level, Status

_REASON_LENGTH = 300


class Run(NamedTuple):
    """What the children of one level sent, by piece of work, and what makes a finding from it.

    An outcome has `value`, `problem` and `output`, as verify.child.Result.
    """

    level: Level
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
        return Finding(self.level, check, claim, status, self.how, detail, side, data or {})


def judge_file(run: Run, test: str, must_be_red: Collection[str]) -> list[Finding]:
    """Return the findings about one test file on both sides, from the outcomes `tests <side> <test>`.

    must_be_red: the tests that the fix is there for, as node identifiers without parameters. Each must fail on the
    unpatched side by an assertion of its own; all other collected tests must pass on both sides.
    """
    file = _File(run, test, must_be_red)
    return [*file.green(), *file.red()]


class _File:
    """One carried test file on both sides."""

    def __init__(self, run: Run, test: str, must_be_red: Collection[str]) -> None:
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
            yield (self._judge_red(node, result) if self._is_red(node) else self._judge_other(node, result))

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
        return self._finding(node, "passes without the fix too, for it is not about it", passed, told, "unpatched")

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
        return f"{result['outcome']}: {result['message']}" if result["message"] else str(result["outcome"])
    place = f" at {result['where']}" if result["where"] else ""
    return f"{result['outcome']}{place}: {result['kind']}: {result['message']}"
