"""Others at work at the same time: one run of ours does the work, and nobody's bytes are lost."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from conftest import INIT, LAZY_INIT, NEW_TEST, OLD_TEST, copy_specimen, snapshot
from races import at_once, command, to_and_fro
from test_transaction import STORE, apply, unapply

from stack import commands, transaction
from stack.errors import Environment, Refused
from stack.paths import JOURNAL
from stack.plan import Step
from stack.state import Standing, identify
from stack.tree import Tree

MANY = 50
DONE = {"apply": ("applied", "already applied"), "unapply": ("unapplied", "already unapplied")}


def standing(tree: Path) -> Standing:
    with Tree(str(tree)) as opened:
        return identify(STORE, opened.read_all(STORE.paths)).standing


@pytest.mark.parametrize("kill", [False, True], ids=["clean", "after a kill"])
def test_of_fifty_runs_at_once_one_does_it(specimen: Path, tmp_path: Path, kill: bool) -> None:
    fifty(specimen, tmp_path, kill)


def fifty(tree: Path, where: Path, kill: bool = False) -> Counter[tuple[int, str]]:
    """Apply and unapply, fifty at once: one does it, the others end with "already", or with code 4.

    kill: all of them find a journal to put right.
    """
    total: Counter[tuple[int, str]] = Counter()
    for verb, standing_after in (("apply", Standing.APPLIED), ("unapply", Standing.PRISTINE)):
        if kill:
            _killed(tree, verb)
        came = at_once(command(verb, tree), MANY, where)
        did, already = DONE[verb]
        assert came[0, did] == 1 and set(came) <= {(0, did), (0, already), (4, "error")}, came
        assert standing(tree) is standing_after and JOURNAL not in os.listdir(tree)
        total += came
    return total


def _killed(tree: Path, verb: str) -> None:
    child = os.fork()
    if not child:
        transaction._settle = lambda *args: os._exit(99)  # type: ignore[assignment]
        {"apply": apply, "unapply": unapply}[verb](tree)
    os.waitpid(child, 0)
    assert JOURNAL in os.listdir(tree)


@pytest.mark.parametrize("path", [INIT, LAZY_INIT, OLD_TEST, NEW_TEST])
def test_a_file_edited_after_it_was_replaced_is_not_lost(specimen: Path, path: str) -> None:
    """By somebody else, before the end; then something fails. The edit stays, and the original is kept and named."""
    real = transaction._settle

    def settle(*args: object) -> None:
        (specimen / path).write_bytes(b"theirs\n")
        raise OSError(5, "Input/output error")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction, "_settle", settle)
        with pytest.raises(Environment, match=f"{path}: was changed by somebody else"):
            apply(specimen)
    assert (specimen / path).read_bytes() == b"theirs\n" and real is transaction._settle
    with pytest.raises(Environment, match="was changed by somebody else"):
        commands.recover(str(specimen))
    assert (specimen / path).read_bytes() == b"theirs\n"


def test_a_file_edited_between_plan_and_commit_is_refused(specimen: Path) -> None:
    real = transaction._replace

    def replace(tree: Tree, handle: int, number: int, step: Step) -> None:
        if step.path == LAZY_INIT:
            (specimen / LAZY_INIT).write_bytes(b"theirs\n")
        real(tree, handle, number, step)

    before = snapshot(specimen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction, "_replace", replace)
        with pytest.raises(Refused, match=f"{LAZY_INIT}: was changed by somebody else during this run"):
            apply(specimen)
    now = snapshot(specimen)
    assert now.pop(LAZY_INIT).data == b"theirs\n" and before.pop(LAZY_INIT)
    assert now == before


def flipped(tmp_path: Path, seconds: float) -> Counter[tuple[int, str]]:
    """Let torch_musa/core be a link to a copy of itself outside at every second look, while it is applied to."""
    tree, outside = copy_specimen(tmp_path / "tree"), tmp_path / "outside"
    shutil.copytree(tree / "torch_musa/core", outside)
    before, start = snapshot(outside), snapshot(tree)
    came = to_and_fro(tree, tree / "torch_musa/core", outside, seconds, tmp_path)
    assert snapshot(outside) == before, "something was written outside the tree"
    assert 70 not in {code for code, _ in came} and 99 not in {code for code, _ in came}, came
    commands.recover(str(tree))
    unapply(tree)
    now = snapshot(tree)
    assert {path: shot[:2] for path, shot in now.items()} == {path: shot[:2] for path, shot in start.items()}
    return came


def test_a_link_that_is_swapped_in_during_the_run_is_never_followed(tmp_path: Path) -> None:
    """The link leads to the same bytes, so that nothing but the way to them is wrong."""
    came = flipped(tmp_path, 2)
    assert came[0, "applied"] and sum(count for (code, _), count in came.items() if code), came


def test_bytes_from_outside_never_come_into_the_result(tmp_path: Path) -> None:
    """The link leads to bytes that are part of no release: a run that reads them refuses, or has not read them."""
    tree, outside = copy_specimen(tmp_path / "tree"), tmp_path / "outside"
    outside.mkdir()
    (outside / "_lazy_init.py").write_bytes(b"SECRET = 1\n")
    to_and_fro(tree, tree / "torch_musa/core", outside, 1, tmp_path)
    assert not any(b"SECRET" in (shot.data or b"") for shot in snapshot(tree).values())
    assert [path.name for path in outside.iterdir()] == ["_lazy_init.py"]
    assert (outside / "_lazy_init.py").read_bytes() == b"SECRET = 1\n"
