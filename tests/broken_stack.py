"""A stacks folder like the specimen's, with one patch that does other work: every digest right, and the fix wrong."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.runtime_helpers import PATCHES, TESTS, edit, git, unpatched

Change = Callable[[Path], None]
RELEASE = PATCHES.name


def make_stacks(folder: Path, number: int, change: Change) -> Path:
    """Write the stacks folder and return it.

    number: which patch of the series does other work, from 1 on. change: does that work in the tree that it is given.
    """
    target = folder / "patches" / RELEASE
    shutil.copytree(PATCHES, target)
    shutil.copytree(PATCHES.parents[1] / "series", folder / "series", ignore=lambda _, names: {*names} - {RELEASE})
    work = unpatched(folder / "work")
    git(work, "init", "-q")
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", "base")
    for place, patch in enumerate(sorted(target.glob("*.patch")), 1):
        if place == number:
            change(work)
        else:
            git(work, "apply", str(PATCHES / patch.name))
        head = patch.read_bytes().partition(b"\n---\n")[0]
        git(work, "add", "-A")
        patch.write_bytes(head + b"\n---\n" + git(work, "diff", "--cached", "--full-index", "--no-ext-diff"))
        git(work, "commit", "-q", "-m", patch.name)
    _pin(target / "result.sha256", work)
    return folder


def _pin(pins: Path, tree: Path) -> None:
    paths = [line.partition("  ")[2] for line in pins.read_text().splitlines()]
    pins.write_text("".join(f"{hashlib.sha256((tree / path).read_bytes()).hexdigest()}  {path}\n" for path in paths))


def harmless_comment(tree: Path) -> None:
    """Change the right file in a way that fixes nothing."""
    edit(
        tree,
        "torch_musa/__init__.py",
        [("from .core._lazy_init import (\n", "from .core._lazy_init import (  # all\n")],
    )


def vacuous_test(tree: Path) -> None:
    """Add the carried tests, but let one of those that the fix is there for assert nothing of it."""
    git(tree, "apply", str(sorted(PATCHES.glob("0003-*"))[0]))
    edit(
        tree,
        TESTS[1],
        [("        assert torch.equal(draws[0], draws[1])\n        assert torch.equal(gradient, draws[0])\n", "")],
    )
