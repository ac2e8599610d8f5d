"""The bytecode of the touched modules: what is stale is replaced in the same transaction as its source.

Bytecode lies in `__pycache__/NAME.TAG.pyc` and `NAME.TAG.opt-N.pyc` (PEP 3147, PEP 488). An interpreter takes it for
the source by time and size, by the source's hash, or unchecked (PEP 552): an unchecked one would hide the fix for good.
What is made here is checked by hash. So it can be made before the source is written, and no moment has a stale one.
Bytecode below PYTHONPYCACHEPREFIX lies elsewhere and is left: a new source has another time and size.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from stack.errors import Environment
from stack.installed.child import ask
from stack.installed.find import Installed
from stack.plan import File, Step
from stack.tree import Kind, Tree

_NAME = re.compile(r"(?P<stem>[A-Za-z0-9_]+)\.(?P<tag>[A-Za-z0-9_+-]+)(\.opt-(?P<level>[012]))?\.pyc")
_FLAGS, _HASH = slice(4, 8), slice(8, 16)
_UNCHECKED = b"\x01\0\0\0"


class Cached(NamedTuple):
    """One file of bytecode: its path, its source's, and for which interpreter and level it is."""

    path: str
    source: str
    tag: str
    level: int


class Renewal(NamedTuple):
    """The steps for the bytecode, and what could not be made again."""

    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()


def cached(tree: Tree, source: str) -> list[Cached]:
    """Return the bytecode that lies beside a module, for every interpreter and level."""
    folder, _, name = source.rpartition("/")
    try:
        handle = tree.folder(f"{folder}/__pycache__/")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Environment(
            f"{tree.root}/{folder}/__pycache__: cannot be looked into: {error.strerror}",
            "Bytecode there could hide the fix. If it is a link or a file, remove it: python makes its own folder.",
        ) from error
    try:
        names = sorted(os.listdir(handle))
    finally:
        os.close(handle)
    found = [(name, match) for name in names if (match := _NAME.fullmatch(name))]
    return [
        Cached(f"{folder}/__pycache__/{one}", source, match["tag"], int(match["level"] or 0))
        for one, match in found
        if f"{match['stem']}.py" == name
    ]


def renew(tree: Tree, installed: Installed, after: Mapping[str, File | None], changed: frozenset[str]) -> Renewal:
    """Plan the bytecode of the touched modules.

    after: each touched file as it shall be; changed: those of them that this run changes.
    For the environment's own interpreter it is made anew, for others it goes: they make it themselves.
    """
    lying = [one for path in after for one in cached(tree, path)]
    doubtful = [one for one in lying if one.source in changed or _unchecked(tree, one)]
    if not doubtful:
        return Renewal()
    made, notes = _made(installed, after, [one for one in doubtful if one.tag == installed.cache_tag])
    steps = []
    for one in doubtful:
        before, data = tree.read(one.path), made.get(one)
        if one.source not in changed and data is not None and before.data[_HASH] == data[_HASH]:
            continue  # unchecked, but of this very source
        if before.kind is Kind.FILE:
            steps.append(Step(one.path, before, None if data is None else File(data, before.executable)))
    gone = [step.path for step in steps if step.after is None]
    notes += [f"removed, and made by the next import: {path}" for path in gone]
    return Renewal(tuple(steps), tuple(notes))


def _unchecked(tree: Tree, one: Cached) -> bool:
    return tree.read(one.path).data[_FLAGS] == _UNCHECKED


def _made(
    installed: Installed, after: Mapping[str, File | None], wanted: list[Cached]
) -> tuple[dict[Cached, bytes], list[str]]:
    """Return the new bytecode, or none and why."""
    sources = {one.source: image for one in wanted if (image := after[one.source]) is not None}
    levels = {path: sorted({one.level for one in wanted if one.source == path}) for path in sources}
    order = [
        {"path": f"{installed.site}/{path}", "data": base64.b64encode(image.data).decode(), "levels": levels[path]}
        for path, image in sources.items()
    ]
    if not order:
        return {}, []
    try:
        answer = dict(zip(sources, ask(installed.python, "compile_child.py", order), strict=True))
        return {
            one: base64.b64decode(answer[one.source][str(one.level)]) for one in wanted if one.source in sources
        }, []
    except (Environment, ValueError, LookupError, TypeError) as error:
        return {}, [f"bytecode could not be made again: {error}"]
