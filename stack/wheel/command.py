"""apply.py wheel: from a wheel of a known release to a patched one beside it, whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from typing import Any

from stack.errors import Environment, Exit, Refused
from stack.installed.view import PackageStore, left_out
from stack.journal import describe as describe_error
from stack.journal import recover
from stack.lock import locked
from stack.message import differences, headline
from stack.outcome import Claim, Outcome
from stack.outfolder import out_folder
from stack.paths import JOURNAL
from stack.plan import plan_apply
from stack.state import Standing, State, identify
from stack.store import Store
from stack.transaction import journal_in
from stack.tree import Tree
from stack.wheel.names import patched_file_name
from stack.wheel.read import CHUNK, Wheel, entries_of, opened, readable
from stack.wheel.write import changed_members, check_whole, epoch, write


def wheel(path: str, out: str, store: Store) -> Outcome:
    """Write the patched wheel of the wheel at path into the folder out. Raises StackError; out is then as it was."""
    view, name = PackageStore(store.stacks), os.path.basename(path)
    epoch()  # a setting that is none is told before any work
    with opened(path) as found:
        with readable(name):
            entries = entries_of(found, view.paths)
        state = identify(view, entries)
        done = {Standing.APPLIED: "already applied", Standing.FIXED: "fixed upstream"}.get(state.standing)
        if done:
            return _outcome(done, f"{name}: {headline(state)}: nothing was written", state, {"wheel": path})
        if state.standing not in (Standing.PRISTINE, Standing.PARTLY):
            raise _unknown(name, state)
        with readable(name):
            changed = changed_members(found, plan_apply(state, entries), name)
        with out_folder(out, make=True) as folder, locked(folder) as have_lock:
            recover(folder, have_lock)
            return _write(found, changed, folder, state)


def _unknown(name: str, state: State) -> Refused:
    lines = [f"{name}: {headline(state)}"]
    lines += [f"  {state.release.name}: {line}" for line in differences(state) if state.release]
    if state.note and state.standing is not Standing.OTHER:
        lines.append(f"  {state.note}")
    return Refused(
        "\n".join(lines),
        "The version in a file name identifies no release, these bytes do. For a fork patch its source tree (README, "
        '"Forks") and build the wheel from that.',
    )


def _write(found: Wheel, changed: Mapping[str, bytes | None], folder: Tree, state: State) -> Outcome:
    """Write the wheel in OUT's journal, which recover removes after a kill; one link then gives it its name."""
    old = os.path.basename(found.file.filename or "")
    name = patched_file_name(old, found.names)
    new = None
    try:
        with journal_in(folder):
            staged = os.path.join(folder.root, JOURNAL, name)
            with readable(old):
                write(found, changed, staged)
            check_whole(staged)
            digest = _digest(staged)
            new = _publish(folder, staged, name, digest)
    except OSError as error:
        has = "is as it was." if new is None else f"has the patched wheel, {name}; `apply.py recover` removes the rest."
        raise Environment(
            f"{folder.root}: cannot be written: {describe_error(error)}", f"{folder.root} {has}"
        ) from error
    target = os.path.join(folder.root, name)
    word = "wheel written" if new else "already so"
    lines = [f"{target}: {word}", f"  from {old}: {headline(state)}"]
    lines += [f"  {path}: {'removed' if data is None else 'changed'}" for path, data in sorted(changed.items())]
    lines += [f"  {text}"] if (text := left_out(state.release)) else []
    return _outcome(word, "\n".join(lines), state, {"wheel": target, "sha256": digest}, _claims(state))


def _claims(state: State) -> tuple[Claim, ...]:
    assert state.release is not None
    return (
        Claim(f"{len(state.release.result)} files are those of {state.release.label}/result.sha256", "by digest"),
        Claim("every member is the one that RECORD lists", "by reading the written wheel with the wheel library"),
    )


def _outcome(word: str, message: str, state: State, data: Mapping[str, Any], claims: tuple[Claim, ...] = ()) -> Outcome:
    return Outcome("wheel", Exit.DONE, word, message, "", None, state, claims, data)


def _digest(path: str) -> str:
    """Return the SHA-256 of a file of any size."""
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            total.update(chunk)
        os.fsync(file.fileno())
    return total.hexdigest()


def _publish(folder: Tree, staged: str, name: str, digest: str) -> bool:
    """Give the staged wheel its name; return whether it was not there already. Raises Refused for other bytes there."""
    target = os.path.join(folder.root, name)
    try:
        os.link(staged, target, follow_symlinks=False)
    except FileExistsError as error:
        if os.path.isfile(target) and not os.path.islink(target) and _digest(target) == digest:
            return False
        raise Refused(f"{target}: exists already, with other bytes", "Move it away, or name another folder.") from error
    except OSError:  # a file system without hard links; the lock keeps our own runs apart
        if os.path.lexists(target):
            raise Refused(f"{target}: exists already", "Move it away, or name another folder.") from None
        os.rename(staged, target)
    with contextlib.suppress(OSError):  # unsynced, its name could be lost in a power cut, no more
        os.fsync(folder.handle)
    return True
