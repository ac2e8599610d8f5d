"""Cut the stack for a new base: the patches of a known release, made anew on a tree that no pin matches.

The fix is made by a syntax-aware edit (stack.edit), the tests are carried as far as the tree's own are known. The
result is proven before a byte of it is written into the stacks folder, by a proof that is handed in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from stack.commands import Proof
from stack.digest import sha256
from stack.errors import Environment, Exit, Refused, Usage
from stack.journal import pending, recover
from stack.lock import locked
from stack.message import refusal
from stack.outcome import Claim, Outcome
from stack.patch import parse_patch
from stack.paths import JOURNAL, parents
from stack.plumbing import clean_head
from stack.port_work import Work, stack_files, work_on
from stack.records import created, folders_of, format_json, plan_files, told
from stack.state import INIT, LAZY_INIT, Standing, identify
from stack.store import Release, Store
from stack.sums import with_sums
from stack.transaction import commit
from stack.tree import Entry, Kind, Tree, stands

ProvePort = Callable[[str, str, Mapping[str, bytes]], Proof]
"""Proves a new stack: the tree's root, the release, and the stack's files by label. Without the stack the tree must be
red, with it green; raises Refused for a stack that lint would not pass. Writes neither into the tree nor the stacks."""

UNKNOWN_COMMIT = "0" * 40
_NAME = re.compile(r"[0-9][A-Za-z0-9._+-]{0,99}")


class Ask(NamedTuple):
    """What the user asked for: the new release, the one to port from (None: the closest), the accepted digest."""

    name: str
    source: str | None
    accept: str | None


def port(root: str, store: Store, ask: Ask, prove: ProvePort) -> Outcome:
    """Write the stack of release `ask.name` for the tree at root into the stacks folder, if its proof holds.

    Raises StackError for what is not ported; then nothing is written. The tree is only read.
    """
    with Tree(store.stacks) as tree, locked(tree) as have_lock:
        recover(tree, have_lock)
    _check_name(store, ask.name)
    with Tree(root) as tree:
        entries, closest = _read(tree, store)
        source = store.release(ask.source) if ask.source else closest
        notes = _check_lazy_init(root, entries[LAZY_INIT], store, ask.accept)
        work = work_on(entries, source, store)
        files = stack_files(root, ask.name, source, work)
    about, more = _about(root, work, source, files)
    files = {**files, f"patches/{ask.name}/release.json": about}
    look = (*notes, *work.look, *more, *_same_names(store, ask.name, files))
    proof = prove(root, ask.name, files)
    if not proof.proven:
        message = "\n".join([proof.message, f"{root}: not proven: no stack was written"])
        return Outcome("port", Exit.UNPROVEN, "not proven", message, "", root, data=proof.data)
    return _written(root, store, ask, source, files, look, proof)


def _check_name(store: Store, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise Usage(f"--to {name}: is not the name of a release, such as 2.7.0 or 2.9.1.post1+ours")
    if name in {release.name for release in store.releases}:
        raise Refused(f"{store.stacks}: release {name} has a stack already", "apply.py refresh makes it anew.")


def _read(tree: Tree, store: Store) -> tuple[dict[str, Entry], Release]:
    """Return the tree's files and the closest release; raise Refused for a tree that needs no port."""
    if pending(tree):
        raise Environment(
            f"{tree.root}: {JOURNAL}: a run is at work here, or was cut off", "apply.py recover puts it right."
        )
    entries = tree.read_all(sorted({*store.paths, INIT, LAZY_INIT}))
    state = identify(store, {path: entries[path] for path in store.paths})
    if state.standing in (Standing.FIXED, Standing.FORKED):
        raise Refused(f"{tree.root}: {state.standing.value}, needs no stack: {state.note}")
    if state.standing is Standing.OTHER or any(entries[path].kind is not Kind.FILE for path in (INIT, LAZY_INIT)):
        raise Refused(*refusal(state, tree))
    assert state.release is not None
    if state.standing is not Standing.DRIFTED:
        what = f"is {state.release.name} by digest ({state.standing.value}): it has a stack"
        raise Refused(f"{tree.root}: {what}", f"apply.py apply {tree.root}")
    _check_defect(tree.root, entries[INIT].data)
    return entries, state.release


def _check_defect(root: str, source: bytes) -> None:
    from stack.defect import read_init

    reading = read_init(source)
    if reading.error:
        raise Refused(f"{root}: {INIT} cannot be read as Python: {reading.error}")
    if reading.fixed:
        line = reading.forwarder_line
        raise Refused(f"{root}: needs no stack: the flag is forwarded at {INIT}:{line} (by source reading)")
    if reading.reexport_line is None:
        raise Refused(f"{root}: has not the defect: {INIT} does not bind the flag at import (by source reading)")
    if b"\r\n" in source:
        line = source.count(b"\n", 0, source.index(b"\r\n")) + 1
        raise Refused(
            f"{root}: {INIT}:{line} ends in CR LF: git am takes the CR off a patch, so no tool would apply it alike",
            "Check the files out with LF (git config core.autocrlf false, then again).",
        )


def _check_lazy_init(root: str, entry: Entry, store: Store, accept: str | None) -> list[str]:
    """Let pass a core/_lazy_init.py that is pinned somewhere, or that the user names; return what to look at."""
    digest = sha256(entry.data)
    if accept is not None and accept != digest:
        raise Refused(f"{root}: {LAZY_INIT} has the digest {digest}, not {accept} as --accept-lazy-init says")
    pins = {pins.get(LAZY_INIT) for release in store.releases for pins in (release.base, release.result)}
    if digest in pins:
        return []
    what = (
        "that _lazy_init() alone sets the flag, as its last step; that nothing rebinds the other names that "
        f"{INIT} takes; that core/__init__.py binds no name _lazy_init, which would hide the module"
    )
    if accept is None:
        raise Refused(
            f"{root}: {LAZY_INIT} is one that no pin knows (sha256 {digest}), and the fix was reasoned about that file",
            f"Read it: {what}. Then: --accept-lazy-init {digest}",
        )
    return [f"{LAZY_INIT} was accepted by its digest. Check {what}."]


def _about(root: str, work: Work, source: Release, files: Mapping[str, bytes]) -> tuple[bytes, list[str]]:
    """Return release.json, and what a person must fill in or check in it."""
    look = []
    commit_id = clean_head(root) or UNKNOWN_COMMIT
    if commit_id == UNKNOWN_COMMIT:
        why = "the tree is not the top of a clean git work tree"
        look.append(f"release.json: upstream_commit is unknown ({why}): fill it in, if there is one")
    torch = torch_of(work.base[INIT].data)
    if not torch:
        torch = str(source.about["torch"])
        look.append(f"release.json: torch is that of {source.name}: {INIT} has no TORCH_MIN_VERSION")
    patches = [parse_patch(data, label) for label, data in files.items() if label.endswith(".patch")]
    above = {folder for path in created(patches) for folder in parents(path) if stands(f"{root}/{folder}")}
    look.append(f"release.json: fixed_in is that of {source.name}: {source.about['fixed_in']}")
    about: dict[str, Any] = {
        "upstream_commit": commit_id,
        "torch": torch,
        "fixed_in": source.about["fixed_in"],
        "directories": folders_of(created(patches), above),
    }
    return format_json(about), look


def torch_of(source: bytes) -> str:
    """Return the torch version that `torch_musa/__init__.py` asks for by TORCH_MIN_VERSION, or an empty text."""
    import ast

    from stack.bindings import parse

    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "TORCH_MIN_VERSION" for target in node.targets
        ):
            texts = [one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)]
            return next((text for text in texts if isinstance(text, str) and text[:1].isdigit()), "")
    return ""


def _same_names(store: Store, name: str, files: Mapping[str, bytes]) -> list[str]:
    new = tuple(label.rpartition("/")[2] for label in files if label.endswith(".patch"))
    others = [release.name for release in store.releases if release.series != new]
    if not others:
        return []
    return [f"series/{name}: has other patch names than {', '.join(others)}: lint over all of them will say so"]


def _written(
    root: str,
    store: Store,
    ask: Ask,
    source: Release,
    files: Mapping[str, bytes],
    look: tuple[str, ...],
    proof: Proof,
) -> Outcome:
    with Tree(store.stacks) as tree, locked(tree) as have_lock:
        recover(tree, have_lock)
        plan = plan_files(tree, with_sums(tree, store, files))
        new = [step for step in plan.steps if step.path in files]
        taken = [step.path for step in new if step.before.kind is not Kind.ABSENT]
        if taken or len(new) != len(files):
            raise Refused(f"{store.stacks}: {', '.join(taken) or ask.name} exists already", "Nothing was written.")
        commit(tree, plan)
    lines = [f"{root}: {ask.name}: ported from {source.name}", *told(plan), proof.message, "  a person must look at:"]
    lines += [f"  - {note}" for note in look]
    claim = Claim("the stack leads from this tree's files to those of its result.sha256", "by digest")
    data = {**proof.data, "from": source.name, "files": sorted(files), "look_at": list(look)}
    tip = f"apply.py apply --release {ask.name} TREE applies it."
    return Outcome("port", Exit.DONE, "ported", "\n".join(lines), tip, root, None, (claim,), data)
