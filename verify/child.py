"""Child interpreters: where foreign code runs.

A clean environment, a time limit, and nothing left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from stack.scratch import scratch_folder

# What a child needs to find its tools, its libraries and the cards. Nothing that steers Python or
# pytest.
_ALLOWED = ("PATH", "HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH")
_ALLOWED_PREFIXES = ("MUSA_", "MTHREADS_")
_TAIL_LINES = 20
_SLICE_SECONDS = 0.1
_AFTER_CLOSE_SECONDS = 0.002


class Result(NamedTuple):
    """What one child came to.

    value: the JSON value that it wrote on its result pipe; None when it gave none.
    problem: why there is no usable value, as a sentence; empty when the child did its work.
    output: the last lines of its stdout and stderr, for a finding's detail.
    code: its exit code, negative for a signal; None when it was stopped or never started.
    """

    value: Any
    problem: str
    output: str
    code: int | None

    def reason(self) -> str:
        """Return the problem with the tail of the output, for a finding's detail."""
        return f"{self.problem}\n{self.output}" if self.output else self.problem


def environment(also: Mapping[str, str] | None) -> dict[str, str]:
    """Return the environment of a child: the allowed part of ours, what `also` has, and the C locale with UTF-8."""
    kept = {name: value for name, value in os.environ.items() if name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES)}
    return {**kept, **(also or {}), "LC_ALL": "C.UTF-8"}


def run(
    python: str,
    script: Path,
    arguments: Sequence[str],
    *,
    seconds: float,
    options: Sequence[str] = (),
    also: Mapping[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Run a Python script in a child interpreter and return what it reports.

    The child is called `python -B [options] script FD arguments...`. On the descriptor FD it
    writes JSON lines: `{"progress": text}` any number of times and `{"value": anything}` once.
    stdout and stderr are only ever evidence. It runs in a temporary folder of its own, which is
    its TMPDIR too: a core file or a compiler's cache goes there, and goes away with it.

    -B keeps bytecode from being written. A tree's own stale bytecode is kept from being read where
    the tree is loaded (standin.finder), because an interpreter-wide pycache prefix would compile
    torch anew in every run.

    python: the interpreter's path. seconds: its time limit. options: interpreter options.
    also: environment variables that the child gets as well.
    progress: called with each progress text. Paths among the arguments must be absolute.
    A child that fails is a Result with a problem, never an exception. The child leads a process
    group of its own, which is killed when this function is left, for whatever reason.
    """
    with (
        _ended_in_order(),
        scratch_folder() as folder,
        tempfile.TemporaryFile() as output,
        contextlib.closing(_Pipe()) as pipe,
    ):
        command = [python, "-B", *options, str(script), str(pipe.writing), *arguments]
        try:
            process = _start(command, folder, output, pipe.writing, also)
        except OSError as error:
            return Result(None, f"cannot start {python}: {error.strerror or error}", "", None)
        messages = _Messages(progress)
        try:
            pipe.close_writing()
            in_time = _listen(process.pid, pipe.reading, messages, time.monotonic() + seconds)
        finally:
            _end(process)
        messages.drain(pipe.reading)
        code = process.returncode if in_time else None
        return _judge(messages, code, _tail(output), seconds)


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let the signals that end a run do it as Ctrl-C does: the child is in no group of ours and would stay."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    try:
        for number in ours:
            signal.signal(number, interrupt)
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _start(
    command: Sequence[str], folder: str, output: IO[bytes], writing: int, also: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    """Start the child as the leader of a process group of its own."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**environment(also), "TMPDIR": folder},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=(writing,),
        start_new_session=True,
    )


class _Messages:
    """The JSON lines of one child, as they arrive."""

    def __init__(self, progress: Callable[[str], None] | None) -> None:
        self.value: Any = None
        self.given = False
        self.garbage = ""
        self._progress = progress
        self._rest = b""

    def read(self, descriptor: int) -> bool:
        """Take what there is to read; False at the end."""
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)
        return bool(data)

    def drain(self, descriptor: int) -> None:
        """Take all that is left, once every writer is gone."""
        while self.read(descriptor):
            pass

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            kind, content = next(iter(message.items()))
        except (ValueError, AttributeError, StopIteration):
            self.garbage = line[:200].decode("utf-8", "replace")
            return
        if kind == "value":
            self.value, self.given = content, True
        elif self._progress is not None:
            self._progress(str(content))


class _Pipe:
    """A pipe whose reading end does not block."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)

    def close(self) -> None:
        os.close(self.reading)
        self.close_writing()

    def close_writing(self) -> None:
        """Close our copy of the writing end: the reading end then shows when the child is done."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1


def _listen(pid: int, reading: int, messages: _Messages, deadline: float) -> bool:
    """Read messages until the child has ended; False when the deadline came first."""
    open_still = True
    while not _ended(pid):
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        # A grandchild may hold the pipe open for ever: only the child's own end counts, so wait in
        # short slices.
        if not open_still:
            time.sleep(_AFTER_CLOSE_SECONDS)
        elif select.select([reading], [], [], min(left, _SLICE_SECONDS))[0]:
            open_still = messages.read(reading)
    return True


def _ended(pid: int) -> bool:
    """Say whether the child has ended, and leave it unreaped.

    Its number must stay taken until its group is killed.
    """
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the child's whole group, then reap the child."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _judge(messages: _Messages, code: int | None, output: str, seconds: float) -> Result:
    """Turn what was seen into a Result."""
    if code is None:
        return Result(None, f"stopped after its time limit of {seconds:g} s", output, None)
    if code < 0:
        return Result(None, f"killed by {_signal_name(-code)}", output, code)
    if code > 0:
        return Result(None, f"ended with exit code {code}", output, code)
    if messages.garbage:
        return Result(None, f"wrote something that is no result: {messages.garbage}", output, code)
    if not messages.given:
        return Result(None, "ended without a result", output, code)
    return Result(messages.value, "", output, code)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _tail(output: IO[bytes]) -> str:
    """Return the last lines of what the child printed."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - 16_384))
    return "\n".join(output.read().decode("utf-8", "replace").splitlines()[-_TAIL_LINES:])
