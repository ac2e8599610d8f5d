#!/usr/bin/env python3
"""Complete a case of tests/cases: python3 tests/make_case.py tests/cases/NAME...

What is not there is made: from before/ and after/ a patch with git and a series; then, by running the case, error.txt
where there is no after/, and tools.txt. What was there stays. Read what it wrote: it says what happens, not what is
right.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from cases_runner import TOOLS, Case, run_engine, run_tool  # noqa: E402
from stacks import git  # noqa: E402

HEAD = b"From: A Tester <tester@example.org>\nDate: Mon, 2 Nov 2026 12:00:00 +0000\nSubject: Change\n\nA case.\n---\n"


def diff(before: Path, after: Path, *options: str) -> bytes:
    """Return git's diff of two trees, in the form that the engine reads."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch) / "work"
        shutil.copytree(before, work, symlinks=True)
        git(work, "init", "-q")
        git(work, "add", "-Af")
        git(work, "commit", "-q", "--allow-empty", "-m", "before")
        shutil.move(work / ".git", Path(scratch) / "git")
        shutil.rmtree(work)
        shutil.copytree(after, work, symlinks=True)
        shutil.move(Path(scratch) / "git", work / ".git")
        git(work, "add", "-Af")
        return git(work, "diff", "--cached", "--full-index", "--no-renames", *options)


def complete(case: Case) -> None:
    """Write what the case does not have yet."""
    patches = case.folder / "patches"
    if not patches.is_dir():
        patches.mkdir()
        (patches / "0001-change.patch").write_bytes(HEAD + diff(case.base, case.folder / "after"))
    if not (case.folder / "series").exists():
        names = sorted(path.name for path in patches.glob("*.patch"))
        (case.folder / "series").write_text("".join(f"{name}\n" for name in names))
    with tempfile.TemporaryDirectory() as scratch:
        came = run_engine(case, Path(scratch))
    print(f"{case.name}: {came.error or 'applied'}{came.wrong}")
    if came.error and not (case.folder / "after").is_dir() and not (case.folder / "error.txt").exists():
        (case.folder / "error.txt").write_text(came.error)
    if not (case.folder / "tools.txt").exists():
        (case.folder / "tools.txt").write_text("".join(f"{tool}: {_word(case, tool)}\n" for tool in TOOLS))


def _word(case: Case, tool: str) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        return run_tool(case, TOOLS[tool], Path(scratch))


if __name__ == "__main__":
    os.umask(0o022)
    for name in sys.argv[1:]:
        complete(Case(Path(name).resolve()))
