"""What is each form's own: source formats and texts of Debian, lines of a spec, mails, quilt's state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stack import commands
from stack.errors import Environment, Malformed, Refused
from stack.store import Store
from tests.conftest import INIT, STACKS, RunCli, copy_specimen, snapshot
from tests.exports import (
    CHANGELOG,
    FIRST,
    LATER,
    NAME,
    changed_stacks,
    edit,
    place,
    run,
    write,
)
from tests.stacks import make_stack

pytestmark = pytest.mark.usefixtures("no_sync")


@pytest.mark.parametrize(
    "form, said", [("1.0\n", "is 1.0"), ("3.0 (native)\n", "is 3.0 .native"), (None, "is 1.0, since"), ("\xff", "is ")]
)
def test_another_source_format_is_refused(form: str | None, said: str, tmp_path: Path) -> None:
    out = place("debian", tmp_path / "out")
    (out / "debian/source/format").unlink()
    if form is not None:
        (out / "debian/source/format").write_bytes(form.encode("latin-1"))
    with pytest.raises(Refused, match=f"debian/source/format: {said}") as refused:
        run("debian", out)
    assert "echo '3.0 (quilt)' > debian/source/format" in refused.value.tip


TEXTS = "debian/torch-musa_patches"


def test_texts_are_entries_for_the_version_that_is_worked_on(tmp_path: Path) -> None:
    out = place("debian", tmp_path / "out")
    run("debian", out)
    for name in ("NEWS", "changelog"):
        text = (out / TEXTS / name).read_text()
        assert text.startswith("torch-musa (2.7.1-1) unstable; urgency=medium\n\n  ")
        assert text.endswith(CHANGELOG[CHANGELOG.index("\n --") :])
        assert "  - Loss curves of models that checkpoint random operations change.\n" in text
        assert max(map(len, text.splitlines())) <= 80
    (out / "debian/changelog").write_text(CHANGELOG.replace("2.7.1-1", "2.7.1-2") + "\n" + CHANGELOG)
    assert run("debian", out).outcome == "already so"  # told of in 2.7.1-1
    (out / TEXTS / "NEWS").unlink()  # pasted
    assert run("debian", out).outcome == "already so"
    run("debian", out, LATER)
    assert (out / TEXTS / "NEWS").read_text().startswith("torch-musa (2.7.1-2) ")


UNFINISHED = "torch-musa (1-1) unstable; urgency=low\n\n  * x\n\n -- \n"


@pytest.mark.parametrize("changelog", [None, "", "odd\n", UNFINISHED, f"{UNFINISHED}\n{CHANGELOG}"])
def test_placeholders_in_texts_are_told(changelog: str | None, tmp_path: Path) -> None:
    out = place("debian", tmp_path / "out")
    (out / "debian/changelog").unlink()
    if changelog is not None:
        (out / "debian/changelog").write_text(changelog)
    assert f"{TEXTS}: package, version and name are placeholders" in run("debian", out).message
    text = (out / TEXTS / "NEWS").read_text()
    assert text.startswith("torch-musa (0~version) UNRELEASED; ") and "-- Your Name <you@example.org>  Mon, " in text


def test_a_stack_that_changes_nothing_for_users_has_no_news(tmp_path: Path) -> None:
    stacks = changed_stacks(tmp_path / "stacks", lambda stacks: edit(stacks / "series" / NAME, f"{FIRST}\n", ""))
    out = place("debian", tmp_path / "out")
    outcome = run("debian", out, NAME, stacks)
    assert not (out / TEXTS / "NEWS").exists() and (out / TEXTS / "changelog").exists()
    assert "NEWS" not in outcome.tip and f"Paste {TEXTS}/changelog into debian/changelog" in outcome.tip


def test_the_series_of_a_vendor_is_told_of_and_left(tmp_path: Path) -> None:
    out = place("debian", tmp_path / "out")
    (out / "debian/patches").mkdir()
    (out / "debian/patches/ubuntu.series").write_text("a.patch\n")
    assert "debian/patches/ubuntu.series: stands in for series" in run("debian", out).message
    assert (out / "debian/patches/ubuntu.series").read_text() == "a.patch\n"


def test_a_percent_sign_is_no_macro_in_the_lines_for_a_spec(tmp_path: Path) -> None:
    def change(stacks: Path) -> None:
        edit(stacks / "patches" / NAME / FIRST, "Subject: forward", "Subject: %prep forward")

    out = place("rpm", tmp_path / "out")
    run("rpm", out, NAME, changed_stacks(tmp_path / "stacks", change))
    assert "# %%prep forward the initialization flag\n" in (out / "torch-musa-patches.spec.inc").read_text()


SPLIT = {"mail": ("From here on 12:00:00 2026 it is other", True), "prose": ("From now on", False)}


@pytest.mark.parametrize("line, split", SPLIT.values(), ids=SPLIT)
def test_a_message_that_would_be_split_is_refused(line: str, split: bool, tmp_path: Path) -> None:
    def change(stacks: Path) -> None:
        edit(stacks / "patches" / NAME / FIRST, "Take one handle", f"{line}\nTake one handle")

    stacks = changed_stacks(tmp_path / "stacks", change)
    if split:
        with pytest.raises(Malformed, match=f"{FIRST}:12: git am would take this line for the start of the next mail"):
            run("mbox", tmp_path / "m", NAME, stacks)
    else:
        run("mbox", tmp_path / "m", NAME, stacks)
        assert f"\n{line}\n" in (tmp_path / "m").read_text()


@pytest.mark.parametrize("form", ["debian", "quilt"])
def test_a_tree_of_another_release_is_refused(form: str, tmp_path: Path) -> None:
    out = place(form, copy_specimen(tmp_path / "tree", "2.9.1.post1"))
    with pytest.raises(Refused, match=f"is {LATER} by digest, not {NAME}".replace("+", r"\+")):
        run(form, out)
    assert run(form, out, LATER).outcome == "exported"


def test_a_patch_that_quilt_has_applied_is_not_changed_under_it(tmp_path: Path) -> None:
    out = place("debian", tmp_path / "out")
    run("debian", out)
    (out / ".pc").mkdir()
    (out / ".pc/applied-patches").write_text(f"theirs.patch\ntorch-musa-{FIRST}\n")
    assert run("debian", out).outcome == "already so"
    before = snapshot(out)
    with pytest.raises(Environment, match=f"has applied torch-musa-{FIRST}$"):
        run("debian", out, LATER)
    assert snapshot(out) == before


def _applied(tmp_path: Path, run_cli: RunCli) -> Path:
    out = copy_specimen(tmp_path / "tree")
    assert run_cli("apply", out).code == 0
    return out


def _unapply(out: Path) -> None:
    commands.unapply(str(out), Store(str(STACKS)))


PC: dict[str, tuple[Callable[[Path], object], str]] = {
    "pristine": (_unapply, "pristine: none"),
    "edited": (lambda out: (out / INIT).write_bytes(b"x = 1\n"), "no known release"),
    "others": (lambda out: write(out / "patches/series", "a.patch\n"), "names other patches too: a.patch"),
    "quilts": (lambda out: write(out / ".pc/applied-patches", "a.patch\n"), "with another account .*applied-patches"),
    "more": (lambda out: write(out / ".pc/a.patch/f", ""), "with another account .*a.patch"),
    "file": (lambda out: (out / ".pc").write_text(""), ".pc: is a file"),
    "link": (lambda out: (out / ".pc").symlink_to("/tmp"), ".pc: is a symbolic link"),
}


@pytest.mark.parametrize("damage, message", PC.values(), ids=PC)
def test_quilts_state_is_written_for_a_tree_that_apply_has_patched_alone(
    damage: Callable[[Path], object], message: str, tmp_path: Path, run_cli: RunCli
) -> None:
    out = _applied(tmp_path, run_cli)
    damage(out)
    before = snapshot(tmp_path)
    with pytest.raises(Refused, match=message):
        run("quilt", out, pc="")
    assert snapshot(tmp_path) == before


def test_an_empty_file_that_quilt_would_remove_is_no_matter_for_it(tmp_path: Path) -> None:
    base = tmp_path / "base"
    write(base / "empty", "")
    tree = make_stack(tmp_path / "stacks", "1", base, [lambda work: write(work / "empty", "full\n")])
    with pytest.raises(Refused, match="empty: is an empty file before .*, which quilt would remove"):
        run("quilt", tree, "1", tmp_path / "stacks", pc="")
    assert not (tree / ".pc").exists() and not (tree / "patches").exists()


def test_quilts_state_is_written_once(tmp_path: Path, run_cli: RunCli) -> None:
    out = _applied(tmp_path, run_cli)
    tree = {path: shot for path, shot in snapshot(out).items() if path.startswith("torch_musa/")}
    assert run("quilt", out, pc="").outcome == "exported"
    assert tree.items() <= snapshot(out).items()
    assert run("quilt", out, pc="").outcome == "already so"
