"""Scratch trees.

A few files replaced by real copies, the rest of torch_musa linked, the tree itself never touched.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Union

PACKAGE = "torch_musa"
# Bytecode of the judged tree must not travel: a stale file there would be run in place of the
# source.
_LEFT_OUT = "__pycache__"

# The replaced paths as nested names: a file's bytes, None for a file that shall be absent, or a
# folder.
_Node = Union[bytes, None, "dict[str, _Node]"]


def overlay(dest: Path, tree: Path, replaced: Mapping[str, bytes | None]) -> Path:
    """Make a tree under dest: written copies of the replaced paths, links for the rest.

    dest: a folder that is absent or empty; it becomes the root of the new tree and is returned.
    tree: a source tree, or the folder that holds an installed torch_musa. Nothing is written there.
    replaced: path relative to the tree -> its bytes, or None when the path shall be absent.
    Paths outside torch_musa (tests) appear only when they are named here.

    Raises ValueError for a path that leaves the tree or is both file and folder, NotADirectoryError
    when tree has no torch_musa folder or a replaced path runs through a file.
    """
    if not (tree / PACKAGE).is_dir():
        raise NotADirectoryError(f"{tree}: has no folder {PACKAGE}")
    nodes = _nested(replaced)
    package = _folder(nodes, PACKAGE, PACKAGE)
    del nodes[PACKAGE]
    dest.mkdir(parents=True, exist_ok=True)
    _mirror(dest / PACKAGE, tree.absolute() / PACKAGE, package)
    _fill(dest, None, nodes)
    return dest


def _nested(replaced: Mapping[str, bytes | None]) -> dict[str, _Node]:
    """Return the replaced paths as nested names."""
    nodes: dict[str, _Node] = {}
    for path, content in replaced.items():
        *folders, name = _parts(path)
        place = nodes
        for folder in folders:
            place = _folder(place, folder, path)
        if name in place:
            raise ValueError(f"{path}: is named twice, or as a folder too")
        place[name] = content
    return nodes


def _folder(nodes: dict[str, _Node], name: str, path: str) -> dict[str, _Node]:
    """Return the folder of this name, made when it is not there yet."""
    node = nodes.setdefault(name, {})
    if isinstance(node, dict):
        return node
    raise ValueError(f"{path}: {name} is a folder and cannot be replaced by a file")


def _parts(path: str) -> tuple[str, ...]:
    """Return the names of a relative path that stays inside."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise ValueError(f"{path!r}: not a relative path inside the tree")
    return parts


def _mirror(dest: Path, source: Path, nodes: Mapping[str, _Node]) -> None:
    """Make dest a real folder: links to the entries of source, but for the replaced ones."""
    dest.mkdir()
    for entry in sorted(os.listdir(source)):
        if entry not in nodes and entry != _LEFT_OUT:
            (dest / entry).symlink_to(source / entry)
    _fill(dest, source, nodes)


def _fill(dest: Path, source: Path | None, nodes: Mapping[str, _Node]) -> None:
    """Write the replaced entries of one folder.

    Source is its counterpart in the tree, None where nothing is linked.
    """
    for name, node in sorted(nodes.items()):
        if isinstance(node, bytes):
            (dest / name).write_bytes(node)
        elif node is not None and source is not None and (source / name).exists():
            _mirror(dest / name, source / name, node)
        elif node is not None and _writes(node):
            (dest / name).mkdir()
            _fill(dest / name, None, node)


def _writes(node: Mapping[str, _Node]) -> bool:
    """Say whether any file is written below: a folder of absent files alone is not made."""
    return any(isinstance(below, bytes) or (isinstance(below, dict) and _writes(below)) for below in node.values())
