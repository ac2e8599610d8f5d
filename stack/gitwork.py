"""The stack as commits: one for each patch that is not in yet, the same that git am would make.

Objects are written by plumbing, with the exact bytes of the plan; nothing is added, checked out or
stashed. The files are the transaction's (stack.transaction); once they are in place, and before its
point of no return, the branch and the index follow (stack.publication). Any failure puts all of it
back; after a kill the next run does, or finishes what HEAD has already (stack.gitrecover).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from stack.commands import Writer, Written
from stack.errors import Environment, Malformed, StackError, Usage
from stack.gitplace import (
    Place,
    check_branch,
    check_idle,
    check_lock,
    check_same_as_head,
    committer,
    left_locks,
    locate,
    ref_locks,
)
from stack.gitrun import Git
from stack.outcome import Outcome
from stack.patch import Patch
from stack.plan import Plan, images_of_each
from stack.publication import Publication, Wanted, index_rows
from stack.state import Standing, State
from stack.transaction import commit
from stack.tree import Entry, Tree


def run(root: str, options: Mapping[str, str], job: Callable[[Writer | None], Outcome]) -> Outcome:
    """Run the main job on root with --commit, --branch, --clone, --ref among the options.

    job: applies the stack to root, with the writer that it is given. Raises Usage for options that
    do not go together, and what stack.clone and GitWriter raise.
    """
    for option, needed in (("branch", "commit"), ("clone", "ref"), ("ref", "clone")):
        if option in options and needed not in options:
            raise Usage(f"apply: --{option} needs --{needed}", "apply.py apply --help")
    if "clone" in options and "dry-run" in options:
        raise Usage(
            "apply: --clone writes, and --dry-run must not", "Clone it with git, then: apply.py apply --dry-run."
        )
    writer = GitWriter(options.get("branch")) if "commit" in options else None
    if "clone" not in options:
        return job(writer)
    from stack.clone import clone_and

    return clone_and(options["clone"], options["ref"], root, lambda: job(writer), "keep" in options)


class Made(NamedTuple):
    """One commit: its id, the patch that it is, and its subject."""

    id: str
    patch: str
    subject: str


class GitWriter(Writer):
    """Writes a plan into files and commits. branch: a new one to make at HEAD, or None for the current one."""

    def __init__(self, branch: str | None) -> None:
        self.branch = branch

    def check(self, tree: Tree, state: State, entries: Mapping[str, Entry]) -> str:
        """Raise Refused or Environment where no commit can be made; return what a dry run says."""
        place = locate(tree)
        check_lock(place)
        self._check(place, tree, state, entries)
        if state.standing is Standing.APPLIED:
            return f"  committed already: HEAD has the same files ({place.head[:12]})"
        return f"  to be committed on {self._where(place)}"

    def _check(self, place: Place, tree: Tree, state: State, entries: Mapping[str, Entry]) -> Mapping[str, str]:
        check_idle(place, tree)
        check_same_as_head(place, tree, state, entries)
        if state.standing is Standing.APPLIED:
            return {}
        check_branch(place, tree, self.branch)
        return committer(tree)

    def _where(self, place: Place) -> str:
        if self.branch is not None:
            return f"the new branch {self.branch}"
        return f"branch {place.branch.removeprefix('refs/heads/')}" if place.branch else "the detached HEAD"

    def write(self, tree: Tree, state: State, entries: Mapping[str, Entry], plan: Plan) -> Written:
        """Make the files, the commits, the branch and the index, all or nothing."""
        if state.standing is Standing.APPLIED:
            return Written(self.check(tree, state, entries))
        place = locate(tree)
        made: list[Made] = []

        def build(scratch: str) -> Wanted:
            who = self._check(place, tree, state, entries)
            made.extend(_build(place, scratch, state, entries, who))
            images = {step.path: step.after for step in plan.steps}
            return Wanted(made[-1].id, images, f"apply.py: {state.release.name if state.release else ''}", who)

        locks = ref_locks(place, *filter(None, (place.branch, self.branch and f"refs/heads/{self.branch}")))
        try:
            commit(tree, plan, Publication(place, self.branch, build))
        except StackError as error:
            error.tip = " ".join(filter(None, (error.tip, left_locks(locks))))
            raise
        # A git that could not remove its lock ends with code 0.
        return _written(made, place, self._where(place), left_locks(locks))


def _written(made: Sequence[Made], place: Place, where: str, left: str) -> Written:
    lines = [f"  commit {one.id[:12]}: {one.subject}" for one in made]
    lines.append(f"  on {where}; HEAD was {place.head[:12]}")
    lines += [f"  {left}"] if left else []
    data = {"before": place.head, "on": where, "made": [one._asdict() for one in made]}
    return Written("\n".join(lines), {"commits": data})


def _build(
    place: Place, scratch: str, state: State, entries: Mapping[str, Entry], who: Mapping[str, str]
) -> list[Made]:
    """Write the objects: a commit on top of HEAD for each patch. No ref, no index of the user's."""
    git = place.git.adding(GIT_INDEX_FILE=f"{scratch}/tree", **who)
    git.ask("read-tree", f"{place.head}^{{tree}}")
    made, parent = list[Made](), place.head
    for patch, images in images_of_each(state, entries):
        git.ask("update-index", "-z", "--index-info", data=index_rows(git, images, len(place.head)))
        # --missing-ok: in a partial clone the files that no patch touches need not be here.
        tree = git.ask("write-tree", "--missing-ok")
        message, author = _mail(git, scratch, patch)
        parent = git.ask("commit-tree", "-p", parent, tree, data=message, **author)
        made.append(Made(parent, patch.name.rsplit("/", 1)[-1], os.fsdecode(message.partition(b"\n")[0])))
    return made


def _mail(git: Git, scratch: str, patch: Patch) -> tuple[bytes, dict[str, str]]:
    """Return message and author of a patch as git am reads them: by git's own mailinfo and stripspace."""
    said = git.ask("mailinfo", f"{scratch}/body", f"{scratch}/diff", data=patch.head)
    found = dict(line.partition(": ")[::2] for line in said.split("\n"))
    author = {f"GIT_AUTHOR_{key}": found.get(name, "") for key, name in _AUTHOR.items()}
    if not all(author.values()) or not found.get("Subject"):
        raise Malformed(f"{patch.name}:1: git finds no author, date and subject in the mail lines")
    with open(f"{scratch}/body", "rb") as file:
        body = file.read()
    if body.split() != _body(patch.head).split():  # mailinfo does not say that it could not write
        raise Environment(f"{patch.name}: git mailinfo has not written the message of the mail as it stands there")
    return git.read("stripspace", data=os.fsencode(found["Subject"]) + b"\n\n" + body), author


def _body(head: bytes) -> bytes:
    """Return the message of a mail: from the first empty line to a line of three dashes, without mail lines of its own.

    >>> _body(b"From: A\\nSubject: s\\n\\nFrom: B\\n\\nWhy.\\n---\\n a.py | 2 +-\\n")
    b'Why.\\n'
    """
    text = (head.partition(b"\n\n")[2] + b"\n").partition(b"\n---\n")[0] + b"\n"
    return re.sub(rb"\A\s*(?:(?:From|Date|Subject): .*\n)+\n", b"", text)


_AUTHOR = {"NAME": "Author", "EMAIL": "Email", "DATE": "Date"}
