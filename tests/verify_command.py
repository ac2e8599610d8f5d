"""apply.py in a child process, what it came to, and an exact picture of a tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.runtime_helpers import STACKS

ROOT = Path(__file__).parents[1]


class Done(NamedTuple):
    """What one command came to."""

    code: int
    outcome: Mapping[str, Any]
    errors: str

    @property
    def report(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.outcome["data"]["report"]
        return found

    def standing(self) -> dict[str, str]:
        """Return what each level came to, but for those that nobody asked for."""
        pairs = {level["level"]: level["standing"] for level in self.report["levels"]}
        return {level: standing for level, standing in pairs.items() if standing != "not asked for"}

    def findings(self, status: str) -> dict[str, str]:
        """Return the findings of one status: the detail by check, with the side where it is not the tree."""
        found = [finding for finding in self.report["findings"] if finding["status"] == status]
        return {f["check"] + f"[{f['side']}]" * (f["side"] != "tree"): f["detail"] for f in found}


def picture(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return every path below a folder with mode, modification time in ns, and bytes."""
    found = {}
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(root))] = (status.st_mode, status.st_mtime_ns, data)
    return found


def environment(scratch: Path) -> dict[str, str]:
    """Return our environment without what steers Python or git, and with a folder for temporary files."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GIT_"))}
    return {**kept, "TMPDIR": str(scratch)}


class Command:
    """apply.py in a child process."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.python = sys.executable

    def line(self, verb: str, *arguments: str | Path, stacks: Path = STACKS) -> list[str]:
        return [self.python, str(ROOT / "apply.py"), verb, f"--stacks={stacks}", *map(str, arguments)]

    def run(self, verb: str, *arguments: str | Path, stacks: Path = STACKS) -> Done:
        """Run a verb with --json; its exit code is the process's."""
        line = self.line(verb, "--json", *arguments, stacks=stacks)
        env = environment(self.scratch)
        done = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        outcome = json.loads(done.stdout)
        assert outcome["exit"] == done.returncode
        return Done(done.returncode, outcome, done.stderr)

    def judge(self, tree: Path, *options: str | Path, stacks: Path = STACKS) -> Done:
        """Run verify, and see that the tree is left as it was, to the byte, mode and time."""
        before = picture(tree)
        done = self.run("verify", *options, tree, stacks=stacks)
        assert picture(tree) == before
        return done


def living(mark: str) -> list[str]:
    """Return the command lines of the living processes that hold this text."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in found if mark in line]
