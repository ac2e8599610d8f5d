"""The levels in their order, each on the same subject, and what did not run said as plainly as what did.

A level that is asked for includes those below it, and a level that fails does not stop the next: a broken tree is
reported broken on every level, each with its own reason.
"""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from stack.errors import Environment
from verify import hardware
from verify.finding import Finding, Level, Status
from verify.report.record import LEVELS, Report
from verify.scratch import overlay
from verify.subject import Subject

Progress = Callable[[str], None]


def choose(asked: str, python: str, progress: Progress) -> tuple[Level, tuple[Finding, ...]]:
    """Return the level to climb to, and findings on the levels above it that cannot run here.

    asked: a level's value, or `auto` for the highest that this machine can run. Raises Environment for a level that is
    asked for by name and cannot run.
    """
    missing = [name for name in ("torch", "pytest") if find_spec(name) is None]
    if asked == Level.SIMULATED.value and missing:
        raise Environment(
            f"--level simulated: {' and '.join(missing)} cannot be imported by {python}",
            "Run apply.py with a Python that has them, or ask for the import level.",
        )
    if asked == Level.HARDWARE.value:
        hardware.require(python, progress)
    if asked != "auto":
        return Level(asked), ()
    reason = hardware.unavailable(python, progress)
    if not reason:
        return Level.HARDWARE, ()
    above = [_not_run(Level.HARDWARE, reason)]
    if missing:
        above.insert(0, _not_run(Level.SIMULATED, f"{' and '.join(missing)} cannot be imported"))
    return (Level.IMPORT if missing else Level.SIMULATED), tuple(above)


def _not_run(level: Level, reason: str) -> Finding:
    claim = f"the fix works at the {level.value} level"
    return Finding(level, "not-run-here", claim, Status.NOT_RUN, "chosen by auto", reason)


def climb(subject: Subject, asked: str, python: str, progress: Progress) -> Report:
    """Judge the subject up to a level and return the report.

    asked: a level's value, or auto. python: the interpreter of all children. progress: called with short texts.
    """
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    level, above = choose(asked, python, progress)
    findings: list[Finding] = []
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="torch-musa-patches-") as scratch:
        for rung in LEVELS[: LEVELS.index(level) + 1]:
            progress(f"{rung.value} level")
            begun = time.monotonic()
            findings += _RUNGS[rung](subject, Path(scratch), python, progress)
            seconds[rung.value] = round(time.monotonic() - begun, 3)
    versions = {"Python": platform.python_version(), "platform": platform.platform(), **_versions(findings)}
    return Report(
        str(subject.root), subject.identity, level, (*findings, *above), versions, started, seconds
    )


def _versions(findings: list[Finding]) -> dict[str, str]:
    found: dict[str, str] = {}
    for finding in findings:
        found.update(finding.data.get("versions", {}))
    return found


def _static(subject: Subject, scratch: Path, python: str, progress: Progress) -> Iterator[Finding]:
    from verify.static import check_level
    from verify.upstream_lint import RCFILE, check_lint

    yield from check_level(subject.root, subject.files)
    if (subject.root / RCFILE).is_file() and subject.unpatched:
        progress("static level: upstream's own lint")
        sides = (
            {path: data for path, data in side.items() if data is not None}
            for side in (subject.unpatched, subject.files)
        )
        for finding in check_lint(subject.root, *sides, python):
            yield finding._replace(optional=finding.status is Status.NOT_RUN)


def _import(subject: Subject, scratch: Path, python: str, progress: Progress) -> list[Finding]:
    from verify.imported import check_import

    return check_import(_side(subject, scratch, "imported"), python)


def _simulated(subject: Subject, scratch: Path, python: str, progress: Progress) -> Iterator[Finding]:
    from verify.simulated import Sides, check_simulated

    unpatched = None
    if subject.unpatched is not None:
        files = {**subject.unpatched, **subject.tests}
        unpatched = overlay(scratch / "unpatched", subject.root, files)
    sides = Sides(_side(subject, scratch, "tree"), unpatched)
    yield from check_simulated(sides, sorted(subject.tests), python, progress, subject.must_be_red)
    for reason in subject.left_out:
        claim = "every carried test file runs"
        yield Finding(
            Level.SIMULATED, "left-out", claim, Status.NOT_RUN, "by digest", reason, optional=True
        )


def _hardware(subject: Subject, scratch: Path, python: str, progress: Progress) -> list[Finding]:
    return hardware.check_hardware(subject, scratch, python, progress)


def _side(subject: Subject, scratch: Path, name: str) -> Path:
    return overlay(scratch / name, subject.root, {**subject.files, **subject.tests})


_RUNGS = {
    Level.STATIC: _static,
    Level.IMPORT: _import,
    Level.SIMULATED: _simulated,
    Level.HARDWARE: _hardware,
}


def terminal_progress() -> Progress:
    """Return a progress line on stderr where that is a terminal, and silence elsewhere."""
    if not sys.stderr.isatty():
        return lambda text: None

    def show(text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text[:100]}")
        sys.stderr.flush()

    return show
