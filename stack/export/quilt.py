"""quilt: `patches/` with its `series`; and when asked for the state that quilt keeps of what it has applied.

With that state (quilt manual, "Quilt control directory") `quilt pop -a` undoes what apply.py has done.
"""

from __future__ import annotations

from collections.abc import Iterator

from stack.errors import Refused
from stack.export import ours
from stack.export.draft import Ask, Draft, names, stack_files
from stack.export.listing import join, listed
from stack.message import headline
from stack.paths import check_path
from stack.pins import format_pins, pins_of
from stack.plan import File, Step, images_before_each
from stack.state import Standing, identify
from stack.tree import Kind

FOLDER = "patches"
MANIFEST = f"{FOLDER}/torch-musa-patches.sha256"
PC = ".pc"
# The format of .pc, and where quilt finds patches and series: by the names that it looks for unless told others.
_STATE = {".version": b"2\n", ".quilt_patches": b"patches\n", ".quilt_series": b"series\n"}


def draft(ask: Ask) -> Draft:
    """Return patches, series and manifest; with pc also quilt's state of a tree in which the stack is applied."""
    patches = stack_files(ask.release, f"{FOLDER}/", "")
    have = ours.known(ask.tree, MANIFEST, rf"{FOLDER}/[^/]+\.patch")
    settled = ours.settle(ask.tree, have, patches)
    series = join(ask.tree, FOLDER, set(names(have)), patches)
    files = {**settled.files, f"{FOLDER}/series": series, MANIFEST: format_pins(pins_of(patches))}
    if not ask.pc:
        return Draft(files, kept=settled.kept, tip="quilt push -a --fuzz=0 applies it; the default fuzz is 2.")
    _check_alone(ask, series, names(patches))
    state = {f"{PC}/{name}": data for name, data in _STATE.items()}
    state[f"{PC}/applied-patches"] = "".join(f"{name}\n" for name in names(patches)).encode()
    steps = tuple(_pre_images(ask))
    _check_free(ask, {**state, **{step.path: step.after.data for step in steps if step.after}})
    missing = tuple(step for step in steps if step.before.kind is Kind.ABSENT)
    return Draft({**files, **state}, missing, settled.kept, tip="quilt pop -a takes the stack out.")


def _check_alone(ask: Ask, series: bytes, named: tuple[str, ...]) -> None:
    kind = ask.tree.read(PC).kind
    if kind not in (Kind.ABSENT, Kind.DIRECTORY):
        raise Refused(f"{ask.tree.root}/{PC}: is a {kind.value}", "Remove it: the name is quilt's.")
    others = [name for name in listed(series) if name and name not in named]
    if others:
        raise Refused(
            f"{ask.tree.root}/{FOLDER}/series: names other patches too: {', '.join(others)}",
            "quilt's state is written for our stack alone: apply.py does not know what the others have changed.",
        )


def _pre_images(ask: Ask) -> Iterator[Step]:
    """Yield what quilt push keeps of each patch: every file as it was before it, empty for one that it made.

    There is no .timestamp: without one quilt compares bytes before it pops, with one it trusts times.
    """
    tree = ask.tree
    entries = tree.read_all(ask.store.paths)
    state = identify(ask.store, entries, ask.release.name)
    if state.release is not ask.release or state.standing is not Standing.APPLIED:
        raise Refused(
            f"{tree.root}: {headline(state)}; --pc is for a tree in which all of {ask.release.name} is applied",
            "Apply it first: apply.py apply. Or leave --pc out, and let quilt push.",
        )
    for patch, images in images_before_each(state, entries):
        folder = f"{PC}/{patch.name.rpartition('/')[2]}"
        for path, image in images.items():
            if image and not image.data:
                raise Refused(
                    f"{path}: is an empty file before {patch.name}, which quilt would remove", "Use apply.py unapply."
                )
            label = check_path(f"{folder}/{path}", patch.name)
            like = entries[path] if image else None
            yield Step(label, ours.place(tree, label), image or File(b"", False), like)


def _check_free(ask: Ask, state: dict[str, bytes]) -> None:
    """Refuse a .pc that holds anything else than what is to be there."""
    if ask.tree.read(PC).kind is Kind.ABSENT:
        return
    odd = sorted(set(ask.tree.names(PC)) - {path.split("/")[1] for path in state})
    entries = {path: ours.place(ask.tree, path) for path in state}
    odd += [path for path, entry in entries.items() if entry.kind is Kind.FILE and entry.data != state[path]]
    if odd:
        raise Refused(
            f"{ask.tree.root}/{PC}: is there already, with another account of what is applied: {odd[0]}",
            "quilt is at work here: let it go on, or remove the folder if it is of no use.",
        )
