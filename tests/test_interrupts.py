"""An error, an interrupt and a kill at every call to the system: the tree is as it was, or can be put right.

What is tried here in one process is tried with the real system calls, and everything around them, by tests/faults.py.
A command that writes through stack.transaction.commit is one more row of JOBS.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import ROOT, STACKS, Shot, contents, copy_specimen, snapshot
from test_transaction import STORE, VERBS, apply, prepare, unapply

from stack import commands, transaction
from stack.errors import Environment, StackError
from stack.journal import recover
from stack.lock import locked
from stack.paths import JOURNAL
from stack.records import plan_files
from stack.tree import Tree

CALLS = ("open", "write", "fsync", "link", "rename", "mkdir", "unlink", "fstat", "fchmod", "close", "rmdir", "stat")
"""The calls of `os` that a transaction makes; listdir and dup only look."""


class Trap:
    """Does `act` at the n-th call of the given functions of `os`, before or after the call itself."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, act: Callable[[str], None], at: int, late: bool = False
    ) -> None:
        self.count, self.act, self.at, self.late = 0, act, at, late
        for name in CALLS:
            monkeypatch.setattr(os, name, self.wrap(name, getattr(os, name)))

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            mine = self.count == self.at
            if mine and not self.late:
                self.act(name)
            try:
                return real(*args, **kwargs)
            finally:
                if mine and self.late:
                    self.act(name)

        return call


@contextmanager
def trapped(act: Callable[[str], None], at: int, late: bool = False) -> Iterator[list[Trap]]:
    """Set a trap on the transaction alone: its calls are counted from the journal's making to its end."""
    traps: list[Trap] = []
    real = transaction.journal_in

    @contextmanager
    def journal(tree: Tree) -> Iterator[int]:
        with pytest.MonkeyPatch.context() as inner:
            traps.append(Trap(inner, act, at, late))
            with real(tree) as handle:
                yield handle

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(transaction, "journal_in", journal)
        yield traps


class Job(NamedTuple):
    """A command that writes: how its folder is made, what it does there, and what does the reverse."""

    make: Callable[[Path], object]
    run: Callable[[Path], object]
    back: Callable[[Path], object]


def _tree(verb: str) -> Callable[[Path], object]:
    def make(where: Path) -> None:
        prepare(copy_specimen(where), verb)

    return make


def _stacks(where: Path) -> None:
    for label, data in OLD.items():
        if data is not None:
            (where / label).parent.mkdir(parents=True, exist_ok=True)
            (where / label).write_bytes(data)


def _write(files: dict[str, bytes | None]) -> Callable[[Path], None]:
    """Write files of a stacks folder, as refresh and port do it."""

    def run(where: Path) -> None:
        with Tree(str(where)) as tree, locked(tree) as have_lock:
            recover(tree, have_lock)
            transaction.commit(tree, plan_files(tree, files))

    return run


OLD: dict[str, bytes | None] = {
    **{"series/1": b"1.patch\n", "patches/1/1.patch": b"one\n", "patches/1/2.patch": b"two\n"},
    **{"series/2": None, "patches/2/1.patch": None},
}
REFRESHED = {"series/1": b"3.patch\n", "patches/1/1.patch": b"ONE\n", "patches/1/2.patch": None}
PORTED = {"series/2": b"1.patch\n", "patches/2/1.patch": b"new\n"}
JOBS = {
    "apply": Job(_tree("apply"), apply, unapply),
    "unapply": Job(_tree("unapply"), unapply, apply),
    "refresh": Job(
        _stacks, _write({**REFRESHED, "patches/1/3.patch": b"x\n"}), _write({**OLD, "patches/1/3.patch": None})
    ),
    "port": Job(_stacks, _write({**PORTED}), _write(OLD)),
}


def _raise(error: BaseException) -> Callable[[str], None]:
    def act(name: str) -> None:
        raise error

    return act


def _count(job: Job, where: Path) -> tuple[int, object]:
    """Return how many calls the transaction makes, and what the folder has in it afterwards."""
    job.make(where)
    with trapped(lambda name: None, -1) as traps:
        job.run(where)
    return traps[0].count, contents(where)


# Each error once: what the code does about them is the same but for a few, which are in the table of the long run.
ERRORS = {"apply": errno.ENOSPC, "unapply": errno.EIO, "refresh": errno.EINTR, "port": errno.EACCES}


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("name", JOBS)
def test_a_failing_call_leaves_the_tree_as_it_was(tmp_path: Path, name: str) -> None:
    code = ERRORS[name]
    total = _each_call(tmp_path, JOBS[name], lambda: OSError(code, os.strerror(code)), False, Environment)
    assert total > 25


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("name, late", [("apply", False), ("unapply", True), ("refresh", False)])
def test_an_interrupt_leaves_the_tree_as_it_was(tmp_path: Path, name: str, late: bool) -> None:
    _each_call(tmp_path, JOBS[name], KeyboardInterrupt, late, KeyboardInterrupt)


def _each_call(
    tmp_path: Path, job: Job, error: Callable[[], BaseException], late: bool, expected: type[BaseException]
) -> int:
    """Raise at each call of the job's transaction in turn; the folder must be whole after each, times included."""
    done, finished = _count(job, tmp_path / "count")
    tree = tmp_path / "spare"
    job.make(tree)
    before = snapshot(tree)
    for at in range(1, done + 1):
        with trapped(_raise(error()), at, late):
            try:
                job.run(tree)
            except (expected, StackError) as caught:
                as_it_was = "as it was" in getattr(caught, "tip", "as it was")
            else:
                as_it_was = False  # the call was one whose failure does not matter
        now = snapshot(tree)
        if JOURNAL in now:  # the failing call was one of the clean-up: the next command does it
            assert not as_it_was or expected is KeyboardInterrupt, at
            commands.recover(str(tree))
            now = snapshot(tree)
        if now == before:
            continue
        assert contents(tree) == finished, at
        assert times_of_untouched_files_are_kept(before, now), at
        job.back(tree)
        before = snapshot(tree)
    return done


def times_of_untouched_files_are_kept(before: dict[str, Shot], now: dict[str, Shot]) -> bool:
    """Whether each file that has its bytes and mode as before has its time too."""
    both = [(shot, now[path]) for path, shot in before.items() if path in now]
    return all(one == other for one, other in both if one[:2] == other[:2])


def _die(name: str) -> None:
    os._exit(99)


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("name", JOBS)
def test_after_a_kill_the_command_that_status_names_puts_the_tree_right(tmp_path: Path, name: str) -> None:
    job = JOBS[name]
    done, finished = _count(job, tmp_path / "count")
    spare = tmp_path / "spare"
    job.make(spare)
    before, ended = snapshot(spare), set()
    for at in range(1, done + 1):
        child = os.fork()
        if not child:
            with trapped(_die, at):
                job.run(spare)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 99, at
        if JOURNAL in os.listdir(spare):
            told = commands.status(str(spare), STORE)
            assert told.interrupted and JOURNAL in told.message and f"apply.py recover {spare}" in told.tip
            assert commands.recover(str(spare)).outcome == "put right"
        now = snapshot(spare)
        ended.add(now == before)
        assert now == before or contents(spare) == finished, at
        assert times_of_untouched_files_are_kept(before, now), at
        if now != before:
            job.back(spare)
            before = snapshot(spare)
    assert ended == {True, False}


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("verb", VERBS)
def test_after_a_kill_the_next_command_goes_on(tmp_path: Path, verb: str) -> None:
    """At any call in the middle: apply and unapply first put right what they find."""
    job = JOBS[verb]
    done, finished = _count(job, tmp_path / "count")
    tree = tmp_path / "tree"
    job.make(tree)
    start = contents(tree)
    for at in range(1, done, 9):
        child = os.fork()
        if not child:
            with trapped(_die, at):
                job.run(tree)
            os._exit(0)
        os.waitpid(child, 0)
        if JOURNAL in os.listdir(tree):
            with pytest.raises(Environment, match="was cut off"):
                commands.apply(str(tree), STORE, commands.How(dry_run=True))
        job.run(tree)
        assert contents(tree) == finished, at
        job.back(tree)
        assert contents(tree) == start, at


def test_a_term_signal_leaves_a_tree_that_the_next_command_puts_right(specimen: Path) -> None:
    script = (
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from stack import commands, transaction\n"
        "from stack.store import Store\n"
        "real = transaction._replace\n"
        "def replace(tree, handle, number, step):\n"
        "    real(tree, handle, number, step)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "transaction._replace = replace\n"
        f"commands.apply(sys.argv[1], Store({str(STACKS)!r}), commands.How())\n"
    )
    before = contents(specimen)
    done = subprocess.run([sys.executable, "-c", script, specimen], capture_output=True)
    assert done.returncode == -15
    assert contents(specimen) != before
    assert commands.status(str(specimen), STORE).interrupted
    assert unapply(specimen) == "already unapplied"
    assert contents(specimen) == before


def test_an_interrupt_during_the_undo_waits_for_it(specimen: Path) -> None:
    script = (
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "import apply\n"
        "from stack import journal, transaction\n"
        "def settle(*args):\n"
        "    raise KeyboardInterrupt\n"
        "transaction._settle = settle\n"
        "real = journal._undo_file\n"
        "def undo_file(*args):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    real(*args)\n"
        "journal._undo_file = undo_file\n"
        f"sys.exit(apply.main(['apply', '--tests=none', '--stacks', {str(STACKS)!r}, sys.argv[1]]))\n"
    )
    before = snapshot(specimen)
    done = subprocess.run([sys.executable, "-c", script, specimen], capture_output=True)
    assert done.returncode == 130 and b"interrupted" in done.stderr and b"Traceback" not in done.stderr
    assert snapshot(specimen) == before
