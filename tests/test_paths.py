"""No path of a patch, pin or journal leads out of the tree, or to where git and we keep our own."""

from __future__ import annotations

import pytest

from stack.errors import Malformed
from stack.paths import check_path, check_twins

REFUSED = {
    "empty": "",
    "absolute": "/etc/passwd",
    "parent": "../x",
    "parent-inside": "a/../../x",
    "parent-last": "a/..",
    "dot": "./x",
    "dot-inside": "a/./x",
    "double-slash": "a//x",
    "trailing-slash": "a/",
    "git": ".git/config",
    "git-inside": "sub/.git/hooks/pre-commit",
    "git-upper": ".GIT/config",
    "git-mixed": ".Git/config",
    "git-short-name": "git~1/config",
    "git-trailing-dot": ".git./config",
    "git-stream": ".git::$INDEX_ALLOCATION/config",
    "journal": ".torch-musa-patches/record",
    "journal-upper": "sub/.Torch-Musa-Patches/0.old",
    "space": "a b",
    "double-quote": 'a"b',
    "single-quote": "a'b",
    "backslash": "a\\b",
    "tab": "a\tb",
    "newline": "a\nb",
    "carriage-return": "a\r",
    "nul": "a\0b",
    "escape": "a\x1bb",
    "delete": "a\x7f",
    "non-ascii": "\u00e4",
    "u2028": "a\u2028b",
    "long": "a" * 1025,
    "deep": "a/" * 100 + "a",
}


@pytest.mark.parametrize("path", REFUSED.values(), ids=REFUSED)
def test_refuses_a_path_that_could_leave_the_tree(path: str) -> None:
    with pytest.raises(Malformed, match="^here: "):
        check_path(path, "here")


@pytest.mark.parametrize("path", ["x", "a/b.py", ".gitignore", ".github/x", "a/.gitattributes", "..a/b..", "git/x"])
def test_takes_a_plain_path(path: str) -> None:
    assert check_path(path, "here") == path


@pytest.mark.parametrize(
    "paths",
    [("a/X", "a/x"), ("a", "a/b"), ("a/b/c/d", "A"), ("A/b", "a")],
    ids=["case-twins", "file-and-folder", "file-and-folder-above", "file-and-folder-by-case"],
)
def test_refuses_two_paths_that_cannot_both_be(paths: tuple[str, ...]) -> None:
    with pytest.raises(Malformed, match="^here: "):
        check_twins(paths, "here")


def test_takes_neighbours() -> None:
    check_twins(("a/b", "a/c", "ab", "a-b/c", "b/a"), "here")
