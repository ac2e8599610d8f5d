"""What others get to see of a change with commits: a branch, HEAD and the index; and the way back.

It goes with the files of a transaction (stack.transaction.Partner), behind git's own lock on the index:
no git command that writes the index runs meanwhile. All that is ours lies in one directory beside the
index, SCRATCH. Every file that comes to stand elsewhere keeps a second link there: by that link a later
run knows an index.lock, or an index, for ours, whenever this one was cut off (stack.gitrecover).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from typing import NamedTuple

from stack.errors import Environment, Refused, StackError
from stack.gitplace import Place, check_lock
from stack.gitrun import Git
from stack.journal import GIT, mark
from stack.plan import File
from stack.transaction import Partner
from stack.tree import Kind, kind_at

SCRATCH = "torch-musa-patches"
ACCOUNT, OLD_INDEX, NEW_INDEX = "account", "index.old", "index.new"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Wanted(NamedTuple):
    """What is to be published: the last commit, the images of the touched files, a reflog message, who commits."""

    commit: str
    images: Mapping[str, File | None]
    message: str
    who: Mapping[str, str]


class Publication(Partner):
    """branch: a new one to make at HEAD, or None. build: writes the commits, given the scratch directory."""

    def __init__(self, place: Place, branch: str | None, build: Callable[[str], Wanted]) -> None:
        self.place = place
        self.git = place.git
        self.build = build
        self.new_branch = f"refs/heads/{branch}" if branch is not None else None
        self.scratch = scratch_of(place)
        self.lock = f"{place.index_file}.lock"
        self.index = f"{self.scratch}/index"
        self.commit = self.message = ""
        self.paths: list[str] = []
        self.undo: list[Callable[[], object]] = []
        self.journal = -1

    def begin(self, journal: int) -> None:
        """Lock the index, build the commits and the index to be. The user's own is only read."""
        self.journal = journal
        if kind_at(self.scratch) not in (Kind.DIRECTORY, Kind.ABSENT):
            raise Refused(f"{self.scratch}: is no folder", "Remove it: the name is ours.")
        mark(journal)
        shutil.rmtree(self.scratch, ignore_errors=True)  # left by a run whose journal somebody removed
        os.mkdir(self.scratch, 0o700)
        self._lock_index()
        wanted = self.build(self.scratch)
        self.commit, self.message = wanted.commit, wanted.message
        self.git = self.place.git.adding(GIT_INDEX_FILE=self.index, **wanted.who)
        self.paths = [path for path, image in wanted.images.items() if image is not None]
        os.link(self.place.index_file, f"{self.scratch}/{OLD_INDEX}")
        shutil.copy2(self.place.index_file, self.index)
        rows = index_rows(self.git, wanted.images, len(self.commit))
        self.git.ask("update-index", "-z", "--index-info", data=rows)

    def _lock_index(self) -> None:
        os.close(os.open(f"{self.scratch}/lock", _NEW, 0o666))
        try:
            os.link(f"{self.scratch}/lock", self.lock)
        except FileExistsError:
            check_lock(self.place)
            raise

    def publish(self) -> None:
        """Move the branch, then the index."""
        self._refresh()
        os.link(self.index, f"{self.scratch}/{NEW_INDEX}")
        with open(f"{self.scratch}/{ACCOUNT}", "x", encoding="utf-8") as file:
            file.write(f"{self.commit} {self.new_branch or '-'}\n")
        os.rename(self.index, self.lock)
        self._move_ref()
        os.rename(self.lock, self.place.index_file)
        self.undo.append(lambda: put_index(self.place, OLD_INDEX))

    def withdraw(self) -> None:
        """Move back what publish has moved, last one first."""
        try:
            while self.undo:
                self.undo[-1]()
                self.undo.pop()
        except (OSError, StackError) as error:
            raise Environment(
                f"{self.place.root}: git cannot be put back: {error}",
                "It is not yet as it was. Put right what prevents it, then run the command again.",
            ) from error

    def end(self) -> None:
        """Remove the lock, the scratch directory, and the note of them in the journal."""
        clean(self.place)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(GIT, dir_fd=self.journal)

    def _refresh(self) -> None:
        """Record size and times of the new files in the index, as git am does: else `git diff-index
        HEAD` takes them for changed. Writes no object. That it fails (an attribute that converts) is no
        harm: `git status` does the same. No filter of the repository's configuration may run."""
        listed = self.git.run("config", "--name-only", "-z", "--get-regexp", r"^filter\..*")
        names = listed.out.split(b"\0")
        if listed.code not in (0, 1) or any(b"=" in name for name in names):  # -c takes what is before the first =
            return
        off = tuple(f"{os.fsdecode(name)}=" for name in names if name.endswith((b".clean", b".smudge", b".process")))
        off += tuple(f"{os.fsdecode(name)}=false" for name in names if name.endswith(b".required"))
        git = self.git._replace(settings=(*self.git.settings, *off))
        git.run("add", "--refresh", "--", *self.paths)

    def _move_ref(self) -> None:
        place, head = self.place, self.place.head
        self._check_head()
        if self.new_branch is None:
            ref = place.branch or "HEAD"
            # Before the call: a git that is killed may have moved it.
            self.undo.append(lambda: self._take_back(ref, head))
            self._update(ref, self.commit, head)
            return
        branch = self.new_branch
        self.undo.append(lambda: self._drop(branch))
        self._update(branch, self.commit, "0" * len(head))
        self.undo.append(self._head_back)
        self.git.ask("symbolic-ref", "-m", self.message, "HEAD", branch)

    def _check_head(self) -> None:
        """Whether HEAD still is what it was: the old value that update-ref checks is that of one branch."""
        branch = self.git.run("symbolic-ref", "--quiet", "HEAD").out.decode().strip()
        head = self.git.ask("rev-parse", "HEAD")
        if (branch, head) != (self.place.branch or "", self.place.head):
            raise _moved(self.place, "HEAD")

    def _update(self, ref: str, new: str, old: str) -> None:
        answer = self.git.run("update-ref", "--no-deref", "-m", self.message, ref, new, old)
        if answer.code:
            now = value_of(self.git, ref)
            if now and now not in (old, new):
                raise _moved(self.place, ref)
            raise Environment(f"{self.place.root}: {ref} cannot be moved: {answer.error or 'git was cut off'}")

    def _take_back(self, ref: str, old: str) -> None:
        if value_of(self.git, ref) == self.commit:
            self._update(ref, old, self.commit)

    def _drop(self, branch: str) -> None:
        if value_of(self.git, branch) == self.commit:
            self.git.ask("update-ref", "-d", branch, self.commit)

    def _head_back(self) -> None:
        place = self.place
        if place.branch:
            self.git.ask("symbolic-ref", "-m", "apply.py: undone", "HEAD", place.branch)
        else:
            self.git.ask("update-ref", "--no-deref", "-m", "apply.py: undone", "HEAD", place.head)


def _moved(place: Place, ref: str) -> Refused:
    return Refused(
        f"{place.root}: {ref} was moved by somebody else during this run", "Nothing was changed. Run the command again."
    )


def value_of(git: Git, ref: str) -> str:
    """Return the commit that a ref names, or nothing."""
    return git.run("rev-parse", "--verify", "--quiet", ref).out.decode().strip()


def index_rows(git: Git, images: Mapping[str, File | None], width: int) -> bytes:
    """Write the blobs; return the index entries of these files (git manual, update-index, -z --index-info)."""
    rows = []
    for path, image in images.items():
        mode, blob = "0", "0" * width
        if image is not None:
            mode = "100755" if image.executable else "100644"
            blob = git.ask("hash-object", "-w", "--no-filters", "--stdin", data=image.data)
        rows.append(f"{mode} {blob}\t{path}\0")
    return "".join(rows).encode()


def scratch_of(place: Place) -> str:
    """Return our directory beside the index, which need not be there."""
    return os.path.join(place.git_dir, SCRATCH)


def put_index(place: Place, name: str) -> None:
    """Put a file of the scratch directory in the place of the index; it keeps its link there."""
    scratch = scratch_of(place)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{scratch}/link")
    os.link(f"{scratch}/{name}", f"{scratch}/link")
    os.rename(f"{scratch}/link", place.index_file)


def clean(place: Place) -> None:
    """Remove index.lock if it is ours, and the scratch directory."""
    scratch, lock = scratch_of(place), f"{place.index_file}.lock"
    if kind_at(scratch) is not Kind.DIRECTORY:
        return
    names = os.listdir(scratch)
    if any(same_file(lock, f"{scratch}/{name}") for name in names):
        os.unlink(lock)
    shutil.rmtree(scratch)


def same_file(one: str, other: str) -> bool:
    """Whether both names are links to one file; no symbolic link is followed."""
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except FileNotFoundError:
        return False
