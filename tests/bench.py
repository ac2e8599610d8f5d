"""`make bench`: whole commands, timed side by side in one run, beside the targets that the project set itself.

Everything is made in a scratch folder. Rounds are interleaved, so that a busy machine slows all alike; what counts are
the ratios within a round. Nothing here is a test: a time depends on the machine.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from stack.digest import git_blob, line_digest, sha256, split_lines  # noqa: E402
from stack.pins import format_pins, pins_of  # noqa: E402
from tests.stock_tools import Stack, environment, repository, specimen  # noqa: E402

ROUNDS = 15
FULL_SIZE = 950
SIZES = (10, 100, 1000)
HEAD = "From: a <a@example.org>\nDate: Mon, 30 Nov 2026 12:00:00 +0000\nSubject: change {path}\n\nA change.\n---\n"


class Command(NamedTuple):
    """One command to time: argv, where, and what makes its tree ready again (not timed)."""

    name: str
    argv: list[str]
    cwd: Path
    reset: Callable[[], object]
    env: dict[str, str] = environment()


def seconds(command: Command) -> float:
    """Reset, run once, and return how long the whole command took; raise SystemExit when it failed."""
    command.reset()
    os.sync()  # what the reset wrote must not be paid for by the first command that makes its own writes durable
    begun = time.perf_counter()
    done = subprocess.run(
        command.argv, cwd=command.cwd, env=command.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    taken = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(f"bench: {command.name}: exit code {done.returncode}: {done.stdout.decode()}")
    return taken


def interleaved(commands: Iterable[Command], rounds: int) -> dict[str, list[float]]:
    """Return the times of each command, one a round; a first round warms the caches up and is not counted."""
    times: dict[str, list[float]] = {command.name: [] for command in commands}
    for _ in range(rounds + 1):
        for command in commands:
            times[command.name].append(seconds(command))
    return {name: taken[1:] for name, taken in times.items()}


def ratio(times: dict[str, list[float]], name: str, other: str) -> float:
    """Return the median of the ratios within each round."""
    return statistics.median(a / b for a, b in zip(times[name], times[other], strict=True))


def nothing() -> None:
    """Make ready what needs no making ready."""


def keep(tree: Path) -> Callable[[], object]:
    """Return what puts a tree back as it is now, by the files that differ: its size must not cost."""
    saved = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}

    def reset() -> None:
        shutil.rmtree(tree / ".pc", ignore_errors=True)
        for path in [path for path in tree.rglob("*") if path.is_file() and path not in saved]:
            path.unlink()
        for path, data in saved.items():
            if path.read_bytes() != data:
                path.write_bytes(data)

    return reset


def full_size(tree: Path) -> Path:
    """Lay out the specimen among as many small files as a release of torch_musa has."""
    specimen("2.7.1", tree)
    for number in range(FULL_SIZE - sum(path.is_file() for path in tree.rglob("*"))):
        path = tree / f"torch_musa/csrc/part{number % 60:02}/file{number:04}.cpp"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("// a file that no patch touches\n" * 100, encoding="ascii")
    return tree


def apply(tree: Path, stacks: Path) -> list[str]:
    """Return our own command line, for the Python that runs this."""
    argv = [str(PROJECT / "apply.py"), "apply", "--tests", "none", "--stacks", str(stacks), str(tree)]
    return [sys.executable, *argv]


def commands_of(stack: Stack, scratch: Path) -> list[Command]:
    """Return the competitors, each with a full-size tree of its own."""
    trees = {name: full_size(scratch / name) for name in ("apply", "quilt", "am", "patch")}
    repository(trees["am"])
    patches = [str(path) for path in stack.patches]
    loop = f"for p in {shlex.join(patches)}; do patch -s -p1 -F0 <$p || exit; done"
    base = ["git", "-C", str(trees["am"]), "reset", "-q", "--hard", "main"]
    sound_env = environment()
    subprocess.run(["git", "checkout", "-q", "-b", "work"], cwd=trees["am"], env=sound_env, check=True)
    python = sys.executable
    return [
        Command("apply.py apply", apply(trees["apply"], stack.folder.parents[1]), PROJECT, keep(trees["apply"])),
        quilt(stack.folder, stack.series, trees["quilt"]),
        Command("git am", ["git", "am", "-q", *patches], trees["am"], lambda: subprocess.run(base, env=sound_env)),
        Command("patch -F0, each", ["sh", "-c", loop], trees["patch"], keep(trees["patch"])),
        Command("python, import unidiff", [python, "-c", "import unidiff"], scratch, nothing),
        Command("python, pass", [python, "-c", "pass"], scratch, nothing),
    ]


def quilt(folder: Path, series: Path, tree: Path) -> Command:
    """Return `quilt push -a` on a tree."""
    env = environment(QUILT_PATCHES=str(folder), QUILT_SERIES=str(series))
    return Command("quilt push -a", ["quilt", "push", "-a", "--fuzz=0"], tree, keep(tree), env)


def make_stack(count: int, tree: Path, stacks: Path) -> None:
    """Make a tree of `count` files, and a stack with a patch for each, in the form of the project's own."""
    folder, before, after = stacks / "patches/1.0", {}, {}
    for path in (tree / "torch_musa/part", stacks / "series", folder):
        path.mkdir(parents=True)
    for number in range(count):
        path = f"torch_musa/part/file{number:04}.py"
        before[path] = "".join(f"value_{line} = {number}\n" for line in range(40)).encode()
        after[path] = before[path].replace(b"value_20 = ", b"value_20 = 1 + ")
        (tree / path).write_bytes(before[path])
        (folder / f"{number + 1:04}-change.patch").write_bytes(make_patch(path, before[path], after[path]))
    (stacks / "series/1.0").write_text("".join(f"{n + 1:04}-change.patch\n" for n in range(count)), encoding="ascii")
    for name, files in (("base", before), ("result", after)):
        (folder / f"{name}.sha256").write_bytes(format_pins(pins_of(files)))
    (folder / "fingerprint.json").write_text(json.dumps({path: fingerprint(data) for path, data in before.items()}))
    about = {"upstream_commit": "0" * 40, "torch": "1.0", "fixed_in": "2.0", "directories": ["torch_musa/part"]}
    (folder / "release.json").write_text(json.dumps(about))


def make_patch(path: str, before: bytes, after: bytes) -> bytes:
    """Return a patch of one line in the middle of a file."""
    old, new = (split_lines(data) for data in (before, after))
    head = f"{HEAD.format(path=path)}diff --git a/{path} b/{path}\nindex {git_blob(before)}..{git_blob(after)} 100644\n"
    body = [
        *(b" " + line for line in old[17:20]),
        b"-" + old[20],
        b"+" + new[20],
        *(b" " + line for line in old[21:24]),
    ]
    return f"{head}--- a/{path}\n+++ b/{path}\n@@ -18,7 +18,7 @@\n".encode() + b"".join(body)


def fingerprint(data: bytes) -> dict[str, object]:
    """Return the entry of one file in fingerprint.json."""
    lines = [line_digest(line) for line in split_lines(data)]
    return {"size": len(data), "sha256": sha256(data), "git_blob": git_blob(data), "lines": lines}


def grown(count: int, scratch: Path) -> list[Command]:
    """Return apply, git apply and quilt on a stack of `count` patches."""
    trees = {name: scratch / f"{name}-{count}" for name in ("apply", "git", "quilt")}
    for name, tree in trees.items():
        make_stack(count, tree, scratch / f"stacks-{name}-{count}")
    stacks = scratch / f"stacks-apply-{count}"
    folder = stacks / "patches/1.0"
    env = environment(GIT_CEILING_DIRECTORIES=str(scratch))
    joined = f"cat {shlex.quote(str(folder))}/*.patch | git apply"
    return [
        Command(f"apply {count}", apply(trees["apply"], stacks), PROJECT, keep(trees["apply"])),
        Command(f"git apply {count}", ["sh", "-c", joined], trees["git"], keep(trees["git"]), env),
        quilt(folder, stacks / "series/1.0", trees["quilt"])._replace(name=f"quilt {count}"),
    ]


def print_whole(times: dict[str, list[float]]) -> None:
    """Print the first table: whole commands on the real stack's shape."""
    ours = "apply.py apply"
    targets = {"quilt push -a": 0.6, "python, import unidiff": 1.7}
    print(f"Three patches on a tree of {FULL_SIZE} files; {ROUNDS} rounds, interleaved\n")
    print(f"{'command':<26}{'median':>9}{'apply is':>11}{'target':>10}")
    for name, taken in times.items():
        target = f"<= {targets[name]}x" if name in targets else ""
        beside = "" if name == ours else f"{ratio(times, ours, name):.2f}x"
        print(f"{name:<26}{statistics.median(taken) * 1000:>6.1f} ms{beside:>11}{target:>10}")


def print_growth(medians: dict[str, float]) -> None:
    """Print the second table: how the commands grow with the stack."""
    print(f"\nGrowth: so many patches on as many files\n\n{'':<14}" + "".join(f"{size:>12}" for size in SIZES))
    for name in ("apply", "git apply", "quilt"):
        print(f"{name:<14}" + "".join(f"{medians[f'{name} {size}']:>10.3f} s" for size in SIZES))
    for small, large in zip(SIZES, SIZES[1:], strict=False):
        growth = medians[f"apply {large}"] / medians[f"apply {small}"]
        print(f"apply, {small} to {large} patches: {growth:.1f}-fold time (target: at most 11-fold)")
    beside = medians[f"apply {SIZES[-1]}"] / medians[f"quilt {SIZES[-1]}"]
    print(f"apply of {SIZES[-1]} patches: {beside:.3f}x quilt (target: at most 0.05x)")


def main() -> None:
    """Make the trees, time, print."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        scratch = Path(folder)
        print_whole(interleaved(commands_of(Stack("2.7.1"), scratch), ROUNDS))
        medians: dict[str, float] = {}
        for size in SIZES:
            ours, git, slow = grown(size, scratch)
            times = interleaved([ours, git], 5)
            medians |= {name: statistics.median(taken) for name, taken in times.items()}
            # quilt takes some 20 ms a patch: once tells enough.
            medians[slow.name] = seconds(slow)
        print_growth(medians)


if __name__ == "__main__":
    main()
