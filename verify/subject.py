"""What is judged: the touched files of a tree as they are or shall be, the same without the fix, and the tests.

Nothing is written here. Where the unpatched side cannot be had from the bytes it is None, and the levels recreate the
defect by setting the flag in the module's own dict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from stack.message import headline
from stack.plan import File, Plan, fold, plan_apply, plan_unapply
from stack.state import State
from stack.store import Store
from stack.tree import Entry, Kind

if TYPE_CHECKING:
    import ast

TESTS = "tests/"
Images = Mapping[str, "bytes | None"]


class Subject(NamedTuple):
    """root: the tree, never written to; identity: what it is, by digest.

    files: the touched files to be judged, None for one that shall be absent; what is not in it stands in the tree.
    unpatched: the same files without the fix, or None. tests: the carried tests by path, in full.
    must_be_red: the tests that the stack adds or changes, as `path::Class::function`. left_out: carried test files
    that cannot be had for this tree, with the reason. only: the one folder of root that belongs to it, if not all.
    """

    root: Path
    identity: str
    files: Images
    unpatched: Images | None
    tests: Mapping[str, bytes]
    must_be_red: tuple[str, ...]
    left_out: tuple[str, ...]
    only: str = ""


def subject_of_tree(root: Path, store: Store, state: State, entries: Mapping[str, Entry]) -> Subject:
    """Return the subject for a tree as it stands."""
    if not state.pinned:
        return _unpinned(root, state._replace(release=state.release or store.releases[-1]), entries)
    return _pinned(root, state, entries, _now(entries))


def subject_of_plan(root: Path, state: State, entries: Mapping[str, Entry], plan: Plan) -> Subject:
    """Return the subject for what a plan would make of a pinned tree."""
    return _pinned(root, state, entries, _after(entries, plan))


def subject_of_fork(root: Path, state: State, entries: Mapping[str, Entry], plan: Plan | None) -> Subject:
    """Return the subject for what a plan would make of a fork, or without a plan for the fork as it stands."""
    base = _unpinned(root, state, entries)
    if plan is None:
        return base
    release = state.release.name if state.release else ""
    identity = f"a fork of {release}: not a pinned result"
    return base._replace(identity=identity, files=_after(entries, plan), unpatched=_now(entries))


def _now(entries: Mapping[str, Entry]) -> dict[str, bytes | None]:
    return {path: entry.data if entry.kind is Kind.FILE else None for path, entry in entries.items()}


def _after(entries: Mapping[str, Entry], plan: Plan) -> dict[str, bytes | None]:
    changed = {step.path: step.after.data if step.after else None for step in plan.steps}
    return {**_now(entries), **changed}


def _pinned(root: Path, state: State, entries: Mapping[str, Entry], files: Images) -> Subject:
    base = _after(entries, plan_unapply(state, entries))
    result = _after(entries, plan_apply(state, entries))
    tests = {path: data for path, data in result.items() if path.startswith(TESTS) and data is not None}
    red = tuple(name for path, data in tests.items() for name in changed_tests(path, base.get(path), data))
    # A pristine tree is its own unpatched side.
    unpatched = None if files == base else base
    return Subject(root, headline(state), files, unpatched, tests, red, ())


def _unpinned(root: Path, state: State, entries: Mapping[str, Entry]) -> Subject:
    """Return the subject for a fork, another release or a fixed tree: the carried tests as far as they can be had."""
    release = state.release
    assert release is not None
    steps = {evidence.path: evidence.spans[0][0] for evidence in state.files if evidence.spans}
    tests: dict[str, bytes] = {}
    red: list[str] = []
    left_out: list[str] = []
    for path in filter(lambda path: path.startswith(TESTS), release.paths):
        changes = release.steps(path)
        base: File | None = None
        if path in steps and entries[path].kind is Kind.FILE:
            base = fold(File(entries[path].data, False), reversed(changes[: steps[path]]), reverse=True)
        elif path in release.base:
            left_out.append(f"{path}: the tree's own is not the file that the stack changes")
            continue
        after = fold(base, changes, reverse=False)
        if after:
            tests[path] = after.data
            red += changed_tests(path, base.data if base else None, after.data)
    note = f"not a pinned tree: {headline(state)}"
    return Subject(root, note, {}, None, tests, tuple(red), tuple(left_out))


def changed_tests(path: str, before: bytes | None, after: bytes) -> list[str]:
    """Return the test functions of a file that a change adds or edits, as pytest names them without parameters."""
    import ast

    old = dict(_functions(ast.parse(before or b"").body, path))
    return [
        name
        for name, node in _functions(ast.parse(after).body, path)
        if name not in old or ast.dump(old[name]) != ast.dump(node)
    ]


def _functions(body: Iterable[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.AST]]:
    import ast

    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _functions(node.body, f"{prefix}::{node.name}")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
            yield f"{prefix}::{node.name}", node
