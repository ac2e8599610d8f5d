"""The main job, shown on a copy of the specimen: every command as one would type it, and what it answered.

It fails when a command has another exit code than is written here, or when the tree does not end as it began.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parent.parent
STACKS = "tests/specimen/stacks"
PINS = f"../../../{STACKS}/patches/2.7.1+specimen"
SCRATCH = "build/demo"
TREE = f"{SCRATCH}/torch_musa-2.7.1"
REPORT = f"{SCRATCH}/report.html"


class Step(NamedTuple):
    """One command of the demonstration: what it shows, what to type, and the exit code that it must have."""

    title: str
    command: str
    code: int = 0


def steps() -> list[Step]:
    """Return the way of a tree through identify, gate, apply, proof and undo."""
    flag, where = f"{TREE}/torch_musa/core/_lazy_init.py", f"--stacks {STACKS} {TREE}"
    apply, verify = "python3 apply.py apply --tests none", "python3 apply.py verify --level"
    return [
        Step("A tree as it was released: which one is it, and is the fix in?", f"python3 apply.py status {where}"),
        Step("It has the defect: without a card, and without torch, by importing it.", f"{verify} import {where}", 5),
        Step("Somebody changes one byte.", f"sed -i.orig '30s/n/m/' {flag}"),
        Step("The gate refuses: nobody has reasoned about these bytes.", f"{apply} {where}", 1),
        Step("The byte goes back.", f"mv {flag}.orig {flag}"),
        Step("The whole stack goes in, or nothing.", f"{apply} {where}"),
        Step("sha256sum agrees, without any code of ours.", f"(cd {TREE} && sha256sum -c {PINS}/result.sha256)"),
        Step("The tree says what it is now.", f"python3 apply.py status {where}"),
        Step("The proof, on real torch with a stand-in card.", f"{verify} simulated --html {REPORT} {where}"),
        Step("The stack goes out again.", f"python3 apply.py unapply {where}"),
        Step("Every byte is the release's.", f"(cd {TREE} && sha256sum -c {PINS}/base.sha256)"),
    ]


def show(step: Step) -> None:
    """Print and run one step; raise SystemExit when its exit code is not the one it must have."""
    print(f"\n# {step.title}\n$ {step.command}", flush=True)
    # The python3 that one would type is the one that runs this file.
    command = step.command.replace("python3 ", f"{shlex.quote(sys.executable)} ", 1)
    # One stream: a refusal goes to stderr, and must stand where it happened.
    code = subprocess.run(["sh", "-c", f"({command}) 2>&1"], cwd=PROJECT, stdin=subprocess.DEVNULL).returncode
    if code:
        print(f"(exit code {code})", flush=True)
    if code != step.code:
        raise SystemExit(f"demo: expected exit code {step.code}, got {code}")


def files(tree: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and bytes of every file of the tree."""
    return {str(path): (path.stat().st_mode, path.read_bytes()) for path in sorted(tree.rglob("*")) if path.is_file()}


def main() -> None:
    """Run every step on a fresh copy, and see that the tree ends as it began."""
    tree = PROJECT / TREE
    shutil.rmtree(PROJECT / SCRATCH, ignore_errors=True)
    shutil.copytree(PROJECT / "tests/specimen/2.7.1", tree)
    before = files(tree)
    for step in steps():
        show(step)
    if files(tree) != before:
        raise SystemExit("demo: the tree is not as it was")
    print(f"\nAll as it must be. Look at {REPORT}. On a tree of your own: make apply TREE=...")


if __name__ == "__main__":
    main()
