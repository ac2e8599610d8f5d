"""Forks: placed exactly and uniquely and proven, or refused with a report that says where and why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from stacks import make_stack

from stack import commands
from stack.digest import split_lines
from stack.errors import Malformed, Refused
from stack.fork import _most_like, place, recognise
from stack.store import Release, Store
from stack.timeline import measure
from stack.tree import Tree
from tests.runtime_helpers import INIT, LAZY, SPECIMEN, edit, snapshot, unpatched

ROOT = Path(__file__).parents[1]
STACKS = SPECIMEN.parent / "stacks"
FLAG_TEST = "tests/unittest/standalone/test_lazy_init.py"
NEW_TEST = "tests/unittest/core/test_checkpoint.py"
BLOCK_ABOVE = "from .core.memory import *\n"


def cli(*words: str) -> tuple[int, str, str]:
    """Run apply.py with the specimen's stacks; return exit code, stdout and stderr."""
    command = [sys.executable, str(ROOT / "apply.py"), words[0], f"--stacks={STACKS}", *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def release() -> Release:
    return Store(str(STACKS)).release("2.7.1+specimen")


def lines_above(tree: Path) -> None:
    text = (tree / INIT).read_text()
    (tree / INIT).write_text(text.replace("import torch\n", "import torch\n" + "# ours\n" * 30, 1))


def other_edit_below(tree: Path) -> None:
    (tree / INIT).write_text((tree / INIT).read_text() + "\n\nOURS = True\n")


def crlf_elsewhere_mode_kept(tree: Path) -> None:
    other_edit_below(tree)
    (tree / INIT).chmod(0o755)


FITS: dict[str, Callable[[Path], None]] = {
    "thirty-lines-above": lines_above,
    "edit-below": other_edit_below,
    "executable": crlf_elsewhere_mode_kept,
}


@pytest.mark.parametrize("drift", FITS.values(), ids=FITS.keys())
def test_applies_proves_and_undoes_where_every_hunk_has_one_place(
    tmp_path: Path, drift: Callable[[Path], None]
) -> None:
    tree = unpatched(tmp_path / "tree")
    drift(tree)
    before, mode = snapshot(tree), (tree / INIT).stat().st_mode
    code, _, error = cli("apply", str(tree))
    assert (code, "README): apply.py apply --fork" in error) == (1, True)
    assert snapshot(tree) == before

    code, out, _ = cli("apply", "--fork", "--tests=import", str(tree))
    assert code == 0, out
    assert "fork: not a pinned result; proven by:" in out
    assert "import: proven" in out
    assert (tree / INIT).stat().st_mode == mode
    code, out, _ = cli("status", str(tree))
    assert "a fork of 2.7.1+specimen, applied" in out
    code, _, error = cli("apply", str(tree))
    assert (code, "If the tree is a fork: apply.py apply --fork" in error) == (1, True)
    code, out, _ = cli("apply", "--fork", str(tree))
    assert (code, "already so" in out) == (0, True)
    code, out, _ = cli("unapply", str(tree))
    assert code == 0
    assert snapshot(tree) == before
    assert (tree / INIT).stat().st_mode == mode


def context_changed(tree: Path) -> str:
    edit(tree, INIT, [(BLOCK_ABOVE, "from .core.memory import *  # ours\n")])
    return "most like it at line 106"


def name_dropped(tree: Path) -> str:
    edit(tree, INIT, [("    _lazy_call,\n", "")])
    return "_lazy_call, |"


def comment_in_the_block(tree: Path) -> str:
    edit(tree, INIT, [("    _lazy_call,\n", "    # ours\n    _lazy_call,\n")])
    return "| " + "    # ours"


def names_reordered(tree: Path) -> str:
    edit(tree, INIT, [("    _lazy_init,\n    _lazy_call,\n", "    _lazy_call,\n    _lazy_init,\n")])
    return "its context changed"


def twice(tree: Path) -> str:
    text = (tree / INIT).read_text()
    block = "".join(line.decode() for line in split_lines(text.encode())[105:119])
    (tree / INIT).write_text(text + "\n" + block)
    return "matches at several places"


NO_PLACE = {
    "context": context_changed,
    "name-dropped": name_dropped,
    "comment": comment_in_the_block,
    "reordered": names_reordered,
    "ambiguous": twice,
}


@pytest.mark.parametrize("drift", NO_PLACE.values(), ids=NO_PLACE.keys())
def test_refuses_where_a_hunk_has_no_one_place(tmp_path: Path, drift: Callable[[Path], str]) -> None:
    tree = unpatched(tmp_path / "tree")
    expected = drift(tree)
    before = snapshot(tree)
    for words in (["apply"], ["apply", "--fork"]):
        code, _, error = cli(*words, str(tree))
        assert code == 1
        assert expected in error
        assert "apply.py port" in error
        assert snapshot(tree) == before


@pytest.mark.parametrize("words", [["apply"], ["apply", "--fork"]], ids=["plain", "fork"])
def test_another_lazy_init_is_refused_in_any_case(tmp_path: Path, words: list[str]) -> None:
    tree = unpatched(tmp_path / "tree")
    edit(tree, LAZY, [("_initialized = False\n", "_initialized = None\n")])
    code, _, error = cli(*words, str(tree))
    assert code == 1
    assert f"{LAZY} differs from line" in error
    assert "no git history here has the pinned file" in error


def git(tree: Path, *words: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *words], cwd=tree, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("_initialized = False\n", "_initialized = None\n"), "+_initialized = None"),
        (("_initialized = False\n", "_initialized = False  # ours\n"), "it means the same as the pinned file"),
        (("_initialized = False\n", "_initialized = (\n"), "it cannot be read as Python"),
    ],
    ids=["meaning", "comment", "broken"],
)
def test_git_history_tells_what_differs_in_meaning(tmp_path: Path, change: tuple[str, str], expected: str) -> None:
    tree = unpatched(tmp_path / "tree")
    git(tree, "init", "-q")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "base")
    edit(tree, LAZY, [change])
    code, _, error = cli("apply", "--fork", str(tree))
    assert code == 1
    assert expected in error


def test_an_enclosing_repository_is_not_the_trees_history(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    tree = unpatched(tmp_path / "tree")
    git(tmp_path, "add", "-A")
    edit(tree, LAZY, [("_initialized = False\n", "_initialized = None\n")])
    _, _, error = cli("apply", str(tree))
    assert "no git history here has the pinned file" in error


LEFT_OUT: dict[str, tuple[Callable[[Path], object], str]] = {
    "edited": (lambda tree: (tree / FLAG_TEST).write_text("# ours\n"), f"left out: {FLAG_TEST}: edited in this tree"),
    "removed": (lambda tree: (tree / FLAG_TEST).unlink(), f"left out: {FLAG_TEST}: absent in this tree"),
    "in-the-way": (lambda tree: (tree / NEW_TEST).write_text("# ours\n"), f"left out: {NEW_TEST}: edited"),
    "no-tests-at-all": (
        lambda tree: subprocess.run(["rm", "-r", str(tree / "tests")], check=True),
        f"left out: {NEW_TEST}: this tree has no directory for it",
    ),
}


@pytest.mark.parametrize("case", LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_a_forks_own_tests_are_left_out_and_said_to_be(
    tmp_path: Path, case: tuple[Callable[[Path], object], str]
) -> None:
    tree = unpatched(tmp_path / "tree")
    case[0](tree)
    before = snapshot(tree)
    code, out, error = cli("apply", "--fork", "--tests=import", str(tree))
    assert code == 0, out + error
    assert case[1] in out
    code, out, _ = cli("apply", "--fork", "--tests=import", str(tree))
    assert (code, "already so" in out) == (0, True)
    code, out, _ = cli("unapply", str(tree))
    assert code == 0
    assert snapshot(tree) == before


def test_what_the_fork_has_already_is_named_since_unapply_would_take_it_back(tmp_path: Path) -> None:
    tree = unpatched(tmp_path / "tree")
    lines_above(tree)
    edit(tree, LAZY, [("global _initialized, _queue_calls", "global _initialized, _queued_calls")])
    code, out, _ = cli("apply", "--fork", "--tests=import", str(tree))
    assert code == 0
    assert f"unapply would take it back: {LAZY}" in out


def test_a_fork_that_lacks_a_part_says_which(tmp_path: Path) -> None:
    tree = unpatched(tmp_path / "tree")
    lines_above(tree)
    assert cli("apply", "--fork", "--tests=import", str(tree))[0] == 0
    edit(tree, LAZY, [("global _initialized, _queued_calls", "global _initialized, _queue_calls")])
    code, out, _ = cli("status", str(tree))
    assert f"not in, apply --fork would complete it: {LAZY}" in out


@pytest.mark.parametrize("kind", ["line endings", "mode"])
def test_what_can_be_put_right_is_no_reason_to_fork(tmp_path: Path, kind: str) -> None:
    tree = unpatched(tmp_path / "tree")
    if kind == "mode":
        (tree / INIT).chmod(0o755)
    else:
        (tree / INIT).write_bytes((tree / INIT).read_bytes().replace(b"\n", b"\r\n"))
    code, _, error = cli("apply", str(tree))
    assert (code, "--fork" in error, "port" in error.split("TIP")[1]) == (1, False, False)


def test_nothing_is_written_that_the_proof_does_not_turn_green(tmp_path: Path) -> None:
    tree = unpatched(tmp_path / "tree")
    (tree / INIT).write_text((tree / INIT).read_text() + "\n\n_initialized = False\n")
    before = snapshot(tree)
    code, out, _ = cli("apply", "--fork", "--tests=import", str(tree))
    assert code == 5
    assert "nothing was applied" in out
    assert snapshot(tree) == before


@pytest.mark.parametrize("option", ["--tests=none", "--tests=static", "--keep"])
def test_a_fork_needs_its_proof(tmp_path: Path, option: str) -> None:
    tree = unpatched(tmp_path / "tree")
    lines_above(tree)
    code, _, error = cli("apply", "--fork", option, str(tree))
    assert (code, "--fork needs the proof" in error) == (2, True)


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    tree = unpatched(tmp_path / "tree")
    lines_above(tree)
    before = snapshot(tree)
    code, out, _ = cli("apply", "--fork", "--dry-run", "--tests=import", str(tree))
    assert (code, "would apply to a fork" in out) == (0, True)
    assert snapshot(tree) == before


def test_json_has_every_placement(tmp_path: Path) -> None:
    tree = unpatched(tmp_path / "tree")
    context_changed(tree)
    code, out, _ = cli("apply", "--json", str(tree))
    (placement,) = json.loads(out)["data"]["placements"]
    assert code == 1
    assert (placement["kind"], placement["path"], placement["stated"]) == ("changed", INIT, 106)
    assert placement["differing"] == [["from .core.memory import *", "from .core.memory import *  # ours"]]


def test_two_equal_blocks_that_swapped_are_never_guessed(tmp_path: Path) -> None:
    """Zero offset proves nothing: with the block there twice, even the stated line is no evidence."""
    data = (SPECIMEN / INIT).read_bytes()
    lines = split_lines(data)
    placements, after = place(release(), INIT, data + b"\n" + b"".join(lines[105:119]), reverse=False)
    assert [one.kind for one in placements] == ["ambiguous"]
    assert after is None


def test_a_result_that_could_not_be_undone_is_no_place(tmp_path: Path) -> None:
    """The post-image stands in the fork already, elsewhere: after applying, the way back would be ambiguous."""
    data = (SPECIMEN / INIT).read_bytes()
    hunk = release().patches[0].files[0].hunks[0]
    placements, after = place(release(), INIT, data + b"if False:\n    pass\n" + b"".join(hunk.after), reverse=False)
    assert after is None
    assert placements[-1].kind == "ambiguous"


def test_recognises_only_a_fork_that_has_the_hunks(tmp_path: Path) -> None:
    tree = unpatched(tmp_path / "tree")
    lines_above(tree)
    with Tree(str(tree)) as opened:
        assert recognise(release(), measure(opened.read_all(release().paths))) is None
    assert cli("apply", "--fork", "--tests=import", str(tree))[0] == 0
    with Tree(str(tree)) as opened:
        (placement,) = recognise(release(), measure(opened.read_all(release().paths))) or ()
    assert placement.lines == (136,)
    assert os.path.basename(placement.patch) == "0001-forward-the-initialization-flag.patch"


def fork_of_a_stack(tmp_path: Path, change: Callable[[Path], None]) -> tuple[Path, Store]:
    """Return a fork of a small tree, whose stack is this change, and the store."""
    base = tmp_path / "base"
    base.mkdir()
    (base / "f").write_bytes(b"0\n")
    (base / "f").chmod(0o644)
    make_stack(tmp_path, "1", base, [change])
    (base / "f").write_bytes(b"mine\n0\n")
    return base, Store(str(tmp_path))


FORK = commands.How(fork=True, prove=lambda *_: commands.Proof(True, "proven"))


def test_a_fork_gets_the_executable_bit_that_the_stack_sets_and_loses_it_again(tmp_path: Path) -> None:
    def change(tree: Path) -> None:
        (tree / "f").write_bytes(b"1\n")
        (tree / "f").chmod(0o755)

    tree, store = fork_of_a_stack(tmp_path, change)
    commands.apply(str(tree), store, FORK)
    assert ((tree / "f").read_bytes(), (tree / "f").stat().st_mode & 0o111) == (b"mine\n1\n", 0o111)
    commands.unapply(str(tree), store)
    assert ((tree / "f").read_bytes(), (tree / "f").stat().st_mode & 0o111) == (b"mine\n0\n", 0)
    (tree / "f").chmod(0o755)  # now it is not what the stack starts from
    with pytest.raises(Refused):
        commands.apply(str(tree), store, FORK)
    assert (tree / "f").read_bytes() == b"mine\n0\n"


def test_only_a_test_file_is_left_out_where_a_fork_has_no_directory_for_it(tmp_path: Path) -> None:
    def change(tree: Path) -> None:
        (tree / "f").write_bytes(b"1\n")
        for path in ("new/g", "tests/t"):
            (tree / path).parent.mkdir()
            (tree / path).write_bytes(b"1\n")

    tree, store = fork_of_a_stack(tmp_path, change)
    outcome = commands.apply(str(tree), store, FORK)
    assert outcome.data["left_out"] == ["tests/t: this tree has no directory for it"]
    assert (tree / "new/g").read_bytes() == b"1\n"
    assert commands.unapply(str(tree), store).outcome == "unapplied from a fork"
    assert sorted(path.name for path in tree.iterdir()) == ["f"]
    assert (tree / "f").read_bytes() == b"mine\n0\n"


def test_a_line_without_a_newline_has_its_place_at_the_end_alone(tmp_path: Path) -> None:
    def change(tree: Path) -> None:
        (tree / "f").write_bytes(b"1\n")

    base = tmp_path / "base"
    base.mkdir()
    (base / "f").write_bytes(b"1")
    make_stack(tmp_path, "1", base, [change])
    (base / "f").write_bytes(b"1\nmine\n")  # as if the stack were in, but then its line were the last one
    before = snapshot(base)
    assert commands.status(str(base), Store(str(tmp_path))).state.standing.value == "drifted"
    with pytest.raises(Refused):
        commands.unapply(str(base), Store(str(tmp_path)))
    assert snapshot(base) == before


IN_ALREADY = {
    "from the end": (b"1\n2\n3\n", b"1\n2\n", b"1\n2\nmine\n3\n", "changed"),
    "from the end, where the fork has it in other words": (b"1\n2\n3\n", b"1\n2\n", b"1\n2\n3 # mine\n", "changed"),
    "from the start": (b"1\n2\n3\n", b"2\n3\n", b"1\nmine\n2\n3\n", "changed"),
    "from between": (b"1\n2\n3\n", b"1\n3\n", b"0\n1\n3\n", "in already"),
    "from between two lines that stand elsewhere": (b"1\n2\n3\n", b"1\n3\n", b"1\n2\nmine\n3\n1\n3\n", "changed"),
    "from beside its own like": (b"1\n2\n2\n3\n", b"1\n2\n3\n", b"1\nmine\n2\n2\n1\n2\n3\n", "changed"),
    "from around the one line that stays": (b"1\n2\n1\n", b"1\n", b"mine\n1\n", "changed"),
    "a line put in its place": (b"1\n2\n3\n", b"1\n2\n4\n", b"0\n1\n2\n4\n", "in already"),
    "put at the end": (b"1\n2\n", b"1\n2\n3\n", b"0\n1\n2\n3\nmine\n", "in already"),
    "put at the start": (b"2\n3\n", b"1\n2\n3\n", b"0\n1\n2\n3\nmine\n", "in already"),
    "put around its own like": (b"1\n2\n", b"1\n1\n2\n2\n", b"0\n1\n1\n2\n2\n", "in already"),
    "put where it was anyway": (
        b"2\n1\n1\n2\n1\n1\n1\n",
        b"2\n1\n1\n2\n1\n1\n2\n1\n1\n1\n",
        b"0\n2\n1\n1\n2\n1\n1\n1\n",
        "ambiguous",
    ),
    "put elsewhere too, where the fork has its context in other words": (
        b"1\n2\n3\nX\n4\n5\n6\n7\n8\n9\n1\n2\n3\n4\n5\n6\n",
        b"1\n2\n3\nX\n4\n5\n6\n7\n8\n9\n1\n2\n3\nX\n4\n5\n6\n",
        b"1\n2\n3\nX\n4\n5\n6\n7\n8\n9\n1\n2\n3 # mine\n4\n5\n6\n",
        "changed",
    ),
    "put by two hunks, and one is in": (
        b"1\n2\n3\nx\n4\n5\n6\n7\n8\n9\n1\n2\n3\nz\n4\n5\n6\n",
        b"1\n2\n3\nY\n4\n5\n6\n7\n8\n9\n1\n2\n3\nY\n4\n5\n6\n",
        b"1\n2\n3\nY\n4\n5\n6\n7\n8\n9\n1\n2\n3\nz # mine\n4\n5\n6\n",
        "changed",
    ),
}


@pytest.mark.parametrize("base, result, fork, kind", IN_ALREADY.values(), ids=IN_ALREADY)
def test_a_hunk_is_in_already_where_its_lines_show_it_and_then_it_is_not_put_again(
    tmp_path: Path, base: bytes, result: bytes, fork: bytes, kind: str
) -> None:
    tree = tmp_path / "base"
    tree.mkdir()
    (tree / "f").write_bytes(base)
    make_stack(tmp_path, "1", tree, [lambda tree: (tree / "f").write_bytes(result) and None])
    placements, after = place(Store(str(tmp_path)).release("1"), "f", fork, reverse=False)
    assert {one.kind for one in placements} == {kind}
    assert after == (fork if kind == "in already" else None)
    make_stack(tmp_path, "2", tmp_path / "work-1", [lambda tree: (tree / "f").write_bytes(base) and None])
    placements, after = place(Store(str(tmp_path)).release("2"), "f", fork, reverse=True)  # the same, upside down
    assert {one.kind for one in placements} == {kind}
    assert after == (fork if kind == "in already" else None)


def test_line_digests_that_are_not_those_of_the_pinned_file_are_the_fault_of_the_stack(tmp_path: Path) -> None:
    tree = tmp_path / "base"
    tree.mkdir()
    (tree / "f").write_bytes(b"1\n2\n")
    make_stack(tmp_path, "1", tree, [lambda tree: (tree / "f").write_bytes(b"1\n3\n") and None])
    prints = tmp_path / "patches/1/fingerprint.json"
    known = json.loads(prints.read_text())
    for damaged in ({}, {"f": {**known["f"], "lines": known["f"]["lines"][::-1]}}):
        prints.write_text(json.dumps(damaged))
        with pytest.raises(Malformed, match="patches/1/fingerprint.json: f: not the lines that the patches expect"):
            place(Store(str(tmp_path)).release("1"), "f", b"0\n1\n2\n", reverse=False)


def test_a_file_that_the_stack_brings_back_to_what_it_was_does_not_hide_that_the_stack_is_in(tmp_path: Path) -> None:
    def there(tree: Path) -> None:
        (tree / "g").write_bytes(b"1\n")
        (tree / "f").write_bytes(b"1\n")

    base = tmp_path / "base"
    base.mkdir()
    (base / "f").write_bytes(b"0\n")
    (base / "g").write_bytes(b"0\n")
    make_stack(tmp_path, "1", base, [there, lambda tree: (tree / "g").write_bytes(b"0\n")])
    (base / "f").write_bytes(b"mine\n0\n")
    before = snapshot(base)
    store = Store(str(tmp_path))
    commands.apply(str(base), store, FORK)
    assert commands.unapply(str(base), store).outcome == "unapplied from a fork"
    assert snapshot(base) == before


HOSTILE = {
    "scattered": ([b"x\n" if at % 97 == 0 else b"%d\n" % at for at in range(100_000)], 3_000, b"w%d\n"),
    "equal": ([b"x\n"] * 100_000, 20_000, b"x\n%.0d"),
    "alternating": ([b"x\n", b"y\n"] * 50_000, 20_000, b"y\n%.0d"),
}


@pytest.mark.parametrize("lines, size, word", HOSTILE.values(), ids=HOSTILE)
def test_a_hunk_of_many_lines_is_compared_with_a_long_file_in_little_time(
    lines: list[bytes], size: int, word: bytes
) -> None:
    want = [b"x\n", *(word % at for at in range(size)), b"z\n"]
    start = time.process_time()
    places, differing = _most_like(lines, want, 1)
    assert time.process_time() - start < 5  # each line with each would be minutes
    assert places and differing
