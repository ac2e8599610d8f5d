"""The git work tree that a TREE is, and all that speaks against making commits in it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from shlex import quote
from typing import NamedTuple

from stack.errors import Environment, Refused, Usage
from stack.gitenv import check_index
from stack.gitrun import Git, alone, asking_user
from stack.state import Standing, State
from stack.tree import Entry, Kind, Tree, stands

# What git leaves in its directory while an operation waits to be continued (git manual, gitrepository-layout).
_UNDER_WAY = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase or am",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick or revert",
    "BISECT_LOG": "bisect",
}


class Place(NamedTuple):
    """A work tree of git: how to ask git about it, and where it stands. branch is None for a detached HEAD."""

    git: Git
    root: str
    git_dir: str
    head: str
    branch: str | None

    @property
    def index_file(self) -> str:
        """The index file; a linked work tree has one of its own."""
        return os.path.join(self.git_dir, "index")


def locate(tree: Tree) -> Place:
    """Return the work tree of which TREE is the top; raise Refused where it is none, or has no commit."""
    root = os.path.realpath(tree.root)
    theirs = asking_user(root)
    top = theirs.run("rev-parse", "--show-toplevel")
    if top.code:
        raise _no_work_tree(tree, top.error)
    where = os.fsdecode(top.out.removesuffix(b"\n"))
    if not os.path.samefile(where, root):
        raise Refused(
            f"{tree.root}: is not the top of a git work tree; it lies inside that of {where}",
            "Its files may be a tarball's that git knows nothing of. Leave --commit out.",
        )
    git_dir = theirs.ask("rev-parse", "--absolute-git-dir")
    git = alone(root, git_dir)._replace(keep=(tree.handle,))
    check_index(os.path.join(git_dir, "index"))
    head = git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if head.code:
        raise Refused(f"{tree.root}: HEAD has no commit yet", "Commit the release first, or leave --commit out.")
    branch = git.run("symbolic-ref", "--quiet", "HEAD").out.decode().strip()
    return Place(git, tree.root, git_dir, head.out.decode().strip(), branch or None)


def _no_work_tree(tree: Tree, error: str) -> Refused | Environment:
    if "not a git repository" in error:
        return Refused(f"{tree.root}: is no git work tree", "Leave --commit out: git is not needed then.")
    if "must be run in a work tree" in error:
        return Refused(f"{tree.root}: is a git repository without a work tree", "Name the top of a work tree.")
    return Environment(f"{tree.root}: git does not answer: {error}")


def check_idle(place: Place, tree: Tree) -> None:
    """Raise Refused while an operation of git waits to be continued."""
    for name, what in _UNDER_WAY.items():
        if stands(os.path.join(place.git_dir, name)):
            raise Refused(
                f"{tree.root}: a {what} is in progress ({name})",
                f"Finish or abort it first: git -C {quote(tree.root)} status tells how.",
            )


def check_lock(place: Place) -> None:
    """Raise Environment when another git holds the index."""
    if stands(f"{place.index_file}.lock"):
        raise Environment(
            f"{place.root}: another git is at work here: {place.index_file}.lock exists",
            "Wait for it. If none is, a git was cut off: remove that file, then run the command again.",
        )


def ref_locks(place: Place, *refs: str) -> list[str]:
    """Return the lock files that git makes when it changes HEAD or these refs (git manual, gitrepository-layout)."""
    names = [word for ref in ("HEAD", "packed-refs", *refs) for word in ("--git-path", f"{ref}.lock")]
    paths = place.git.ask("rev-parse", *names).split("\n")
    return [os.path.join(place.git.folder, path) for path in paths]


def left_locks(locks: Iterable[str]) -> str:
    """Return what to do about those of the locks that are there; nothing for none.

    A git that is killed leaves them. They bear no mark, so that one of another git at work looks the same.
    """
    held = " and ".join(path for path in locks if os.path.lexists(path))
    return f"If no git is at work here, one was cut off and you are to remove {held}" if held else ""


def check_branch(place: Place, tree: Tree, branch: str | None) -> None:
    """Raise Usage for a name that no branch can have, Refused for a branch that exists."""
    if branch is None:
        return
    ref = f"refs/heads/{branch}"
    if branch.startswith("-") or branch == "HEAD" or place.git.run("check-ref-format", ref).code:
        raise Usage(f"--branch {branch}: is no name for a branch")
    if not place.git.run("rev-parse", "--verify", "--quiet", ref).code:
        raise Refused(
            f"{tree.root}: the branch {branch} exists already", "Name another, or check it out and leave --branch out."
        )


def committer(tree: Tree) -> dict[str, str]:
    """Return who commits, by git's own rules, as variables for git; raise Environment when git cannot tell.

    The user's configuration is read for this alone. user.useConfigOnly: nothing is guessed from the host.
    """
    answer = asking_user(os.path.realpath(tree.root)).run("var", "GIT_COMMITTER_IDENT")
    if answer.code:
        said = next((line for line in answer.error.split("\n") if line.startswith("fatal:")), answer.error)
        raise Environment(
            f"{tree.root}: git does not know who commits here: {said.removeprefix('fatal: ')}",
            "Tell it: git config --global user.name NAME, and user.email ADDRESS; or GIT_COMMITTER_NAME and _EMAIL.",
        )
    name, _, rest = os.fsdecode(answer.out).strip().rpartition(" <")
    email, _, date = rest.partition("> ")
    return {"GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": email, "GIT_COMMITTER_DATE": f"@{date}"}


def check_same_as_head(place: Place, tree: Tree, state: State, entries: Mapping[str, Entry]) -> None:
    """Raise Refused unless HEAD, the index and the work tree have the same touched files.

    The work tree's bytes are compared as they are: no attribute, filter or time stamp is believed.
    """
    paths = state.release.paths if state.release else ()
    head, index = _in_head(place, paths), _in_index(place, paths)
    lines = [
        f"{path}: {why}"
        for path in paths
        if (why := _difference(_wanted(entries[path], len(place.head)), head.get(path), index.get(path, [])))
    ]
    if not lines:
        return
    what, tip = "touched files are not as in HEAD", "Commit or put away what is yours, then run the command again."
    if state.standing is Standing.APPLIED:
        what = "the stack is in the files, but not in HEAD"
        tip = f"Commit it yourself; or apply.py unapply {quote(tree.root)}, then apply --commit."
    raise Refused("\n  ".join([f"{tree.root}: {what}", *lines]), tip)


Known = tuple[str, str]
"""Mode and blob id of a file."""


class Row(NamedTuple):
    """An entry of the index: the letter of ls-files -v, mode and blob id, and the merge stage."""

    tag: str
    known: Known
    stage: str


def _wanted(entry: Entry, width: int) -> Known | None:
    if entry.kind is not Kind.FILE:
        return None
    head = b"blob %d\0" % len(entry.data)
    digest = hashlib.sha1 if width == 40 else hashlib.sha256
    blob = digest(head + entry.data, usedforsecurity=False).hexdigest()
    return "100755" if entry.executable else "100644", blob


def _in_head(place: Place, paths: Iterable[str]) -> dict[str, Known]:
    rows = place.git.ask("ls-tree", "-z", "--full-tree", place.head, "--", *paths).split("\0")
    split = [row.partition("\t")[::2] for row in rows if row]
    return {path: (facts.split(" ")[0], facts.split(" ")[2]) for facts, path in split}


def _in_index(place: Place, paths: Iterable[str]) -> dict[str, list[Row]]:
    """Return the entries at each path; one below a path counts as at it."""
    found: dict[str, list[Row]] = {path: [] for path in paths}
    for row in place.git.ask("ls-files", "-z", "--stage", "-v", "--", *found).split("\0"):
        facts, _, name = row.partition("\t")
        for path in found:
            if name == path or name.startswith(f"{path}/"):
                tag, mode, blob, stage = facts.split(" ")
                found[path].append(Row(tag, (mode, blob), stage))
    return found


def _difference(wanted: Known | None, head: Known | None, rows: list[Row]) -> str:
    """Return how a file differs from HEAD, or nothing."""
    if any(row.stage != "0" for row in rows):
        return "is in conflict in the index"
    if any(row.tag == "S" or row.tag == "s" for row in rows):
        return "is left out of the work tree (skip-worktree, sparse checkout)"
    if any(row.tag.islower() for row in rows):
        return "is marked as not to be looked at (assume-unchanged)"
    if wanted != head:
        return _how(wanted, head, "the work tree")
    if [row.known for row in rows] != ([head] if head else []):
        return _how(rows[0].known if rows else None, head, "the index")
    return ""


def _how(here: Known | None, head: Known | None, where: str) -> str:
    if head is None:
        return f"is new in {where}"
    if here is None:
        return f"is removed in {where}"
    return f"{where} has other bytes" if here[1] != head[1] else f"{where} has another mode"
