"""The report for people on a terminal."""

from __future__ import annotations

from verify.finding import Finding, Level, Status
from verify.report.record import (
    LEVELS,
    Report,
    at,
    common_how,
    conclusion,
    not_established,
    standing,
    tally,
)
from verify.report.visible import visible, visible_lines

WIDTH = max(len(status.value) for status in Status)


def to_text(report: Report) -> str:
    """A block for each level with findings, what is not established, then one line of verdict.

    A level's heading says how its claims were established, and a claim only where it was another way.
    Our own words are ASCII; printable letters in names and details stay as they are.
    """
    blocks = [_head(report)]
    blocks += [_level(report, level) for level in LEVELS if at(report, level)]
    gaps = [visible(sentence) for sentence in not_established(report)]
    blocks.append(["Not established:", *(f"  {gap}" for gap in gaps or ["nothing that a level asks"])])
    blocks.append([f"verdict: {conclusion(report)}"])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _head(report: Report) -> list[str]:
    versions = ", ".join(f"{name} {report.versions[name]}" for name in sorted(report.versions))
    lines = {
        "tree": report.tree,
        "by digest": report.identity,
        "with": versions,
        "started": report.started,
    }
    return [f"{name}: {visible(value)}" for name, value in lines.items() if value]


def _level(report: Report, level: Level) -> list[str]:
    found = at(report, level)
    seconds = report.seconds.get(level.value)
    time = "" if seconds is None else f"; {seconds:.2f} s"
    how = common_how(found)
    lines = [f"{level.value}: {standing(report, level).value}, {visible(how)} ({tally(found)}{time})"]
    return lines + [line for finding in found for line in _claim(finding, how)]


def _claim(finding: Finding, common: str) -> list[str]:
    status = finding.status.value.ljust(WIDTH)
    side = "" if finding.side == "tree" else f"{finding.side}: "
    notes = [finding.how] * (finding.how != common) + ["optional"] * finding.optional
    note = f" ({', '.join(notes)})" if notes else ""
    lines = [f"  {status}  {visible(f'{side}{finding.claim}{note}')}"]
    if finding.status is Status.PROVEN:
        return lines
    return lines + [" " * (WIDTH + 6) + line for line in visible_lines(finding.detail)]
