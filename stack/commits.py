"""Make the patch files of a stack out of git commits, one for each, in the one form that every tool takes.

The commit is the source: author, date, subject and message are its own, verbatim; the diff is that of the real git.
What the engine would not read back is refused here, with the commit named, and never half exported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from stack.errors import Malformed, Refused
from stack.header import Header, parse_header, slug
from stack.patch import Patch, parse_patch
from stack.plumbing import Git, open_repository, reading, resolve

SERIES = "series"

# Each flag fixes what a setting, or another version of git, could decide otherwise.
DIFF = (
    "diff-tree",
    "-r",  # files, not the directories above them
    "--no-commit-id",
    "-p",
    "--full-index",  # with whole blob ids git am -3 works, and the chain of images can be checked
    "-U3",  # less context proves no place, more makes hunks overlap that need not
    "--inter-hunk-context=0",
    "--diff-algorithm=myers",
    "--indent-heuristic",
    "--no-renames",  # the engine reads whole files, not renames of them
    "--no-ext-diff",  # no program of an attribute or of GIT_EXTERNAL_DIFF
    "--no-textconv",  # nor a converter: the bytes themselves
    "--no-color",
    "--ignore-submodules=none",
    "--submodule=short",  # a submodule must show, to be refused
    "--src-prefix=a/",
    "--dst-prefix=b/",
)
_TIP = "Make it one change of text files with a message in the form of the other patches (README)."


class Commit(NamedTuple):
    """One commit to export: its id, its only parent, and the patch's head."""

    id: str
    parent: str
    head: bytes
    subject: str

    @property
    def label(self) -> str:
        """The commit as messages name it."""
        return f'commit {self.id[:12]} ("{self.subject}")'


def export_commits(repo: str, base: str, head: str) -> Mapping[str, bytes]:
    """Return the files of one release's stack: each patch by its name, and `series`.

    repo: the top of a work tree, or a git directory. base, head: names of commits; the commits after base up to head
    become patches. Raises Refused, with the commit named, for what a stack cannot hold: a merge, an empty commit, a
    rename, binary content, another mode than 100644 and 100755, a message that is not in our form (stack.header).
    """
    repository = open_repository(repo)
    with reading(repository) as git:
        patches = dict(export(git, resolve(repository, base), resolve(repository, head)))
    series = "".join(f"{name}\n" for name in patches)
    return {**patches, SERIES: series.encode()}


def export(git: Git, base: str, head: str) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of each patch, oldest first."""
    ids = git.text("rev-list", "--reverse", "--topo-order", "--parents", f"{base}..{head}").split("\n")
    for number, row in enumerate(filter(None, ids), 1):
        commit = read_commit(git, *row.split(" "))
        data = _patch(git, commit)
        name = f"{number:04d}-{slug(commit.subject)}.patch"
        _check(data, name, commit)
        yield name, data


def read_commit(git: Git, commit: str, *parents: str) -> Commit:
    """Return the commit as a patch's head; raise Refused for one that has not exactly one parent."""
    # %B is the message as it stands; %aD the date as RFC 5322 has it. The encoding is named, not looked up.
    form = "--format=%an%x00%ae%x00%aD%x00%B"
    row = git.run("show", "--no-patch", "--no-show-signature", "--no-notes", "--encoding=UTF-8", form, commit)
    name, address, date, message = row.split(b"\0", 3)
    subject, _, body = message.rstrip(b"\n").partition(b"\n")
    author = _encoded(name.decode("utf-8", "backslashreplace")).encode()
    mail = b"From: %s <%s>\nDate: %s\nSubject: %s\n" % (author, address, date, subject)
    found = Commit(commit, parents[0] if parents else "", mail + body + b"\n---\n", subject.decode("utf-8", "replace"))
    if len(parents) != 1:
        raise Refused(f"{found.label}: is {'a merge' if parents else 'a first commit'}, not a change", _TIP)
    return found


def _encoded(name: str) -> str:
    """Return an author's name as a mail has it: a header is ASCII (RFC 2047)."""
    if name.isascii():
        return name
    from email.header import Header as Mail

    return Mail(name, "utf-8").encode(maxlinelen=0)


def _patch(git: Git, commit: Commit) -> bytes:
    # Without a limit, or a large commit would pass unseen: git gives up beyond it.
    found = ("diff-tree", "-r", "-l0", "--find-renames", "--diff-filter=R", "--name-only", "--no-commit-id")
    renamed = git.text(*found, commit.parent, commit.id)
    if renamed:
        raise Refused(f"{commit.label}: renames a file to {renamed.splitlines()[0]}; the engine reads no renames", _TIP)
    diff = git.run(*DIFF, commit.parent, commit.id)
    if not diff:
        raise Refused(f"{commit.label}: changes nothing", _TIP)
    return commit.head + diff


def _check(data: bytes, name: str, commit: Commit) -> tuple[Patch, Header]:
    """Refuse what the engine could not read back."""
    if not slug(commit.subject):
        raise Refused(f"{commit.label}: its subject makes no file name", _TIP)
    try:
        patch = parse_patch(data, name)
        return patch, parse_header(patch.head, name)
    except Malformed as error:
        raise Refused(f"{commit.label}: cannot be a patch: {error}", _TIP) from error
