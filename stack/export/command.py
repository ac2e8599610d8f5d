"""`apply.py export`: OUT gets a stack in the form of a packaging system, all of it or nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping

from stack.errors import Environment, Exit, Malformed, Usage
from stack.export import debian, mbox, quilt, rpm
from stack.export.draft import Ask, Draft, Once
from stack.journal import recover
from stack.lock import locked
from stack.outcome import Outcome
from stack.outfolder import out_folder
from stack.paths import check_path
from stack.plan import Plan
from stack.quilt import applied
from stack.records import plan_files, told
from stack.state import check_believed, identify
from stack.store import Store
from stack.transaction import commit
from stack.tree import Kind, Tree

FORMS = {"debian": debian.draft, "rpm": rpm.draft, "quilt": quilt.draft, "mbox": mbox.draft}
_FOLDERS = {"debian": debian.FOLDER, "quilt": quilt.FOLDER}
"""Where the forms that quilt may have applied keep their patches."""


def export(form: str, out: str, store: Store, options: Mapping[str, str]) -> Outcome:
    """Write the stack of a release into OUT. options: release, pc. Raises StackError; OUT is then as it was."""
    if "release" not in options:
        raise Usage("export: --release R is missing: the release whose stack it is", "apply.py releases lists them.")
    if "pc" in options and form != "quilt":
        raise Usage(f"export: --pc is quilt's own state, it does not go with {form}")
    release = store.release(options["release"])
    release.patches  # noqa: B018 - a broken stack is told of before anything is made
    folder, name = _split(out) if form == "mbox" else (out, "")
    with (
        out_folder(folder, form == "rpm" or (form == "quilt" and "pc" not in options)) as tree,
        locked(tree) as have_lock,
    ):
        recover(tree, have_lock)
        ask = Ask(Once(tree), store, release, name, "pc" in options)
        draft = FORMS[form](ask)
        if form in _FOLDERS and not ask.pc:
            _check_release(ask)
        plan = Plan((*plan_files(ask.tree, draft.files).steps, *draft.steps))
        _check_not_applied(ask.tree, plan, _FOLDERS.get(form, ""))
        commit(tree, plan)
    return _outcome(form, out, ask, draft, plan)


def _split(out: str) -> tuple[str, str]:
    folder, name = os.path.split(out)
    try:
        return folder or ".", check_path(name, out)
    except Malformed as error:
        raise Usage(f"{error}", "Name the file to write.") from error


def _check_release(ask: Ask) -> None:
    """Refuse when OUT holds a source tree that is another release: there the patches would not apply."""
    entries = ask.tree.read_all(ask.store.paths)
    if all(entry.kind in (Kind.ABSENT, Kind.BELOW) for entry in entries.values()):
        return  # packaging alone
    state = identify(ask.store, entries, ask.release.name)
    check_believed(ask.tree.root, state, ask.release.name, "Name {}, or the source tree that you mean.")


def _check_not_applied(tree: Tree, plan: Plan, folder: str) -> None:
    """Refuse to change a patch that quilt has applied: it could not take it out any more."""
    changed = {step.path for step in plan.steps if step.before.kind is Kind.FILE}
    held = [name for name in applied(tree) if f"{folder}/{name}" in changed]
    if held:
        raise Environment(
            f"{tree.root}: quilt is in charge here: .pc says that it has applied {', '.join(held)}",
            f"Take them out first, with the patches that they were: QUILT_PATCHES={folder} quilt pop -a",
        )


def _outcome(form: str, out: str, ask: Ask, draft: Draft, plan: Plan) -> Outcome:
    release = ask.release
    kept = [f"  {path}: says the same in another tool's form (gbp pq, quilt refresh): kept" for path in draft.kept]
    data = {
        "form": form,
        "release": release.name,
        "patches": list(release.series),
        "written": [step.path for step in plan.steps if step.after],
        "removed": [step.path for step in plan.steps if not step.after],
        "kept": list(draft.kept),
    }
    if not plan.steps:
        lines = [f"{out}: {release.name} for {form}: already so, nothing was changed", *kept]
        return Outcome("export", Exit.DONE, "already so", "\n".join(lines), "", out, data=data)
    lines = [f"{out}: {release.name} for {form}: exported {len(release.patches)} patches", *told(plan), *kept]
    return Outcome("export", Exit.DONE, "exported", "\n".join([*lines, *draft.notes]), draft.tip, out, data=data)
