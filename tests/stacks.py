"""Make a stacks folder out of a tree and changes to it, with git's own diffs and our own data files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stack.digest import git_blob, line_digest, sha256, split_lines
from stack.pins import format_pins, pins_of

Change = Callable[[Path], None]
"""Edits the tree that it is given: what one patch of the stack does."""

CONFIG = ("user.name=T", "user.email=t@example.org", "core.fileMode=true", "core.autocrlf=false", "gc.auto=0")


def git(where: Path, *args: str) -> bytes:
    """Run git there, without the user's configuration; return what it prints."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    settings = [word for setting in CONFIG for word in ("-c", setting)]
    done = subprocess.run(["git", *settings, *args], cwd=where, env=env, capture_output=True)
    assert done.returncode == 0, f"git {' '.join(args)}: {done.returncode}: {done.stderr.decode()}"
    return done.stdout


def head(number: int, slug: str) -> bytes:
    """Return the mail header of a patch that lint would pass."""
    return (
        "From: A Tester <tester@example.org>\n"
        "Date: Mon, 2 Nov 2026 12:00:00 +0000\n"
        f"Subject: {slug}\n\nPatch {number} of a test.\n\nDrop this patch when the test goes.\n\n"
        "Origin: vendor\nBug: https://example.org/1\nForwarded: no\nApplied-Upstream: no\n"
        "Last-Update: 2026-11-02\n---\n"
    ).encode()


def make_stack(stacks: Path, name: str, base_tree: Path, changes: Sequence[Change]) -> Path:
    """Write series/<name> and patches/<name>/ for a stack that makes these changes to base_tree.

    Every change becomes one patch. Returns the tree after all of them, a work tree of git with one
    commit for each.
    """
    work = stacks / f"work-{name}"
    shutil.copytree(base_tree, work)
    git(work, "init", "-q")
    git(work, "add", "-A")
    git(work, "commit", "-q", "--allow-empty", "-m", "base")
    folder = stacks / "patches" / name
    folder.mkdir(parents=True)
    names, touched = [], set()
    for number, change in enumerate(changes, 1):
        change(work)
        git(work, "add", "-A")
        diff = git(work, "diff", "--cached", "--full-index", "--no-renames", "--no-ext-diff")
        touched |= set(git(work, "diff", "--cached", "--no-renames", "--name-only").decode().split("\n")) - {""}
        git(work, "commit", "-q", "-m", f"change {number}")
        names.append(f"{number:04d}-change-{number}.patch")
        (folder / names[-1]).write_bytes(head(number, f"change {number}") + diff)
    (stacks / "series").mkdir(exist_ok=True)
    (stacks / "series" / name).write_text("".join(f"{patch}\n" for patch in names))
    _write_data(folder, base_tree, work, sorted(touched))
    return work


def _write_data(folder: Path, base: Path, result: Path, touched: Iterable[str]) -> None:
    before = {path: (base / path).read_bytes() for path in touched if (base / path).is_file()}
    after = {path: (result / path).read_bytes() for path in touched if (result / path).is_file()}
    for name, images in (("base", before), ("result", after)):
        (folder / f"{name}.sha256").write_bytes(format_pins(pins_of(images)))
    prints = {path: fingerprint(data, after.get(path)) for path, data in before.items()}
    (folder / "fingerprint.json").write_text(json.dumps(prints))
    above = {str(above) for path in set(after) - set(before) for above in Path(path).parents} - {"."}
    about = {"upstream_commit": "0" * 40, "torch": "2.7.1", "fixed_in": "9"}
    about["directories"] = sorted(path for path in above if (base / path).is_dir())  # type: ignore[assignment]
    (folder / "release.json").write_text(json.dumps(about))


def fingerprint(data: bytes, after: bytes | None) -> dict[str, object]:
    """Return the entry of fingerprint.json for a file, which the stack leaves as `after`."""
    lines = [line_digest(line) for line in split_lines(data)]
    result = None if after is None else {"sha256": sha256(after), "git_blob": git_blob(after)}
    digests = {"sha256": sha256(data), "git_blob": git_blob(data)}
    return {"size": len(data), **digests, "result": result, "lines": lines}
