"""mbox: the stack as one file for `git am`."""

from __future__ import annotations

import re

from stack.errors import Malformed, Refused
from stack.export.draft import Ask, Draft
from stack.export.ours import place
from stack.store import Release
from stack.tree import Kind

# The id and the date that git format-patch --zero-commit writes: no commit, and the one date that mail readers know.
_FROM = b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
# What git mailsplit takes for the start of a mail (git, mailsplit.c, is_from_line), and a little more.
_SEPARATOR = re.compile(rb"^From .*\d.?:?\d\d:\d\d.*$", re.MULTILINE)


def draft(ask: Ask) -> Draft:
    """Return the one file; raise Refused where another one stands that is no export of this stacks folder."""
    data = mbox(ask.release)
    entry = place(ask.tree, ask.name)
    known = (data, *(mbox(release) for release in ask.store.releases if release.name != ask.release.name))
    if entry.kind is not Kind.ABSENT and entry.data not in known:
        raise Refused(
            f"{ask.tree.root}/{ask.name}: is there already, and is not the mbox of a release in {ask.store.stacks}",
            "Name another file, or remove this one if it is not yours to keep.",
        )
    return Draft({ask.name: data}, tip="git am takes it, at the top of a clone at the release's commit.")


def mbox(release: Release) -> bytes:
    """Return the patches as mails, in order.

    git am undoes no escape (only --patch-format=mboxrd does), so that a line that it would take for the start of the
    next mail is refused. It can only stand in a message: in a diff no line begins with a letter of `From`.
    """
    mails = []
    for patch in release.patches:
        found = _SEPARATOR.search(patch.head)
        if found:
            line = patch.head.count(b"\n", 0, found.start()) + 1
            raise Malformed(f"{patch.name}:{line}: git am would take this line for the start of the next mail")
        mails.append(_FROM + release.read(patch.name) + b"\n")
    return b"".join(mails)
