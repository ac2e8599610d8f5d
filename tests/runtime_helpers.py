"""The specimen as the runtime tests need it: a throw-away copy, with the fix or without."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

SPECIMEN = Path(__file__).parent / "specimen" / "2.7.1"
STACKS = SPECIMEN.parent / "stacks"
PATCHES = STACKS / "patches" / "2.7.1+specimen"
INIT = "torch_musa/__init__.py"
LAZY = "torch_musa/core/_lazy_init.py"
TESTS = ("tests/unittest/standalone/test_lazy_init.py", "tests/unittest/core/test_checkpoint.py")


def unpatched(dest: Path, release: str = "2.7.1") -> Path:
    """Copy the specimen of a release as it is."""
    shutil.copytree(SPECIMEN, dest)
    if release != SPECIMEN.name:
        shutil.copytree(SPECIMEN.parent / release, dest, dirs_exist_ok=True)
    return dest


def patched(dest: Path, release: str = "2.7.1", count: int = 3) -> Path:
    """Copy the specimen of a release and apply the first patches of its stack with git."""
    unpatched(dest, release)
    for patch in sorted((STACKS / "patches" / f"{release}+specimen").glob("*.patch"))[:count]:
        git(dest, "apply", str(patch))
    return dest


def git(where: Path, *arguments: str) -> bytes:
    """Run git in a folder, kept away from the user's settings and from any repository around it."""
    isolated = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    isolated |= {"LC_ALL": "C", "GIT_CEILING_DIRECTORIES": str(where.parent), "GIT_CONFIG_GLOBAL": os.devnull}
    isolated |= {"GIT_CONFIG_NOSYSTEM": "1"}
    settings = ["-c", "user.name=Tester", "-c", "user.email=tester@example.org"]
    done = subprocess.run(["git", *settings, *arguments], cwd=where, env=isolated, capture_output=True, check=False)
    assert done.returncode == 0, f"git {' '.join(arguments)}: {done.returncode}: {done.stderr.decode()}"
    return done.stdout


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
