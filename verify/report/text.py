"""The report for people on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TextIO

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
    verdict,
)
from verify.report.visible import visible, visible_lines

WIDTH = max(len(status.value) for status in Status)
GREEN, RED, YELLOW = "32", "31", "33"
COLOURS = {Status.PROVEN: GREEN, Status.REFUTED: RED, Status.NOT_RUN: YELLOW}


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether the stream is a terminal that takes colours, and NO_COLOR is unset or empty.

    The rule is that of no-color.org.
    """
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def write_text(report: Report, stream: TextIO, environ: Mapping[str, str]) -> None:
    """Write the report; letters that the stream's encoding lacks become escapes."""
    encoding = stream.encoding or "ascii"
    text = to_text(report, wants_colour(stream, environ))
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def to_text(report: Report, colour: bool = False) -> str:
    """A block for each level with findings, what is not established, then one line of verdict.

    A level's heading says how its claims were established, and a claim only where it was another way.
    Our own words are ASCII; printable letters in names and details stay as they are.
    """
    blocks = [_head(report)]
    blocks += [_level(report, level, colour) for level in LEVELS if at(report, level)]
    gaps = [visible(sentence) for sentence in not_established(report)]
    blocks.append(["Not established:", *(f"  {gap}" for gap in gaps or ["nothing that a level asks"])])
    blocks.append([_paint(f"verdict: {conclusion(report)}", GREEN if verdict(report) else RED, colour)])
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


def _level(report: Report, level: Level, colour: bool) -> list[str]:
    found = at(report, level)
    seconds = report.seconds.get(level.value)
    time = "" if seconds is None else f"; {seconds:.2f} s"
    how = common_how(found)
    lines = [f"{level.value}: {standing(report, level).value}, {visible(how)} ({tally(found)}{time})"]
    return lines + [line for finding in found for line in _claim(finding, how, colour)]


def _claim(finding: Finding, common: str, colour: bool) -> list[str]:
    status = _paint(finding.status.value.ljust(WIDTH), COLOURS[finding.status], colour)
    side = "" if finding.side == "tree" else f"{finding.side}: "
    notes = [finding.how] * (finding.how != common) + ["optional"] * finding.optional
    note = f" ({', '.join(notes)})" if notes else ""
    lines = [f"  {status}  {visible(f'{side}{finding.claim}{note}')}"]
    if finding.status is Status.PROVEN:
        return lines
    return lines + [" " * (WIDTH + 6) + line for line in visible_lines(finding.detail)]


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text
