"""Our names in somebody's `series`: every other line, its options, comments and blanks stay to the byte.

The grammar is what quilt and dpkg-source make of a line: the first word is the name, `#` begins a comment.
"""

from __future__ import annotations

from collections.abc import Sequence

from stack.digest import split_lines
from stack.errors import Malformed, Refused
from stack.export.draft import names
from stack.export.ours import changes, place
from stack.paths import check_path
from stack.tree import Kind, Tree


def listed(data: bytes) -> list[str]:
    """Return the name on each line, empty for a line that has none.

    >>> listed(b"# of ours\\na.patch -p0 # why\\n\\n")
    ['', 'a.patch', '']
    """
    words = [(line.split() or [b"#"])[0] for line in split_lines(data)]
    return ["" if word.startswith(b"#") else word.decode("utf-8", "surrogateescape") for word in words]


def merge(data: bytes, gone: set[str], ours: Sequence[str]) -> bytes:
    """Return the series with `ours` in it, in order, and without `gone`.

    A name that is in already keeps its place. A new one stands behind the one before it, else before the one behind
    it, else where the first that went was, else at the end.

    >>> merge(b"a\\nold\\nb", {"old"}, ["1", "2"])
    b'a\\n1\\n2\\nb\\n'
    """
    lines = [line if line.endswith(b"\n") else line + b"\n" for line in split_lines(data)]
    pairs = list(zip(listed(data), lines, strict=True))
    left = [pair for pair in pairs if pair[0] not in gone]
    at = next((number for number, (name, _) in enumerate(pairs) if name in gone), len(left))
    for number, name in enumerate(ours):
        there = {word: index for index, (word, _) in enumerate(left)}
        if name in there:
            continue
        later = [there[word] for word in ours[number + 1 :] if word in there]
        where = there[ours[number - 1]] + 1 if number else later[0] if later else at
        left.insert(where, (name, name.encode() + b"\n"))
    if [name for name, _ in left] == [name for name, _ in pairs]:
        return data
    return b"".join(line for _, line in left)


def join(tree: Tree, folder: str, have: set[str], patches: dict[str, bytes]) -> bytes:
    """Return the bytes of folder's `series` with the patches in it.

    have: the names of an earlier export. Raises Refused when one of them was taken out of the series by hand, or when
    a patch is in it already under another name: both would put the build out of order.
    """
    label = f"{folder}/series"
    data, ours = place(tree, label).data, names(patches)
    there = [name for name in listed(data) if name]
    out = [name for name in ours if name in have and name not in there and _is_file(tree, f"{folder}/{name}")]
    if out:
        raise Refused(
            f"{tree.root}/{label}: does not name {', '.join(out)} any more",
            "Somebody took it out. Put the line back, or remove the file too; then run the command again.",
        )
    meant = {tuple(changes(patch)): path for path, patch in patches.items()}
    for name in dict.fromkeys(there):
        twin = None if name in have or name in ours else meant.get(_changes(tree, f"{folder}/{name}"))
        if twin:
            raise Refused(
                f"{tree.root}/{folder}/{name}: is the patch {twin} under another name",
                f"Remove it and its line in {label}, then run the command again.",
            )
    return merge(data, have - set(ours), ours)


def _is_file(tree: Tree, path: str) -> bool:
    return tree.read(path).kind is Kind.FILE


def _changes(tree: Tree, path: str) -> tuple[bytes, ...]:
    try:
        return tuple(changes(tree.read(check_path(path, path)).data))
    except Malformed:
        return ()  # a name that none of ours can have
