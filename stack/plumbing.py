"""The real git, as a reader of objects, so that nobody's settings can take part in what it says.

git's answers depend on more than the commits: configuration of the system, the user and the repository, attributes,
replace references, hooks, the index, `GIT_*`. Commands therefore run in an empty repository of our own whose object
store is the one that is read. Nothing of the repository that the commits are in is consulted but its objects, and
nothing is written into it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from stack.errors import Environment, Refused, Usage
from stack.gitenv import OFFLINE, SECONDS, check_index, search_path
from stack.scratch import scratch_folder
from stack.tree import stands

_UNFINISHED = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase or git am",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "sequencer": "a cherry-pick or revert",
}


class Git(NamedTuple):
    """git in one environment: `where` is the directory that it runs in."""

    where: str
    env: Mapping[str, str]

    def run(self, *args: str, data: bytes = b"") -> bytes:
        """Return what git prints for these arguments and this input; raise Environment when it fails."""
        try:
            done = subprocess.run(
                ["git", *args], cwd=self.where, env=self.env, input=data, capture_output=True, timeout=SECONDS
            )
        except OSError as error:
            raise Environment(f"git cannot be run: {error.strerror}", "Install git.") from error
        except subprocess.TimeoutExpired as error:
            raise Environment(f"{self.where}: git {args[0]} has not ended in {SECONDS} s, and was killed") from error
        if done.returncode:
            said = (done.stderr or done.stdout).decode("utf-8", "backslashreplace").strip()
            raise Environment(f"git {' '.join(args)}: exit code {done.returncode}: {said}")
        return done.stdout

    def text(self, *args: str) -> str:
        """Return what git prints as text, without the last newline."""
        return os.fsdecode(self.run(*args)).removesuffix("\n")


class Repository(NamedTuple):
    """A repository of somebody's: its own git directory, what HEAD is, its object store and its index."""

    directory: str
    head: str
    objects: str
    index_file: str


def environment(**more: str) -> dict[str, str]:
    """Return an environment for git in which no setting of the user or of the machine counts (git manual, git(1))."""
    alone = {
        **OFFLINE,
        "PATH": search_path(),
        "HOME": "/nonexistent",  # no ~/.gitconfig, no $XDG_CONFIG_HOME/git
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",  # the commits as they are, whatever refs/replace says
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }
    return {**alone, **more}


def open_repository(root: str) -> Repository:
    """Return the repository whose work tree has its top at root, or whose git directory root is.

    Raises Usage when there is none, Refused for one without a commit or of another kind than SHA-1.
    """
    inner = os.path.join(root, ".git")
    directory = inner if stands(inner) else root
    # An explicit GIT_DIR: no search in the directories above, where another repository may be.
    git = Git(os.path.abspath(root), environment(GIT_DIR=os.path.abspath(directory)))
    try:
        paths = git.text("rev-parse", "--absolute-git-dir", "--git-path", "objects", "--git-path", "index").split("\n")
        kind = git.text("rev-parse", "--show-object-format")
    except Environment as error:
        raise Usage(f"{root}: is not the top of a git work tree: {error}") from error
    if kind != "sha1":
        raise Refused(f"{root}: its objects are {kind}; a patch has the ids of sha1")
    try:
        head = git.text("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except Environment as error:
        raise Refused(f"{root}: has no commit") from error
    if len(paths) != 3:
        raise Refused(f"{root!r}: a line break in its name, or in that of its git directory", "Rename it.")
    own, objects, index = (os.path.join(git.where, path) for path in paths)
    check_index(index)
    return Repository(own, head, objects, index)


def resolve(repository: Repository, name: str) -> str:
    """Return the id of the commit that a name means in the repository; raise Usage when it means none."""
    git = Git(repository.directory, environment(GIT_DIR=repository.directory))
    try:
        return git.text("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
    except Environment as error:
        raise Usage(f"{name!r} names no commit") from error


def unfinished(repository: Repository) -> str:
    """Name the operation that the repository is in the middle of, or return an empty text."""
    found = (what for name, what in _UNFINISHED.items() if stands(f"{repository.directory}/{name}"))
    return next(found, "")


@contextmanager
def reading(repository: Repository, **more: str) -> Iterator[Git]:
    """Yield a git whose repository is empty but for the objects, which are those of `repository`."""
    with empty() as git:
        yield git._replace(env={**git.env, "GIT_OBJECT_DIRECTORY": repository.objects, **more})


@contextmanager
def empty() -> Iterator[Git]:
    """Yield a git in an empty repository of ours, which goes at the end."""
    with scratch_folder() as scratch:
        git = Git(scratch, environment(GIT_DIR=f"{scratch}/git"))
        # --template=: no hooks, no attributes. --object-format is sha1 whatever this git was built to prefer.
        git.run("init", "--quiet", "--bare", "--template=", "--object-format=sha1", f"{scratch}/git")
        yield git


def clean_head(root: str) -> str:
    """Return the commit that the work tree at root is, or nothing: no repository there, or changes against HEAD.

    The index is read from a copy and files are compared as bytes: no filter, no line-end setting, no monitor runs.
    """
    if not stands(os.path.join(root, ".git")):
        return ""
    import shutil

    try:
        repository = open_repository(root)
        with reading(repository) as git:
            index = f"{git.where}/index"
            shutil.copyfile(repository.index_file, index)
            git = git._replace(env={**git.env, "GIT_INDEX_FILE": index, "GIT_WORK_TREE": os.path.abspath(root)})
            git.run("update-index", "-q", "--really-refresh")  # exit code 1 for a file that differs
            changed = git.run("diff-index", "--name-only", repository.head)
    except (Usage, Refused, Environment, OSError):
        return ""
    return "" if changed else repository.head
