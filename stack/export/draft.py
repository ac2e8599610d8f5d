"""What a form is asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stack.plan import Step
from stack.records import Files
from stack.store import Release, Store
from stack.tree import Entry, Tree

PREFIX = "torch-musa-"
"""Before the names of our patches in a folder that others use too."""


class Once(Tree):
    """A view of an open tree that reads each path once: what was judged is what the transaction holds the disk to."""

    def __init__(self, tree: Tree) -> None:
        self.root, self.handle = tree.root, tree.handle
        self._seen: dict[str, Entry] = {}

    def read(self, path: str) -> Entry:
        """Return what stood at path when it was first asked for."""
        if path not in self._seen:
            self._seen[path] = super().read(path)
        return self._seen[path]


class Ask(NamedTuple):
    """One export: into `tree`, which is OUT or for a form of one file the folder that holds it.

    name: the file in that folder. pc: with quilt's own state.
    """

    tree: Once
    store: Store
    release: Release
    name: str = ""
    pc: bool = False


class Draft(NamedTuple):
    """What OUT shall have: files, and steps for those that need more than bytes.

    kept: our patches that another tool has rewritten and that say the same. notes: lines for people; tip: what they do
    next with what was written.
    """

    files: Files
    steps: tuple[Step, ...] = ()
    kept: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tip: str = ""


def stack_files(release: Release, folder: str, prefix: str = PREFIX) -> dict[str, bytes]:
    """Return the patches of the series in their order, by the paths that they get."""
    return {f"{folder}{prefix}{name}": release.read(f"{release.label}/{name}") for name in release.series}


def names(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the last component of each path."""
    return tuple(path.rpartition("/")[2] for path in paths)
