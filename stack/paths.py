"""The paths that a patch, a pin or a series may name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stack.errors import Malformed

JOURNAL = ".torch-musa-patches"
"""The directory in TREE that a running transaction uses; no patch may reach into it."""

_FORBIDDEN = frozenset(" \"'\\")
LONGEST, DEEPEST = 1024, 100
"""Characters and parts that a path may have; every part costs a system call, and no source tree comes near."""


def check_path(path: str, where: str) -> str:
    """Return path, or raise Malformed naming `where` when it could reach outside the tree.

    A path is printable ASCII without spaces, quotes and backslashes: what git writes unquoted and
    every applier reads alike. A name with a space cannot be told apart in a `diff --git` line.
    """
    plain = path.isascii() and path.isprintable() and not _FORBIDDEN.intersection(path)
    if not plain:
        raise Malformed(f"{where}: the name {path[:80]!r} is not plain ASCII without spaces and quotes")
    parts = path.split("/")
    if len(path) > LONGEST or len(parts) > DEEPEST:
        raise Malformed(f"{where}: a name has at most {LONGEST} characters and {DEEPEST} parts: {path[:40]!r}...")
    for part in parts:
        if part in ("", ".", ".."):
            raise Malformed(f"{where}: {path!r} is absolute or leaves the tree")
        if _is_git_directory(part) or part.lower() == JOURNAL:
            raise Malformed(f"{where}: {path!r} reaches into {part}, which no patch may touch")
    return path


def _is_git_directory(part: str) -> bool:
    """Whether git's own guards refuse this name (git manual, core.protectHFS, core.protectNTFS)."""
    return part.lower().partition(":")[0].rstrip(".") in (".git", "git~1")


def check_twins(paths: Iterable[str], where: str) -> None:
    """Raise Malformed when two of the paths cannot both be: one file where case does not matter,
    or a file and a directory."""
    seen: dict[str, str] = {}
    for path in paths:
        twin = seen.setdefault(path.lower(), path)
        if twin != path:
            raise Malformed(f"{where}: {twin!r} and {path!r} differ in case only")
    for path in seen:
        if any(folder in seen for folder in parents(path)):
            raise Malformed(f"{where}: {seen[path]!r} lies below a name that is a file")


def parents(path: str) -> Iterator[str]:
    """Yield the directories above path, innermost first.

    >>> list(parents("a/b/c"))
    ['a/b', 'a']
    """
    while path := path.rpartition("/")[0]:
        yield path
