"""Exports to a full disk or a folder that cannot be written, and runs that are killed: OUT is as it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_interrupts import Trap

from stack.cli import FORMS
from stack.errors import Environment, StackError
from stack.export import command
from stack.lock import locked
from stack.paths import JOURNAL
from stack.tree import Tree
from tests.conftest import STACKS, Ran, contents, snapshot
from tests.exports import LATER, place, run

NOBODY = 65534
every_form = pytest.mark.parametrize("form", FORMS)


@contextmanager
def mounted(where: Path, *options: str) -> Iterator[None]:
    """Mount something at where; needs root, as the container of the tests has it."""
    where.mkdir(exist_ok=True)
    subprocess.run(["mount", *options, str(where)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(where)], check=True)


def fill(disk: Path) -> None:
    """Write into a file `filler` until there is no space left."""
    with open(disk / "filler", "wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):
        while True:
            filler.write(b"x" * 512)


def check_told(code: int, said: str, reason: str) -> None:
    assert code == 4 and reason in said, said
    assert "cannot be changed" in said and "The tree is as it was." in said or "cannot be made" in said


def check_unwritable(form: str, out: Path, where: Path, before: object, reason: str) -> None:
    """The export says why it cannot be, and everything is as before: bytes, modes and times."""
    with pytest.raises(Environment) as told:
        run(form, out, LATER)
    check_told(int(told.value.exit), f"{told.value}\n{told.value.tip}", reason)
    assert snapshot(where) == before


@every_form
@pytest.mark.parametrize("first", [True, False], ids=["first", "newer"])
def test_a_full_disk_leaves_everything_as_it_was(form: str, first: bool, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, "-t", "tmpfs", "-o", "size=64k", "none"):
        out = place(form, disk / "out")
        if not first:
            run(form, out)
        fill(disk)
        before = snapshot(disk)
        check_unwritable(form, out, disk, before, "No space left on device")
        (disk / "filler").unlink()
        assert run(form, out, LATER).outcome == "exported"


@every_form
def test_a_disk_that_fills_on_the_way_is_cleaned_up(form: str, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, "-t", "tmpfs", "-o", "size=64k", "none"):
        out = place(form, disk / "out")
        fill(disk)
        os.truncate(disk / "filler", os.stat(disk / "filler").st_size - 2 * 4096)  # room for a beginning
        before = snapshot(disk)
        check_unwritable(form, out, disk, before, "No space left on device")


@every_form
@pytest.mark.parametrize("first", [True, False], ids=["first", "newer"])
def test_a_read_only_mount_leaves_everything_as_it_was(form: str, first: bool, tmp_path: Path) -> None:
    out = place(form, tmp_path / "disk/out")
    if not first:
        run(form, out)
    with mounted(tmp_path / "disk", "--bind", "-o", "ro", str(tmp_path / "disk")):
        before = snapshot(tmp_path / "disk")
        check_unwritable(form, out, tmp_path / "disk", before, "Read-only file system")
        if not first:
            assert run(form, out).outcome == "already so"  # which needs no writing


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody can enter, with the stacks: pytest's own folders and the checkout may be root's alone."""
    with tempfile.TemporaryDirectory() as name:
        where = Path(name)
        shutil.copytree(STACKS, where / "stacks")
        where.chmod(0o755)
        yield where


def as_nobody(where: Path, form: str, out: Path) -> Ran:
    """Export in a child that gives up root; what it needs is imported before: Python may be root's alone too."""
    run(form, place(form, where / "spare"), LATER)
    shutil.rmtree(where / "spare")
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            done = run(form, out, LATER, where / "stacks")
            said = (int(done.exit), done.message)
        except StackError as error:
            said = (int(error.exit), f"{error}\n{error.tip}")
        except BaseException as error:
            said = (70, f"Traceback {error!r}")
        os.write(writer, said[1].encode())
        os._exit(said[0])
    os.close(writer)
    with open(reader, "rb") as pipe:
        text = pipe.read().decode()
    return Ran(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), "", text)


@every_form
@pytest.mark.parametrize("first", [True, False], ids=["first", "newer"])
def test_a_folder_that_is_not_ours_to_write_is_as_it_was(form: str, first: bool, public: Path) -> None:
    out = place(form, public / "out")
    if not first:
        run(form, out)
    before = snapshot(public)
    done = as_nobody(public, form, out)
    check_told(done.code, done.stderr, "Permission denied")
    assert snapshot(public) == before
    for path in ((public / "out"), *(public / "out").rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    assert as_nobody(public, form, out).code == 0


@pytest.mark.parametrize("form", ["rpm", "quilt"])
def test_an_out_that_cannot_be_made_is_an_environment(form: str, public: Path) -> None:
    before = snapshot(public)
    done = as_nobody(public, form, public / "new")
    check_told(done.code, done.stderr, "Permission denied")
    assert snapshot(public) == before


def trapped(act: Callable[[str], None], at: int, out: Path) -> int:
    """Export the later release with a trap at one call of the transaction; return how many calls it made."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        real = command.commit
        traps = []

        def commit(*args: object) -> None:
            with pytest.MonkeyPatch.context() as inner:
                traps.append(Trap(inner, act, at))
                real(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(command, "commit", commit)
        run("debian", out, LATER)
    return traps[0].count


@pytest.mark.usefixtures("no_sync")
def test_a_kill_at_any_call_is_put_right_by_the_next_run(tmp_path: Path) -> None:
    out = place("debian", tmp_path / "out")
    run("debian", out)
    start = contents(out)
    calls = trapped(lambda name: None, -1, out)
    finished = contents(out)
    run("debian", out)
    cut = 0
    for at in range(1, calls + 1):
        child = os.fork()
        if not child:
            trapped(lambda name: os._exit(99), at, out)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 99, at
        journal = JOURNAL in os.listdir(out)
        assert journal or contents(out) in (start, finished), at
        cut += journal
        run("debian", out)  # it puts right what was cut off, and exports the release of before again if need be
        assert contents(out) == start, at
    assert calls > 40 and cut > 20


def test_two_exports_at_once_do_not_meet(tmp_path: Path) -> None:
    out = place("debian", tmp_path / "out")
    before = snapshot(tmp_path)
    with Tree(str(out)) as tree, locked(tree), pytest.raises(Environment, match="another run"):
        run("debian", out)
    assert snapshot(tmp_path) == before
