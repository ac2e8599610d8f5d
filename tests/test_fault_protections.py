"""Each protection matters: a case that is green with it, and red when it is taken out.

A case is a function that asserts; `without` has for each protection how it is taken out, and the case that notices.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import LAZY_INIT, copy_specimen, snapshot
from durable import recorded, weaknesses
from repositories import NOBODY, WHO, program, specimen_repository
from stacks import git
from test_transaction import STORE, apply, unapply

from stack import commands, gitrecover, gitrun, journal, publication, scratch, transaction, tree
from stack.errors import StackError
from stack.gitwork import GitWriter
from stack.lock import this_host
from stack.paths import JOURNAL

Patch = pytest.MonkeyPatch
Case = Callable[[Path], object]


class Without(NamedTuple):
    """How a protection is taken out, and what then goes wrong."""

    take_out: Callable[[Patch], object]
    case: Case


# The cases


@contextmanager
def tampered(name: str, call: Callable[..., Any]) -> Iterator[None]:
    """Put something in the place of a function of the transaction."""
    with Patch.context() as patch:
        patch.setattr(transaction, name, call)
        yield


def dying(where: Path, name: str, run: Callable[[], object]) -> None:
    """Run in a child that dies where the transaction calls a function of its own."""
    child = os.fork()
    if not child:
        try:
            with tampered(name, lambda *args: os._exit(99)):
                run()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 99


def a_kill_can_be_put_right(where: Path) -> None:
    tree = copy_specimen(where / "tree")
    before = snapshot(tree)
    dying(where, "_settle", lambda: apply(tree))
    commands.recover(str(tree))
    assert snapshot(tree) == before


def a_failure_is_undone(where: Path) -> None:
    tree = copy_specimen(where / "tree")
    before = snapshot(tree)

    def fail(*args: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with tampered("_settle", fail), pytest.raises(StackError):
        apply(tree)
    now = {path: shot for path, shot in snapshot(tree).items() if not path.startswith(JOURNAL)}
    assert now == before


def all_is_synced_in_time(where: Path) -> None:
    tree = copy_specimen(where / "tree")
    with recorded(tree) as events:
        apply(tree)
    assert weaknesses(events) == []


def a_second_run_does_not_touch_the_first(where: Path) -> None:
    tree = copy_specimen(where / "tree")
    real = transaction._settle

    def settle(*args: Any) -> None:
        with pytest.raises(StackError, match="another run"):
            commands.unapply(str(tree), STORE)
        real(*args)

    with tampered("_settle", settle):
        try:
            apply(tree)
        except StackError as error:
            pytest.fail(f"the second run has disturbed the first: {error}")
    assert apply(tree) == "already applied"


def an_edit_in_between_is_kept(where: Path) -> None:
    tree = copy_specimen(where / "tree")
    real = transaction._stage

    def stage(*args: Any) -> Any:
        record = real(*args)
        (tree / LAZY_INIT).write_bytes(b"theirs\n")
        return record

    with tampered("_stage", stage), pytest.raises(StackError, match="was changed by somebody else"):
        apply(tree)
    assert (tree / LAZY_INIT).read_bytes() == b"theirs\n"


def a_link_on_the_path_is_not_followed(where: Path) -> None:
    tree, outside = copy_specimen(where / "tree"), where / "outside"
    shutil.move(tree / "torch_musa/core", outside)
    (tree / "torch_musa/core").symlink_to(outside)
    before = snapshot(outside)
    with pytest.raises(StackError):
        apply(tree)
    assert snapshot(outside) == before


def a_link_swapped_in_after_the_plan_is_not_followed(where: Path) -> None:
    """It leads to the same bytes, so that nothing but the way to them is wrong. tests/test_races.py flips it freely."""
    tree, outside = copy_specimen(where / "tree"), where / "outside"
    shutil.copytree(tree / "torch_musa/core", outside)
    before, real = snapshot(outside), transaction._stage

    def stage(*args: Any) -> Any:
        record = real(*args)
        (tree / "torch_musa/core").rename(where / "theirs")
        (tree / "torch_musa/core").symlink_to(outside)
        return record

    with tampered("_stage", stage), contextlib.suppress(StackError):
        apply(tree)
    assert snapshot(outside) == before


def a_link_in_place_of_a_file_is_not_followed(where: Path) -> None:
    """Swapped in when it was seen to be a file, and before it is opened."""
    folder = where / "folder"
    folder.mkdir()
    (folder / "file").write_bytes(b"ours\n")
    (where / "outside").write_bytes(b"theirs\n")
    handle, real = os.open(folder, os.O_RDONLY), os.open

    def swap(*args: Any, **options: Any) -> int:
        if args[0] == "file":
            (folder / "file").unlink()
            (folder / "file").symlink_to(where / "outside")
        return real(*args, **options)

    with Patch.context() as patch:
        patch.setattr(os, "open", swap)
        with pytest.raises(OSError, match="symbolic links"):
            tree.read_at(handle, "file")
    os.close(handle)


def a_journal_of_another_machine_is_left(where: Path) -> None:
    tree = copy_specimen(where / "tree")
    dying(where, "_settle", lambda: apply(tree))
    record = tree / JOURNAL / "record"
    elsewhere = "elsewhere 00000000-0000-0000-0000-000000000000"
    record.write_text(record.read_text().replace(this_host(), elsewhere))
    before = snapshot(tree)
    with pytest.raises(StackError, match="the machine elsewhere"):
        unapply(tree)
    assert snapshot(tree) == before


def commit(tree: Path) -> None:
    with Patch.context() as patch:
        for key, value in {**NOBODY, **WHO}.items():
            patch.setenv(key, value)
        commands.apply(str(tree), STORE, commands.How(writer=GitWriter("topic")))


def commits_that_head_has_stay_with_their_files(where: Path) -> None:
    """The kill comes when HEAD has moved and the index has not."""
    tree = specimen_repository(where / "tree")
    real = os.rename

    def rename(source: Any, target: Any, **options: Any) -> None:
        if str(target).endswith(".git/index"):
            os._exit(99)
        real(source, target, **options)

    child = os.fork()
    if not child:
        os.rename = rename
        commit(tree)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 99
    commands.recover(str(tree))
    assert git(tree, "rev-list", "--count", "HEAD").strip() == b"4"
    assert git(tree, "status", "--porcelain", "--untracked-files=no") == b""
    assert not list(tree.rglob("*.lock")) and not list(tree.rglob("*torch-musa-patches*"))


def the_index_lock_of_another_git_stays(where: Path) -> None:
    """It comes after ours was cut off, and somebody has removed ours."""
    tree = specimen_repository(where / "tree")
    dying(where, "_settle", lambda: commit(tree))
    lockfile = tree / ".git/index.lock"
    lockfile.unlink()
    lockfile.write_bytes(b"theirs")
    commands.recover(str(tree))
    assert lockfile.read_bytes() == b"theirs"


def a_git_that_outlives_its_run_keeps_the_lock(where: Path) -> None:
    tree = specimen_repository(where / "tree")
    slow = where / "bin"
    waits = f'case "$*" in *update-ref*) touch {where}/there; until [ -e {where}/go ]; do sleep 0.02; done;; esac'
    program(slow / "git", f'{waits}\nexec {shutil.which("git")} "$@"')
    child = os.fork()
    if not child:
        os.environ["PATH"] = f"{slow}:{os.environ['PATH']}"
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        commit(tree)
        os._exit(1)
    while not (where / "there").exists():
        pass
    os.kill(child, 9)
    os.waitpid(child, 0)
    try:
        with pytest.raises(StackError, match="another run"):
            commands.recover(str(tree))
    finally:
        (where / "go").touch()
    for _ in range(1000):
        try:
            commands.recover(str(tree))
            break
        except StackError:
            time.sleep(0.02)
    assert git(tree, "rev-list", "--count", "HEAD").strip() == b"1" and JOURNAL not in os.listdir(tree)
    assert not (tree / ".git/refs/heads/topic").exists()


def a_scratch_folder_in_use_is_not_swept(where: Path) -> None:
    with Patch.context() as patch:
        patch.setattr("tempfile.tempdir", str(where))
        with scratch.scratch_folder() as folder:
            assert scratch.sweep() == 0 and os.path.isdir(folder)
        for name, mode in (("dead", 0o700), ("made-again-by-a-child", 0o755)):
            (where / f"{scratch.PREFIX}{name}").mkdir(mode=mode)
        assert scratch.sweep() == 2 and os.listdir(where) == []


# What is taken out


def _no_record(patch: Patch) -> None:
    real = transaction._write

    def write(handle: int, name: str, *args: Any, **options: Any) -> None:
        if name == "record":
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=handle))
        else:
            real(handle, name, *args, **options)

    patch.setattr(transaction, "_write", write)


def _no_syncs(patch: Patch) -> None:
    real = transaction._stage

    def stage(*args: Any) -> Any:
        with Patch.context() as inner:
            inner.setattr(os, "fsync", lambda handle: None)
            return real(*args)

    patch.setattr(transaction, "_stage", stage)


def _copies(patch: Patch) -> None:
    def copy(name: str, other: str, *, src_dir_fd: int, dst_dir_fd: int, follow_symlinks: bool) -> None:
        source = os.open(name, os.O_RDONLY, dir_fd=src_dir_fd)
        target = os.open(other, os.O_WRONLY | os.O_CREAT, dir_fd=dst_dir_fd)
        os.write(target, os.read(source, 1 << 20))
        os.close(source)
        os.close(target)

    patch.setattr(os, "link", copy)


def _follow(patch: Patch) -> None:
    patch.setattr(tree, "_DIRECTORY", tree._DIRECTORY & ~os.O_NOFOLLOW)
    patch.setattr(tree, "_FILE", tree._FILE & ~os.O_NOFOLLOW)


def _no_recheck(patch: Patch) -> None:
    real = transaction._replace

    def replace(opened: tree.Tree, handle: int, number: int, step: Any) -> None:
        real(opened, handle, number, step._replace(before=opened.read(step.path)))

    patch.setattr(transaction, "_replace", replace)


def _no_descriptors(patch: Patch) -> None:
    real = gitrun.Git.run
    patch.setattr(gitrun.Git, "run", lambda self, *args, **options: real(self._replace(keep=()), *args, **options))


WITHOUT = {
    "the record of the journal": Without(_no_record, a_kill_can_be_put_right),
    "the undo": Without(lambda patch: patch.setattr(transaction, "undo", lambda *args: None), a_failure_is_undone),
    "hard links to the originals": Without(_copies, a_failure_is_undone),
    "the syncs before the first change": Without(_no_syncs, all_is_synced_in_time),
    "the lock": Without(
        lambda patch: patch.setattr(commands, "locked", _unlocked), a_second_run_does_not_touch_the_first
    ),
    "the second look before a file is replaced": Without(_no_recheck, an_edit_in_between_is_kept),
    "O_NOFOLLOW for directories": Without(_follow, a_link_on_the_path_is_not_followed),
    "O_NOFOLLOW for files": Without(_follow, a_link_in_place_of_a_file_is_not_followed),
    "O_NOFOLLOW in a race": Without(_follow, a_link_swapped_in_after_the_plan_is_not_followed),
    "the check of the host": Without(
        lambda patch: patch.setattr(journal, "_check_owner", lambda *args: None), a_journal_of_another_machine_is_left
    ),
    "the question to HEAD": Without(
        lambda patch: patch.setattr(gitrecover, "_is_published", lambda place: False),
        commits_that_head_has_stay_with_their_files,
    ),
    "the mark on the index lock": Without(
        lambda patch: patch.setattr(publication, "same_file", lambda one, other: True),
        the_index_lock_of_another_git_stays,
    ),
    "the lock that git inherits": Without(_no_descriptors, a_git_that_outlives_its_run_keeps_the_lock),
    "the lock of a scratch folder": Without(
        lambda patch: patch.setattr(scratch, "_lock", lambda handle: True), a_scratch_folder_in_use_is_not_swept
    ),
}


@contextmanager
def _unlocked(opened: tree.Tree) -> Iterator[bool]:
    yield True


@pytest.mark.parametrize("name", WITHOUT)
def test_a_protection_holds_and_without_it_the_case_is_red(name: str, tmp_path: Path) -> None:
    for folder in ("with", "without"):
        (tmp_path / folder).mkdir()
    take_out, case = WITHOUT[name]
    case(tmp_path / "with")
    with Patch.context() as patch:
        take_out(patch)
        with pytest.raises((AssertionError, pytest.fail.Exception, OSError)):
            case(tmp_path / "without")
