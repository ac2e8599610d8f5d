"""apply --commit: the commits of git am, in any work tree of git, or everything as it was."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import INIT, LAZY_INIT, NEW_TEST, OLD_TEST, STACKS, Ran, RunCli, copy_specimen
from repositories import (
    NOBODY,
    WHO,
    am,
    commit_all,
    commits,
    copy,
    head,
    hostile_config,
    hostile_home,
    patches,
    picture,
    program,
    specimen_repository,
)
from stacks import git, make_stack

from stack import commands, transaction
from stack.commands import Proof
from stack.errors import StackError
from stack.gitrun import Answer, Git
from stack.gitwork import GitWriter
from stack.paths import JOURNAL
from stack.store import Store

RELEASE = "2.7.1+specimen"
STORE = Store(str(STACKS))
Edit = Callable[[Path], Any]


def commit(run_cli: RunCli, tree: Path, *args: object, env: Mapping[str, str] | None = None) -> Ran:
    return run_cli("apply", "--tests", "none", "--commit", *args, tree, env={**NOBODY, **WHO, **(env or {})})


def apply(tree: Path, branch: str | None = None, prove: commands.Prove | None = None) -> str:
    return commands.apply(str(tree), STORE, commands.How(prove=prove, writer=GitWriter(branch))).outcome


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return specimen_repository(tmp_path / "tree")


# Equal to git am


@pytest.mark.parametrize("place", ["branch", "new branch", "detached"])
@pytest.mark.parametrize("already", [0, 1], ids=["pristine", "patch 1 is in"])
@pytest.mark.parametrize("release", ["2.7.1", "2.9.1.post1"])
def test_commits_are_those_of_git_am(release: str, already: int, place: str, tmp_path: Path, run_cli: RunCli) -> None:
    tree = specimen_repository(tmp_path / "tree", release)
    files = patches(f"{release}+specimen")
    am(tree, *files[:already])
    if place == "detached":
        git(tree, "checkout", "-q", "--detach")
    base, other = head(tree), copy(tree, tmp_path / "other")
    am(other, *files[already:])
    ran = commit(run_cli, tree, *(["--branch", "topic/x"] if place == "new branch" else []))
    assert ran.code == 0, ran.stderr
    assert commits(tree, base) == commits(other, base) and len(commits(tree, base)) == 3 - already
    # Before any command that refreshes the index: what scripts ask.
    git(tree, "diff-index", "--quiet", "HEAD")
    assert git(tree, "status", "--porcelain") == b""
    names = {"branch": "refs/heads/main", "new branch": "refs/heads/topic/x", "detached": ""}
    symbolic = (tree / ".git" / "HEAD").read_text().strip()
    assert symbolic == (f"ref: {names[place]}" if names[place] else head(tree))
    if place != "branch":
        assert git(tree, "rev-parse", "main").decode().strip() == base
    assert git(tree, "fsck", "--strict", "--no-dangling") == b""


def test_the_committer_is_the_user_and_the_ids_are_those_of_git_am(repository: Path, tmp_path: Path) -> None:
    """With one committer and one moment nothing is left that could differ."""
    other = copy(repository, tmp_path / "other")
    am(other, *patches(RELEASE))
    stamp = git(other, "log", "-1", "--format=%cd", "--date=raw").decode().strip()
    who = {**WHO, "GIT_COMMITTER_DATE": stamp}
    _with_environment({**NOBODY, **who}, lambda: apply(repository))
    assert head(repository) == head(other)
    assert git(repository, "log", "-1", "--format=%cn <%ce>").decode().strip() == "A Packager <p@example.org>"


def _with_environment(env: Mapping[str, str], run: Callable[[], Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        for key, value in env.items():
            patch.setenv(key, value)
        return run()


HEADS = {
    "encoded author": (b"From: A Tester", b"From: =?UTF-8?q?J=C3=BCrgen_M=C3=BCller?="),
    "prefix in the subject": (b"Subject: change", b"Subject: [PATCH v2 1/2] change"),
    "blanks at line ends": (b"of a test.\n", b"of a test.  \t\n"),
    "many empty lines": (b"of a test.\n\n", b"of a test.\n\n\n\n\n"),
    "author in the body": (b"\n\nPatch", b"\n\nFrom: Somebody Else <else@example.org>\n\nPatch"),
    "scissors in the body": (b"of a test.\n", b"of a test.\n-- >8 --\nmore\n"),
    "another time zone": (b"12:00:00 +0000", b"12:00:00 -0730"),
}


@pytest.mark.parametrize("old, new", HEADS.values(), ids=HEADS)
def test_a_head_is_read_as_git_am_reads_it(old: bytes, new: bytes, tmp_path: Path, run_cli: RunCli) -> None:
    stacks, tree = _odd_stack(tmp_path)
    for file in patches("1", stacks):
        data = file.read_bytes()
        assert old in data
        file.write_bytes(data.replace(old, new, 1))
    other = copy(tree, tmp_path / "other")
    base = head(tree)
    am(other, *patches("1", stacks))
    git(tree, "config", "mailinfo.scissors", "true")
    ran = commit(run_cli, tree, "--stacks", stacks)
    assert ran.code == 0, ran.stderr
    assert commits(tree, base) == commits(other, base)


def _odd_stack(tmp_path: Path) -> tuple[Path, Path]:
    """A stack of deletions, modes and new directories, and a repository for it."""
    base = tmp_path / "base"
    (base / "d").mkdir(parents=True)
    (base / "d" / "gone").write_text("gone\n")
    (base / "run.sh").write_text("run\n")
    make_stack(tmp_path / "stacks", "1", base, [_first_change, _second_change])
    return tmp_path / "stacks", commit_all(base)


def _first_change(tree: Path) -> None:
    (tree / "d" / "gone").unlink()
    (tree / "run.sh").chmod(0o755)
    (tree / "run.sh").write_text("run it\n")


def _second_change(tree: Path) -> None:
    (tree / "new" / "deep").mkdir(parents=True)
    (tree / "new" / "deep" / "file").write_bytes(b"no newline\r\nat end")


def test_deletions_modes_and_new_directories_are_committed(tmp_path: Path, run_cli: RunCli) -> None:
    stacks, tree = _odd_stack(tmp_path)
    ran = commit(run_cli, tree, "--stacks", stacks, "--json")
    assert ran.code == 0, ran.stdout
    listed = git(tree, "ls-tree", "-r", "HEAD").decode()
    assert "d/gone" not in listed and "100755 blob" in listed and "new/deep/file" in listed
    assert git(tree, "status", "--porcelain") == b""
    made = json.loads(ran.stdout)["data"]["commits"]
    assert [one["subject"] for one in made["made"]] == ["change 1", "change 2"]
    assert made["made"][-1]["id"] == head(tree) and made["on"] == "branch main"


# Isolated


@pytest.mark.parametrize("where", ["user", "repository"])
def test_no_configuration_hook_filter_or_variable_counts(
    where: str, repository: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    other, base = copy(repository, tmp_path / "other"), head(repository)
    am(other, *patches(RELEASE))
    marker, home = tmp_path / "marker", tmp_path / "home"
    env = hostile_home(home, marker)
    if where == "repository":
        config = repository / ".git" / "config"
        config.write_text(config.read_text() + hostile_config(home, f'echo ran >> "{marker}"; cat'))
        (repository / ".git" / "info").mkdir(exist_ok=True)
        (repository / ".git" / "info" / "attributes").write_text("* text eol=crlf filter=evil ident\n")
        for name in ("reference-transaction", "post-index-change"):
            program(repository / ".git" / "hooks" / name, f'echo hook >> "{marker}"; exit 1')
        env = WHO
    twin = copy(repository, tmp_path / "twin")
    ran = run_cli("apply", "--tests", "none", "--commit", repository, env=env)
    assert ran.code == 0, ran.stderr
    assert not marker.exists(), marker.read_text()
    assert commits(repository, base) == commits(other, base)
    assert b"\r" not in (repository / INIT).read_bytes()
    # The set-up bites: stock git in the same surroundings runs what ours has not.
    only = {key: value for key, value in env.items() if not key.startswith("GIT_")} if where == "user" else env
    assert _stock_am_bites(twin, {**only, "PATH": os.environ["PATH"]}, marker)


def _stock_am_bites(tree: Path, env: Mapping[str, str], marker: Path) -> bool:
    done = subprocess.run(["git", "am", *map(str, patches(RELEASE))], cwd=tree, env=env, capture_output=True)
    return done.returncode != 0 and marker.exists()


def test_replaced_objects_do_not_stand_in_for_head(repository: Path, run_cli: RunCli) -> None:
    base = head(repository)
    (repository / LAZY_INIT).write_bytes(b"# replaced\n")
    git(repository, "commit", "-q", "-am", "other")
    replacement = head(repository)
    git(repository, "reset", "-q", "--hard", base)
    git(repository, "replace", base, replacement)
    ran = commit(run_cli, repository)
    assert ran.code == 0, ran.stderr
    assert b"# replaced" in git(repository, "cat-file", "blob", f"{base}:{LAZY_INIT}")
    assert b"# replaced" not in git(repository, "cat-file", "blob", f"HEAD:{LAZY_INIT}")


def test_git_is_imported_for_commits_and_clones_alone(repository: Path, tmp_path: Path, run_cli: RunCli) -> None:
    package = tmp_path / "fake" / "git"
    package.mkdir(parents=True)
    marker = tmp_path / "imported"
    text = f"open({str(marker)!r}, 'w').close()\nraise ImportError('No module named git', name='git')\n"
    (package / "__init__.py").write_text(text)
    env = {"PYTHONPATH": str(package.parent)}
    for verb in (["status"], ["apply", "--tests", "none"], ["unapply"]):
        assert run_cli(*verb, repository, env=env).code == 0
    assert not marker.exists()
    before = picture(repository)
    ran = commit(run_cli, repository, env=env)
    assert (ran.code, marker.exists()) == (4, True)
    assert "GitPython is not installed" in ran.stderr and "pip install GitPython" in ran.stderr
    assert picture(repository) == before


def test_without_git_only_commits_and_clones_fail(repository: Path, tmp_path: Path, run_cli: RunCli) -> None:
    (tmp_path / "bin").mkdir()
    env = {"PATH": str(tmp_path / "bin")}
    ran = commit(run_cli, repository, env=env)
    assert ran.code == 4 and "git is not found" in ran.stderr and "apt install git" in ran.stderr
    assert run_cli("apply", "--tests", "none", repository, env=env).code == 0


# Refused


def _stage(path: str, data: bytes = b"staged\n", mode: str = "100644") -> Edit:
    def edit(tree: Path) -> None:
        (tree / ".git" / "data").write_bytes(data)
        blob = git(tree, "hash-object", "-w", ".git/data").decode().strip()
        (tree / ".git" / "data").unlink()
        git(tree, "update-index", "--add", "--cacheinfo", f"{mode},{blob},{path}")

    return edit


def _head_has_other_bytes(tree: Path) -> None:
    data = (tree / INIT).read_bytes()
    (tree / INIT).write_bytes(data + b"# mine\n")
    git(tree, "commit", "-q", "-am", "mine")
    (tree / INIT).write_bytes(data)


def _conflict(tree: Path) -> None:
    blob = git(tree, "rev-parse", f"HEAD:{INIT}").decode().strip()
    zero = "0" * 40
    rows = f"0 {zero}\t{INIT}\n100644 {blob} 1\t{INIT}\n100644 {blob} 2\t{INIT}\n"
    (tree / "rows").write_text(rows)
    subprocess.run(["git", "update-index", "--index-info"], cwd=tree, input=rows.encode(), check=True)
    (tree / "rows").unlink()


def _unborn(tree: Path) -> None:
    git(tree, "symbolic-ref", "HEAD", "refs/heads/none")


def _applied_not_committed(tree: Path) -> None:
    commands.apply(str(tree), STORE, commands.How())


def _touch(name: str) -> Edit:
    return lambda tree: (tree / ".git" / name).write_text("x\n")


def _folder(name: str) -> Edit:
    return lambda tree: (tree / ".git" / name).mkdir()


def _am_stopped(tree: Path) -> None:
    """A real git am, stopped at a patch that does not apply."""
    patch = tree / ".git" / "bad.patch"
    patch.write_bytes(patches(RELEASE)[1].read_bytes().replace(b"-    global", b"-    globel"))
    assert subprocess.run(
        ["git", "am", str(patch)], cwd=tree, capture_output=True, env={**os.environ, **WHO}
    ).returncode


def _git(*args: str) -> Edit:
    return lambda tree: git(tree, *args)


REFUSED: dict[str, tuple[Edit, int, str, tuple[str, ...]]] = {
    "no repository": (lambda tree: shutil.rmtree(tree / ".git"), 1, "is no git work tree", ()),
    "bare": (_git("config", "core.bare", "true"), 1, "without a work tree", ()),
    "unborn": (_unborn, 1, "HEAD has no commit yet", ()),
    "HEAD has other bytes": (_head_has_other_bytes, 1, f"{INIT}: the work tree has other bytes", ()),
    "staged edit": (_stage(INIT), 1, f"{INIT}: the index has other bytes", ()),
    "staged new file": (_stage(NEW_TEST), 1, f"{NEW_TEST}: is new in the index", ()),
    "staged below": (_stage(f"{NEW_TEST}/x"), 1, f"{NEW_TEST}: is new in the index", ()),
    "staged removal": (_git("rm", "-q", "--cached", OLD_TEST), 1, f"{OLD_TEST}: is removed in the index", ()),
    "staged mode": (_git("update-index", "--chmod=+x", INIT), 1, f"{INIT}: the index has another mode", ()),
    "conflict": (_conflict, 1, f"{INIT}: is in conflict", ()),
    "assume-unchanged": (_git("update-index", "--assume-unchanged", LAZY_INIT), 1, "assume-unchanged", ()),
    "skip-worktree": (_git("update-index", "--skip-worktree", LAZY_INIT), 1, "skip-worktree", ()),
    "rebase": (_folder("rebase-merge"), 1, "a rebase is in progress", ()),
    "am": (_am_stopped, 1, "a rebase or am is in progress", ()),
    "merge": (_touch("MERGE_HEAD"), 1, "a merge is in progress", ()),
    "cherry-pick": (_touch("CHERRY_PICK_HEAD"), 1, "a cherry-pick is in progress", ()),
    "revert": (_touch("REVERT_HEAD"), 1, "a revert is in progress", ()),
    "bisect": (_git("bisect", "start"), 1, "a bisect is in progress", ()),
    "index lock": (_touch("index.lock"), 4, "index.lock exists", ()),
    "branch exists": (_git("branch", "b"), 1, "the branch b exists already", ("--branch", "b")),
    "branch in the way": (_git("branch", "b"), 4, "refs/heads/b/c cannot be moved", ("--branch", "b/c")),
    "bad branch": (lambda tree: None, 2, "is no name for a branch", ("--branch", "a..b")),
    "option as branch": (lambda tree: None, 2, "is no name for a branch", ("--branch=-f",)),
    "HEAD as branch": (lambda tree: None, 2, "is no name for a branch", ("--branch", "HEAD")),
    "applied, not committed": (_applied_not_committed, 1, "in the files, but not in HEAD", ()),
    "locked ref": (_touch("refs/heads/main.lock"), 4, "refs/heads/main cannot be moved", ()),
}


@pytest.mark.parametrize("edit, code, message, args", REFUSED.values(), ids=REFUSED)
def test_refuses_and_leaves_everything(
    edit: Edit, code: int, message: str, args: tuple[str, ...], repository: Path, run_cli: RunCli
) -> None:
    edit(repository)
    before = picture(repository)
    ran = commit(run_cli, repository, *args)
    assert (ran.code, message in ran.stderr) == (code, True), ran.stderr
    assert picture(repository) == before


def test_refuses_a_tarball_inside_another_repository(tmp_path: Path, run_cli: RunCli) -> None:
    tree = copy_specimen(tmp_path / "packaging" / "source")
    commit_all(tmp_path / "packaging")
    before = picture(tmp_path / "packaging")
    ran = commit(run_cli, tree)
    assert ran.code == 1 and "is not the top of a git work tree" in ran.stderr
    assert picture(tmp_path / "packaging") == before


def test_refuses_without_a_committer(repository: Path, run_cli: RunCli) -> None:
    git(repository, "config", "--remove-section", "user")
    before = picture(repository)
    env = {**NOBODY, "HOME": "/nonexistent", "EMAIL": ""}
    ran = run_cli("apply", "--tests", "none", "--commit", repository, env=env)
    assert ran.code == 4 and "does not know who commits" in ran.stderr and "user.name" in ran.stderr
    assert picture(repository) == before


@pytest.mark.parametrize("key", ["user", "committer"])
def test_the_committer_is_read_from_configuration(key: str, repository: Path, run_cli: RunCli) -> None:
    git(repository, "config", f"{key}.name", "From Config")
    git(repository, "config", f"{key}.email", "c@example.org")
    assert run_cli("apply", "--tests", "none", "--commit", repository, env=NOBODY).code == 0
    said = git(repository, "log", "-3", "--format=%cn %ce").decode().split("\n")
    assert said[:3] == ["From Config c@example.org"] * 3


def test_already_committed_is_already_so(repository: Path, run_cli: RunCli) -> None:
    assert commit(run_cli, repository).code == 0
    before = picture(repository)
    ran = commit(run_cli, repository)
    assert ran.code == 0 and "already so" in ran.stdout and "committed already" in ran.stdout
    assert picture(repository) == before


def test_a_dry_run_says_where_and_writes_nothing(repository: Path, run_cli: RunCli) -> None:
    before = picture(repository)
    ran = commit(run_cli, repository, "--dry-run", "--branch", "topic")
    assert ran.code == 0 and "to be committed on the new branch topic" in ran.stdout
    assert picture(repository) == before
    git(repository, "branch", "topic")
    assert commit(run_cli, repository, "--dry-run", "--branch", "topic").code == 1


# Work trees of every kind, and a user's work beside ours


def test_other_work_stays_as_it_is(repository: Path, run_cli: RunCli) -> None:
    (repository / "version.txt").write_text("mine\n")
    (repository / "staged.txt").write_text("staged\n")
    git(repository, "add", "staged.txt")
    (repository / "untracked.txt").write_text("untracked\n")
    git(repository, "update-index", "--assume-unchanged", "docs/list-files.sh")
    before = git(repository, "status", "--porcelain")
    assert commit(run_cli, repository).code == 0
    assert git(repository, "status", "--porcelain") == before == b"A  staged.txt\n M version.txt\n?? untracked.txt\n"
    assert b"staged.txt" not in git(repository, "ls-tree", "-r", "HEAD")
    assert git(repository, "ls-files", "-v", "docs/list-files.sh").startswith(b"h ")


def _linked(repository: Path, tmp_path: Path) -> Path:
    git(repository, "worktree", "add", "-q", "-b", "linked", str(tmp_path / "linked tree"))
    return tmp_path / "linked tree"


def _submodule(repository: Path, tmp_path: Path) -> Path:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(repository), "sub")
    return outer / "sub"


def _shallow(repository: Path, tmp_path: Path) -> Path:
    git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repository}", "shallow")
    return tmp_path / "shallow"


def _split(repository: Path, tmp_path: Path) -> Path:
    git(repository, "update-index", "--split-index")
    return repository


def _version_4(repository: Path, tmp_path: Path) -> Path:
    git(repository, "update-index", "--index-version", "4")
    return repository


def _sparse(repository: Path, tmp_path: Path) -> Path:
    git(repository, "sparse-checkout", "set", "--cone", "--sparse-index", "torch_musa", "tests")
    return repository


def _sha256(repository: Path, tmp_path: Path) -> Path:
    tree = copy_specimen(tmp_path / "sha256")
    git(tree, "init", "-q", "--object-format=sha256", "-b", "main")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "import")
    return tree


KINDS = {
    "linked work tree": _linked,
    "submodule": _submodule,
    "shallow": _shallow,
    "split index": _split,
    "index version 4": _version_4,
    "sparse": _sparse,
    "sha256": _sha256,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_of_work_tree(
    kind: Callable[[Path, Path], Path], repository: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    tree = kind(repository, tmp_path)
    base = head(tree)
    ran = commit(run_cli, tree)
    assert ran.code == 0, ran.stderr
    assert len(commits(tree, base)) == 3
    git(tree, "diff-index", "--quiet", "HEAD")
    assert git(tree, "status", "--porcelain") == b""
    git(tree, "fsck", "--strict")
    assert not list(tree.rglob("torch-musa-patches*")) and not list(tree.rglob("*.lock"))


# All or nothing


def _fail(real: Callable[..., Any], count: list[int], at: int, error: BaseException) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        count[0] += 1
        if count[0] == at:
            raise error
        return real(*args, **options)

    return call


def _faults(tree: Path, branch: str | None, at: int, error: BaseException) -> int:
    """Apply with the at-th call of the system failing; return how many calls there were."""
    count = [0]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("link", "rename", "fsync"):
            patch.setattr(os, name, _fail(getattr(os, name), count, at, error))
        patch.setattr(Git, "run", _fail(Git.run, count, at, error))
        for key, value in {**NOBODY, **WHO}.items():
            patch.setenv(key, value)
        try:
            apply(tree, branch)
        except (StackError, KeyboardInterrupt, OSError) as raised:
            assert raised is error or isinstance(raised, StackError)
            assert count[0] >= at
            return -1
    return count[0]


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "error, branch", [(FULL, None), (KeyboardInterrupt(), "topic")], ids=["full disk", "interrupt, new branch"]
)
def test_any_failure_leaves_everything(error: BaseException, branch: str | None, tmp_path: Path) -> None:
    tree = specimen_repository(tmp_path / "tree")
    before, base = _without_log(picture(tree)), head(tree)
    total = _faults(copy(tree, tmp_path / "whole"), branch, -1, error)
    assert total > 40
    for at in range(1, total + 1):
        if _faults(tree, branch, at, error) == -1:
            assert _without_log(picture(tree)) == before, at
            continue
        # Only what follows the point of no return may fail and change nothing.
        assert len(commits(tree, base)) == 3 and at > total - 5, at
        shutil.rmtree(tree)
        tree = specimen_repository(tmp_path / "tree")
        before = _without_log(picture(tree))


def _without_log(shots: dict[str, Any]) -> dict[str, Any]:
    """Leave out the reflogs: of a branch that was moved and moved back they tell just that."""
    return {path: shot for path, shot in shots.items() if not path.startswith(".git/logs")}


def _in_between(patch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Let somebody else act when all files are in place and nothing of git has moved."""
    real = transaction._settle

    def settle(*args: Any) -> None:
        real(*args)
        act()

    patch.setattr(transaction, "_settle", settle)
    for key, value in {**NOBODY, **WHO}.items():
        patch.setenv(key, value)


def _other_commit(tree: Path) -> str:
    return git(tree, "commit-tree", "-m", "other", "-p", "HEAD", "HEAD^{tree}").decode().strip()


MOVES: dict[str, tuple[Edit, str | None, str]] = {
    "branch": (lambda tree: git(tree, "update-ref", "refs/heads/main", _other_commit(tree)), None, "was moved by"),
    "HEAD": (lambda tree: git(tree, "symbolic-ref", "HEAD", "refs/heads/other"), None, "HEAD was moved by"),
    "new branch": (lambda tree: git(tree, "branch", "topic", "main"), "topic", "refs/heads/topic was moved by"),
}


@pytest.mark.parametrize("move, branch, message", MOVES.values(), ids=MOVES)
def test_a_ref_that_moves_in_between_is_not_overwritten(
    move: Edit, branch: str | None, message: str, repository: Path, tmp_path: Path
) -> None:
    git(repository, "branch", "other")
    moved = copy(repository, tmp_path / "moved")
    move(moved)
    with pytest.MonkeyPatch.context() as patch:
        _in_between(patch, lambda: move(repository))
        with pytest.raises(StackError, match=message) as caught:
            apply(repository, branch)
    assert caught.value.exit == 1
    left, expected = _without_log(picture(repository)), _without_log(picture(moved))
    if "refs/heads/main" in message or message == "was moved by":
        left.pop(".git/refs/heads/main"), expected.pop(".git/refs/heads/main")  # a commit of another second
        assert git(repository, "log", "-1", "--format=%s") == b"other\n"
    assert left == expected


def test_what_happens_during_the_proof_is_seen(repository: Path) -> None:
    def proof(*_: Any) -> Proof:
        git(repository, "update-index", "--chmod=+x", INIT)
        return Proof(True, "proven")

    with pytest.raises(StackError, match="the index has another mode"):
        _with_environment({**NOBODY, **WHO}, lambda: apply(repository, None, proof))
    assert b"_initialized,\n" in (repository / INIT).read_bytes()


def test_the_index_is_locked_while_the_files_change(repository: Path, tmp_path: Path) -> None:
    """A git that would write the index must wait or fail; one that reads is not disturbed."""
    said: list[str] = []

    def other_git() -> None:
        with pytest.raises(AssertionError, match="index.lock"):
            git(repository, "add", "version.txt")
        said.append(git(repository, "rev-parse", "HEAD").decode())

    with pytest.MonkeyPatch.context() as patch:
        _in_between(patch, other_git)
        assert apply(repository) == "applied"
    assert said and not (repository / ".git" / "index.lock").exists()


def test_a_failed_index_takes_the_branch_back(repository: Path) -> None:
    """The last step, after the branch has moved."""
    before, real = _without_log(picture(repository)), os.rename

    def rename(source: Any, target: Any, **options: Any) -> None:
        if str(target).endswith("/.git/index") and str(source).endswith("index.lock"):
            assert len(commits(repository, "HEAD~3")) == 3
            raise OSError(errno.EIO, "Input/output error")
        real(source, target, **options)

    for branch in (None, "topic"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "rename", rename)
            with pytest.raises(StackError, match="Input/output error"):
                _with_environment({**NOBODY, **WHO}, lambda branch=branch: apply(repository, branch))
        assert _without_log(picture(repository)) == before


def test_a_record_that_cannot_go_takes_index_and_branch_back(repository: Path) -> None:
    before, real, failed = _without_log(picture(repository)), os.unlink, list[str]()

    def unlink(path: Any, **options: Any) -> None:
        if path == "record" and not failed:
            failed.append(path)
            assert len(commits(repository, "HEAD~3")) == 3
            raise OSError(errno.EIO, "Input/output error")
        real(path, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        with pytest.raises(StackError, match="Input/output error"):
            _with_environment({**NOBODY, **WHO}, lambda: apply(repository))
    assert failed and _without_log(picture(repository)) == before


def test_an_interrupt_while_git_moves_waits_until_all_is_in(repository: Path, tmp_path: Path) -> None:
    import signal

    real = Git.run

    def run(self: Git, *args: str, **options: Any) -> Answer:
        if args[0] == "update-ref":
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, *args, **options)

    base = head(repository)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Git, "run", run)
        with pytest.raises(KeyboardInterrupt):
            _with_environment({**NOBODY, **WHO}, lambda: apply(repository))
    assert len(commits(repository, base)) == 3 and git(repository, "status", "--porcelain") == b""
    assert not (repository / JOURNAL).exists()


REAL_GIT = shutil.which("git")


def _shim(monkeypatch: pytest.MonkeyPatch, where: Path, case: str) -> None:
    """Put a git in front of the real one, which does something of its own for some commands."""
    program(where / "bin/git", f'case "$*" in {case} esac\nexec {REAL_GIT} "$@"')
    for key, value in {**NOBODY, **WHO, "PATH": f"{where}/bin:{os.environ['PATH']}"}.items():
        monkeypatch.setenv(key, value)


@pytest.mark.parametrize("cut", [": > BODY", "head -c 40 BODY > BODY.2; mv BODY.2 BODY", "sed -i 1d BODY"])
def test_a_message_that_git_could_not_write_is_no_message(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    """git mailinfo ends with code 0 all the same."""
    body = str(repository / ".git/torch-musa-patches/body")
    before = _without_log(picture(repository))
    done = f'{REAL_GIT} "$@"; {cut.replace("BODY", body)}; exit 0'
    _shim(monkeypatch, tmp_path, f"*mailinfo.scissors*mailinfo*body*) {done};;")
    with pytest.raises(StackError, match="git mailinfo has not written the message"):
        apply(repository)
    assert _without_log(picture(repository)) == before


def test_a_lock_that_git_could_not_remove_is_named(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with code 0 all the same."""
    lock = repository / ".git/HEAD.lock"
    _shim(monkeypatch, tmp_path, f'*update-ref*) {REAL_GIT} "$@"; touch {lock}; exit 0;;')
    outcome = commands.apply(str(repository), STORE, commands.How(writer=GitWriter(None)))
    assert outcome.outcome == "applied" and f"you are to remove {lock}" in outcome.message


def test_a_lock_of_a_git_that_was_killed_is_named(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the run if that lives on, by recover if not; it bears no mark, so that nobody but the user may remove it."""
    before, lock = _without_log(picture(repository)), repository / ".git/refs/heads/main.lock"
    _shim(monkeypatch, tmp_path, f"*update-ref*) touch {lock}; kill -9 $$;;")
    with pytest.raises(StackError, match="refs/heads/main cannot be moved") as caught:
        apply(repository)
    assert caught.value.tip.endswith(f"you are to remove {lock}")
    lock.unlink()
    assert _without_log(picture(repository)) == before
    _shim(monkeypatch, tmp_path, f"*update-ref*) touch {lock}; kill -9 $PPID; kill -9 $$;;")
    child = os.fork()
    if not child:
        apply(repository)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
    for _ in range(1000):  # the lock on the tree is held until the last of them has ended
        with pytest.raises(StackError) as caught:
            commands.recover(str(repository))
        if "another run" not in str(caught.value):
            break
        time.sleep(0.02)
    assert "all is put right, but for a lock of git's own" in str(caught.value)
    assert caught.value.tip.endswith(f"you are to remove {lock}")
    lock.unlink()
    assert commands.recover(str(repository)).outcome == "nothing to put right"
    assert _without_log(picture(repository)) == before


def test_without_a_finish_a_plan_is_written_as_before(specimen: Path) -> None:
    assert commands.apply(str(specimen), STORE, commands.How()).outcome == "applied"
