"""Which calls to the file system a command makes, by strace; and one run with a fault at one of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# What a command can ask of a file system on Linux, x86-64 and arm64; strace takes names unknown to it with `?`.
CALLS = (
    *("open", "openat", "openat2", "creat", "stat", "lstat", "fstat", "newfstatat", "statx", "access", "faccessat"),
    *("faccessat2", "readlink", "readlinkat", "read", "pread64", "readv", "write", "pwrite64", "writev", "lseek"),
    *("link", "linkat", "symlink", "symlinkat", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "rmdir"),
    *("unlink", "unlinkat", "fsync", "fdatasync", "chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown"),
    *("fchownat", "utime", "utimes", "utimensat", "truncate", "ftruncate", "fallocate", "close", "flock", "fcntl"),
    *("getdents64", "dup", "dup2", "dup3", "chdir", "fchdir", "getcwd", "statfs", "fstatfs", "sendfile"),
    *("copy_file_range", "flistxattr", "fgetxattr", "fsetxattr", "fremovexattr"),
)
ERRORS = ("EIO", "ENOSPC", "EACCES", "EINTR")
KILL = "KILL"
_LINE = re.compile(r"(\w+)\((.*)\)\s+= (.*)$", re.S)
_WRITES = re.compile(
    r"(write|pwrite64|writev|link|linkat|symlink|symlinkat|rename\w*|mkdir\w*|rmdir|unlink\w*|f?chmod\w*|\w*chown\w*"
    r"|utim\w+|f?truncate|fallocate|creat|fsync|fdatasync|copy_file_range|sendfile|f\w+xattr)$"
)


class Call(NamedTuple):
    """The n-th call of its name in one process: the main one (0), or the git that was started as number `process`.

    path: what a call reads or writes, where only those on the same path are counted: how often a pipe is read is
    a matter of chance.
    """

    process: int
    name: str
    number: int
    text: str
    path: str = ""

    @property
    def writes(self) -> bool:
        """Whether it can change a file, or the name of one."""
        return bool(_WRITES.match(self.name)) or self.name.startswith("open") and "O_CREAT" in self.text


def trace_option() -> str:
    """Return strace's option for all of CALLS."""
    return "trace=" + ",".join(f"?{name}" for name in CALLS)


def parse(text: str, process: int, world: Path | str) -> list[Call]:
    """Return the calls of one process in order, from the output of strace -y; the world is written @."""
    counts: Counter[str] = Counter()
    calls = []
    for line in text.replace(str(world), "@").split("\n"):
        found = _LINE.match(line)
        if found:
            name, on = found[1], _ON.match(found[2])
            path = on[1] if on and not process and name in ("read", "write") and not SCRATCH.search(on[1]) else ""
            counts[name] += 1
            counts[f"{name} {path}"] += 1
            calls.append(Call(process, name, counts[f"{name} {path}" if path else name], line, path))
    return calls


SCRATCH = re.compile(r"/#\d+|tmp_obj_\w+")
"""What is made by chance: a file without a name, and one of git's."""
_ON = re.compile(r"\d+<(@[^>(]*)>")


def places(text: str) -> list[str]:
    """Return the places in the world that a call names, but for its result, and without what is made by chance."""
    return re.findall(r"(?<=[<\"])@[^>\",)]*", SCRATCH.sub("?", text.split(" = ")[0]))


def from_the_first(calls: Sequence[Call], marks: Collection[str]) -> list[Call]:
    """Return the calls from the first one that names one of the marks on."""
    first = next(number for number, call in enumerate(calls) if any(mark in call.text for mark in marks))
    return list(calls[first:])


def injection(call: Call, fault: str) -> str:
    """Return strace's option that lets the call fail, or kills the process at it, before it is done."""
    what = "signal=KILL" if fault == KILL else f"error={fault}"
    return f"inject={call.name}:{what}:when={call.number}"


def strace(call: Call, fault: str, log: Path | str, world: Path) -> list[str]:
    """Return the command line of a strace that makes one call fail; what it runs, or attaches to, follows."""
    where = ["-P", call.path.replace("@", str(world))] if call.path else []
    return ["strace", "-qq", "-y", "-o", str(log), *where, "-e", f"trace={call.name}", "-e", injection(call, fault)]


class Ran(NamedTuple):
    """What a command came to; code is negative for a signal."""

    code: int
    said: str


def run(argv: Sequence[str], env: Mapping[str, str]) -> Ran:
    """Run a command to its end, in a directory that none has a reason to look at."""
    done = subprocess.run(argv, cwd="/", env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    return Ran(done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace"))


class Server:
    """apply.py without the time that Python takes to start (tests.faults_lib.server). One command at a time."""

    def __init__(self) -> None:
        script = str(Path(__file__).with_name("server.py"))
        env = {**os.environ, "PYTHONHASHSEED": "0"}
        self.process = subprocess.Popen(
            [sys.executable, "-B", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
        )
        self.folder = tempfile.TemporaryDirectory(prefix="faults-server-")

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.folder.cleanup()

    def learn(self, argv: Sequence[str], env: Mapping[str, str], unproven: bool) -> None:
        """Run a command once, then import all that it has imported."""
        modules = f"{self.folder.name}/modules"
        self._start({"argv": argv, "env": env, "unproven": unproven, "traced": False, "modules": modules})
        self._answer("code")
        self._ask({"imports": json.loads(Path(modules).read_text())})

    def run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        unproven: bool = False,
        log: Path | None = None,
        at: Call | None = None,
        fault: str = "",
    ) -> Ran:
        """Run a command of apply.py; with a log under strace, with a call and a fault the one injected."""
        world = Path(env["HOME"]).parent
        pid = self._start({"argv": argv, "env": env, "unproven": unproven, "traced": log is not None})
        tracer = None
        if log is not None:
            options = (
                strace(at, fault, log, world) if at else ["strace", "-qq", "-y", "-o", str(log), "-e", trace_option()]
            )
            tracer = subprocess.Popen([*options, "-p", str(pid)], stdin=subprocess.DEVNULL)
            while tracer.poll() is None and _tracer_of(pid) == 0:
                time.sleep(0.001)
            os.kill(pid, signal.SIGCONT)
        code = self._answer("code")
        if tracer is not None:
            tracer.wait()
        return Ran(code, Path(f"{self.folder.name}/output").read_text(errors="replace"))

    def _start(self, request: Mapping[str, object]) -> int:
        self._ask({**request, "output": f"{self.folder.name}/output"})
        return self._answer("pid")

    def _ask(self, request: Mapping[str, object]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def _answer(self, key: str) -> int:
        assert self.process.stdout
        return int(json.loads(self.process.stdout.readline())[key])


def _tracer_of(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.split("\n") if line.startswith("TracerPid:")).split()[1])


SHIM = """#!/bin/sh
# git, counted; and one of them under strace: see tests/faults_lib/calls.py.
here=${0%/*}
read -r count < "$here/count"
count=$((count + 1))
echo $count > "$here/count"
read -r mode number call inject < "$here/plan"
case $mode:$number in
record:*) exec strace -qq -y -o "$here/log.$count" -e "$call" GIT "$@" ;;
one:$count) exec strace -qq -y -o "$here/log" -e "$call" -e "$inject" GIT "$@" ;;
all:$count)
    strace -qq -y -o "$here/log" -e "$call" -e "$inject" GIT "$@"
    kill -9 $PPID ;;
esac
exec GIT "$@"
"""


class Shim:
    """A git in front of the real one, that counts how often it is called and can put a fault into one call."""

    def __init__(self, folder: Path, real: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "git").write_text(SHIM.replace("GIT", real))
        (folder / "git").chmod(0o755)
        self.plan("none")

    def plan(self, mode: str, call: Call | None = None, fault: str = "") -> None:
        """mode: none, record (every git), one (a fault in the git of the call), all (it and what started it die)."""
        (self.folder / "count").write_text("0\n")
        for log in self.folder.glob("log*"):
            log.unlink()
        words = [mode, "0", trace_option(), "-"]
        if call:
            words = [mode, str(call.process), f"trace={call.name}", injection(call, fault)]
        (self.folder / "plan").write_text(" ".join(words) + "\n")

    def recorded(self, world: Path) -> list[Call]:
        """Return the calls of all gits of a run in mode record."""
        logs = sorted(self.folder.glob("log.*"), key=lambda path: int(path.suffix[1:]))
        return [call for log in logs for call in parse(log.read_text(errors="replace"), int(log.suffix[1:]), world)]
