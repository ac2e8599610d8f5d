"""The record that every writer reads, and what it comes to."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from verify.finding import Finding, Level, Status

LEVELS = tuple(Level)
MEANS = {
    Level.STATIC: "by source reading",
    Level.IMPORT: "by importing the real module",
    Level.SIMULATED: "on a stand-in device",
    Level.HARDWARE: "on hardware",
}


class Report(NamedTuple):
    """What one run of `verify` found.

    tree: the path that was handed over.
    identity: what the tree is by digest, such as "2.7.1, patched (3 of 3)" or "not a pinned tree".
    asked: the level asked for.
    findings: every result, those that did not run included.
    versions: python, torch, platform, cards and the like.
    started: ISO 8601 time.
    seconds: time taken, by the level's value.
    """

    tree: str
    identity: str
    asked: Level
    findings: tuple[Finding, ...]
    versions: Mapping[str, str]
    started: str
    seconds: Mapping[str, float]


class Standing(Enum):
    """What a whole level came to."""

    PROVEN = "proven"
    REFUTED = "refuted"
    NOT_RUN = "not run"
    NOT_ASKED = "not asked for"


def is_asked(report: Report, level: Level) -> bool:
    """Whether the level is the one asked for, or below it."""
    return LEVELS.index(level) <= LEVELS.index(report.asked)


def at(report: Report, level: Level) -> list[Finding]:
    """The findings of one level, in the order in which the checks gave them."""
    return [finding for finding in report.findings if finding.level is level]


def common_how(found: list[Finding]) -> str:
    """How most claims of a level were established, the first of equals: said once for all of them."""
    ways = [finding.how for finding in found]
    return max(ways, key=ways.count, default="")


def supports(finding: Finding) -> bool:
    """Whether a level can stand on it: a required claim about the tree itself, proven."""
    return finding.status is Status.PROVEN and finding.side == "tree" and not finding.optional


def is_missing(finding: Finding) -> bool:
    """Whether the check did not run and nothing excuses that."""
    return finding.status is Status.NOT_RUN and not finding.optional


def standing(report: Report, level: Level) -> Standing:
    """What the level came to. A level on which no required claim was proven is never proven."""
    found = at(report, level)
    if any(finding.status is Status.REFUTED for finding in found):
        return Standing.REFUTED
    if any(map(is_missing, found)):
        return Standing.NOT_RUN
    if any(map(supports, found)):
        return Standing.PROVEN
    return Standing.NOT_ASKED if not found and not is_asked(report, level) else Standing.NOT_RUN


def verdict(report: Report) -> bool:
    """Whether the fix is proven at the level asked for.

    Every level up to that one is proven, and nothing is refuted on any other level that ran. A
    check that did not run above the level asked for does not count: that is how a run without a
    card ends at the simulated level.
    """
    found = {level: standing(report, level) for level in LEVELS}
    reached = all(found[level] is Standing.PROVEN for level in LEVELS if is_asked(report, level))
    return reached and Standing.REFUTED not in found.values()


def not_established(report: Report) -> list[str]:
    """What this run says nothing about: levels without a check, and checks that did not run."""
    return [sentence for level in LEVELS for sentence in _gaps(report, level)]


def _gaps(report: Report, level: Level) -> list[str]:
    found = at(report, level)
    if not found:
        return [f"{MEANS[level]}: {'no check ran' if is_asked(report, level) else 'not asked for'}"]
    return [_gap(finding) for finding in found if finding.status is Status.NOT_RUN]


def _gap(finding: Finding) -> str:
    side = "" if finding.side == "tree" else f" ({finding.side})"
    reason = finding.detail.strip().partition("\n")[0]
    return f"{finding.level.value}: {finding.claim}{side}: not run" + (f": {reason}" if reason else "")


def tally(findings: list[Finding]) -> str:
    """The counts for people: "7 of 9 proven, 1 refuted, 1 not run"."""
    count = {status: sum(finding.status is status for finding in findings) for status in Status}
    rest = [f"{n} {status.value}" for status, n in count.items() if n and status is not Status.PROVEN]
    return ", ".join([f"{count[Status.PROVEN]} of {len(findings)} proven", *rest])


def conclusion(report: Report) -> str:
    """The verdict in words, and on failure the levels that failed it."""
    asked = report.asked.value
    if verdict(report):
        return f"proven at the {asked} level"
    found = [(level, standing(report, level)) for level in LEVELS]
    bad = [
        f"{level.value} {came_to.value}"
        for level, came_to in found
        if came_to is Standing.REFUTED or (came_to is not Standing.PROVEN and is_asked(report, level))
    ]
    return f"NOT proven at the {asked} level ({', '.join(bad)})"
