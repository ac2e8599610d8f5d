"""What a tree's own git history still knows: a blob by its id, read without trusting the repository's settings."""

from __future__ import annotations

import os

from stack.digest import git_blob
from stack.gitenv import OFFLINE, search_path


def blob(root: str, name: str) -> bytes | None:
    """Return the bytes of the blob with this id, or None when the tree has no git, or git has no such blob."""
    import subprocess

    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env = {**kept, **OFFLINE, "PATH": search_path(), "LC_ALL": "C"}
    env |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    # The repository must be the tree's own: an enclosing one says nothing about it.
    env["GIT_CEILING_DIRECTORIES"] = os.path.dirname(os.path.abspath(root))
    command = ["git", "-c", "core.fsmonitor=false", "cat-file", "blob", name]
    try:
        done = subprocess.run(command, cwd=root, env=env, capture_output=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    # The bytes are those of the id, or they are a replacement's (git replace).
    return done.stdout if done.returncode == 0 and git_blob(done.stdout) == name else None


def difference_in_meaning(old: bytes, new: bytes) -> list[str] | None:
    """Return a unified diff of two Python sources with comments and formatting aside, or None for what is no Python.

    An empty list: they mean the same.
    """
    import ast
    import difflib

    from stack.bindings import parse

    try:
        plain = [ast.unparse(parse(source)).splitlines() for source in (old, new)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return list(difflib.unified_diff(plain[0], plain[1], "as pinned", "in this tree", lineterm="", n=1))
