"""An error, an interrupt and a kill at every call to the system: the tree is as it was, or can be put right."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, STACKS, contents, copy_specimen, snapshot
from test_transaction import STORE, VERBS, prepare, unapply

from stack import commands, transaction
from stack.errors import Environment, StackError
from stack.paths import JOURNAL

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
def trapped(act: Callable[[str], None], at: int, late: bool = False) -> Iterator[None]:
    """Set a trap on the transaction alone: its calls are counted from commit on."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        real = transaction.commit

        def commit(*args: Any) -> None:
            with pytest.MonkeyPatch.context() as inner:
                Trap(inner, act, at, late)
                real(*args)

        monkeypatch.setattr(commands, "commit", commit)
        yield


def count_calls(tree: Path, verb: str) -> int:
    """Return how many calls the transaction of the verb makes on a tree, which is then changed."""
    counted = []

    def count(name: str) -> None:
        counted.append(name)

    with pytest.MonkeyPatch.context() as monkeypatch:
        real = transaction.commit

        def commit(*args: Any) -> None:
            with pytest.MonkeyPatch.context() as inner:
                trap = Trap(inner, count, -1)
                real(*args)
                counted.append(str(trap.count))

        monkeypatch.setattr(commands, "commit", commit)
        VERBS[verb](tree)
    return int(counted[-1])


def _raise(error: BaseException) -> Callable[[str], None]:
    def act(name: str) -> None:
        raise error

    return act


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES], ids=["ENOSPC", "EIO", "EACCES"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_failing_call_leaves_the_tree_as_it_was(tmp_path: Path, verb: str, code: int) -> None:
    total = _each_call(tmp_path, verb, lambda: OSError(code, os.strerror(code)), False, Environment)
    assert total > 40


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("verb", VERBS)
def test_an_interrupt_leaves_the_tree_as_it_was(tmp_path: Path, verb: str, late: bool) -> None:
    _each_call(tmp_path, verb, KeyboardInterrupt, late, KeyboardInterrupt)


def _each_call(
    tmp_path: Path, verb: str, error: Callable[[], BaseException], late: bool, expected: type[BaseException]
) -> int:
    """Raise at each call of the verb's transaction in turn; the tree must be whole after each."""
    spare = copy_specimen(tmp_path / "spare")
    prepare(spare, verb)
    done = count_calls(copy_of(spare, tmp_path / "count", verb), verb)
    finished = contents(tmp_path / "count")
    tree, before = spare, snapshot(spare)
    for at in range(1, done + 1):
        with trapped(_raise(error()), at, late):
            try:
                VERBS[verb](tree)
            except (expected, StackError) as caught:
                as_it_was = "as it was" in getattr(caught, "tip", "as it was")
            else:
                as_it_was = False  # the call was one whose failure does not matter
        names = os.listdir(tree)
        now = snapshot(tree)
        if JOURNAL in names:  # the failing call was one of the clean-up: the next command does it
            assert not as_it_was or expected is KeyboardInterrupt, at
            VERBS[verb](tree)
            assert JOURNAL not in os.listdir(tree)
            now = snapshot(tree)
        if now == before:
            continue
        assert contents(tree) == finished, at
        VERBS["unapply" if verb == "apply" else "apply"](tree)
        before = snapshot(tree)
    return done


def copy_of(tree: Path, target: Path, verb: str) -> Path:
    copy_specimen(target)
    prepare(target, verb)
    assert contents(target) == contents(tree)
    return target


def _die(name: str) -> None:
    os._exit(99)


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("verb", VERBS)
def test_after_a_kill_the_next_command_puts_the_tree_right(tmp_path: Path, verb: str) -> None:
    spare = copy_specimen(tmp_path / "spare")
    prepare(spare, verb)
    done = count_calls(copy_of(spare, tmp_path / "count", verb), verb)
    finished, start = contents(tmp_path / "count"), contents(spare)
    for at in range(1, done + 1):
        child = os.fork()
        if not child:
            with trapped(_die, at):
                VERBS[verb](spare)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 99, at
        if JOURNAL in os.listdir(spare):
            status = commands.status(str(spare), STORE)
            assert status.interrupted and JOURNAL in status.message and "cut off" in status.tip
            with pytest.raises(Environment, match="was cut off"):
                commands.apply(str(spare), STORE, commands.How(dry_run=True))
        VERBS[verb](spare)
        assert contents(spare) == finished, at
        VERBS["unapply" if verb == "apply" else "apply"](spare)
        assert contents(spare) == start, at


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
        f"sys.exit(apply.main(['apply', '--stacks', {str(STACKS)!r}, sys.argv[1]]))\n"
    )
    before = snapshot(specimen)
    done = subprocess.run([sys.executable, "-c", script, specimen], capture_output=True)
    assert done.returncode == 130 and b"interrupted" in done.stderr and b"Traceback" not in done.stderr
    assert snapshot(specimen) == before
