"""What in somebody's folder is ours: a manifest in the form of sha256sum says so, a name alone does not.

A file is replaced or removed only while its bytes are those of the manifest. One that another tool has written anew
and that says the same (gbp pq export, quilt refresh) is kept as it is. Anything else is somebody's work.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from stack.digest import sha256, split_lines
from stack.errors import Malformed, Refused
from stack.pins import parse_pins
from stack.tree import Entry, Kind, Tree

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_MODE = re.compile(rb"(old|new|new file) mode (?!100644\n)|new mode ")


class Settled(NamedTuple):
    """What is to be written, None for a file that goes, and the paths that are kept in another tool's form."""

    files: dict[str, bytes | None]
    kept: tuple[str, ...]


def known(tree: Tree, manifest: str, pattern: str) -> dict[str, str]:
    """Return path and SHA-256 of what an earlier export wrote; nothing where there is no manifest.

    pattern: the paths that can be ours. Raises Malformed for a manifest that names another: nobody's file goes by it.
    """
    entry = place(tree, manifest)
    if entry.kind is Kind.ABSENT:
        return {}
    where = f"{tree.root}/{manifest}"
    pins = parse_pins(entry.data, where)
    for path in pins:
        if not re.fullmatch(pattern, path):
            raise Malformed(
                f"{where}: {path} is no file of ours", f"Remove {manifest} if it is damaged, and run again."
            )
    return pins


def place(tree: Tree, path: str) -> Entry:
    """Return what stands at path: a file or nothing; raise Refused for anything else."""
    entry = tree.read(path)
    if entry.kind not in (Kind.FILE, Kind.ABSENT):
        where = f"{tree.root}/{entry.via or path}"
        raise Refused(f"{where}: is a {entry.kind.value}", "Only a regular file is replaced, and no link is followed.")
    return entry


def settle(tree: Tree, have: Mapping[str, str], new: Mapping[str, bytes]) -> Settled:
    """Return how OUT gets from what it has of ours to `new`; raise Refused for a file that is not ours to change."""
    files: dict[str, bytes | None] = {}
    kept: list[str] = []
    edited: list[str] = []
    foreign: list[str] = []
    for path in sorted({*have, *new}):
        entry, wanted = place(tree, path), new.get(path)
        if entry.kind is Kind.ABSENT or wanted == entry.data or sha256(entry.data) == have.get(path):
            files[path] = wanted
        elif wanted is not None and path.endswith(".patch") and _same(entry.data, wanted):
            kept.append(path)
        else:
            (edited if path in have else foreign).append(path)
    if foreign or edited:
        raise _refused(tree, foreign, edited)
    return Settled(files, tuple(kept))


def _refused(tree: Tree, foreign: Iterable[str], edited: Iterable[str]) -> Refused:
    lines = [f"{tree.root}/{path}: is there already, and no manifest of ours knows it" for path in foreign]
    lines += [f"{tree.root}/{path}: was changed since we wrote it" for path in edited]
    tip = "Nothing was written. Move these files away if they are yours."
    if edited:
        tip += (
            " gbp pq export and quilt refresh rewrite patches. If no change in them is yours to keep, remove these "
            "files, and leave the series as it is; then run the command again."
        )
    return Refused("\n".join(lines), tip)


def _same(one: bytes, other: bytes) -> bool:
    return _head(one) == _head(other) and changes(one) == changes(other)


def _head(data: bytes) -> bytes:
    return data.partition(b"\n---\n")[0]


def changes(data: bytes) -> list[bytes]:
    """Return what a patch does, without what each tool writes in its own way: index lines, statistics, prefixes.

    >>> changes(b"Why\\n--- a/f\\n+++ b/f\\n@@ -1 +1 @@ def f\\n-x\\n+y\\n")
    [b'--- f', b'+++ f', b'@@ 1,1 1,1', b'-x\\n', b'+y\\n']
    """
    found: list[bytes] = []
    old = new = 0
    for line in split_lines(data):
        hunk = _HUNK.match(line)
        if old > 0 or new > 0:
            old -= line[:1] in b" -\n"
            new -= line[:1] in b" +\n"
            found.append(line)
        elif hunk:
            first, old, start, new = (int(number or 1) for number in hunk.groups())
            found.append(b"@@ %d,%d %d,%d" % (first, old, start, new))
        elif line.startswith((b"--- ", b"+++ ")):
            found.append(line[:4] + _target(line[4:]))
        elif line.startswith(b"\\") or _MODE.match(line):
            found.append(line)
    return found


def _target(name: bytes) -> bytes:
    """Return the path in a `---` or `+++` line without its first component and its time."""
    path = name.split(b"\t")[0].rstrip()
    return path if path == b"/dev/null" else path.partition(b"/")[2]
