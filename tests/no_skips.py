"""A pytest plugin: where CI=true, a test that was skipped has failed. What was not run is never counted as passed."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

ALLOWED = os.environ.get("CI") != "true"


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    # An expected failure is reported as skipped too, but it ran.
    if report.skipped and not ALLOWED and not hasattr(report, "wasxfail"):
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: skipped, which CI=true does not allow: {reason}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _fail(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail(report)
    return report
