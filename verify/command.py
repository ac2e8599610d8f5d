"""The verbs that judge: verify and scan, and the proof that apply asks for before it writes."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from stack.commands import Proof, Prove, interrupted_tip
from stack.errors import Environment, Exit, Usage
from stack.outcome import Outcome
from stack.plan import Plan
from stack.state import Standing, State, identify
from stack.store import Store
from stack.tree import Entry, Tree
from verify.finding import Level
from verify.ladder import climb, terminal_progress
from verify.report.record import (
    LEVELS,
    MEANS,
    Report,
    at,
    conclusion,
    not_established,
    standing,
    tally,
    verdict,
)
from verify.report.record import Standing as Rung
from verify.subject import subject_of_fork, subject_of_plan, subject_of_tree


def verify(root: str, store: Store, level: str, options: Mapping[str, str]) -> Outcome:
    """Judge a torch_musa tree as it stands.

    level: a level's value, or auto. options: junit and html name files to write the report to.
    Raises StackError; writes nothing into the tree.
    """
    with Tree(root) as tree:
        entries = tree.read_all(store.paths)
        state, interrupted = identify(store, entries), interrupted_tip(tree)
    if not os.path.isfile(os.path.join(root, "torch_musa", "__init__.py")):
        raise Usage(f"{root}: has no torch_musa/__init__.py", "Name the top of a torch_musa source tree.")
    report = climb(subject_of_tree(Path(root), store, state, entries), level, sys.executable, terminal_progress())
    _write_reports(report, options)
    return _outcome(root, state, report, interrupted)


def prover(level: str, python: str = sys.executable, only: str = "") -> Prove:
    """Return the proof of a plan's result at a level, for stack.commands.apply.

    python: the interpreter of all children. only: the one folder of the tree that is judged, if not all of it.
    A fork has no pins that its result must have, so there the defect must show first, and be gone in the result.
    """

    def prove(tree: Tree, entries: Mapping[str, Entry], state: State, plan: Plan) -> Proof:
        root = Path(tree.root)
        if state.standing is Standing.DRIFTED:
            red = climb(subject_of_fork(root, state, entries, None), Level.IMPORT.value, python, terminal_progress())
            if any(standing(red, rung) is not Rung.REFUTED for rung in (Level.STATIC, Level.IMPORT)):
                return _proof(
                    red, False, "the defect does not show in the tree as it stands: this is not the fix for it"
                )
        if state.standing in (Standing.DRIFTED, Standing.FORKED):
            subject = subject_of_fork(root, state, entries, plan)
        else:
            subject = subject_of_plan(root, state, entries, plan)
        report = climb(subject._replace(only=only), level, python, terminal_progress())
        return _proof(report, verdict(report), "")

    return prove


def _proof(report: Report, proven: bool, why: str) -> Proof:
    from verify.report.as_json import to_json
    from verify.report.text import to_text

    message = summary(report) if proven else "\n".join(filter(None, [to_text(report).rstrip(), why]))
    return Proof(proven, message, {"report": to_json(report)})


def scan_command(root: str) -> Outcome:
    """List every name of a tree that is imported from a module that rebinds it."""
    from verify.scan import describe, survey

    with Tree(root) as tree:
        tip = interrupted_tip(tree)
        found = survey(Path(root))
    harmful = sum(hit.harmful for hit in found.hits)
    lines = [describe(hit) for hit in found.hits] + [f"left out: {note}" for note in found.notes]
    lines.append(f"{found.files} files: {harmful} harmful, {len(found.hits) - harmful} harmless (by source reading)")
    data = {"hits": [hit._asdict() for hit in found.hits], "notes": list(found.notes)}
    code = Exit.UNPROVEN if harmful else Exit.DONE
    return Outcome("scan", code, "scan", "\n".join(lines), tip, root, data=data, interrupted=bool(tip))


def _outcome(root: str, state: State, report: Report, interrupted: str) -> Outcome:
    from verify.report.as_json import to_json
    from verify.report.text import to_text

    proven = verdict(report)
    name, code = ("proven", Exit.DONE) if proven else ("not proven", Exit.UNPROVEN)
    data = {"report": to_json(report)}
    tip = interrupted or _tip(root, state, proven)
    text = to_text(report).rstrip()
    return Outcome("verify", code, name, text, tip, root, state, (), data, bool(interrupted))


def _tip(root: str, state: State, proven: bool) -> str:
    """Return what to do about a tree without the fix."""
    if proven or state.standing is Standing.APPLIED:
        return ""
    if state.standing in (Standing.PRISTINE, Standing.PARTLY):
        return f"To put the fix in: apply.py apply {root}"
    return 'No stack is made for these bytes: see "Forks" in the README.'


def summary(report: Report) -> str:
    """Return a line for each level, what is not established, and the verdict."""
    lines = [
        f"  {level.value}: {standing(report, level).value}, {tally(at(report, level))} ({MEANS[level]})"
        for level in LEVELS
        if at(report, level)
    ]
    lines += [f"  not established: {gap}" for gap in not_established(report)]
    return "\n".join([*lines, f"  the fix is {conclusion(report)}"])


def _write_reports(report: Report, options: Mapping[str, str]) -> None:
    if "junit" in options:
        from verify.report.junit import to_junit

        _replace(options["junit"], to_junit(report))
    if "html" in options:
        from verify.report.html import to_html

        _replace(options["html"], to_html(report))


def _replace(path: str, data: bytes) -> None:
    """Write a report beside its name, then give it the name: never half a report.

    A device, a FIFO or a link (/dev/stdout is all of these) is written to, and stays what it is.
    """
    staged = f"{path}.{os.getpid()}.new"
    try:
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            with open(path, "wb") as file:
                file.write(data)
            return
        with open(staged, "xb") as file:
            file.write(data)
        os.replace(staged, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(staged)
        raise Environment(f"{path}: cannot be written: {error.strerror}") from error
