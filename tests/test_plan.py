"""A plan leads to the pinned bytes, or there is none; nothing of it touches the disk."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from conftest import INIT, LAZY_INIT, NEW_TEST, OLD_TEST, STACKS, snapshot
from stacks import git, make_stack

from stack import plan as planning
from stack.errors import Malformed, StackError
from stack.patch import FileChange, Hunk
from stack.plan import File, Plan, change_file, plan_apply, plan_unapply
from stack.state import Standing, State, identify
from stack.store import Store
from stack.tree import Entry, Kind, Tree

RELEASE = "2.7.1+specimen"


def look(tree: Path, store: Store) -> tuple[State, dict[str, Entry]]:
    with Tree(str(tree)) as opened:
        entries = opened.read_all(store.paths)
    return identify(store, entries), entries


def stacks_with(tmp_path: Path, file: str, old: bytes, new: bytes) -> Store:
    """Return a copy of the specimen's stacks with one edit."""
    shutil.copytree(STACKS, tmp_path / "stacks")
    path = tmp_path / "stacks" / file
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))
    return Store(str(tmp_path / "stacks"))


def steps(plan: Plan) -> dict[str, bytes | None]:
    return {step.path: step.after.data if step.after else None for step in plan.steps}


def test_plans_every_touched_file_and_writes_nothing(specimen: Path) -> None:
    before = snapshot(specimen)
    plan = plan_apply(*look(specimen, Store(str(STACKS))))
    assert list(steps(plan)) == [NEW_TEST, OLD_TEST, INIT, LAZY_INIT]
    assert plan.steps[0].before.kind is Kind.ABSENT
    assert snapshot(specimen) == before


def test_a_tree_that_is_already_so_has_nothing_to_do(specimen: Path) -> None:
    assert plan_unapply(*look(specimen, Store(str(STACKS)))).steps == ()


def test_a_wrong_result_pin_is_never_planned(specimen: Path, tmp_path: Path) -> None:
    pins = (STACKS / "patches" / RELEASE / "result.sha256").read_bytes()
    digest = re.findall(rb"([0-9a-f]{64})  torch_musa/__init__.py", pins)[0]
    store = stacks_with(tmp_path, f"patches/{RELEASE}/result.sha256", digest, b"0" * 64)
    with pytest.raises(Malformed, match=r"result.sha256: torch_musa/__init__.py: the stack does not lead"):
        plan_apply(*look(specimen, store))


FORWARD = "0001-forward-the-initialization-flag.patch"
TAMPERED = {
    "new-blob": (FORWARD, rb"\.\.([0-9a-f]{40}) 100644", b"1" * 40, "do not lead to blob|does not start from"),
    "added-line": (FORWARD, rb"\n\+(musart = )", b"mus4rt = ", "do not lead to blob"),
    "new-file-line": ("0003-test-the-flag-and-checkpoint-replay.patch", rb"\n\+(SEED = 20)", b"SEED = 21", "blob"),
}


@pytest.mark.parametrize("name, pattern, new, message", TAMPERED.values(), ids=TAMPERED)
def test_a_tampered_patch_is_never_planned(
    specimen: Path, tmp_path: Path, name: str, pattern: bytes, new: bytes, message: str
) -> None:
    file = f"patches/{RELEASE}/{name}"
    match = re.search(pattern, (STACKS / file).read_bytes())
    assert match
    old = match.group(0)
    store = stacks_with(tmp_path, file, old, old.replace(match.group(1), new))
    with pytest.raises(StackError, match=message):
        plan_apply(*look(specimen, store))


def test_a_stack_whose_pins_and_blob_ids_disagree_is_named_and_not_the_tree(specimen: Path, tmp_path: Path) -> None:
    match = re.search(rb"index [0-9a-f]{40}", (STACKS / "patches" / RELEASE / FORWARD).read_bytes())
    assert match
    store = stacks_with(tmp_path, f"patches/{RELEASE}/{FORWARD}", match.group(0), b"index " + b"1" * 40)
    with pytest.raises(Malformed, match=f"{INIT}: its pin and its blob id in the patches are not of the same bytes"):
        look(specimen, store)


def _toggle(tree: Path) -> None:
    path = tree / "a"
    path.write_bytes(path.read_bytes().swapcase())


def test_every_step_of_a_series_is_completed_and_undone(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "a").write_bytes(b"one\n")
    (base / "b").write_bytes(b"b\n")

    def make(tree: Path) -> None:
        (tree / "d").mkdir()
        (tree / "d" / "new").write_bytes(b"n")

    def grow(tree: Path) -> None:
        (tree / "d" / "new").write_bytes(b"n\nm\n")
        (tree / "b").unlink()
        (tree / "a").chmod(0o755)

    work = make_stack(tmp_path / "s", "1", base, [_toggle, make, grow])
    store = Store(str(tmp_path / "s"))
    for step, commit in enumerate(git(work, "rev-list", "--reverse", "HEAD").decode().split()):
        git(work, "checkout", "-q", commit)
        state, entries = look(work, store)
        assert state.applied == step
        assert state.standing is {0: Standing.PRISTINE, 3: Standing.APPLIED}.get(step, Standing.PARTLY)
        forward = plan_apply(state, entries)
        back = plan_unapply(state, entries)
        assert (forward.steps == ()) == (step == 3) and (back.steps == ()) == (step == 0)


def test_a_series_that_comes_back_to_the_base_is_not_taken_for_pristine(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "a").write_bytes(b"one\n")
    make_stack(tmp_path / "s", "1", base, [_toggle, _toggle])
    state, _ = look(base, Store(str(tmp_path / "s")))
    assert (state.standing, state.applied) == (Standing.APPLIED, 2)


def test_a_file_does_not_go_with_lines_that_no_hunk_knows() -> None:
    hunk = Hunk(1, 0, (b"a\n",), (), (), 1)
    change = FileChange("x", 0o644, None, None, None, (hunk,))
    assert change_file(File(b"a\n", False), change, False, "x") is None
    with pytest.raises(Malformed, match="leave lines of a file that goes"):
        change_file(File(b"a\nb\n", False), change, False, "x")


@pytest.mark.parametrize("limit", ["MOST_LINES", "LARGEST"])
def test_no_file_grows_beyond_what_is_read_again(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hunk = Hunk(1, 1, (b"a\n",), (b"a\n", b"b\n"), (), 1)
    change = FileChange("x", 0o644, 0o644, None, None, (hunk,))
    monkeypatch.setattr(planning, limit, 2 if limit == "MOST_LINES" else 4)
    assert change_file(File(b"a\n", False), change, False, "x") == File(b"a\nb\n", False)
    monkeypatch.setattr(planning, limit, 1)
    with pytest.raises(Malformed, match="too many"):
        change_file(File(b"a\n", False), change, False, "x")
