"""One test file under pytest: no plugin, setting or conftest of the tree or the user takes part."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_MESSAGE_LENGTH = 600


class Recorder:
    """A pytest plugin that keeps what became of each test, so that no output needs to be parsed.

    tests: node identifier -> outcome (passed, failed, error, skipped, xfailed, xpassed) and, unless
    it passed, the exception's class, its message, the place in the test file, and whether it is an
    assertion of the test itself.
    errors: what went wrong in collection.
    """

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}
        self.errors: list[str] = []

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed or report.skipped:
            self.errors.append(f"{report.nodeid}: {str(report.longrepr)[-_MESSAGE_LENGTH:]}")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Generator[None, Any, None]:
        report = (yield).get_result()
        outcome = _outcome(report)
        if report.nodeid not in self.tests or outcome != "passed":
            self.tests[report.nodeid] = {"outcome": outcome, **_reason(item, call.excinfo)}


def _outcome(report: Any) -> str:
    if hasattr(report, "wasxfail"):
        return "xpassed" if report.passed else "xfailed"
    if report.failed and report.when != "call":
        return "error"
    return str(report.outcome)


def _reason(item: Any, excinfo: Any) -> dict[str, Any]:
    """Return where and why a test stopped."""
    if excinfo is None:
        return {"kind": "", "message": "", "where": "", "asserted": False}
    lines = [entry.lineno + 1 for entry in excinfo.traceback if Path(str(entry.path)) == item.path]
    file = item.nodeid.partition("::")[0]
    return {
        "kind": excinfo.type.__name__,
        # Addresses differ from run to run and say nothing.
        "message": re.sub(r" at 0x[0-9a-f]+", "", str(excinfo.value))[:_MESSAGE_LENGTH],
        "where": f"{file}:{lines[-1]}" if lines else "",
        "asserted": issubclass(excinfo.type, AssertionError) and bool(lines),
    }


def isolate() -> None:
    """Keep pytest from loading whatever plugins are installed; before its first call."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"


def run(root: Path, test: str) -> dict[str, Any]:
    """Run one test file of the tree at root in this process.

    test: its path relative to root. Returns the recorder's `tests` and `errors`.
    """
    isolate()
    recorder = Recorder()
    # Only options given here count: no ini file, no conftest, no cache, no rewriting of sys.path.
    isolated = ["-c", os.devnull, "--rootdir", str(root), "--noconftest", "--import-mode=importlib"]
    pytest.main([*isolated, "-p", "no:cacheprovider", "-q", str(root / test)], plugins=[recorder])
    return {"tests": recorder.tests, "errors": recorder.errors}
