"""What the verbs do to a tree, each from one reading of it to one outcome.

A proof is handed in: the engine knows no torch and no test runner (see Prove).
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from stack.errors import Environment, Exit, Refused, StackError
from stack.journal import CLONE, clone_tip, pending
from stack.journal import recover as settle
from stack.lock import locked, try_lock
from stack.message import describe, headline, refusal
from stack.outcome import Claim, Outcome
from stack.paths import JOURNAL
from stack.plan import Plan, Step, plan_apply, plan_unapply
from stack.state import INIT, Standing, State, check_believed, identify
from stack.store import Store
from stack.transaction import commit
from stack.tree import Entry, Kind, Tree


class Proof(NamedTuple):
    """What a verification of a plan's result came to."""

    proven: bool
    message: str
    data: Mapping[str, Any] = {}


Prove = Callable[[Tree, Mapping[str, Entry], State, Plan], Proof]
"""Proves the result of a plan before it is written: on a scratch copy, never in the tree."""


class Written(NamedTuple):
    """What a Writer did beyond the files: lines for the message, what JSON has in `data`, and whether that was all."""

    message: str = ""
    data: Mapping[str, Any] = {}
    repaired: bool = False

    @property
    def already(self) -> str:
        """What is said where the files were as asked for before."""
        return f"already so, {'but not all that belongs to it' if self.repaired else 'nothing was changed'}"


class Writer:
    """Where a plan goes: into the files and nowhere else. stack.gitwork has one that makes commits."""

    def check(self, tree: Tree, state: State, entries: Mapping[str, Entry]) -> str:
        """Refuse before anything is proven or written; return what a dry run adds to its message."""
        return ""

    def write(self, tree: Tree, state: State, entries: Mapping[str, Entry], plan: Plan) -> Written:
        """Make the plan true, all or nothing."""
        commit(tree, plan)
        return Written()


class How(NamedTuple):
    """How to apply.

    release: what the user believes the tree is. dry_run: plan, check and prove, but write nothing.
    prove: None proves nothing but digests. keep: write the result even if the proof fails.
    fork: apply to a tree that is no release, if every hunk has one exact place; needs a proof.
    writer: where the plan goes.
    """

    release: str | None = None
    dry_run: bool = False
    prove: Prove | None = None
    keep: bool = False
    fork: bool = False
    writer: Writer = Writer()


def apply(root: str, store: Store, how: How) -> Outcome:
    """Apply what is missing of the stack of the release that the tree is, whole or not at all.

    Raises StackError; the tree is then as it was.
    """
    if how.release:
        store.release(how.release)
    with Tree(root) as tree:
        if how.dry_run:
            _check_not_interrupted(tree)
            return _apply(tree, store, how)
        with locked(tree) as have_lock:
            settle(tree, have_lock)
            return _apply(tree, store, how)


def _apply(tree: Tree, store: Store, how: How) -> Outcome:
    entries = tree.read_all(store.paths)
    state = identify(store, entries, how.release)
    if state.standing is Standing.FIXED:
        message = f"{tree.root}: {headline(state)}: nothing to do"
        return Outcome("apply", Exit.DONE, "fixed upstream", message, "", tree.root, state)
    if state.standing in (Standing.DRIFTED, Standing.FORKED):
        return _apply_to_fork(tree, store, entries, state, how)
    _gate(state, tree, how.release)
    if state.standing is not Standing.APPLIED:
        _check_quilt(tree, entries, state, "quilt push -a --fuzz=0")
    plan = plan_apply(state, entries)
    written = Written(how.writer.check(tree, state, entries))
    proof = how.prove(tree, entries, state, plan) if how.prove else None
    if proof and not (proof.proven or how.keep):
        message = f"{proof.message}\n{tree.root}: nothing was applied"
        return _unproven(proof, message, "not proven", tree, state)
    if not how.dry_run:
        written = how.writer.write(tree, state, entries, plan)
    return _applied(tree, state, plan, how.dry_run, proof, written)


def _apply_to_fork(tree: Tree, store: Store, entries: Mapping[str, Entry], state: State, how: How) -> Outcome:
    from shlex import quote

    from stack import fork_commands

    if not how.fork and state.standing is Standing.DRIFTED:
        raise fork_commands.drift_report(tree, store, entries, state)
    planned = fork_commands.plan_for(tree, store, entries, state, how.release)
    if not how.fork:
        message, _ = refusal(state, tree)
        raise Refused(
            message, f"No release has these bytes. If the tree is a fork: apply.py apply --fork {quote(tree.root)}"
        )
    if not planned.plan.steps:
        return fork_commands.outcome("apply", "already applied", tree, state, planned)
    _check_quilt(tree, entries, state, "quilt push -a --fuzz=0")
    assert how.prove is not None, "nothing is written into a fork without a proof"
    proof = how.prove(tree, entries, state, planned.plan)
    if not proof.proven:
        message = f"{proof.message}\n{tree.root}: nothing was applied"
        return _unproven(proof, message, "not proven", tree, state)
    if not how.dry_run:
        commit(tree, planned.plan)
    name = "would apply to a fork" if how.dry_run else "applied to a fork"
    done = fork_commands.outcome("apply", name, tree, state, planned, proof.message)
    return done._replace(data={**done.data, **proof.data})


def _applied(tree: Tree, state: State, plan: Plan, dry: bool, proof: Proof | None, written: Written) -> Outcome:
    name = "would apply" if dry else "applied"
    message = _what_was_done(tree, state, plan, name, state.total - state.applied)
    if state.standing is Standing.APPLIED:
        name = "already applied"
        message = f"{tree.root}: {headline(state)}: {written.already}"
    message = f"{message}\n{written.message}" if written.message else message
    if not dry:
        state = state._replace(standing=Standing.APPLIED, applied=state.total)
    claims = (_by_digest(state, "result"),)
    if proof and not proof.proven:
        kept = f"{proof.message}\n{message}\n  kept although it is not proven, as --keep asks"
        outcome = _unproven(proof, kept, f"{name}, not proven", tree, state)
        return outcome._replace(data={**proof.data, **written.data})
    if proof:
        message = f"{message}\n{proof.message}"
    data = {**(proof.data if proof else {}), **written.data}
    return Outcome("apply", Exit.DONE, name, message, "", tree.root, state, claims, data)


def _unproven(proof: Proof, message: str, name: str, tree: Tree, state: State) -> Outcome:
    return Outcome("apply", Exit.UNPROVEN, name, message, "", tree.root, state, (), proof.data)


def unapply(root: str, store: Store, writer: Writer | None = None) -> Outcome:
    """Take the stack out again: the exact bytes and modes of the release.

    writer: where the plan goes, the files alone unless named.
    """
    writer = writer or Writer()
    with Tree(root) as tree, locked(tree) as have_lock:
        settle(tree, have_lock)
        entries = tree.read_all(store.paths)
        state = identify(store, entries)
        if state.standing is Standing.FORKED:
            return _unapply_from_fork(tree, entries, state, writer)
        _gate(state, tree, None)
        if state.standing is not Standing.PRISTINE:
            _check_quilt(tree, entries, state, "quilt pop -a")
        plan = plan_unapply(state, entries)
        writer.check(tree, state, entries)
        written = writer.write(tree, state, entries, plan)
        name = "unapplied"
        message = _what_was_done(tree, state, plan, name, state.applied)
        if state.standing is Standing.PRISTINE:
            name = "already unapplied"
            message = f"{tree.root}: {headline(state)}: {written.already}"
        message = f"{message}\n{written.message}" if written.message else message
        state = state._replace(standing=Standing.PRISTINE, applied=0)
        claims = (_by_digest(state, "base"),)
        return Outcome("unapply", Exit.DONE, name, message, "", tree.root, state, claims, written.data)


def _unapply_from_fork(tree: Tree, entries: Mapping[str, Entry], state: State, writer: Writer) -> Outcome:
    from stack import fork_commands

    _check_quilt(tree, entries, state, "quilt pop -a")
    planned = fork_commands.plan_back(tree, entries, state)
    writer.check(tree, state, entries)
    written = writer.write(tree, state, entries, planned.plan)
    done = fork_commands.outcome("unapply", "unapplied from a fork", tree, state, planned)
    message = f"{done.message}\n{written.message}" if written.message else done.message
    return done._replace(message=message, data={**done.data, **written.data})


def recover(root: str) -> Outcome:
    """Put right what a run has left in a tree or a stacks folder that was cut off, and do nothing else."""
    from shlex import quote

    from stack.scratch import sweep

    with Tree(root) as tree, locked(tree) as have_lock:
        done, tip = settle(tree, have_lock), ""
        with contextlib.suppress(StackError):  # what follows changes nothing in this tree, and must not deny the work
            if done and tree.read(INIT).kind is Kind.FILE:
                tip = f"apply.py status {quote(root)} tells its state."
    with contextlib.suppress(OSError):
        sweep()
    if done:
        message = f"{root}: a run was cut off here: what it had left was put right"
        return Outcome("recover", Exit.DONE, "put right", message, tip, root)
    message = f"{root}: no run was cut off here: already so, nothing was changed"
    return Outcome("recover", Exit.DONE, "nothing to put right", message, "", root)


def status(root: str, store: Store) -> Outcome:
    """Name the release, the state, and what each touched file is. Writes nothing."""
    with Tree(root) as tree:
        state, tip = identify(store, tree.read_all(store.paths)), interrupted_tip(tree)
    message = f"{root}: {describe(state)}"
    if tip:
        message += f"\n  {JOURNAL}: a run is at work here, or was cut off"
    return Outcome("status", Exit.DONE, "state", message, tip, root, state, (), {}, bool(tip))


def releases(store: Store) -> Outcome:
    """List the releases that have a stack."""
    rows = [{"release": release.name, **release.about, "patches": list(release.series)} for release in store.releases]
    lines = [
        f"{row['release']}: torch {row['torch']}, upstream {row['upstream_commit'][:12]}, "
        f"fixed in {row['fixed_in']}\n" + "\n".join(f"  {name}" for name in row["patches"])
        for row in rows
    ]
    return Outcome("releases", Exit.DONE, "releases", "\n".join(lines), data={"releases": rows})


def _gate(state: State, tree: Tree, believed: str | None) -> None:
    """Let pass only a tree that is some step of a series, and the one that the user means."""
    check_believed(tree.root, state, believed, "Leave --release out, or name {}.")
    if not state.pinned:
        raise Refused(*refusal(state, tree))


def _check_quilt(tree: Tree, entries: Mapping[str, Entry], state: State, command: str) -> None:
    if tree.read(".pc/applied-patches").kind is not Kind.FILE or state.release is None:
        return
    from shlex import quote

    from stack.quilt import holding

    held = holding(tree, entries)
    if held:
        release = state.release
        folder, series = (quote(f"{release.stacks}/{label}") for label in (release.label, release.series_label))
        raise Environment(
            f"{tree.root}: quilt is in charge here: .pc says that it has applied {', '.join(held)}",
            "Let quilt do it, with the QUILT_PATCHES and QUILT_SERIES that it was told, such as: "
            f"QUILT_PATCHES={folder} QUILT_SERIES={series} {command}",
        )


def _check_not_interrupted(tree: Tree) -> None:
    if pending(tree):
        raise Environment(
            f"{tree.root}: a run is at work here, or was cut off",
            "apply.py recover puts the tree right, and so does the command without --dry-run.",
        )


def interrupted_tip(tree: Tree) -> str:
    """Return what to do about the journal that lies in a tree; nothing where there is none."""
    if not pending(tree):
        return ""
    if try_lock(tree) is None:
        return "Another run is at work here just now."
    if tree.read(f"{JOURNAL}/{CLONE}").kind is not Kind.ABSENT:
        return clone_tip(tree.root)
    from shlex import quote

    return (
        "A run was cut off here. This puts right what it left, and so do apply and unapply before their own work: "
        f"apply.py recover {quote(tree.root)}"
    )


def _what_was_done(tree: Tree, state: State, plan: Plan, verb: str, count: int) -> str:
    assert state.release is not None
    noun = "patch" if count == 1 else "patches"
    lines = [f"{tree.root}: {state.release.name}: {verb} {count} {noun}"]
    return "\n".join([*lines, *(f"  {step.path}: {_change(step)}" for step in plan.steps)])


def _change(step: Step) -> str:
    if step.after is None:
        return "removed"
    return "new" if step.before.kind is Kind.ABSENT else "changed"


def _by_digest(state: State, name: str) -> Claim:
    release = state.release
    assert release is not None
    count = len(release.result if name == "result" else release.base)
    return Claim(f"{count} files are those of {release.label}/{name}.sha256", "by digest")
