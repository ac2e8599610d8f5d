"""The levels in their order, each on the same subject, and what did not run said as plainly as what did.

A level that is asked for includes those below it, and a level that fails does not stop the next: a broken tree is
reported broken on every level, each with its own reason.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from stack.errors import Environment
from stack.scratch import scratch_folder
from verify import hardware
from verify.finding import Finding, Level, Status
from verify.report.record import LEVELS, Report
from verify.scratch import overlay
from verify.subject import Images, Subject

Progress = Callable[[str], None]


class Choice(NamedTuple):
    """The level to climb to, findings on the levels above it that cannot run here, and the device if there is one."""

    level: Level
    above: tuple[Finding, ...] = ()
    device: hardware.Device | None = None


def choose(subject: Subject, asked: str, python: str, progress: Progress) -> Choice:
    """Choose the level.

    asked: a level's value, or `auto` for the highest that this machine can run. Raises Environment for a level that is
    asked for by name and cannot run.
    """
    if asked in (Level.STATIC.value, Level.IMPORT.value):
        return Choice(Level(asked))
    missing = [name for name in ("torch", "pytest") if find_spec(name) is None]
    lacking = f"{' and '.join(missing)} cannot be imported by {python}" if missing else ""
    if asked == Level.SIMULATED.value:
        if lacking:
            raise Environment(
                f"--level simulated: {lacking}",
                "Run apply.py with a Python that has them, or ask for the import level.",
            )
        return Choice(Level.SIMULATED)
    device = hardware.look(subject, python, progress)
    if isinstance(device, hardware.Device):
        return Choice(Level.HARDWARE, (), device)
    if asked == Level.HARDWARE.value:
        raise Environment(f"--level hardware: {device}", "Ask for the simulated level, which needs no card.")
    above = [_not_run(Level.HARDWARE, device)]
    if lacking:
        return Choice(Level.IMPORT, (_not_run(Level.SIMULATED, lacking), *above))
    return Choice(Level.SIMULATED, tuple(above))


def _not_run(level: Level, reason: str) -> Finding:
    claim = f"the fix works at the {level.value} level"
    return Finding(level, "not-run-here", claim, Status.NOT_RUN, "chosen by auto", reason)


def climb(subject: Subject, asked: str, python: str, progress: Progress) -> Report:
    """Judge the subject up to a level and return the report.

    asked: a level's value, or auto. python: the interpreter of all children. progress: called with short texts.
    """
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    choice = choose(subject, asked, python, progress)
    findings: list[Finding] = []
    seconds: dict[str, float] = {}
    with scratch_folder() as scratch:
        climber = _Climber(subject, Path(scratch), python, progress, choice.device)
        for level in LEVELS[: LEVELS.index(choice.level) + 1]:
            progress(f"{level.value} level")
            begun = time.monotonic()
            findings += climber.check(level)
            seconds[level.value] = round(time.monotonic() - begun, 3)
    progress("")
    versions = {"Python": platform.python_version(), "platform": platform.platform(), **_versions(findings)}
    findings += choice.above
    return Report(str(subject.root), subject.identity, choice.level, tuple(findings), versions, started, seconds)


def _versions(findings: list[Finding]) -> dict[str, str]:
    found: dict[str, str] = {}
    for finding in findings:
        found.update(finding.data.get("versions", {}))
    return found


class _Climber(NamedTuple):
    """What every level needs."""

    subject: Subject
    scratch: Path
    python: str
    progress: Progress
    device: hardware.Device | None

    def check(self, level: Level) -> list[Finding]:
        """Return the findings of one level."""
        levels = {
            Level.STATIC: self._static,
            Level.IMPORT: self._import,
            Level.SIMULATED: self._simulated,
            Level.HARDWARE: self._hardware,
        }
        return list(levels[level]())

    def _static(self) -> Iterator[Finding]:
        from verify.static import check_level
        from verify.upstream_lint import RCFILE, check_lint

        subject = self.subject
        yield from check_level(subject.root, subject.files, subject.only)
        if subject.unpatched and (subject.root / RCFILE).is_file():
            self.progress("static level: upstream's own lint")
            before, after = _present(subject.unpatched), _present(subject.files)
            for finding in check_lint(subject.root, before, after, self.python):
                yield finding._replace(optional=finding.status is Status.NOT_RUN)

    def _import(self) -> list[Finding]:
        from stack.defect import read_init
        from verify.imported import ALWAYS, NAMES, check_import

        # Where the unpatched side is known, it tells which names the fix must keep.
        before = (self.subject.unpatched or {}).get("torch_musa/__init__.py")
        names = ALWAYS if before is None else [name for name in NAMES if name in read_init(before).names]
        return check_import(self._side("imported"), self.python, names)

    def _simulated(self) -> Iterator[Finding]:
        from verify.simulated import Sides, check_simulated

        subject = self.subject
        unpatched = None
        if subject.unpatched is not None:
            files = {**subject.unpatched, **subject.tests}
            unpatched = overlay(self.scratch / "unpatched", subject.root, files)
        sides = Sides(self._side("tree"), unpatched)
        tests = sorted(subject.tests)
        yield from check_simulated(sides, tests, self.python, self.progress, subject.must_be_red)
        for reason in subject.left_out:
            claim = "every carried test file runs"
            yield Finding(Level.SIMULATED, "left-out", claim, Status.NOT_RUN, "by digest", reason, optional=True)

    def _hardware(self) -> list[Finding]:
        assert self.device is not None
        return hardware.check_hardware(self.subject, self.scratch, self.device, self.python, self.progress)

    def _side(self, name: str) -> Path:
        subject = self.subject
        return overlay(self.scratch / name, subject.root, {**subject.files, **subject.tests})


def _present(images: Images) -> dict[str, bytes]:
    return {path: data for path, data in images.items() if data is not None}


def terminal_progress() -> Progress:
    """Return a progress line on stderr where that is a terminal, and silence elsewhere."""
    if sys.stderr is None or not sys.stderr.isatty():
        return lambda text: None

    def show(text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text[:100]}")
        sys.stderr.flush()

    return show
