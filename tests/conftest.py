"""What the tests share: specimen trees, the command in a child process, and a tree's exact picture."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
SPECIMEN = ROOT / "tests" / "specimen"
STACKS = SPECIMEN / "stacks"
INIT = "torch_musa/__init__.py"
LAZY_INIT = "torch_musa/core/_lazy_init.py"
OLD_TEST = "tests/unittest/standalone/test_lazy_init.py"
NEW_TEST = "tests/unittest/core/test_checkpoint.py"
# Where hypothesis keeps what it finds; pytest-xdist's own process writes there, too.
os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(ROOT / "build" / "hypothesis")


class Ran(NamedTuple):
    """What a command came to."""

    code: int
    stdout: str
    stderr: str


class Shot(NamedTuple):
    """One path of a snapshot; time is None for a directory, whose time its entries change."""

    data: bytes | None
    mode: int
    time: int | None
    owner: tuple[int, int]


RunCli = Callable[..., Ran]


def snapshot(tree: Path) -> dict[str, Shot]:
    """Return every path below tree: bytes (a link's target), mode, time and owner."""
    shots = {}
    for path in sorted(tree.rglob("*")):
        found = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        if path.is_symlink():
            data = os.fsencode(os.readlink(path))
        time = None if path.is_dir() and not path.is_symlink() else found.st_mtime_ns
        shots[str(path.relative_to(tree))] = Shot(data, found.st_mode, time, (found.st_uid, found.st_gid))
    return shots


def contents(tree: Path) -> dict[str, tuple[bytes | None, int]]:
    """Return the snapshot without times: what apply and unapply together must leave as it was."""
    return {path: (shot.data, shot.mode) for path, shot in snapshot(tree).items()}


def copy_specimen(target: Path, release: str = "2.7.1") -> Path:
    """Copy the specimen with the modes of a checkout under umask 022, whatever the umask here."""
    shutil.copytree(SPECIMEN / "2.7.1", target, ignore=shutil.ignore_patterns("__pycache__"))
    if release != "2.7.1":
        shutil.copytree(SPECIMEN / release, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.suffix == ".sh" else 0o644)
    return target


@pytest.fixture
def specimen(tmp_path: Path) -> Path:
    """A pristine tree of release 2.7.1+specimen."""
    return copy_specimen(tmp_path / "tree")


@pytest.fixture
def specimen_291(tmp_path: Path) -> Path:
    """A pristine tree of release 2.9.1.post1+specimen."""
    return copy_specimen(tmp_path / "tree-2.9.1", "2.9.1.post1")


def _command(args: tuple[object, ...]) -> list[str]:
    words = [str(arg) for arg in args]
    takes_tree = words and not words[0].startswith("-") and words[0] not in ("releases", "lint")
    given = ["--stacks", str(STACKS)] if takes_tree and "--stacks" not in words else []
    if words[:1] == ["apply"] and not any(word.startswith(("--tests", "--help")) for word in words):
        given.append("--tests=none")  # what apply proves has tests of its own
    return [sys.executable, str(ROOT / "apply.py"), *words[:1], *given, *words[1:]]


@pytest.fixture
def run_cli(tmp_path: Path) -> RunCli:
    """Run the real apply.py; a verb that takes a TREE gets the specimen's stacks unless told others."""

    def run(*args: object, env: dict[str, str] | None = None) -> Ran:
        done = subprocess.run(
            _command(args), cwd=tmp_path, env={**os.environ, **(env or {})}, capture_output=True, timeout=300
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is synced does not matter to a killed process, only to a power cut; and it takes seconds."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
