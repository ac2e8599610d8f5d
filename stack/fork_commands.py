"""apply --fork, and what a drifted tree is told without it."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

from stack import fork, history
from stack.errors import Exit, Refused
from stack.fork import ForkPlan, Placement, plan_fork
from stack.message import headline, refusal
from stack.outcome import Claim, Outcome
from stack.state import LAZY_INIT, Standing, State
from stack.store import Release, Store
from stack.timeline import Found, measure, spans_of, timeline
from stack.tree import Entry, Kind, Tree

MOST_LINES = 40


def drift_report(tree: Tree, store: Store, entries: Mapping[str, Entry], state: State) -> Refused:
    """Return the refusal of a drifted tree, with every hunk: where it would go, or why it has no place."""
    message, tip = refusal(state, tree)
    changed = next((one for one in state.files if one.path == LAZY_INIT and not one.spans), None)
    if changed or state.release is None:
        return Refused("\n".join([message, *_meaning(tree, entries, state)]), tip)
    # A mode or line endings that are put right leave nothing to place.
    if all(one.spans or one.kind != "edited" for one in state.files if not one.path.startswith(fork.TESTS)):
        return Refused(message, tip)
    placements = _all_placements(state.release, measure(entries))
    lines = [f"  {line}" for placement in placements for line in fork.describe(placement)]
    if placements and choose(tree, store, entries, state, None):
        tip = f'Every hunk has one exact place ("Forks" in the README): apply.py apply --fork {quote(tree.root)}'
    elif placements:
        tip = 'The stack does not fit this fork; cut one for it: apply.py port. See "Forks" in the README.'
    return Refused("\n".join([message, *lines]), tip, _data(placements, ()))


def _all_placements(release: Release, found: Mapping[str, Found]) -> list[Placement]:
    points = timeline(release)
    placed: list[Placement] = []
    for path in release.paths:
        seen = found[path]
        if seen.entry.kind is Kind.FILE and not spans_of(seen, points[path]) and points[path][0].blob:
            placed += fork.place(release, path, seen.entry.data, reverse=False)[0]
    return placed


def _meaning(tree: Tree, entries: Mapping[str, Entry], state: State) -> list[str]:
    """Return what differs in meaning in core/_lazy_init.py, if the tree's git history has the pinned one."""
    entry = entries.get(LAZY_INIT)
    if state.release is None or entry is None or entry.kind is not Kind.FILE:
        return []
    pinned = timeline(state.release)[LAZY_INIT][0].blob or ""
    old = history.blob(tree.root, pinned)
    if old is None:
        return [f"  no git history here has the pinned file (blob {pinned[:12]}) to compare with"]
    lines = history.difference_in_meaning(old, entry.data)
    if lines is None:
        return ["  it cannot be read as Python"]
    if not lines:
        return ["  it means the same as the pinned file: only comments or formatting differ"]
    rest = [f"    ... {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return ["  what differs in meaning:", *(f"    {line}" for line in lines[:MOST_LINES]), *rest]


def choose(
    tree: Tree, store: Store, entries: Mapping[str, Entry], state: State, believed: str | None
) -> ForkPlan | None:
    """Return the plan of the first release that fits, the closest one first, or None where none fits."""
    found = measure(entries)
    releases = [state.release] if state.release else []
    if not believed:
        releases += [release for release in reversed(store.releases) if release is not state.release]
    for release in releases:
        try:
            planned = plan_fork(release, found, lambda path: _has_folder(tree, path), reverse=False)
        except Refused:
            continue
        if isinstance(planned, ForkPlan):
            return planned
    return None


def _has_folder(tree: Tree, path: str) -> bool:
    return not path or tree.read(path).kind is Kind.DIRECTORY


def plan_for(tree: Tree, store: Store, entries: Mapping[str, Entry], state: State, believed: str | None) -> ForkPlan:
    """Return the plan for `apply --fork`; raise Refused with the drift report where there is none."""
    if state.standing not in (Standing.DRIFTED, Standing.FORKED):
        raise Refused(*refusal(state, tree))
    changed = [one for one in state.files if one.path == LAZY_INIT and not one.spans]
    planned = None if changed else choose(tree, store, entries, state, believed)
    if planned is None:
        raise drift_report(tree, store, entries, state)
    return planned


def plan_back(tree: Tree, entries: Mapping[str, Entry], state: State) -> ForkPlan:
    """Return the plan that takes the stack out of a fork again."""
    assert state.release is not None
    planned = plan_fork(state.release, measure(entries), lambda path: _has_folder(tree, path), reverse=True)
    assert isinstance(planned, ForkPlan), "a recognised fork has a way back"
    return planned


def outcome(command: str, name: str, tree: Tree, state: State, planned: ForkPlan, proof_message: str = "") -> Outcome:
    """Return what was done to a fork: the places, what was left out, and that the result is not a pinned one."""
    release = planned.release.name
    lines = [f"{tree.root}: a fork of {release}: {name}"]
    if not planned.plan.steps:
        lines = [f"{tree.root}: {headline(state)}: already so, nothing was changed"]
    lines += [f"  {step.path}: {'removed' if step.after is None else 'written'}" for step in planned.plan.steps]
    lines += [f"  {line}" for placement in planned.placements for line in fork.describe(placement)]
    lines += [f"  left out: {line}" for line in planned.left_out]
    lines += [f"  as the stack makes it already, and unapply would take it back: {path}" for path in planned.already]
    if proof_message:
        lines += ["  fork: not a pinned result; proven by:", proof_message]
    claims = (Claim("each hunk stands at one exact place, and is found again there on the way back", "by exact match"),)
    data = _data(planned.placements, planned.left_out)
    return Outcome(command, Exit.DONE, name, "\n".join(lines), "", tree.root, state, claims, data)


def _data(placements: object, left_out: tuple[str, ...]) -> dict[str, Any]:
    return {"placements": [one._asdict() for one in placements], "left_out": list(left_out)}  # type: ignore[attr-defined]
