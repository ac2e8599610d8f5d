"""The proof of a new stack, and the lint that a stack must pass before port or refresh writes it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from stack import port as porting
from stack import refresh as refreshing
from stack.commands import Proof
from stack.errors import Refused, Usage
from stack.outcome import Outcome
from stack.plan import plan_apply
from stack.scratch import scratch_folder
from stack.state import Standing, identify
from stack.store import Store
from stack.tree import Tree
from verify.finding import Level, Status
from verify.ladder import climb, terminal_progress
from verify.lint import lint_stacks
from verify.report.record import Report, standing
from verify.report.record import Standing as Came
from verify.subject import Subject, subject_of_plan, subject_of_tree

# What the tree must be refuted by, without the stack: that the flag is bound, and that it stays False.
_RED = {"re-export-gone": Level.STATIC, "flag-true-after-initialization": Level.IMPORT}


def port(root: str, store: Store, options: Mapping[str, str]) -> Outcome:
    """Return the outcome of `apply.py port`. options: to, from, accept-lazy-init. Raises StackError."""
    if "to" not in options:
        raise Usage("port: --to RELEASE is missing: what the new stack is for", "apply.py port --help")
    ask = porting.Ask(options["to"], options.get("from"), options.get("accept-lazy-init"))
    return porting.port(root, store, ask, prove)


def refresh(root: str, store: Store, options: Mapping[str, str]) -> Outcome:
    """Return the outcome of `apply.py refresh`. options: release. Raises StackError."""
    return refreshing.refresh(options["release"], root, store, lint_files)


def lint_files(name: str, files: Mapping[str, bytes]) -> list[str]:
    """Return what lint finds in the files of one release, given by their labels."""
    with _laid_out(files) as store:
        return [f"{one.where}: {one.message} [{one.rule}]" for one in lint_stacks(store)]


@contextmanager
def _laid_out(files: Mapping[str, bytes]) -> Iterator[Store]:
    """Yield a stacks folder with these files alone."""
    with scratch_folder() as scratch:
        for label, data in files.items():
            path = Path(scratch, label)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        yield Store(scratch)


def prove(root: str, name: str, files: Mapping[str, bytes], level: str = "") -> Proof:
    """Prove a new stack on its tree: red without it, green with it, at the static and the import level.

    level: how far to go; without one the simulated level where torch and pytest are there, else the import level. The
    simulated level must not be refuted; what it could not run is told. Raises Refused for a stack that lint would not
    pass.
    """
    with _laid_out(files) as store:
        problems = lint_stacks(store)
        if problems:
            lines = [f"  {one.where}: {one.message} [{one.rule}]" for one in problems]
            raise Refused("\n".join([f"{root}: lint would not pass the stack of {name}:", *lines]))
        red, green = _subjects(root, store)
        before = climb(red, Level.IMPORT.value, sys.executable, terminal_progress())
        after = climb(green, level or _level(), sys.executable, terminal_progress())
    return _proof(before, after)


def _level() -> str:
    found = all(find_spec(name) for name in ("torch", "pytest"))
    return Level.SIMULATED.value if found else Level.IMPORT.value


def _subjects(root: str, store: Store) -> tuple[Subject, Subject]:
    """Return the tree as it is, and as the stack would make it."""
    with Tree(root) as tree:
        entries = tree.read_all(store.paths)
    state = identify(store, entries)
    if state.standing is not Standing.PRISTINE:
        raise Refused(f"{root}: was changed by somebody else during this run")
    plan = plan_apply(state, entries)
    path = Path(os.path.abspath(root))
    return subject_of_tree(path, store, state, entries), subject_of_plan(path, state, entries, plan)


def _proof(before: Report, after: Report) -> Proof:
    from verify.command import summary
    from verify.report.as_json import to_json
    from verify.report.text import to_text

    missing = [check for check, level in _RED.items() if not _refuted(before, check, level)]
    green = all(standing(after, level) is Came.PROVEN for level in (Level.STATIC, Level.IMPORT))
    proven = green and not missing and standing(after, Level.SIMULATED) is not Came.REFUTED
    data = {"report": to_json(after), "before": to_json(before)}
    if proven:
        lines = ["  without the stack: refuted at the static and the import level", "  with it:", summary(after)]
        return Proof(True, "\n".join(lines), data)
    lines = [f"  without the stack: {check} is not refuted, so its proof would mean nothing" for check in missing]
    return Proof(False, "\n".join([*lines, to_text(after).rstrip()]), data)


def _refuted(report: Report, check: str, level: Level) -> bool:
    found = [one for one in report.findings if one.check == check and one.level is level]
    return any(one.status is Status.REFUTED for one in found)
