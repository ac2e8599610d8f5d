"""Where quilt keeps the account of a tree, we say what to type, and change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import INIT, NEW_TEST, STACKS, RunCli, snapshot
from test_state import step

RELEASE = "2.7.1+specimen"
NAMES = [line for line in (STACKS / "series" / RELEASE).read_text().split("\n") if line]


def quilt_pushed(tree: Path, names: list[str], path: str = INIT) -> None:
    """Write the .pc that quilt leaves after it has pushed these patches (quilt manual)."""
    (tree / ".pc").mkdir()
    (tree / ".pc" / ".version").write_text("2\n")
    (tree / ".pc" / "applied-patches").write_text("".join(f"{name}\n" for name in names))
    for name in names:
        backup = tree / ".pc" / name / path
        backup.parent.mkdir(parents=True)
        backup.write_bytes(b"")


@pytest.mark.parametrize("verb, command", [("apply", "quilt push -a --fuzz=0"), ("unapply", "quilt pop -a")])
def test_quilt_in_charge_is_told_with_the_command_to_type(
    specimen: Path, run_cli: RunCli, verb: str, command: str
) -> None:
    step(specimen, 1)
    quilt_pushed(specimen, NAMES[:1])
    before = snapshot(specimen)
    ran = run_cli(verb, specimen)
    assert ran.code == 4 and "quilt is in charge" in ran.stderr and NAMES[0] in ran.stderr
    settings = f"QUILT_PATCHES={STACKS}/patches/{RELEASE} QUILT_SERIES={STACKS}/series/{RELEASE}"
    assert f"{settings} {command}\n" in ran.stderr
    assert snapshot(specimen) == before


@pytest.mark.parametrize("name", ["debian/fix.patch", "_odd", "a b.patch", "\u00e4.patch", ".hidden"])
def test_any_name_of_a_patch_is_one_of_quilts(specimen: Path, run_cli: RunCli, name: str) -> None:
    quilt_pushed(specimen, [name], NEW_TEST)
    assert run_cli("apply", specimen).code == 4


def test_a_tree_that_needs_nothing_is_no_matter_of_quilt(specimen: Path, run_cli: RunCli) -> None:
    step(specimen, 3)
    quilt_pushed(specimen, NAMES)
    assert run_cli("apply", specimen).code == 0
    assert run_cli("unapply", specimen).code == 4


@pytest.mark.parametrize(
    "names, path",
    [(["other.patch"], "docs/list-files.sh"), ([], INIT), (["../../etc"], "x"), (["/etc"], "passwd"), (["a\0b"], "x")],
    ids=["other-files", "all-popped", "parent", "absolute", "nul"],
)
def test_quilt_that_holds_none_of_our_files_is_not_in_charge(
    specimen: Path, run_cli: RunCli, names: list[str], path: str
) -> None:
    quilt_pushed(specimen, [], path)
    (specimen / ".pc" / "applied-patches").write_text("".join(f"{name}\n" for name in names))
    assert run_cli("apply", specimen).code == 0


def test_a_link_for_quilts_folder_is_not_followed(specimen: Path, run_cli: RunCli, tmp_path: Path) -> None:
    quilt_pushed(specimen, NAMES[:1])
    (specimen / ".pc").rename(tmp_path / "pc")
    (specimen / ".pc").symlink_to(tmp_path / "pc")
    assert run_cli("apply", specimen).code == 0
