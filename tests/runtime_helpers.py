"""The specimen as the runtime tests need it: a throw-away copy, with the fix or without."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

SPECIMEN = Path(__file__).parent / "specimen" / "2.7.1"
PATCHES = Path(__file__).parent / "specimen" / "stacks" / "patches" / "2.7.1+specimen"
INIT = "torch_musa/__init__.py"
LAZY = "torch_musa/core/_lazy_init.py"
TESTS = ("tests/unittest/standalone/test_lazy_init.py", "tests/unittest/core/test_checkpoint.py")


def unpatched(dest: Path) -> Path:
    """Copy the specimen as it is."""
    shutil.copytree(SPECIMEN, dest)
    return dest


def patched(dest: Path) -> Path:
    """Copy the specimen and apply its stack with git, kept away from any repository around dest."""
    unpatched(dest)
    isolated = {
        **os.environ,
        "LC_ALL": "C",
        "GIT_CEILING_DIRECTORIES": str(dest.parent),
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    for patch in sorted(PATCHES.glob("*.patch")):
        subprocess.run(["git", "apply", str(patch)], cwd=dest, env=isolated, check=True)
    return dest


def edit(tree: Path, path: str, replacements: Iterable[tuple[str, str]]) -> Path:
    """Replace texts in one file of a copy; each must be there exactly once."""
    text = (tree / path).read_text()
    for old, new in replacements:
        assert text.count(old) == 1, f"{path}: {old!r} is there {text.count(old)} times"
        text = text.replace(old, new)
    (tree / path).write_text(text)
    return tree


def snapshot(root: Path) -> Mapping[str, bytes]:
    """Return every file under root with its bytes."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
