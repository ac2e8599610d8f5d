"""Stock tools, run for real on specimen trees, reach the bytes that the stack's own pins state, at the exact lines."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.stock_tools import (
    RELEASES,
    STACKS,
    TOOLS,
    TOUCHED,
    Left,
    Stack,
    Tool,
    check_sums,
    environment,
    files,
    git_am,
    git_apply,
    joined,
    patch,
    quilt,
    quilt_push,
    repository,
    run,
    sound,
    specimen,
)

pytestmark = pytest.mark.distro

APPLY = Path(__file__).resolve().parent.parent / "apply.py"
INIT = "torch_musa/__init__.py"
# How quilt, patch and git apply say that a hunk did not stand where the patch says.
_DISPLACED = re.compile(r"\(offset|with fuzz|succeeded at")

Edit = Callable[[bytes], bytes]

every_release = pytest.mark.parametrize("release", RELEASES)
every_tool = pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)


def _tree(tmp_path: Path, release: str, edit: Edit | None = None) -> Path:
    """Return a tree alone in a folder, so that the folder can be made a repository around it."""
    tree = specimen(release, tmp_path / "work/source")
    if edit:
        data = (tree / INIT).read_bytes()
        assert edit(data) != data
        (tree / INIT).write_bytes(edit(data))
    return tree


def _applied(tool: Tool, release: str, tmp_path: Path, edit: Edit | None = None) -> Left:
    (tmp_path / "scratch").mkdir()
    return tool(Stack(release), _tree(tmp_path, release, edit), tmp_path / "scratch")


def _change_context(data: bytes) -> bytes:
    """Change one byte in the first context line of the first hunk, the forwarder's."""
    line = b"from .core.memory import"
    assert data.count(line) == 1
    return data.replace(line, line.replace(b"memory", b"memoty"))


def _insert_line(data: bytes) -> bytes:
    return b"# A line that the release has not.\n" + data


def _ours(*arguments: str) -> tuple[int, dict[str, Any]]:
    proof = ["--tests=none"] if arguments[0] == "apply" else []
    argv = [sys.executable, str(APPLY), *arguments, *proof, "--json", "--stacks", str(STACKS)]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def _standing(tree: Path) -> tuple[str, str]:
    _, answer = _ours("status", str(tree))
    return answer["state"]["standing"], answer["state"]["release"]


@every_release
@every_tool
def test_reaches_the_pinned_result_at_the_exact_lines(tool: Tool, release: str, tmp_path: Path) -> None:
    left = _applied(tool, release, tmp_path)
    assert left.code == 0, left.said
    assert not _DISPLACED.search(left.said), left.said
    code, said = check_sums(left.tree, Stack(release).folder / "result.sha256")
    assert code == 0, said
    assert _standing(left.tree) == ("applied", f"{release}+specimen")


@every_release
@every_tool
def test_one_changed_byte_of_context_keeps_every_tool_off_the_result(tool: Tool, release: str, tmp_path: Path) -> None:
    left = _applied(tool, release, tmp_path, _change_context)
    assert left.code != 0, left.said
    code, said = check_sums(left.tree, Stack(release).folder / "result.sha256")
    assert code == 1, said
    assert f"{INIT}: FAILED" in said


@pytest.mark.parametrize("tool", [quilt_push, git_apply, patch])
def test_a_displaced_hunk_is_told_from_an_exact_one(tool: Tool, tmp_path: Path) -> None:
    left = _applied(tool, "2.7.1", tmp_path, _insert_line)
    assert left.code == 0, left.said
    assert _DISPLACED.search(left.said), left.said


@every_release
def test_sha256sum_alone_tells_the_base(release: str, tmp_path: Path) -> None:
    tree, pins = _tree(tmp_path, release), Stack(release).folder / "base.sha256"
    assert check_sums(tree, pins)[0] == 0
    (tree / INIT).write_bytes(_change_context((tree / INIT).read_bytes()))
    code, said = check_sums(tree, pins)
    assert (code, f"{INIT}: FAILED" in said) == (1, True)


@every_release
def test_quilt_pop_restores_the_base(release: str, tmp_path: Path) -> None:
    stack, tree = Stack(release), _tree(tmp_path, release)
    before = files(tree)
    assert quilt_push(stack, tree, tmp_path).code == 0
    assert files(tree) != before
    left = quilt(stack, tree, "pop", "-a")
    assert left.code == 0, left.said
    assert files(tree) == before
    assert check_sums(tree, stack.folder / "base.sha256")[0] == 0
    assert _standing(tree)[0] == "pristine"


def test_apply_leaves_a_tree_to_quilt_that_quilt_has_begun(tmp_path: Path) -> None:
    stack, tree = Stack("2.7.1"), _tree(tmp_path, "2.7.1")
    assert quilt(stack, tree, "push", "1", "--fuzz=0").code == 0
    before = files(tree)
    code, answer = _ours("apply", str(tree))
    assert (code, "quilt is in charge" in answer["message"]) == (4, True), answer
    assert "quilt push -a" in answer["tip"]
    assert files(tree) == before


def test_what_the_refusal_says_to_type_works(tmp_path: Path) -> None:
    tree = _tree(tmp_path, "2.7.1")
    assert quilt(Stack("2.7.1"), tree, "push", "1", "--fuzz=0").code == 0
    command = _ours("apply", str(tree))[1]["tip"].partition("such as: ")[2]
    code, said = run(["sh", "-c", command], tree)
    assert code == 0, said
    assert _standing(tree)[0] == "applied"


def test_apply_completes_what_quilt_began_and_left(tmp_path: Path) -> None:
    stack, tree = Stack("2.7.1"), _tree(tmp_path, "2.7.1")
    assert quilt(stack, tree, "push", "1", "--fuzz=0").code == 0
    shutil.rmtree(tree / ".pc")
    code, answer = _ours("apply", str(tree))
    assert (code, answer["outcome"]) == (0, "applied"), answer
    assert check_sums(tree, stack.folder / "result.sha256")[0] == 0


@every_release
def test_unapply_after_git_am_takes_out_the_stack_alone(release: str, tmp_path: Path) -> None:
    left = _applied(git_am, release, tmp_path)
    assert _standing(left.tree)[0] == "applied"
    assert sound(["git", "diff", "HEAD~3"], left.tree).count("diff --git") == len(TOUCHED)
    code, answer = _ours("unapply", str(left.tree))
    assert code == 0, answer
    changed = sound(["git", "diff", "--name-only", "HEAD"], left.tree).splitlines()[1:]
    assert changed == TOUCHED
    assert run(["git", "diff", "--exit-code", "HEAD~3"], left.tree)[0] == 0
    assert "??" not in sound(["git", "status", "--porcelain"], left.tree)


def test_git_apply_inside_another_repository_does_nothing_and_says_nothing(tmp_path: Path) -> None:
    """The trap that GIT_CEILING_DIRECTORIES and --directory avoid: exit code 0, and no byte changed."""
    tree = _tree(tmp_path, "2.7.1")
    before = files(tree)
    repository(tree.parent)
    code, said = run(["git", "apply"], tree, joined(Stack("2.7.1")))
    assert (code, said) == (0, "$ git apply\n")
    assert files(tree) == before
    assert run(["git", "apply", "-R", "--check"], tree, joined(Stack("2.7.1")))[0] == 0


def test_apply_inside_another_repository_applies(tmp_path: Path) -> None:
    tree = _tree(tmp_path, "2.7.1")
    repository(tree.parent)
    assert _ours("apply", str(tree))[0] == 0
    assert check_sums(tree, Stack("2.7.1").folder / "result.sha256")[0] == 0


def test_git_apply_inside_a_folder_named_torch_musa_looks_in_the_wrong_place(tmp_path: Path) -> None:
    """The name of a clone is a component of the paths too: git takes them from the top of the repository around it."""
    tree = specimen("2.7.1", tmp_path / "work/torch_musa")
    repository(tree.parent)
    code, said = run(["git", "apply"], tree, joined(Stack("2.7.1")))
    assert (code, f"{INIT}: No such file or directory" in said) == (1, True), said


@pytest.mark.parametrize(("options", "code"), [((), 128), (("-3",), 0)], ids=["am", "am-3"])
def test_the_blob_ids_let_git_am_merge_where_the_release_is_in_the_history(
    options: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    tree = repository(_tree(tmp_path, "2.7.1"))
    data = (tree / INIT).read_bytes()
    (tree / INIT).write_bytes(data.replace(b"from .core import memory\n", b"from .core import memory  # ours\n"))
    sound(["git", "commit", "-q", "-a", "-m", "an edit of ours in the context"], tree)
    found, said = run(["git", "am", *options, *map(str, Stack("2.7.1").patches)], tree)
    assert found == code, said
