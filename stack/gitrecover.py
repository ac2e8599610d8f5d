"""What a run left that was cut off while it made commits: the files, the branch and the index agree again.

HEAD decides. If it has the commits, the files stay and the index follows; if not, all goes back. Only
what carries our mark is touched: SCRATCH beside the index, and what is a link to a file in it.
"""

from __future__ import annotations

import os

from stack.errors import Environment, Refused
from stack.gitplace import Place, left_locks, locate, ref_locks
from stack.journal import GIT, Record, undo, unlink
from stack.publication import ACCOUNT, NEW_INDEX, OLD_INDEX, clean, put_index, same_file, scratch_of, value_of
from stack.tree import Kind, Tree


def recover_git(tree: Tree, handle: int, record: Record | None) -> str:
    """Put files, branch and index right. handle: open on the journal's directory; record: of the files, if whole.

    Returns what the user must do himself (stack.gitplace.left_locks).
    The caller holds the tree's lock. Raises Environment where git does not answer, OSError; can be run again.
    """
    place = _place(tree)
    locks = ref_locks(place, *filter(None, (place.branch, _account(place)[1]))) if place else ()
    if record and place and _is_published(place):
        os.unlink("record", dir_fd=handle)
    elif record:
        undo(tree, handle, record)
    if place:
        clean(place)
    unlink(handle, GIT)
    return left_locks(locks)


def _place(tree: Tree) -> Place | None:
    try:
        return locate(tree)
    except Refused as error:
        if tree.read(".git").kind is Kind.ABSENT:
            return None  # somebody has removed the repository
        raise Environment(f"{tree.root}: git cannot tell what was committed here: {error}", error.tip) from error


def _is_published(place: Place) -> bool:
    """Whether HEAD has the commits: then let the index follow, else remove the branch that was made for them."""
    commit, branch = _account(place)
    if not commit:
        return False
    if place.git.run("merge-base", "--is-ancestor", commit, "HEAD").code == 0:
        index_is_old = same_file(place.index_file, f"{scratch_of(place)}/{OLD_INDEX}")
        if index_is_old:
            put_index(place, NEW_INDEX)
        return True
    if branch.startswith("refs/heads/") and value_of(place.git, branch) == commit:
        place.git.ask("update-ref", "-d", branch, commit)
    return False


def _account(place: Place) -> tuple[str, str]:
    """Return the commit and the new branch as publication wrote them; nothing for a text that was cut off."""
    try:
        with open(f"{scratch_of(place)}/{ACCOUNT}", encoding="ascii", errors="replace") as file:
            text = file.read(4096)
    except FileNotFoundError:
        return "", ""
    commit, _, branch = text.removesuffix("\n").partition(" ")
    whole = text.endswith("\n") and len(commit) in (40, 64) and not commit.strip("0123456789abcdef")
    return (commit, branch) if whole else ("", "")
