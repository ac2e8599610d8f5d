"""Reports for the tests of the writers: plain, empty, full and hostile."""

from __future__ import annotations

from typing import Any

import pytest

from verify.finding import Finding, Level, Status
from verify.report.draws import MODES
from verify.report.figures import SIDES
from verify.report.record import Report

HOSTILE = "a<b>&\"'/]]>\x1b[2J\x00\udcff\u202e<script>alert(1)</script>\nverdict: proven at the hardware level\ufffe"
LONG = "/srv/" + "a_path_that_goes_on_and_on_without_a_blank" * 12
FORWARD = [0.25, 0.5, -1.75]
OTHER = [0.125, 0.5, 2.0]


def made(level: Level, status: Status = Status.PROVEN, **changes: Any) -> Finding:
    """A finding with plain words, changed as asked."""
    finding = Finding(
        level,
        "flag-follows",
        "the flag follows initialization",
        status,
        "by importing the real module",
    )
    return finding._replace(**changes)


def drawn(check: str, side: str, recompute: object, status: Status = Status.PROVEN) -> Finding:
    """A finding that carries draws."""
    data = {"forward": FORWARD, "recompute": recompute, "card": "musa:0", "torch": "2.13.0"}
    return made(Level.SIMULATED, status, check=check, side=side, data=data)


def report(*findings: Finding, asked: Level = Level.STATIC, **changes: Any) -> Report:
    """A report of these findings."""
    versions = {"torch": "2.13.0", "python": "3.11.2"}
    seconds = {"static": 0.125}
    whole = Report(
        "/srv/tree",
        "2.7.1, patched (3 of 3)",
        asked,
        findings,
        versions,
        "2026-11-30T12:00:00",
        seconds,
    )
    return whole._replace(**changes)


def full(asked: Level = Level.SIMULATED) -> Report:
    """Every level up to simulated proven, with all four draws."""
    sides = {"tree": FORWARD, "unpatched": OTHER}
    shown = [drawn(check, side, numbers) for check in MODES for side, numbers in sides.items()]
    return report(made(Level.STATIC), made(Level.IMPORT), *shown, asked=asked)


def hostile() -> Report:
    """The hostile string and a long path in every place that takes foreign text."""
    data = {
        "forward": [0.5, float("nan")],
        "recompute": [0.5],
        "card": HOSTILE,
        HOSTILE: "\udcff",
        "x": float("inf"),
    }
    words: dict[str, Any] = {
        "check": HOSTILE,
        "claim": HOSTILE + LONG,
        "how": HOSTILE + LONG,
        "detail": HOSTILE + LONG,
    }
    findings = [made(level, status, **words) for level in Level for status in Status]
    shown = [drawn(check, side, OTHER)._replace(data=data, detail=LONG) for check in MODES for side in SIDES]
    strange: dict[str, Any] = {
        "tree": LONG + HOSTILE,
        "identity": HOSTILE,
        "started": HOSTILE,
        "versions": {HOSTILE: HOSTILE + LONG},
    }
    return report(*findings, *shown, **strange)


REPORTS = {
    "full": full(),
    "empty": report(),
    "hostile": hostile(),
    "short": report(made(Level.STATIC)),
}
each_report = pytest.mark.parametrize("whole", REPORTS.values(), ids=REPORTS)
