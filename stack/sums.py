"""SHA256SUMS of a stacks folder: a digest of every file of patches/ and series/, so that one signature covers them all.

`sha256sum -c SHA256SUMS` reads it; lint demands it, port and refresh keep it.
"""

from __future__ import annotations

from stack.digest import sha256
from stack.pins import format_pins, parse_pins, pins_of
from stack.records import Files
from stack.store import Store
from stack.tree import Kind, Tree

SUMS = "SHA256SUMS"


def digests(store: Store) -> dict[str, str]:
    """Return the SHA-256 of every file of the stacks, by its label. Raises StackError for one that is no file."""
    return {label: sha256(release.read(label)) for release in store.releases for label in release.labels()}


def with_sums(tree: Tree, store: Store, files: Files) -> Files:
    """Return the files and SHA256SUMS as it is when they are in place. Raises Malformed for one that cannot be read.

    tree: the open stacks folder. An entry for a file that is not among `files` stays: lint shall tell if it is wrong.
    """
    entry = tree.read(SUMS)
    sums = parse_pins(entry.data, SUMS) if entry.kind is Kind.FILE else digests(store)
    sums |= pins_of({label: data for label, data in files.items() if data is not None})
    gone = {label for label, data in files.items() if data is None}
    return {**files, SUMS: format_pins({label: pin for label, pin in sums.items() if label not in gone})}
