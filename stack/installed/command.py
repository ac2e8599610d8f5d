"""apply, unapply and status for the torch_musa that an interpreter imports.

Nothing but the package itself is kept for `unapply`: as in a source tree the state is in the bytes, and the way back is
the patches in reverse, checked against the pins of the release.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from shlex import quote
from typing import Any, NamedTuple

from stack import commands
from stack.commands import How, Prove, Writer, Written
from stack.digest import sha256
from stack.errors import Environment, Malformed, Refused, StackError, Usage
from stack.installed import bytecode, guard, record
from stack.installed.find import Installed, find
from stack.installed.view import PackageStore, hides, left_out
from stack.message import refusal
from stack.outcome import Outcome
from stack.paths import check_path
from stack.plan import File, Plan, Step
from stack.state import INIT, Standing, State, identify
from stack.store import Store
from stack.transaction import commit
from stack.tree import Entry, Kind, Tree

RESTART = "  a running process that has imported torch_musa keeps the old code, importlib.reload or not: restart it"
_STRANGERS = ("commit", "branch", "clone", "ref", "fork", "keep")
_REINSTALL = "Install the release anew, then run the command again: pip install --force-reinstall --no-deps WHEEL."

MakeProve = Callable[[Installed], "Prove | None"]
"""Makes the proof for what was found: verify has it, which is a floor above."""


class Follow(NamedTuple):
    """What follows from a plan: the touched files as they shall be, their bytecode, RECORD's step, and what is told."""

    images: Mapping[str, File | None]
    renewal: bytecode.Renewal
    listed: tuple[Step, ...]
    told: list[str]


class InstalledWriter(Writer):
    """Writes a plan into an installed package: the files, their rows in RECORD and their bytecode, all or nothing."""

    def __init__(self, installed: Installed, owner: str | None, command: str) -> None:
        self.installed = installed
        self.owner = owner
        self.command = command
        self._notes = ""

    def check(self, tree: Tree, state: State, entries: Mapping[str, Entry]) -> str:
        """Refuse where somebody else has a say in the files, if any of them is to be changed."""
        _check_hidden(tree, entries)
        nothing = Standing.APPLIED if self.command == "apply" else Standing.PRISTINE
        notes = [left_out_note(state)]
        if state.standing is not nothing:
            notes += self._check(entries)
        self._notes = "\n".join(filter(None, notes))
        return self._notes

    def _check(self, entries: Mapping[str, Entry]) -> list[str]:
        installed = self.installed
        words = [quote(sys.executable), "apply.py", self.command, "--installed", "--python", quote(installed.python)]
        guard.check_writable(installed, [*entries, *self._record()], " ".join(words))
        owned = "" if installed.editable else guard.check_owner(installed, INIT, self.owner)
        return [owned, guard.check_processes(installed)]

    def write(self, tree: Tree, state: State, entries: Mapping[str, Entry], plan: Plan) -> Written:
        """Make the plan true, read it again, and tell what else was changed with it."""
        images, renewal, listed, told = self.follow(tree, entries, plan)
        kept = plan.kept | {f"{one}/__pycache__" for one in _folders(images)}
        whole = Plan((*plan.steps, *renewal.steps, *listed), kept)
        commit(tree, whole)
        _confirm(tree, whole)
        notes = [self._notes, *told, *(f"  {note}" for note in renewal.notes)]
        if renewal.steps:
            notes.append(f"  bytecode replaced: {len(renewal.steps)} files")
        notes += [RESTART] if plan.steps else []
        more = whole.steps and not plan.steps
        return Written("\n".join(filter(None, notes)), {"installed": self.installed._asdict()}, bool(more))

    def follow(self, tree: Tree, entries: Mapping[str, Entry], plan: Plan) -> Follow:
        """Return what a plan, or an empty one, asks of the bytecode and of RECORD."""
        after = {path: File(entry.data, entry.executable) for path, entry in entries.items() if entry.kind is Kind.FILE}
        images: dict[str, File | None] = {**after, **{step.path: step.after for step in plan.steps}}
        renewal = self._bytecode(tree, images, plan)
        return Follow(images, renewal, *self._record_steps(tree, plan, images, renewal))

    def _record(self) -> list[str]:
        if not self.installed.metadata:
            return []
        try:
            return [check_path(f"{self.installed.metadata}/RECORD", self.installed.site)]
        except Malformed as error:
            raise Refused(str(error), _REINSTALL) from error

    def _bytecode(self, tree: Tree, images: Mapping[str, File | None], plan: Plan) -> bytecode.Renewal:
        if self.installed.editable:
            return bytecode.Renewal()
        return bytecode.renew(tree, self.installed, images, frozenset(step.path for step in plan.steps))

    def _record_steps(
        self, tree: Tree, plan: Plan, images: Mapping[str, File | None], renewal: bytecode.Renewal
    ) -> tuple[tuple[Step, ...], list[str]]:
        """Return the step for RECORD, and what is to be said about it."""
        if self.installed.editable:
            return (), []
        for path in self._record():
            before = tree.read(path)
            if before.kind is Kind.FILE:
                return _record_step(path, before, plan, images, renewal)
            if before.kind is not Kind.ABSENT:
                raise Refused(f"{tree.root}/{path}: is a {before.kind.value}", _REINSTALL)
        return (), ["  there is no RECORD whose digests could be kept right"]


def _check_hidden(tree: Tree, paths: Iterable[str]) -> None:
    """Raise Refused where something else is imported in the place of a touched source."""
    for path in paths:
        folder = path.rpartition("/")[0]
        names = tree.names(folder) if tree.read(folder).kind is Kind.DIRECTORY else []
        package = f"{path.removesuffix('.py')}/__init__.py"
        beside = [f"{folder}/{name}" for name in names]
        beside += [package] if tree.read(package).kind is Kind.FILE else []
        if other := next((other for other in beside if hides(path, other)), ""):
            raise Refused(
                f"{tree.root}/{other}: is imported in place of {path}",
                f"The fix would not be seen. Remove it if it is no part of torch_musa. {_REINSTALL}",
            )


def _folders(images: Mapping[str, object]) -> set[str]:
    return {path.rpartition("/")[0] for path in images}


def _record_step(
    path: str, before: Entry, plan: Plan, images: Mapping[str, File | None], renewal: bytecode.Renewal
) -> tuple[tuple[Step, ...], list[str]]:
    cached = {step.path: step.after for step in renewal.steps}
    files = {name: image.data if image else None for name, image in {**images, **cached}.items()}
    rows = record.read_rows(before.data, path)
    data = record.rewritten(before.data, files, path)
    new = {step.path: step.after.data for step in plan.steps if step.after and step.before.kind is Kind.ABSENT}
    data = record.appended(data, new) if new else data
    notes = [f"  {path}: has no row for {name}: none was added" for name in sorted(_unlisted(rows, images, new))]
    was = {step.path: step.before.data for step in plan.steps}
    for row in rows:
        image = images.get(row.path)
        if image is not None and not record.agrees(row, was.get(row.path, image.data)):
            notes.append(f"  {path}:{row.line}: did not agree with {row.path} as it was, and does now")
    if data == before.data:
        return (), notes
    now = {row.data for row in record.read_rows(data, path)}
    changed = sum(row.data not in now for row in rows) + len(new)
    return (Step(path, before, File(data, before.executable)),), [f"  {path}: rows changed: {changed}", *notes]


def _unlisted(rows: list[record.Row], images: Mapping[str, File | None], new: Mapping[str, bytes]) -> set[str]:
    there = {path for path, image in images.items() if image is not None}
    return there - {row.path for row in rows} - set(new)


def _confirm(tree: Tree, plan: Plan) -> None:
    """Read what was written once more: somebody else may write into a site-packages at any time."""
    for step in plan.steps:
        try:
            entry = tree.read(step.path)
        except Environment as error:
            tip = "All files are changed as planned, but could not be read once more: apply.py status --installed does."
            raise Environment(str(error), tip) from error
        now = sha256(entry.data) if entry.kind is Kind.FILE else None
        if now != (sha256(step.after.data) if step.after else None):
            raise Environment(
                f"{tree.root}/{step.path}: was changed by somebody else just after it was written",
                "Is an installation at work here? Wait for its end, then run the command again.",
            )


def left_out_note(state: State) -> str:
    """Return the line on patches that an installed package has no files for."""
    text = left_out(state.release)
    return f"  {text}" if text else ""


def locate(options: Mapping[str, str]) -> Installed:
    """Return the torch_musa of the interpreter that the options name, or of this one.

    Raises Usage for options that are for source trees.
    """
    for name in _STRANGERS:
        if name in options:
            raise Usage(f"--{name} does not go with --installed", "It is for source trees: apply.py apply TREE.")
    python = options.get("python", sys.executable)
    # A name alone is looked for in $PATH; a path is the caller's, and children run elsewhere.
    return find(os.path.abspath(python) if "/" in python else python)


def store_for(installed: Installed, store: Store) -> Store:
    """Return the releases as the place can have them: whole for a whole source tree, else the package's part."""
    with Tree(installed.site) as tree:
        whole = installed.editable and tree.read("tests").kind is Kind.DIRECTORY
    return store if whole else PackageStore(store.stacks)


def apply(store: Store, options: Mapping[str, str], make_prove: MakeProve) -> Outcome:
    """Apply what is missing of the stack to the installed package."""
    installed = locate(options)
    writer = InstalledWriter(installed, options.get("owner"), "apply")
    how = How(options.get("release"), "dry-run" in options, make_prove(installed), writer=writer)
    return _done(installed, store, lambda view: commands.apply(installed.site, view, how))


def unapply(store: Store, options: Mapping[str, str]) -> Outcome:
    """Take the stack out of the installed package again."""
    installed = locate(options)
    writer = InstalledWriter(installed, options.get("owner"), "unapply")
    return _done(installed, store, lambda view: commands.unapply(installed.site, view, writer))


def status(installed: Installed, store: Store) -> Outcome:
    """Name the state of the installed package by its bytes, and what does not go with them."""
    outcome = _done(installed, store, lambda view: commands.status(installed.site, view))
    amiss = _amiss(installed, store)
    message = "\n".join([outcome.message, *(f"  {line}" for line in amiss)])
    return outcome._replace(message=message, data={**outcome.data, "amiss": amiss})


def _amiss(installed: Installed, store: Store) -> list[str]:
    """Return what an apply or unapply would put right beside the files."""
    writer = InstalledWriter(installed, None, "status")
    try:
        with Tree(installed.site) as tree:
            follow = writer.follow(tree, tree.read_all(store_for(installed, store).paths), Plan(()))
    except StackError as error:
        return [str(error)]
    stale = [f"{step.path}: is bytecode of another source, and is taken unchecked" for step in follow.renewal.steps]
    return [*stale, *(line.strip() for line in follow.told if "rows changed" not in line)]


def _done(installed: Installed, store: Store, run: Callable[[Store], Outcome]) -> Outcome:
    view = store_for(installed, store)
    try:
        outcome = run(view)
    except Refused as error:
        raise _told(installed, view, error) from error
    data: dict[str, Any] = {**outcome.data, "installed": installed._asdict()}
    return outcome._replace(message=f"{installed.describe()}\n{outcome.message}", data=data)


def _told(installed: Installed, view: Store, error: Refused) -> StackError:
    """Return a refusal with what it means for an installed package; the tips of a state are for source trees."""
    if installed.editable:
        return Refused(f"{installed.describe()}\n{error}", error.tip, error.data)
    with Tree(installed.site) as tree:
        state = identify(view, tree.read_all(view.paths))
        if refusal(state, tree)[0].split("\n")[0] not in str(error):
            return error
    message = f"{installed.describe()}\n{error}"
    if installed.version:
        message += f"\n  its metadata says version {installed.version!r}; the bytes are those of no known release"
    return Refused(message, tip_for(state), error.data)


def tip_for(state: State) -> str:
    """Return what to do about an installed package that is refused in this state."""
    kinds = {one.kind for one in state.files if not one.spans}
    if state.standing is Standing.FIXED:
        return "No stack of this folder is in. If one of your own is, name its folder: --stacks DIR."
    if state.standing is Standing.DRIFTED and kinds == {"edited"}:
        return (
            "Another release, or a fork. apply.py releases lists the known ones; for a fork patch its source tree "
            '(README, "Forks") and install from that.'
        )
    return _REINSTALL
