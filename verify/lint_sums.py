"""The rule on SHA256SUMS: it names every file of patches/ and series/ with its digest, and no other."""

from __future__ import annotations

from collections.abc import Iterator

from stack.pins import parse_pins
from stack.store import Store
from stack.sums import SUMS, digests
from stack.tree import Kind, Tree

SUMS_RULE = {"sums": "SHA256SUMS names every file of patches/ and series/ with its digest, and no other"}
_MAKE = "(LC_ALL=C; sha256sum patches/*/* series/* > SHA256SUMS) makes it"


def check_sums(store: Store) -> Iterator[tuple[str, str]]:
    """Yield where and what for each disagreement between SHA256SUMS and the files; raise StackError for one that
    cannot be read."""
    with Tree(store.stacks) as tree:
        entry = tree.read(SUMS)
    if entry.kind is not Kind.FILE:
        yield SUMS, f"is {'missing' if entry.kind is Kind.ABSENT else 'a ' + entry.kind.value}: {_MAKE}"
        return
    listed, found = parse_pins(entry.data, SUMS), digests(store)
    for label in sorted({**listed, **found}):
        if label not in found:
            yield SUMS, f"names {label}, which is not there"
        elif label not in listed:
            yield label, f"is not named in {SUMS}"
        elif listed[label] != found[label]:
            yield label, f"has another digest than {SUMS} says"
