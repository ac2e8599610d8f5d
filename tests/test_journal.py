"""The journal: what it records, whom it believes, and that an undo can itself be cut off."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import INIT, LAZY_INIT, NEW_TEST, STACKS, RunCli, contents, copy_specimen, snapshot
from test_interrupts import Trap

from stack import commands, transaction
from stack.errors import Environment
from stack.journal import Line, Record, format_record, parse_record
from stack.lock import this_host
from stack.paths import JOURNAL
from stack.records import plan_files
from stack.store import Store
from stack.tree import Entry, Tree

STORE = Store(str(STACKS))
RECORD = Record(this_host(), 4242, (Line(0, "a" * 64, "-", "x/y"),), ("d", "d/e"), ((0o755, "f"),), 77)


def killed(tree: Path, at: str = "_settle") -> Path:
    """Apply to the tree in a child that dies when all files are replaced; return the tree."""
    child = os.fork()
    if not child:
        setattr(transaction, at, lambda *args: os._exit(99))
        commands.apply(str(tree), STORE, commands.How())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 99
    return tree


def edit(tree: Path, old: str, new: str) -> None:
    path = tree / JOURNAL / "record"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_record_reads_as_it_was_written() -> None:
    assert parse_record(format_record(RECORD), "here") == RECORD


def test_a_record_that_was_cut_off_anywhere_is_none() -> None:
    data = format_record(RECORD)
    assert [parse_record(data[:length], "here") for length in range(len(data))] == [None] * len(data)


ODD: dict[str, tuple[str, str]] = {
    "other-version": ("journal 1", "journal 2"),
    "no-pid": ("pid 4242", "pid x"),
    "pid-negative": ("pid 4242", "pid -1"),
    "pid-huge": ("pid 4242", "pid " + "9" * 40),
    "pid-absurd": ("pid 4242", "pid " + "9" * 5000),
    "place-odd": ("place 77", "place 0x4d"),
    "place-absurd": ("place 77", "place " + "9" * 5000),
    "place-missing": ("place 77\n", ""),
    "number-absurd": ("file 0", "file " + "9" * 5000),
    "odd-line": ("made d\n", "maid d\n"),
    "missing-words": ("made d\n", "made\n"),
    "path-parent": ("x/y", "../y"),
    "path-absolute": ("x/y", "/etc/passwd"),
    "path-git": ("x/y", ".git/config"),
    "path-own": ("x/y", f"{JOURNAL}/record"),
    "made-parent": ("made d\n", "made ..\n"),
    "gone-parent": ("gone 755 f", "gone 755 ../f"),
    "mode-huge": ("gone 755 f", "gone 77777777777777777777777 f"),
    "mode-negative": ("gone 755 f", "gone -1 f"),
    "non-ascii": ("made d\n", "made \u00e4\n"),
}


@pytest.mark.parametrize("old, new", ODD.values(), ids=ODD)
def test_a_record_that_is_not_ours_is_left(old: str, new: str) -> None:
    data = format_record(RECORD).decode().replace(old, new, 1).encode()
    with pytest.raises(Environment, match="^here: is not a journal"):
        parse_record(data, "here")


@pytest.mark.parametrize("verb", ["apply", "unapply"])
def test_the_next_command_says_nothing_less_and_puts_the_tree_right(specimen: Path, run_cli: RunCli, verb: str) -> None:
    before = contents(specimen)
    killed(specimen)
    ran = run_cli("status", specimen)
    assert ran.code == 0 and JOURNAL in ran.stdout and "cut off" in ran.stdout
    assert run_cli("apply", "--dry-run", specimen).code == 4
    assert run_cli(verb, specimen).code == 0
    assert run_cli("unapply", specimen).code == 0
    assert contents(specimen) == before


def test_the_journal_of_another_machine_is_left(specimen: Path, run_cli: RunCli) -> None:
    killed(specimen)
    edit(specimen, f"host {this_host()}", "host elsewhere 00000000-0000-0000-0000-000000000000")
    before = snapshot(specimen)
    for verb in ("apply", "unapply"):
        ran = run_cli(verb, specimen)
        assert ran.code == 4 and "the machine elsewhere" in ran.stderr
    assert snapshot(specimen) == before


def test_the_journal_of_this_machine_before_a_reboot_is_undone(specimen: Path) -> None:
    before = contents(specimen)
    name, boot = this_host().split(" ")
    edit(killed(specimen), f"host {name} {boot}", f"host {name} 00000000-0000-0000-0000-000000000000")
    commands.unapply(str(specimen), STORE)
    assert contents(specimen) == before


# Whose journal it is not: what to do to one that a run has left, and what the message says.
FOREIGN: dict[str, tuple[Callable[[Path], object], str]] = {
    "copied": (lambda tree: (tree / JOURNAL).rename(tree / "x") and shutil.copytree(tree / "x", tree / JOURNAL),
               "was not written here"),
    "other-user": (lambda tree: os.chown(tree / JOURNAL, 12345, 12345), "belongs to the user 12345"),
    "record-is-a-link": (lambda tree: (tree / JOURNAL / "record").rename(tree / "x")
                         and (tree / JOURNAL / "record").symlink_to("../x"), "is a symbolic link"),
    "record-is-a-fifo": (lambda tree: ((tree / JOURNAL / "record").unlink(), os.mkfifo(tree / JOURNAL / "record")),
                         "is a special file"),
    "record-is-huge": (lambda tree: os.truncate(tree / JOURNAL / "record", 1 << 30), "is a huge file"),
}  # fmt: skip


@pytest.mark.parametrize("change, message", FOREIGN.values(), ids=FOREIGN)
def test_a_journal_that_no_run_of_ours_has_left_here_is_not_obeyed(
    specimen: Path, run_cli: RunCli, change: Callable[[Path], object], message: str
) -> None:
    change(killed(specimen))
    before = contents(specimen) if "huge" not in message else {}
    for verb in ("apply", "unapply"):
        ran = run_cli(verb, specimen)
        assert ran.code == 4 and message in ran.stderr and "Nothing was changed" in ran.stderr
    assert run_cli("status", specimen).code == 0
    assert not before or contents(specimen) == before


def test_without_locks_a_living_process_is_left_alone(specimen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(specimen)
    text = (specimen / JOURNAL / "record").read_text()
    (pid,) = (line for line in text.split("\n") if line.startswith("pid "))
    edit(specimen, pid, f"pid {os.getpid()}")

    def no_lock(*args: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", no_lock)
    with pytest.raises(Environment, match=f"process {os.getpid()} is at work"):
        commands.unapply(str(specimen), STORE)
    edit(specimen, f"pid {os.getpid()}", pid)
    assert commands.unapply(str(specimen), STORE).outcome == "already unapplied"


BYSTANDERS: dict[str, Callable[[Path], object]] = {
    "file": lambda journal: (journal / "notes").write_text("mine\n"),
    "directory": lambda journal: (journal / "0.new").mkdir(),
    "directory-of-another-name": lambda journal: (journal / "sub").mkdir(),
}


@pytest.mark.parametrize("add", BYSTANDERS.values(), ids=BYSTANDERS)
def test_what_is_not_ours_in_the_journal_stays_and_is_named(
    specimen: Path, run_cli: RunCli, add: Callable[[Path], object]
) -> None:
    (specimen / JOURNAL).mkdir()
    add(specimen / JOURNAL)
    before = snapshot(specimen)
    (name,) = os.listdir(specimen / JOURNAL)
    for verb in ("apply", "recover"):
        ran = run_cli(verb, specimen)
        assert ran.code == 4 and JOURNAL in ran.stderr and name in ran.stderr and "Traceback" not in ran.stderr
        assert snapshot(specimen) == before


@pytest.mark.parametrize("record", [b"", b"garbage", format_record(RECORD)[:-4]], ids=["empty", "garbage", "cut"])
def test_a_journal_without_a_whole_record_is_cleared(specimen: Path, record: bytes) -> None:
    before = snapshot(specimen)
    (specimen / JOURNAL).mkdir()
    (specimen / JOURNAL / "record").write_bytes(record)
    (specimen / JOURNAL / "0.new").write_bytes(b"x")
    commands.unapply(str(specimen), STORE)
    assert snapshot(specimen) == before


def test_a_file_edited_after_the_kill_is_left_and_the_rest_is_undone(specimen: Path, run_cli: RunCli) -> None:
    before = contents(specimen)
    killed(specimen)
    (specimen / LAZY_INIT).write_bytes(b"mine\n")
    ran = run_cli("unapply", specimen)
    assert ran.code == 4 and f"{LAZY_INIT}: was changed by somebody else" in ran.stderr
    assert (specimen / LAZY_INIT).read_bytes() == b"mine\n"
    assert contents(specimen)[INIT] == before[INIT] and NEW_TEST not in contents(specimen)
    kept = [path for path in (specimen / JOURNAL).glob("*.old") if path.read_bytes() == before[LAZY_INIT][0]]
    assert len(kept) == 1 and kept[0].name in ran.stderr
    shutil.copy(kept[0], specimen / LAZY_INIT)
    assert run_cli("unapply", specimen).code == 0
    assert contents(specimen) == before


def test_an_undo_that_is_itself_killed_is_finished_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    origin = copy_specimen(tmp_path / "origin")
    before = contents(origin)
    killed(origin)
    for at in range(1, 400):
        tree = tmp_path / "tree"
        subprocess.run(["cp", "-a", origin, tree], check=True)  # -a keeps the hard links of the journal
        edit(tree, f"place {(origin / JOURNAL).stat().st_ino}", f"place {(tree / JOURNAL).stat().st_ino}")
        child = os.fork()
        if not child:
            Trap(pytest.MonkeyPatch(), lambda name: os._exit(99), at)
            commands.unapply(str(tree), STORE)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        commands.unapply(str(tree), STORE)
        assert contents(tree) == before, at
        shutil.rmtree(tree)
        if code == 0:
            break
    assert code == 0 and at > 50


def test_stacks_that_a_run_was_cut_off_from_writing_are_noticed_by_all_who_read_them(
    tmp_path: Path, run_cli: RunCli, specimen: Path
) -> None:
    stacks = tmp_path / "stacks"
    shutil.copytree(STACKS, stacks)
    before = snapshot(stacks)
    label = "patches/2.7.1+specimen/release.json"
    child = os.fork()
    if not child:
        transaction._settle = lambda *args: os._exit(99)  # type: ignore[assignment]
        with Tree(str(stacks)) as tree:
            transaction.commit(tree, plan_files(tree, {label: b"{}\n"}))
    os.waitpid(child, 0)
    assert snapshot(stacks)[label] != before[label]
    named = f"apply.py recover {stacks}"
    for args in (("lint", "--stacks", stacks), ("apply", "--stacks", stacks, specimen)):
        ran = run_cli(*args)
        assert ran.code == 4 and named in ran.stderr and "cut off" in ran.stderr
    told = run_cli("status", stacks)
    assert told.code == 0 and named in told.stdout
    assert run_cli("recover", stacks).code == 0
    assert snapshot(stacks) == before
    again = run_cli("recover", stacks)
    assert again.code == 0 and "already so" in again.stdout
    assert run_cli("lint", "--stacks", stacks).code == 0


def test_recover_does_nothing_else(specimen: Path, run_cli: RunCli) -> None:
    before = snapshot(specimen)
    killed(specimen)
    assert run_cli("recover", specimen).code == 0
    assert snapshot(specimen) == before
    assert run_cli("recover", specimen / "absent").code == 2


def test_recover_does_not_need_the_folder_of_temporary_files(
    specimen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(specimen)
    killed(specimen)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    assert commands.recover(str(specimen)).outcome == "put right"
    assert contents(specimen) == before


def test_recover_does_not_deny_its_work_when_it_cannot_read_on(specimen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(specimen)
    killed(specimen)
    monkeypatch.setattr(Tree, "read", lambda self, path, real=Tree.read: _unreadable(self, path, real))
    assert commands.recover(str(specimen)).outcome == "put right"
    monkeypatch.undo()
    assert contents(specimen) == before


def _unreadable(tree: Tree, path: str, real: Callable[[Tree, str], Entry]) -> Entry:
    if path == INIT:
        raise Environment("cannot be read")
    return real(tree, path)


def test_the_verbs_that_judge_a_tree_say_that_a_run_was_cut_off_there(specimen: Path, run_cli: RunCli) -> None:
    killed(specimen)
    for words in (["status"], ["scan"], ["verify", "--level", "static"]):
        ran = run_cli(*words, specimen)
        assert "TIP: A run was cut off here." in ran.stdout and "apply.py recover" in ran.stdout, ran
    commands.recover(str(specimen))
    for words in (["status"], ["scan"], ["verify", "--level", "static"]):
        assert "cut off" not in run_cli(*words, specimen).stdout
