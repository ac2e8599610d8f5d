"""The data files of a release, made from its patches and the images of the touched files before and after them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from stack.digest import git_blob, line_digest, sha256, split_lines
from stack.patch import Patch
from stack.paths import parents
from stack.pins import format_pins, pins_of
from stack.plan import File, Plan, Step
from stack.tree import Kind, Tree

Files = Mapping[str, "bytes | None"]
"""Files of a stacks folder by their labels, such as `series/2.7.1`; None for one that goes."""


class Images(NamedTuple):
    """The bytes of the touched files, by path, in the order of their first patch; without those absent on that side."""

    base: Mapping[str, bytes]
    result: Mapping[str, bytes]


def record_files(name: str, images: Images) -> dict[str, bytes]:
    """Return the pins and the line digests of a release by their labels."""
    pins = {side: pins_of(files) for side, files in images._asdict().items()}
    files = {f"patches/{name}/{side}.sha256": format_pins(pins[side]) for side in images._fields}
    return {**files, f"patches/{name}/fingerprint.json": format_fingerprint(images)}


def format_fingerprint(images: Images) -> bytes:
    """Return fingerprint.json for the files of a base, in their order."""
    return format_json(fingerprints(images))


def fingerprints(images: Images) -> dict[str, Any]:
    """Return what fingerprint.json has for the files of a base: their digests, those of the result, and the lines'."""
    return {path: _fingerprint(data, images.result.get(path)) for path, data in images.base.items()}


def _fingerprint(data: bytes, after: bytes | None) -> dict[str, Any]:
    lines = [line_digest(line) for line in split_lines(data)]
    result = None if after is None else _digests(after)
    return {"size": len(data), **_digests(data), "result": result, "lines": lines}


def _digests(data: bytes) -> dict[str, str]:
    return {"sha256": sha256(data), "git_blob": git_blob(data)}


def format_json(value: Mapping[str, Any]) -> bytes:
    """Return a data file of ours: one blank of indent, ASCII, a final newline."""
    return (json.dumps(value, indent=1) + "\n").encode()


def touched(patches: Iterable[Patch]) -> list[str]:
    """Return every path that some patch changes, in the order of their first patch."""
    return list(dict.fromkeys(change.path for patch in patches for change in patch.files))


def created(patches: Iterable[Patch]) -> Iterator[str]:
    """Yield the path of each file that some patch makes."""
    for patch in patches:
        yield from (change.path for change in patch.files if change.old_mode is None)


def folders_of(paths: Iterable[str], have: Iterable[str]) -> list[str]:
    """Return the nearest folder of each path among those that the release has: unapply must not remove it.

    >>> folders_of(["tests/new/test_a.py"], ["tests", "docs"])
    ['tests']
    """
    known = set(have)
    nearest = (next((folder for folder in parents(path) if folder in known), "") for path in paths)
    return sorted({folder for folder in nearest if folder})


def plan_files(tree: Tree, files: Files) -> Plan:
    """Plan how a stacks folder comes to have these files; files that have their bytes already take no step."""
    steps = []
    for label, data in sorted(files.items()):
        before = tree.read(label)
        same = before.kind is Kind.ABSENT if data is None else before.kind is Kind.FILE and before.data == data
        if not same:
            steps.append(Step(label, before, None if data is None else File(data, before.executable)))
    return Plan(tuple(steps))


def told(plan: Plan) -> list[str]:
    """Return a line for each step, for people."""
    return [f"  {step.path}: {_change(step)}" for step in plan.steps]


def _change(step: Step) -> str:
    if step.after is None:
        return "removed"
    return "new" if step.before.kind is Kind.ABSENT else "changed"
