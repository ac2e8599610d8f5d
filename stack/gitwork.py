"""The stack as commits: one for each patch that is not in yet, the same that git am would make.

Objects are written by plumbing, with the exact bytes of the plan; nothing is added, checked out or
stashed. The files are the transaction's (stack.transaction); once they are in place, and before its
point of no return, the branch and the index follow. Any failure puts all of it back. Of a kill in
the very moment between branch and record, git keeps the commits while the files go back: the next
run says that they differ from HEAD, and apply without --commit makes them equal again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from stack.commands import Writer, Written
from stack.errors import Environment, Malformed, Refused, Usage
from stack.gitplace import Place, check_branch, check_idle, check_lock, check_same_as_head, committer, locate
from stack.gitrun import Git
from stack.journal import describe
from stack.outcome import Outcome
from stack.patch import Patch
from stack.paths import JOURNAL
from stack.plan import File, Plan, Step, images_of_each
from stack.state import Standing, State
from stack.transaction import commit, shielded
from stack.tree import Entry, Kind, Tree


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
        try:
            with _scratch(place) as scratch, _Publication(place, scratch, self.branch) as publication:
                who = self._check(place, tree, state, entries)
                made = _build(place, scratch, state, entries, who)
                publication.prepare(made[-1].id, plan, f"apply.py: {state.release.name if state.release else ''}", who)
                publication.run(tree, plan)
        except OSError as error:
            raise Environment(
                f"{place.git_dir}: cannot be changed: {describe(error)}",
                "The tree and the repository are as they were.",
            ) from error
        return _written(made, place, self._where(place))


def _written(made: Sequence[Made], place: Place, where: str) -> Written:
    lines = [f"  commit {one.id[:12]}: {one.subject}" for one in made]
    lines.append(f"  on {where}; HEAD was {place.head[:12]}")
    data = {"before": place.head, "on": where, "made": [one._asdict() for one in made]}
    return Written("\n".join(lines), {"commits": data})


@contextmanager
def _scratch(place: Place) -> Iterator[str]:
    """Make a directory beside the index, for what must be renamed onto it; remove it at the end."""
    from tempfile import mkdtemp

    folder = mkdtemp(prefix="torch-musa-patches.", dir=place.git_dir)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _build(
    place: Place, scratch: str, state: State, entries: Mapping[str, Entry], who: Mapping[str, str]
) -> list[Made]:
    """Write the objects: a commit on top of HEAD for each patch. No ref, no index of the user's."""
    git = place.git.adding(GIT_INDEX_FILE=f"{scratch}/tree", **who)
    git.ask("read-tree", f"{place.head}^{{tree}}")
    made, parent = list[Made](), place.head
    for patch, images in images_of_each(state, entries):
        git.ask("update-index", "-z", "--index-info", data=_rows(git, scratch, images, len(place.head)))
        # --missing-ok: in a partial clone the files that no patch touches need not be here.
        tree = git.ask("write-tree", "--missing-ok")
        message, author = _mail(git, scratch, patch)
        parent = git.ask("commit-tree", "-p", parent, tree, data=message, **author)
        made.append(Made(parent, patch.name.rsplit("/", 1)[-1], os.fsdecode(message.partition(b"\n")[0])))
    return made


def _rows(git: Git, scratch: str, images: Mapping[str, File | None], width: int) -> bytes:
    """Write the blobs; return the index entries of a patch's files (git manual, update-index, -z --index-info)."""
    rows = []
    for path, image in images.items():
        mode, blob = "0", "0" * width
        if image is not None:
            mode = "100755" if image.executable else "100644"
            blob = git.ask("hash-object", "-w", "--no-filters", "--stdin", data=image.data)
        rows.append(f"{mode} {blob}\t{path}\0")
    return "".join(rows).encode()


def _mail(git: Git, scratch: str, patch: Patch) -> tuple[bytes, dict[str, str]]:
    """Return message and author of a patch as git am reads them: by git's own mailinfo and stripspace."""
    said = git.ask("mailinfo", f"{scratch}/body", f"{scratch}/diff", data=patch.head)
    found = dict(line.partition(": ")[::2] for line in said.split("\n"))
    author = {f"GIT_AUTHOR_{key}": found.get(name, "") for key, name in _AUTHOR.items()}
    if not all(author.values()) or not found.get("Subject"):
        raise Malformed(f"{patch.name}:1: git finds no author, date and subject in the mail lines")
    with open(f"{scratch}/body", "rb") as file:
        body = file.read()
    return git.run("stripspace", data=os.fsencode(found["Subject"]) + b"\n\n" + body).out, author


_AUTHOR = {"NAME": "Author", "EMAIL": "Email", "DATE": "Date"}


class _Publication:
    """What the user's repository gets to see, behind git's own lock on the index; and the way back.

    As a context manager it holds index.lock: no git command that writes the index runs meanwhile.
    """

    def __init__(self, place: Place, scratch: str, branch: str | None) -> None:
        self.place = place
        self.new_branch = f"refs/heads/{branch}" if branch is not None else None
        self.lock = f"{place.index_file}.lock"
        self.index = f"{scratch}/index"
        self.old_index = f"{scratch}/index.old"
        self.git = place.git
        self.commit = self.message = ""
        self.paths: list[str] = []
        self.undo: list[Callable[[], object]] = []
        self.locked = False

    def __enter__(self) -> _Publication:
        check_lock(self.place)
        os.close(os.open(self.lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        self.locked = True
        return self

    def __exit__(self, *_: object) -> None:
        if self.locked:
            os.unlink(self.lock)

    def prepare(self, commit_id: str, plan: Plan, message: str, who: Mapping[str, str]) -> None:
        """Stage the index to be: the user's, with the entries of the touched paths as they will be."""
        self.commit, self.message = commit_id, message
        self.git = self.place.git.adding(GIT_INDEX_FILE=self.index, **who)
        images = {step.path: step.after for step in plan.steps}
        self.paths = [path for path, image in images.items() if image is not None]
        os.link(self.place.index_file, self.old_index)
        shutil.copy2(self.place.index_file, self.index)
        rows = _rows(self.git, "", images, len(commit_id))
        self.git.ask("update-index", "-z", "--index-info", data=rows)

    def run(self, tree: Tree, plan: Plan) -> None:
        """Write the files, then publish; if that cannot stay, take back what was published."""
        try:
            commit(tree, plan, self._publish)
        except BaseException:
            if not _stays(tree, plan):
                self._withdraw()
            raise

    def _publish(self) -> None:
        self._refresh()
        os.rename(self.index, self.lock)
        self._move_ref()
        os.rename(self.lock, self.place.index_file)
        self.locked = False
        self.undo.append(lambda: os.rename(self.old_index, self.place.index_file))

    def _refresh(self) -> None:
        """Record size and times of the new files in the index, as git am does: else `git diff-index
        HEAD` takes them for changed. Writes no object. That it fails (an attribute that converts) is no
        harm: `git status` does the same. No filter of the repository's configuration may run."""
        names = self.git.run("config", "--name-only", "-z", "--get-regexp", r"^filter\..*").out.split(b"\0")
        off = tuple(f"{os.fsdecode(name)}=" for name in names if name.endswith((b".clean", b".smudge", b".process")))
        off += tuple(f"{os.fsdecode(name)}=false" for name in names if name.endswith(b".required"))
        git = self.git._replace(settings=(*self.git.settings, *off))
        git.run("add", "--refresh", "--", *self.paths)

    def _move_ref(self) -> None:
        place, head = self.place, self.place.head
        if self.new_branch is None:
            ref = place.branch or "HEAD"
            self._check_head()
            self._update(ref, self.commit, head)
            self.undo.append(lambda: self._update(ref, head, self.commit))
            return
        self._check_head()
        branch = self.new_branch
        self._update(branch, self.commit, "0" * len(head))
        self.undo.append(lambda: self.git.ask("update-ref", "-d", branch, self.commit))
        self.git.ask("symbolic-ref", "-m", self.message, "HEAD", branch)
        self.undo.append(self._head_back)

    def _check_head(self) -> None:
        """Whether HEAD still is what it was: the old value that update-ref checks is that of one branch."""
        branch = self.git.run("symbolic-ref", "--quiet", "HEAD").out.decode().strip()
        head = self.git.ask("rev-parse", "HEAD")
        if (branch, head) != (self.place.branch or "", self.place.head):
            raise _moved(self.place, "HEAD")

    def _update(self, ref: str, new: str, old: str) -> None:
        answer = self.git.run("update-ref", "--no-deref", "-m", self.message, ref, new, old)
        if answer.code:
            now = self.git.run("rev-parse", "--verify", "--quiet", ref).out.decode().strip()
            if now and now != old:
                raise _moved(self.place, ref)
            raise Environment(f"{self.place.root}: {ref} cannot be moved: {answer.error}", "Nothing was changed.")

    def _head_back(self) -> None:
        place = self.place
        if place.branch:
            self.git.ask("symbolic-ref", "-m", "apply.py: undone", "HEAD", place.branch)
        else:
            self.git.ask("update-ref", "--no-deref", "-m", "apply.py: undone", "HEAD", place.head)

    def _withdraw(self) -> None:
        with shielded():
            for step in reversed(self.undo):
                step()
            self.undo.clear()


def _moved(place: Place, ref: str) -> Refused:
    return Refused(
        f"{place.root}: {ref} was moved by somebody else during this run", "Nothing was changed. Run the command again."
    )


def _stays(tree: Tree, plan: Plan) -> bool:
    """Whether what the transaction did is final: its record is gone, and the files are as planned."""
    return tree.read(f"{JOURNAL}/record").kind is Kind.ABSENT and all(_in_place(tree, step) for step in plan.steps)


def _in_place(tree: Tree, step: Step) -> bool:
    entry = tree.read(step.path)
    if step.after is None:
        return entry.kind is Kind.ABSENT
    return entry.kind is Kind.FILE and step.after == File(entry.data, entry.executable)
