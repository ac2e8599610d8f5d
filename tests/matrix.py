"""The simulated level of each release on its own torch, unpatched and patched: `make matrix`, for whoever asks for it.

Without options it installs the torch that each release pins into a throw-away environment of its own, one after
another, so that one of them is on the disk at a time; each takes minutes and gigabytes. --python takes an interpreter
that is there already, --trees the real trees in place of the specimen. A tree is copied, never written to.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

PROJECT = Path(__file__).resolve().parent.parent
SPECIMEN = PROJECT / "tests" / "specimen"
COLUMNS = ("release", "tree", "torch", "unpatched", "patched", "seconds")
# What steers Python or git must not reach a run.
FOREIGN = ("PYTHON", "GIT_")


class Case(NamedTuple):
    """A release and the interpreter for it; None for one that is to be made."""

    release: str
    torch: str
    python: Path | None


class Side(NamedTuple):
    """What verify said of one side of a tree."""

    verdict: str
    torch: str
    seconds: float


class Row(NamedTuple):
    """One line of the table, and whether it is as it must be."""

    cells: tuple[str, ...]
    good: bool


def main(argv: Sequence[str]) -> int:
    """Print the table; return 0 if every unpatched tree is refuted on the card and every patched one proven."""
    options = _arguments(argv)
    rows = []
    for case in _cases(options.python):
        print(f"{case.release}: torch {case.torch}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="matrix-") as scratch:
            python = case.python or _environment(Path(scratch, "venv"), case.torch)
            rows.append(_row(case, python, Path(scratch), options.trees))
    print(_table([COLUMNS, *(row.cells for row in rows)]))
    return 0 if rows and all(row.good for row in rows) else 1


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/matrix.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="RELEASE=PATH",
        help="run this release with this interpreter, which has torch, pytest and unidiff; only those named are run",
    )
    parser.add_argument("--trees", type=Path, metavar="DIR", help="take the tree of each release from DIR/RELEASE")
    return parser.parse_args(argv)


def _cases(given: Sequence[str]) -> list[Case]:
    """Return the releases in the order of their versions, or what --python names, in its order."""
    sys.path.insert(0, str(PROJECT))
    from stack.store import Store

    pins = {release.name: str(release.about["torch"]) for release in Store(str(PROJECT)).releases}
    if not given:
        return [Case(name, torch, None) for name, torch in pins.items()]
    pairs = [text.partition("=")[::2] for text in given]
    unknown = [name for name, path in pairs if name not in pins or not path]
    if unknown:
        raise SystemExit(f"matrix: --python needs RELEASE=PATH with one of {', '.join(pins)}: {', '.join(unknown)}")
    return [Case(name, f"of {path}", Path(path)) for name, path in pairs]


def _environment(folder: Path, torch: str) -> Path:
    """Make an environment with one torch, and with the project's own pins of all else; return its interpreter."""
    texts = [(PROJECT / "requirements" / f"{name}.in").read_text() for name in ("run", "dev", "torch")]
    lines = [line for text in texts for line in text.splitlines()]
    needed = [line for line in lines if line.partition("==")[0] in ("numpy", "pytest", "unidiff")]
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    # --no-cache-dir: gigabytes that nobody will ask for again.
    quiet = ["--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    subprocess.run([str(python), "-m", "pip", "install", *quiet, f"torch=={torch}", *needed], check=True)
    return python


def _row(case: Case, python: Path, scratch: Path, trees: Path | None) -> Row:
    stacks, unpatched, patched = _sides(case.release, scratch, trees, python)
    before, after = (_verify(python, tree, stacks) for tree in (unpatched, patched))
    seconds = f"{before.seconds:.1f} + {after.seconds:.1f}"
    kind = "real" if trees else "specimen"
    cells = (case.release, kind, after.torch, before.verdict, after.verdict, seconds)
    return Row(cells, "simulated refuted" in before.verdict and after.verdict == "proven")


def _sides(release: str, scratch: Path, trees: Path | None, python: Path) -> tuple[Path, Path, Path]:
    """Return the stacks folder, and copies of the tree without and with the stack."""
    stacks = PROJECT if trees else SPECIMEN / "stacks"
    sides = [scratch / "unpatched", scratch / "patched"]
    for side, verb in zip(sides, ("unapply", "apply"), strict=True):
        _copy(release, trees, side)
        options = ["--tests", "none"] if verb == "apply" else []
        _apply_py(python, verb, f"--stacks={stacks}", *options, str(side))
    return stacks, sides[0], sides[1]


def _copy(release: str, trees: Path | None, dest: Path) -> None:
    """Copy a release's tree. The specimen has no 2.11.0.post1, which is 2.9.1.post1 but for version strings."""
    if trees:
        shutil.copytree(trees / release, dest, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__"))
        return
    shutil.copytree(SPECIMEN / "2.7.1", dest)
    if release != "2.7.1":
        shutil.copytree(SPECIMEN / "2.9.1.post1", dest, dirs_exist_ok=True)


def _apply_py(python: Path, *arguments: str, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """Run apply.py with --json; raise SystemExit for an exit code that is none of `codes`."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    command = [str(python), str(PROJECT / "apply.py"), arguments[0], "--json", *arguments[1:]]
    done = subprocess.run(command, cwd=PROJECT, env={**env, "LC_ALL": "C.UTF-8"}, capture_output=True, text=True)
    if done.returncode not in codes:
        raise SystemExit(f"matrix: {' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def _verify(python: Path, tree: Path, stacks: Path) -> Side:
    begun = time.monotonic()
    outcome = _apply_py(python, "verify", "--level", "simulated", f"--stacks={stacks}", str(tree), codes=(0, 5))
    seconds = time.monotonic() - begun
    report = outcome["data"]["report"]
    levels = [f"{level['level']} {level['standing']}" for level in report["levels"] if level["seconds"] is not None]
    verdict = "proven" if report["proven"] else f"not proven ({', '.join(levels)})"
    return Side(verdict, report["versions"].get("torch", "unknown"), seconds)


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(f"| {line} |" for line in [lines[0], "-|-".join("-" * width for width in widths), *lines[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
