"""Scratch trees are copies where they must be, links elsewhere, and leave the tree alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from verify.scratch import overlay


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a small tree with a nested package, stale bytecode and a tests folder."""
    root = tmp_path / "a träe"
    files = {
        "torch_musa/__init__.py": "old\n",
        "torch_musa/__pycache__/__init__.pyc": "stale",
        "torch_musa/core/__init__.py": "",
        "torch_musa/core/__pycache__/_lazy_init.pyc": "stale",
        "torch_musa/core/_lazy_init.py": "lazy\n",
        "torch_musa/core/ops/__init__.py": "",
        "torch_musa/csrc/a.cpp": "",
        "tests/unittest/standalone/test_lazy_init.py": "old test\n",
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def snapshot(root: Path) -> dict[str, bytes]:
    """Return every file under root with its bytes."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_replaced_files_are_written_and_the_rest_is_linked(tree: Path, tmp_path: Path) -> None:
    root = overlay(
        tmp_path / "out",
        tree,
        {"torch_musa/core/_lazy_init.py": b"new\n", "tests/unittest/a.py": b"t\n"},
    )
    assert (root / "torch_musa/core/_lazy_init.py").read_bytes() == b"new\n"
    assert not (root / "torch_musa/core/_lazy_init.py").is_symlink()
    assert not (root / "torch_musa").is_symlink() and not (root / "torch_musa/core").is_symlink()
    assert (root / "torch_musa/core/ops").is_symlink() and (root / "torch_musa/csrc").is_symlink()
    assert (root / "torch_musa/__init__.py").is_symlink()
    assert (root / "tests/unittest/a.py").read_bytes() == b"t\n"


def test_tests_that_are_not_named_do_not_appear(tree: Path, tmp_path: Path) -> None:
    root = overlay(tmp_path / "out", tree, {})
    assert not (root / "tests").exists()


def test_absent_means_absent(tree: Path, tmp_path: Path) -> None:
    root = overlay(
        tmp_path / "out",
        tree,
        {"torch_musa/core/_lazy_init.py": None, "tests/unittest/core/t.py": None},
    )
    assert not (root / "torch_musa/core/_lazy_init.py").exists()
    assert (root / "torch_musa/core/__init__.py").exists()
    assert not (root / "tests").exists()


def test_new_file_in_a_new_folder_of_the_package(tree: Path, tmp_path: Path) -> None:
    root = overlay(tmp_path / "out", tree, {"torch_musa/new/deep/a.py": b"x"})
    assert (root / "torch_musa/new/deep/a.py").read_bytes() == b"x"
    assert not (tree / "torch_musa/new").exists()


def test_stale_bytecode_is_not_taken_along(tree: Path, tmp_path: Path) -> None:
    root = overlay(tmp_path / "out", tree, {"torch_musa/core/_lazy_init.py": b"new\n"})
    assert not (root / "torch_musa/__pycache__").exists()
    assert not (root / "torch_musa/core/__pycache__").exists()


def test_the_tree_is_left_as_it_was(tree: Path, tmp_path: Path) -> None:
    before = snapshot(tree)
    overlay(
        tmp_path / "out",
        tree,
        {"torch_musa/__init__.py": b"new\n", "torch_musa/core/device.py": None},
    )
    assert snapshot(tree) == before


def test_links_are_absolute_whatever_the_caller_gave(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = overlay(tmp_path / "out", Path(tree.name), {})
    monkeypatch.chdir("/")
    assert (root / "torch_musa/__init__.py").read_text() == "old\n"


@pytest.mark.parametrize(
    "paths",
    [
        ["../a"],
        ["/etc/passwd"],
        ["torch_musa/../../a"],
        [""],
        ["a", "a/b"],
        ["a/b", "a"],
        ["torch_musa"],
        ["a\0b"],
    ],
    ids=[
        "parent",
        "absolute",
        "parent-within",
        "empty",
        "file-then-folder",
        "folder-then-file",
        "package",
        "nul",
    ],
)
def test_refuses_paths_that_are_no_files_inside(tree: Path, tmp_path: Path, paths: list[str]) -> None:
    with pytest.raises(ValueError):
        overlay(tmp_path / "out", tree, {path: b"" for path in paths})


def test_refuses_a_tree_without_the_package(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="has no folder torch_musa"):
        overlay(tmp_path / "out", tmp_path, {})


def test_refuses_a_path_through_a_file(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError):
        overlay(tmp_path / "out", tree, {"torch_musa/__init__.py/a.py": b""})
