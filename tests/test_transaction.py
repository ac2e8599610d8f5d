"""All or nothing: apply and unapply under every failure, interrupt and kill at every call to the system."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import INIT, LAZY_INIT, NEW_TEST, OLD_TEST, ROOT, STACKS, RunCli, contents, copy_specimen, snapshot
from stacks import git, make_stack

from stack import commands, transaction
from stack.errors import Environment, Refused
from stack.paths import JOURNAL
from stack.store import Store

STORE = Store(str(STACKS))


def apply(tree: Path, store: Store = STORE) -> str:
    return commands.apply(str(tree), store, commands.How()).outcome


def unapply(tree: Path, store: Store = STORE) -> str:
    return commands.unapply(str(tree), store).outcome


VERBS: dict[str, Callable[[Path], str]] = {"apply": apply, "unapply": unapply}


def prepare(tree: Path, verb: str) -> None:
    """Bring the tree to where the verb has work to do."""
    if verb == "unapply":
        apply(tree)


def test_applied_bytes_are_those_of_the_pins(specimen: Path, run_cli: RunCli) -> None:
    ran = run_cli("apply", specimen)
    assert ran.code == 0 and "applied 3 patches" in ran.stdout
    pins = STACKS / "patches" / "2.7.1+specimen" / "result.sha256"
    assert subprocess.run(["sha256sum", "--strict", "--quiet", "-c", pins], cwd=specimen).returncode == 0
    again = run_cli("apply", specimen)
    assert again.code == 0 and "already so, nothing was changed" in again.stdout


def test_only_touched_files_are_written_and_the_way_back_is_exact(specimen: Path) -> None:
    (specimen / INIT).chmod(0o664)
    (specimen / LAZY_INIT).chmod(0o400)
    os.chown(specimen / OLD_TEST, 12345, 23456)
    before, before_contents = snapshot(specimen), contents(specimen)
    assert apply(specimen) == "applied"
    after = snapshot(specimen)
    assert set(after) - set(before) == {NEW_TEST}
    for path, shot in before.items():
        assert (after[path].mode, after[path].owner) == (shot.mode, shot.owner)
        assert path in (INIT, LAZY_INIT, OLD_TEST) or after[path] == shot
    assert unapply(specimen) == "unapplied"
    assert contents(specimen) == before_contents
    assert unapply(specimen) == "already unapplied"


def test_files_beyond_the_touched_ones_are_not_opened(specimen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    real = os.open

    def spy(path: Any, *args: Any, **kwargs: Any) -> int:
        opened.append(str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", spy)
    apply(specimen)
    assert not {"ops.py", "device.py", "version.txt", "line-ends.txt"} & {name.rpartition("/")[2] for name in opened}


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_made_file_obeys_the_umask(specimen: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        apply(specimen)
    finally:
        os.umask(old)
    assert (specimen / NEW_TEST).stat().st_mode & 0o777 == 0o666 & ~umask
    assert (specimen / INIT).stat().st_mode & 0o777 == 0o644


def acl(*entries: tuple[int, int, int]) -> bytes:
    """Return an access control list as the kernel has it: version 2, then tag, permissions and id of each entry."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NOBODYS = 0xFFFFFFFF
ACCESS, DEFAULT, NOTE = "system.posix_acl_access", "system.posix_acl_default", "user.note"
# The owner and user 1234 may read and write, the group nothing; its bits in the mode are those of the mask.
LIST = acl((1, 6, NOBODYS), (2, 6, 1234), (4, 0, NOBODYS), (16, 6, NOBODYS), (32, 0, NOBODYS))


def test_extended_attributes_and_access_control_lists_stay(specimen: Path) -> None:
    os.setxattr(specimen / LAZY_INIT, ACCESS, LIST)
    os.setxattr(specimen / LAZY_INIT, NOTE, b"ours")
    for folder in (specimen, specimen / "torch_musa"):  # what is made there gets another list
        os.setxattr(
            folder, DEFAULT, acl((1, 7, NOBODYS), (2, 7, 77), (4, 5, NOBODYS), (16, 7, NOBODYS), (32, 5, NOBODYS))
        )
    mode = (specimen / LAZY_INIT).stat().st_mode
    for run in (apply, unapply):
        run(specimen)
        assert {name: os.getxattr(specimen / LAZY_INIT, name) for name in os.listxattr(specimen / LAZY_INIT)} == {
            ACCESS: LIST,
            NOTE: b"ours",
        }
        assert (specimen / LAZY_INIT).stat().st_mode == mode
        assert os.listxattr(specimen / INIT) == []


def test_an_attribute_that_cannot_be_kept_is_named_and_nothing_is_changed(
    specimen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.setxattr(specimen / INIT, NOTE, b"ours")
    before = snapshot(specimen)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "setxattr", refuse)
    with pytest.raises(Environment, match=rf"{INIT}: its extended attribute {NOTE} cannot be kept"):
        apply(specimen)
    assert snapshot(specimen) == before


def test_a_group_that_is_not_ours_is_named_with_its_file(specimen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(specimen / INIT, 0, 12)
    before = snapshot(specimen)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refuse)
    with pytest.raises(Environment, match=rf"{INIT}: belongs to user 0 and group 12"):
        apply(specimen)
    assert snapshot(specimen) == before


def test_dry_run_writes_nothing(specimen: Path, run_cli: RunCli) -> None:
    before = snapshot(specimen)
    ran = run_cli("apply", "--dry-run", specimen)
    assert ran.code == 0 and "would apply 3 patches" in ran.stdout
    assert snapshot(specimen) == before


@pytest.mark.parametrize("name", ["a tree", "\u00dcber\u663e\u5361", "-tree", "tree'\"$(x)\n"])
def test_any_name_of_the_tree_will_do(tmp_path: Path, run_cli: RunCli, name: str) -> None:
    tree = copy_specimen(tmp_path / name)
    for verb in ("status", "apply", "unapply"):
        assert run_cli(verb, tree).code == 0


def test_a_name_that_is_no_text_will_do(tmp_path: Path) -> None:
    tree = copy_specimen(tmp_path / os.fsdecode(b"tree-\xff"))
    argv = [sys.executable, str(ROOT / "apply.py"), "apply", "--tests=none", "--stacks", str(STACKS), str(tree)]
    for encoding in ("utf-8", "ascii", "latin-1"):
        done = subprocess.run(argv, env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")


def test_a_tree_inside_another_repository_is_no_special_case(tmp_path: Path, run_cli: RunCli) -> None:
    git(tmp_path, "init", "-q")
    tree = copy_specimen(tmp_path / "packaging" / "tree")
    git(tmp_path, "add", "-A")
    assert run_cli("apply", tree).code == 0
    assert git(tmp_path, "diff", "--name-only").decode().count("\n") == 3
    assert run_cli("unapply", tree).code == 0
    assert git(tmp_path, "status", "--porcelain", "--untracked-files").decode().count("??") == 0
    assert git(tmp_path, "diff") == b""


def test_git_is_not_needed(specimen: Path, run_cli: RunCli) -> None:
    assert run_cli("apply", specimen, env={"PATH": "/nonexistent"}).code == 0


def _grow_empty(tree: Path) -> None:
    (tree / "kept").mkdir(exist_ok=True)
    (tree / "kept" / "new").write_text("n\n")
    (tree / "made" / "deep").mkdir(parents=True)
    (tree / "made" / "deep" / "new").write_text("n\n")
    (tree / "goes" / "old").unlink()
    (tree / "a").chmod(0o755)
    (tree / "z").write_text("Z\n")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Store]:
    """A tree and a stack that makes, empties and keeps directories, and sets an executable bit."""
    base = tmp_path / "base"
    for folder in ("kept", "goes"):
        (base / folder).mkdir(parents=True)
    for name, text in (("a", "a\n"), ("goes/old", "old\n"), ("z", "z\n")):
        (base / name).write_text(text)
    make_stack(tmp_path / "s", "1", base, [_grow_empty])
    return base, Store(str(tmp_path / "s"))


def test_an_emptied_directory_stays_when_it_is_the_releases_own(folders: tuple[Path, Store]) -> None:
    tree, store = folders
    before = contents(tree)
    assert apply(tree, store) == "applied"
    assert (tree / "made/deep/new").exists() and not (tree / "goes").exists()
    assert (tree / "a").stat().st_mode & 0o777 == 0o755
    assert unapply(tree, store) == "unapplied"
    assert contents(tree) == before
    assert (tree / "kept").is_dir() and not (tree / "made").exists()


def test_a_directory_with_a_file_of_somebody_else_stays(folders: tuple[Path, Store]) -> None:
    tree, store = folders
    apply(tree, store)
    (tree / "made/deep/mine").write_text("mine\n")
    assert unapply(tree, store) == "unapplied"
    assert (tree / "made/deep/mine").read_text() == "mine\n" and not (tree / "made/deep/new").exists()


def test_an_executable_bit_alone_is_undone(folders: tuple[Path, Store]) -> None:
    tree, store = folders
    before = contents(tree)
    with pytest.MonkeyPatch.context() as monkeypatch:
        real = transaction._replace

        def fail_at_last(*args: Any) -> None:
            if args[-1].path == "z":
                raise OSError(errno.EIO, "broken")
            real(*args)

        monkeypatch.setattr(transaction, "_replace", fail_at_last)
        with pytest.raises(Environment, match="cannot be changed: broken"):
            apply(tree, store)
    assert contents(tree) == before


def _instead(path: Path, make: Callable[[], None]) -> None:
    path.unlink()
    make()


EDITS: dict[str, Callable[[Path], object]] = {
    "in-place": lambda path: path.write_bytes(b"mine\n"),
    "by-rename": lambda path: (path.with_name("tmp").write_bytes(b"mine\n"), path.with_name("tmp").rename(path)),
    "removed": lambda path: path.unlink(),
    "mode": lambda path: path.chmod(0o600),
    "link": lambda path: _instead(path, lambda: path.symlink_to("ops.py")),
    "directory": lambda path: _instead(path, path.mkdir),
}


@pytest.mark.parametrize(
    "edit, path",
    [(edit, path) for edit in EDITS.values() for path in (INIT, LAZY_INIT, OLD_TEST)]
    + [(EDITS[name], NEW_TEST) for name in ("in-place", "by-rename")],
    ids=[f"{name}-{part}" for name in EDITS for part in ("first", "middle", "last")] + ["made", "made-by-rename"],
)
@pytest.mark.parametrize("when", ["before-staging", "before-replacing"])
def test_a_file_edited_in_mid_run_is_left_and_the_rest_is_undone(
    specimen: Path, edit: Callable[[Path], object], path: str, when: str
) -> None:
    """path: NEW_TEST is no file yet; only the edits that make one apply to it."""

    def now() -> dict[str, tuple[bytes | None, int]]:
        return {name: shot for name, shot in contents(specimen).items() if not name.startswith(JOURNAL)}

    expected: list[object] = []
    real_stage = transaction._stage

    def stage(*args: Any) -> Any:
        if when == "before-staging":
            edit(specimen / path)
            expected.append(now())
        record = real_stage(*args)
        if when == "before-replacing":
            edit(specimen / path)
            expected.append(now())
        return record

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(transaction, "_stage", stage)
        with pytest.raises((Refused, Environment)):
            apply(specimen)
    assert now() == expected[0]
    assert JOURNAL not in os.listdir(specimen)


def test_a_second_run_is_told_to_wait(specimen: Path, run_cli: RunCli) -> None:
    before = snapshot(specimen)
    handle = os.open(specimen, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        for verb in ("apply", "unapply"):
            ran = run_cli(verb, specimen)
            assert ran.code == 4 and "another run" in ran.stderr
        assert run_cli("status", specimen).code == 0
    finally:
        os.close(handle)
    assert snapshot(specimen) == before


def test_a_mode_alone_is_a_change_like_any_other(folders: tuple[Path, Store]) -> None:
    tree, store = folders
    (tree / "a").write_text("other\n")
    with pytest.raises(Refused, match="a differs from line 1"):
        apply(tree, store)
    (tree / "a").write_text("a\n")
    (tree / "a").chmod(0o755)
    with pytest.raises(Refused, match="different steps"):
        apply(tree, store)
    (tree / "a").chmod(0o640)
    assert apply(tree, store) == "applied"
    assert (tree / "a").stat().st_mode & 0o777 == 0o750
    assert unapply(tree, store) == "unapplied"
    assert (tree / "a").stat().st_mode & 0o777 == 0o640


def test_an_unwritable_directory_is_an_environment(specimen: Path, run_cli: RunCli) -> None:
    folder = specimen / "torch_musa"
    immutable = subprocess.run(["chattr", "+i", folder], capture_output=True).returncode == 0
    if not immutable:
        folder.chmod(0o555)
    try:
        before = snapshot(specimen)
        ran = run_cli("apply", specimen)
        assert snapshot(specimen) == before
        assert ran.code == 4 or os.geteuid() == 0 and not immutable and ran.code == 0
        assert "cannot be changed" in ran.stderr and "as it was" in ran.stderr
    finally:
        subprocess.run(["chattr", "-i", folder], capture_output=True)
        folder.chmod(0o755)


@pytest.mark.parametrize(
    "make", [Path.touch, os.mkfifo, lambda path: path.symlink_to("/tmp")], ids=["file", "fifo", "link"]
)
def test_what_stands_under_our_name_is_left(specimen: Path, run_cli: RunCli, make: Callable[[Path], object]) -> None:
    make(specimen / JOURNAL)
    before = snapshot(specimen)
    ran = run_cli("apply", specimen)
    assert ran.code == 4 and JOURNAL in ran.stderr and "Remove it" in ran.stderr
    assert snapshot(specimen) == before
