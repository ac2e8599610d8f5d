"""A repository that wants to have its own program run, or a command wait for ever, when we ask git about it."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT, STACKS, RunCli
from repositories import WHO, commit_all, head, program, specimen_repository
from stacks import git
from test_hostile import CONFIGS

from stack import commands, gitenv, gitrun, plumbing
from stack.errors import Refused, StackError
from stack.gitwork import GitWriter
from stack.publication import Publication
from stack.store import Store

PROMISE = (
    '[extensions]\n\tpartialClone = origin\n[remote "origin"]\n\tpromisor = true\n\tpartialclonefilter = blob:none\n'
)


@pytest.fixture(autouse=True)
def committer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WHO.items():
        monkeypatch.setenv(name, value)


def apply_commit(tree: Path) -> None:
    commands.apply(str(tree), Store(str(STACKS)), commands.How(writer=GitWriter(None)))


def dry_run(tree: Path) -> None:
    commands.apply(str(tree), Store(str(STACKS)), commands.How(writer=GitWriter(None), dry_run=True))


def refresh_from(tree: Path) -> None:
    with plumbing.reading(plumbing.open_repository(str(tree))) as reader:
        reader.run("cat-file", "-t", "HEAD")


ASKING: dict[str, Callable[[Path], None]] = {
    "commit": apply_commit,
    "dry-run": dry_run,
    "refresh": refresh_from,
    "is-it-clean": lambda tree: print(plumbing.clean_head(str(tree))),
}


def without_objects(tree: Path) -> None:
    """Take away what HEAD names: a partial clone would fetch it."""
    shutil.rmtree(tree / ".git/objects")
    (tree / ".git/objects/pack").mkdir(parents=True)


@pytest.fixture
def old_git(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A git that does not know GIT_NO_LAZY_FETCH."""
    monkeypatch.delitem(gitenv.OFFLINE, "GIT_NO_LAZY_FETCH")
    yield


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING)
def test_nothing_is_fetched_and_no_program_of_the_configuration_runs(
    tmp_path: Path, old_git: None, ask: Callable[[Path], None], config: Callable[[Path], str]
) -> None:
    tree, pwned = specimen_repository(tmp_path / "tree"), tmp_path / "pwned"
    without_objects(tree)
    with (tree / ".git/config").open("a") as file:
        file.write("[core]\n\trepositoryformatversion = 1\n" + PROMISE + config(pwned))
    with contextlib.suppress(StackError):
        ask(tree)
    assert not pwned.exists()


@pytest.mark.parametrize("name", ["a", "a=b", "a.clean=b", "=", ".", "a\\nb"])
def test_no_filter_of_the_repository_runs(tmp_path: Path, name: str) -> None:
    tree, pwned = specimen_repository(tmp_path / "tree"), tmp_path / "pwned"
    for word in ("clean", "smudge", "process"):
        with (tree / ".git/config").open("a") as file:
            file.write(f'[filter "{name}"]\n\t{word} = "touch {pwned}; cat"\n\trequired = true\n')
    (tree / ".git/info/attributes").write_text(f"* filter={name}\n")
    before = head(tree)
    apply_commit(tree)
    assert not pwned.exists()
    assert git(tree, "rev-list", "--count", f"{before}..HEAD").strip() == b"3"


def _fetch(tree: Path, pwned: Path) -> None:
    without_objects(tree)
    with (tree / ".git/config").open("a") as file:
        file.write("[core]\n\trepositoryformatversion = 1\n" + PROMISE + CONFIGS["upload-pack"](pwned))


def _filter(tree: Path, pwned: Path) -> None:
    with (tree / ".git/config").open("a") as file:
        file.write(f'[filter "a"]\n\tclean = "touch {pwned}; cat"\n')
    (tree / ".git/info/attributes").write_text("* filter=a\n")


def _own_git(tree: Path, pwned: Path) -> None:
    program(tree / "git", f'touch {pwned}; exec {shutil.which("git")} "$@"')


def _refresh_with_filters(publication: Publication) -> None:
    publication.git.run("add", "--refresh", "--", *publication.paths)


Take = Callable[[pytest.MonkeyPatch], object]
WITHOUT: dict[str, tuple[Callable[[Path, Path], None], Take]] = {
    "no transport": (_fetch, lambda patch: patch.setitem(gitenv.OFFLINE, "GIT_ALLOW_PROTOCOL", "file")),
    "no filter": (_filter, lambda patch: patch.setattr(Publication, "_refresh", _refresh_with_filters)),
    "no relative PATH": (_own_git, lambda patch: patch.setattr(gitrun, "search_path", lambda: os.environ["PATH"])),
}


@pytest.mark.parametrize("hostile, take", WITHOUT.values(), ids=WITHOUT)
def test_without_the_protection_the_program_runs(
    tmp_path: Path, old_git: None, monkeypatch: pytest.MonkeyPatch, hostile: Callable[[Path, Path], None], take: Take
) -> None:
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    ran = []
    for name in ("with", "without"):
        tree, pwned = specimen_repository(tmp_path / name), tmp_path / f"pwned-{name}"
        hostile(tree, pwned)
        if name == "without":
            take(monkeypatch)
        with contextlib.suppress(StackError):
            apply_commit(tree)
        ran.append(pwned.exists())
    assert ran == [False, True]


@pytest.mark.parametrize("name", ["git", "env"])
@pytest.mark.parametrize("verb", ["apply", "refresh"])
def test_no_program_of_the_tree_is_taken_for_the_system_s(tmp_path: Path, name: str, verb: str) -> None:
    tree = specimen_repository(tmp_path / "tree")
    program(tree / name, f"touch {tmp_path}/pwned")
    words = ["apply", "--commit", "--tests=none"] if verb == "apply" else ["refresh", "2.7.1+specimen"]
    env = {"PATH": f".::{os.environ['PATH']}"}
    subprocess.run(
        [sys.executable, ROOT / "apply.py", *words, f"--stacks={STACKS}", "."],
        cwd=tree,
        env={**os.environ, **env},
        capture_output=True,
    )
    assert not (tmp_path / "pwned").exists()


def test_a_link_in_the_place_of_our_folder_is_refused_before_anything(tmp_path: Path) -> None:
    tree, outside = specimen_repository(tmp_path / "tree"), tmp_path / "outside"
    outside.mkdir()
    (outside / "theirs").touch()
    (tree / ".git/torch-musa-patches").symlink_to(outside)
    before = git(tree, "status", "--porcelain")
    with pytest.raises(Refused, match=r"\.git/torch-musa-patches: is no folder"):
        apply_commit(tree)
    assert git(tree, "status", "--porcelain") == before
    assert commands.recover(str(tree)).outcome == "nothing to put right"
    assert [path.name for path in outside.iterdir()] == ["theirs"]


@pytest.mark.parametrize("link", [False, True], ids=["fifo", "link"])
@pytest.mark.parametrize("ask", [apply_commit, refresh_from], ids=["commit", "refresh"])
def test_an_index_that_is_no_file_is_not_waited_for(tmp_path: Path, ask: Callable[[Path], None], link: bool) -> None:
    tree = specimen_repository(tmp_path / "tree")
    (tree / ".git/index").unlink()
    if link:
        (tree / ".git/index").symlink_to(tmp_path / "outside")
    else:
        os.mkfifo(tree / ".git/index")
    with pytest.raises(Refused, match="index: is no regular file"):
        ask(tree)
    assert stat.S_ISLNK(os.lstat(tree / ".git/index").st_mode) == link


def test_a_git_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = specimen_repository(tmp_path / "tree")
    (tree / ".git/HEAD").unlink()
    os.mkfifo(tree / ".git/HEAD")
    monkeypatch.setattr(plumbing, "SECONDS", 0.5)
    with pytest.raises(StackError, match=r"git rev-parse has not ended in 0\.5 s"):
        plumbing.open_repository(str(tree))
    waiting = gitrun.alone(str(tree), str(tree / ".git"))._replace(seconds=0.5)
    with pytest.raises(StackError, match=r"git rev-parse has not ended in 0\.5 s"):
        waiting.run("rev-parse", "HEAD")


def test_a_line_break_in_the_name_of_a_work_tree_is_told(tmp_path: Path, run_cli: RunCli) -> None:
    tree = tmp_path / "a\nb"
    tree.mkdir()
    (tree / "x").touch()
    commit_all(tree)
    ran = run_cli("refresh", "2.7.1+specimen", "--stacks", STACKS, tree)
    assert ran.code == 1 and "a line break in its name" in ran.stderr and "Traceback" not in ran.stderr
