"""Forked copies of a child interpreter: a fresh state for each piece of work."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, NamedTuple

_TAIL_BYTES = 4_000
_SLICE_SECONDS = 0.05


class Work(NamedTuple):
    """One piece of work.

    Its name, and the function that runs in the copy and returns a JSON value.
    """

    name: str
    function: Callable[[], Any]


class Outcome(NamedTuple):
    """What became of it: the value, or the problem with the tail of the output.

    Exactly one of them counts.
    """

    name: str
    value: Any
    problem: str
    output: str


class _Running(NamedTuple):
    name: str
    pid: int
    reading: int
    output: IO[bytes]
    deadline: float
    data: bytearray


def run(works: Sequence[Work], *, at_once: int, seconds: float) -> Iterator[Outcome]:
    """Run each work in a forked copy of this process, at most at_once at a time.

    Yield outcomes as they come.

    seconds: the time limit of each. A copy that raises, dies or overruns is an Outcome with a
    problem.
    """
    waiting, running = list(works), list[_Running]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(_start(waiting.pop(0), seconds))
            for one in _finished(running):
                running.remove(one)
                yield _finish(one)
    finally:
        for one in running:
            _finish(one._replace(deadline=0.0))


def _start(work: Work, seconds: float) -> _Running:
    # Buffered text would be written once by each copy.
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _tail
    pid = os.fork()
    if pid == 0:
        _be_the_copy(work, writing, output)
    os.close(writing)
    return _Running(work.name, pid, reading, output, time.monotonic() + seconds, bytearray())


def _be_the_copy(work: Work, writing: int, output: IO[bytes]) -> None:
    """Do the work in the copy, and end it; never returns into the code of the original."""
    code = 1
    try:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        line = json.dumps(work.function()).encode()
        while line:
            line = line[os.write(writing, line) :]
        code = 0
    except BaseException:  # whatever it is, it must not run on in the original's code
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _finished(running: Sequence[_Running]) -> list[_Running]:
    """Wait a moment for news, and return the copies that ended or ran out of time."""
    ready, _, _ = select.select([one.reading for one in running], [], [], _SLICE_SECONDS)
    ended = []
    for one in running:
        data = os.read(one.reading, 1 << 16) if one.reading in ready else None
        one.data.extend(data or b"")
        # What a copy started may hold its pipe open, so its end is looked up as well as read.
        if data == b"" or (data is None and _has_ended(one.pid)) or time.monotonic() > one.deadline:
            ended.append(one)
    return ended


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _finish(one: _Running) -> Outcome:
    """Reap a copy, ended by force when its time is over, and judge it.

    What it started ends with our own group.
    """
    while not (ended := _has_ended(one.pid)) and time.monotonic() <= one.deadline:
        time.sleep(0.001)
    if not ended:
        os.kill(one.pid, signal.SIGKILL)
    _, status = os.waitpid(one.pid, 0)
    os.set_blocking(one.reading, False)
    with contextlib.suppress(BlockingIOError):
        while data := os.read(one.reading, 1 << 16):
            one.data.extend(data)
    os.close(one.reading)
    return _outcome(one, os.waitstatus_to_exitcode(status), not ended)


def _outcome(one: _Running, code: int, late: bool) -> Outcome:
    output = _tail(one.output)
    if late:
        return Outcome(one.name, None, "stopped after its time limit", output)
    if code < 0:
        return Outcome(one.name, None, f"killed by signal {-code}", output)
    if code > 0 or not one.data:
        last = output.splitlines()[-1] if output else f"exit code {code}"
        return Outcome(one.name, None, last, output)
    return Outcome(one.name, json.loads(bytes(one.data)), "", output)


def _tail(output: IO[bytes]) -> str:
    with output:
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - _TAIL_BYTES))
        return output.read().decode("utf-8", "replace").strip()
