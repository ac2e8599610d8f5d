"""Whether quilt keeps the account of a tree: its `.pc` says which patches it has applied.

quilt, dpkg-source and gbp all write it (quilt manual, "Quilt control directory"). A tree in which
quilt has applied a patch to a file that we would change is quilt's to change.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from stack.tree import Kind, Tree


def holding(tree: Tree, paths: Iterable[str]) -> list[str]:
    """Return the patches that quilt has applied to any of the paths, in its order."""
    wanted = list(paths)
    return [name for name in applied(tree) if any(tree.read(f".pc/{name}/{path}").kind is Kind.FILE for path in wanted)]


def applied(tree: Tree) -> list[str]:
    """Return the patches that quilt has applied, in its order."""
    entry = tree.read(".pc/applied-patches")
    if entry.kind is not Kind.FILE:
        return []
    names = os.fsdecode(entry.data).split("\n")[:10_000]
    return [name for name in names if name and "\0" not in name and ".." not in name.split("/")]
