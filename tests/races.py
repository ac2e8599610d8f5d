"""Many processes at one tree, and a path that changes under the one that walks it. Every process is a real one."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apply
from tests.conftest import STACKS

_EXCHANGE = 2
_AT_FDCWD = -100


def command(verb: str, tree: Path) -> list[str]:
    """Return the arguments of a run that answers in JSON."""
    proof = ["--tests=none"] if verb == "apply" else []
    return [verb, *proof, "--json", "--stacks", str(STACKS), str(tree)]


def at_once(argv: Sequence[str], count: int, where: Path) -> Counter[tuple[int, str]]:
    """Run the command in so many processes that start together; return how often each exit code and outcome came."""
    gate, opening = os.pipe()
    children = []
    for number in range(count):
        child = os.fork()
        if not child:
            os.close(opening)
            os.read(gate, 1)  # until the other end closes
            _become(argv, where / str(number))
        children.append(child)
    os.close(gate)
    os.close(opening)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    said = [json.loads((where / str(number)).read_text())["outcome"] for number in range(count)]
    return Counter(zip(codes, said, strict=True))


def _become(argv: Sequence[str], output: Path) -> None:
    """Be the command, in a child; does not return."""
    code = 99
    try:
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        sys.stdout = sys.stderr = open(handle, "w")  # noqa: SIM115 - the process ends with it
        code = apply.main(list(argv))
    finally:
        os._exit(code)


@contextmanager
def flipping(folder: Path, outside: Path) -> Iterator[None]:
    """Exchange a directory with a link to one outside, to and fro; at the end it is in its place again."""
    spare = folder.with_name(f"{folder.name}.spare")
    spare.symlink_to(outside)
    count, writing = os.pipe()
    child = os.fork()
    if not child:
        _flip(folder, spare, writing)
    os.close(writing)
    try:
        yield
    finally:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        with open(count, "rb") as pipe:
            flips = int(pipe.read() or b"0")
        spare.unlink()
    assert flips > 1000, f"only {flips} flips: nothing was tried"


def _flip(folder: Path, spare: Path, report: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    names = [os.fsencode(path) for path in (folder, spare)]
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stop.append(number))
    flips, failed = 0, 0
    while not (stop and flips % 2 == 0) and not failed:
        failed = library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE)
        flips += 1
    os.write(report, b"0" if failed else str(flips).encode())
    os._exit(0)


def to_and_fro(tree: Path, folder: Path, outside: Path, seconds: float, where: Path) -> Counter[tuple[int, str]]:
    """Apply and unapply by turns while a directory on the way flips; return how often each outcome came.

    It goes on beyond the time, though not for ever, until a run has come through and another has met the link.
    """
    found: Counter[tuple[int, str]] = Counter()
    with flipping(folder, outside):
        start = time.monotonic()
        while (passed := time.monotonic() - start) < seconds or passed < 20 * seconds and not _both(found):
            for verb in ("apply", "unapply"):
                found += at_once(command(verb, tree), 1, where)
    return found


def _both(found: Counter[tuple[int, str]]) -> bool:
    return found[0, "applied"] > 0 and any(code for code, _ in found)
