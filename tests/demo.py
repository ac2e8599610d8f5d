"""The main job, shown on a copy of the specimen: every command as one would type it, and what it answered.

Ends with an error when a command answers with another exit code than this file says, or the tree is not what it must be.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parent.parent
STACKS = "tests/specimen/stacks"
RELEASE = "2.7.1+specimen"
BASE, RESULT = (f"{STACKS}/patches/{RELEASE}/{name}.sha256" for name in ("base", "result"))


class Step(NamedTuple):
    """One command of the demonstration: what it shows, what to type, and the exit code that it must have."""

    title: str
    command: str
    code: int = 0


def engine_steps(tree: str) -> list[Step]:
    """Return the way of a tree through identify, gate, apply and undo."""
    flag, where = f"{tree}/torch_musa/core/_lazy_init.py", f"--stacks {STACKS} {tree}"
    return [
        Step("A tree as it was released: which one is it, and is the fix in?", f"python3 apply.py status {where}"),
        Step("Somebody changes one byte.", f"sed -i.orig '30s/n/m/' {flag}"),
        Step("The gate refuses: nobody has reasoned about these bytes.", f"python3 apply.py apply {where}", 1),
        Step("The byte goes back.", f"mv {flag}.orig {flag}"),
        Step("The whole stack goes in, or nothing.", f"python3 apply.py apply {where}"),
        Step("sha256sum agrees, without any code of ours.", f"(cd {tree} && sha256sum -c {PROJECT}/{RESULT})"),
        Step("The tree says what it is now.", f"python3 apply.py status {where}"),
        Step("The stack goes out again.", f"python3 apply.py unapply {where}"),
        Step("Every byte is the release's.", f"(cd {tree} && sha256sum -c {PROJECT}/{BASE})"),
    ]


def show(step: Step) -> None:
    """Print and run one step; raise SystemExit when its exit code is not the one it must have."""
    print(f"\n# {step.title}\n$ {step.command}", flush=True)
    # The python3 that one would type is the one that runs this file.
    command = step.command.replace("python3 ", f"{shlex.quote(sys.executable)} ", 1)
    code = subprocess.run(["sh", "-c", command], cwd=PROJECT, stdin=subprocess.DEVNULL, check=False).returncode
    if code:
        print(f"(exit code {code})", flush=True)
    if code != step.code:
        raise SystemExit(f"demo: expected exit code {step.code}, got {code}")


def files(tree: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and bytes of every file of the tree."""
    return {str(path): (path.stat().st_mode, path.read_bytes()) for path in sorted(tree.rglob("*")) if path.is_file()}


def main() -> None:
    """Run every step on a scratch copy, and see that the tree ends as it began."""
    with tempfile.TemporaryDirectory(prefix="demo-") as scratch:
        tree = Path(scratch, "torch_musa-2.7.1")
        shutil.copytree(PROJECT / "tests/specimen/2.7.1", tree)
        before = files(tree)
        for step in engine_steps(shlex.quote(os.fspath(tree))):
            show(step)
        if files(tree) != before:
            raise SystemExit("demo: the tree is not as it was")
    print("\nAll as it must be. On a tree of your own: make apply TREE=...")


if __name__ == "__main__":
    main()
