"""Exports: what is ours in somebody's folder is replaced as a whole, and what is not ours is never touched."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stack.cli import FORMS
from stack.errors import Environment, Malformed, Refused, StackError
from stack.export import command
from stack.export.listing import merge
from stack.export.ours import changes
from stack.plan import Plan
from tests.conftest import STACKS, RunCli, contents, snapshot
from tests.exports import (
    FIRST,
    FOLDERS,
    LATER,
    NAME,
    SECOND,
    THIRD,
    changed_stacks,
    edit,
    place,
    run,
    write,
)

pytestmark = pytest.mark.usefixtures("no_sync")
every_form = pytest.mark.parametrize("form", FORMS)
every_folder = pytest.mark.parametrize("form", FOLDERS)
MANIFESTS = {
    "debian": "debian/torch-musa_patches/manifest.sha256",
    "rpm": "torch-musa-patches.sha256",
    "quilt": "patches/torch-musa-patches.sha256",
}


def patch(form: str, out: Path, name: str = FIRST) -> Path:
    return out / f"{FOLDERS[form]}{name}"


def series(form: str, out: Path) -> Path:
    return patch(form, out).parent / "series"


@every_form
def test_a_second_export_changes_nothing(form: str, tmp_path: Path) -> None:
    out = place(form, tmp_path / "out")
    first = run(form, out)
    before = snapshot(tmp_path)
    second = run(form, out)
    assert (first.outcome, second.outcome) == ("exported", "already so")
    assert len(first.data["written"]) >= 1 and second.data["written"] == []
    assert snapshot(tmp_path) == before


@every_form
def test_an_export_is_the_same_wherever_it_is_made(form: str, tmp_path: Path) -> None:
    for number in ("1", "2"):
        run(form, place(form, tmp_path / number))
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    assert not any(os.fsencode(tmp_path) in (shot[0] or b"") for shot in contents(tmp_path / "1").values())


@every_folder
def test_the_manifest_is_what_sha256sum_reads(form: str, tmp_path: Path) -> None:
    out = place(form, tmp_path / "out")
    written = run(form, out).data["written"]
    done = subprocess.run(["sha256sum", "-c", "--strict", MANIFESTS[form]], cwd=out, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = {line.partition(":")[0] for line in done.stdout.splitlines()}
    assert told == {path for path in written if path != MANIFESTS[form] and not path.endswith("/series")}


@every_form
def test_a_newer_export_replaces_ours_alone(form: str, tmp_path: Path) -> None:
    out = place(form, tmp_path / "out")
    for path in FOLDERS.values():
        write(tmp_path / "out" / f"{path}9-theirs.patch", "theirs\n")
    run(form, out)
    before = contents(tmp_path / "out")
    outcome = run(form, out, LATER)
    after = contents(tmp_path / "out")
    assert {path for path in after if after[path] != before[path]} == set(outcome.data["written"])
    assert before.keys() == after.keys() and outcome.outcome == "exported"
    run(form, place(form, tmp_path / "fresh"), LATER)
    fresh = contents(tmp_path / "fresh")
    assert {path: after[path] for path in fresh} == fresh


def _drop_second(stacks: Path) -> None:
    edit(stacks / "series" / NAME, f"{SECOND}\n", "")


@every_folder
def test_a_newer_export_drops_what_went(form: str, tmp_path: Path) -> None:
    out, stacks = place(form, tmp_path / "out"), changed_stacks(tmp_path / "stacks", _drop_second)
    run(form, out)
    outcome = run(form, out, NAME, stacks)
    assert outcome.data["removed"] == [f"{FOLDERS[form]}{SECOND}"] and not patch(form, out, SECOND).exists()
    assert SECOND not in "".join(path.read_text() for path in out.rglob("*") if path.name == "series")
    run(form, place(form, tmp_path / "fresh"), NAME, stacks)
    assert contents(out) == contents(tmp_path / "fresh")


@every_folder
@pytest.mark.parametrize("goes", [False, True], ids=["replaced", "dropped"])
def test_an_edited_file_of_ours_is_never_overwritten(form: str, goes: bool, tmp_path: Path) -> None:
    out, stacks = place(form, tmp_path / "out"), changed_stacks(tmp_path / "stacks", _drop_second)
    run(form, out)
    edited = patch(form, out, SECOND if goes else FIRST)
    edit(edited, "\n+", "\n+# mine\n+")
    before = snapshot(tmp_path)
    with pytest.raises(Refused, match=f"{edited}: was changed since we wrote it") as refused:
        run(form, out, NAME if goes else LATER, stacks if goes else STACKS)
    assert "remove these files" in refused.value.tip
    assert snapshot(tmp_path) == before
    edited.unlink()  # what the tip says
    assert run(form, out, LATER).outcome == "exported"
    assert run(form, out, LATER).outcome == "already so"


@every_form
def test_a_file_that_no_manifest_explains_is_left(form: str, tmp_path: Path) -> None:
    out = place(form, tmp_path / "out")
    theirs = out if form == "mbox" else patch(form, out)
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_text("theirs\n")
    before = snapshot(tmp_path)
    with pytest.raises(Refused, match=f"{theirs}: is there already"):
        run(form, out)
    assert snapshot(tmp_path) == before


@every_folder
def test_a_file_with_our_bytes_is_taken_for_ours(form: str, tmp_path: Path) -> None:
    out = place(form, tmp_path / "out")
    patch(form, out).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(STACKS / "patches" / NAME / FIRST, patch(form, out))
    assert f"{FOLDERS[form]}{FIRST}" not in run(form, out).data["written"]


def _as_gbp_writes(data: str) -> str:
    """What gbp pq export makes of a patch: statistics, and short ids."""
    data = data.replace("\n---\n", "\n---\n torch_musa/__init__.py | 23 +++++++++++++++--------\n\n")
    return re.sub(r"^(index [0-9a-f]{7})[0-9a-f]+(\.\.[0-9a-f]{7})[0-9a-f]+", r"\1\2", data, flags=re.MULTILINE)


def _as_quilt_writes(data: str) -> str:
    """What quilt refresh makes of it: no diff and index lines, names of its own."""
    data = re.sub(r"^diff --git.*\nindex .*\n", "Index: x/torch_musa\n=====\n", data, flags=re.MULTILINE)
    return data.replace("--- a/", "--- x.orig/").replace("+++ b/", "+++ x/")


@every_folder
@pytest.mark.parametrize("rewrite", [_as_gbp_writes, _as_quilt_writes])
def test_what_says_the_same_in_another_tools_form_is_kept(
    form: str, rewrite: Callable[[str], str], tmp_path: Path
) -> None:
    out = place(form, tmp_path / "out")
    run(form, out)
    mine = patch(form, out)
    assert (data := rewrite(mine.read_text())) != mine.read_text()
    mine.write_text(data)
    outcome = run(form, out)
    assert outcome.outcome == "already so" and outcome.data["kept"] == [f"{FOLDERS[form]}{FIRST}"]
    assert "says the same in another tool's form" in outcome.message and mine.read_text() == data
    with pytest.raises(Refused, match="was changed since we wrote it"):  # the later one says something else
        run(form, out, LATER)


SAME = {
    "a-line-more": ("+    if name", "+    # more\n+    if name"),
    "another-place": ("@@ -106,", "@@ -107,"),
    "another-file": ("+++ b/torch_musa/__init__.py", "+++ b/torch_musa/other.py"),
    "another-reason": ("Take one handle", "Take two handles"),
}


@pytest.mark.parametrize("old, new", SAME.values(), ids=SAME)
def test_what_says_something_else_is_not_the_same(old: str, new: str, tmp_path: Path) -> None:
    out = place("quilt", tmp_path / "out")
    run("quilt", out)
    edit(patch("quilt", out), old, new)
    with pytest.raises(Refused, match="was changed"):
        run("quilt", out)


def test_a_mode_is_a_change() -> None:
    plain = b"new file mode 100644\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"
    assert changes(plain.replace(b"100644", b"100755")) != changes(plain)
    assert changes(plain.replace(b"new file mode 100644\n", b"")) == changes(plain)
    assert changes(plain.replace(b"\\ No newline at end of file\n", b"")) != changes(plain)


def test_an_edit_during_the_run_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = place("debian", tmp_path / "out")
    run("debian", out)
    real, mine = command.plan_files, patch("debian", out)

    def late(*args: Any) -> Plan:
        edit(mine, "\n+", "\n+# mine\n+")
        return real(*args)

    monkeypatch.setattr(command, "plan_files", late)
    with pytest.raises(Refused, match="was changed by somebody else during this run"):
        run("debian", out, LATER)
    assert "+# mine" in mine.read_text()
    monkeypatch.undo()
    mine.unlink()
    assert run("debian", out).data["written"] == [f"{FOLDERS['debian']}{FIRST}"]  # nothing else had changed


MERGE = {
    "into-nothing": (b"", set(), b"1\n2\n"),
    "at-the-end": (b"# first\n\na -p0\n", set(), b"# first\n\na -p0\n1\n2\n"),
    "after-a-line-without-end": (b"a", set(), b"a\n1\n2\n"),
    "there-already": (b"1 # ours\na\n 2\n", {"1", "2"}, b"1 # ours\na\n 2\n"),
    "there-without-end": (b"1\n2", {"1", "2"}, b"1\n2"),
    "moved-to-the-front": (b"1\nold\na\n", {"1", "old"}, b"1\n2\na\n"),
    "one-before": (b"a\n2\nb\n", {"2"}, b"a\n1\n2\nb\n"),
    "all-others": (b"a\nold\n# of old\nolder\nb\n", {"old", "older"}, b"a\n1\n2\n# of old\nb\n"),
    "gone-last": (b"1\na\n2\nold\n", {"1", "2", "old"}, b"1\na\n2\n"),
    "commented-out": (b"#1\n#2\na\n", set(), b"#1\n#2\na\n1\n2\n"),
}


@pytest.mark.parametrize("data, have, result", MERGE.values(), ids=MERGE)
def test_a_series_keeps_every_line_that_is_not_ours(data: bytes, have: set[str], result: bytes) -> None:
    assert merge(data, have - {"1", "2"}, ["1", "2"]) == result
    assert merge(result, set(), ["1", "2"]) == result


@pytest.mark.parametrize("form", ["debian", "quilt"])
def test_a_patch_under_another_name_is_not_added_twice(form: str, tmp_path: Path) -> None:
    out = place(form, tmp_path / "out")
    series(form, out).parent.mkdir(exist_ok=True)
    series(form, out).write_text("../../etc/passwd\nabsent.patch\nfix/flag.patch\n")
    copy = series(form, out).parent / "fix/flag.patch"
    copy.parent.mkdir()
    copy.write_text(_as_gbp_writes((STACKS / "patches" / NAME / FIRST).read_text()))
    before = snapshot(tmp_path)
    with pytest.raises(Refused, match=f"flag.patch: is the patch {FOLDERS[form]}{FIRST} under another name"):
        run(form, out)
    assert snapshot(tmp_path) == before
    edit(copy, "+    if name", "+    if other")
    assert run(form, out).outcome == "exported"


@pytest.mark.parametrize("form", ["debian", "quilt"])
def test_a_patch_that_was_taken_out_of_the_series_is_not_put_back(form: str, tmp_path: Path) -> None:
    out = place(form, tmp_path / "out")
    run(form, out)
    named = patch(form, out, SECOND).name
    edit(series(form, out), named, f"#{named}")
    with pytest.raises(Refused, match=f"series: does not name {named} any more"):
        run(form, out)
    patch(form, out, SECOND).unlink()
    run(form, out)
    assert series(form, out).read_text().count(f"\n{named}\n") == 1


@every_folder
@pytest.mark.parametrize("path", ["debian/rules", "../x", "debian/patches/theirs.patch", ".git/config"])
def test_a_manifest_that_names_a_file_that_cannot_be_ours_is_malformed(form: str, path: str, tmp_path: Path) -> None:
    out = place(form, tmp_path / "out")
    (out / "debian/rules").write_text("rules\n")
    run(form, out)
    digest = subprocess.run(["sha256sum", out / "debian/rules"], capture_output=True, text=True).stdout[:64]
    (out / MANIFESTS[form]).write_text(f"{digest}  {path}\n")
    before = snapshot(tmp_path)
    with pytest.raises(Malformed, match="manifest|torch-musa-patches.sha256"):
        run(form, out)
    assert snapshot(tmp_path) == before


def _link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


ODD = {
    "debian": ("debian", "debian", _link, "debian: is a symbolic link"),
    "source": ("debian", "debian/source", _link, "debian/source: is a symbolic link"),
    "patches": ("debian", "debian/patches", _link, "debian/patches: is a symbolic link"),
    "patch": ("debian", f"debian/patches/torch-musa-{FIRST}", _link, "is a symbolic link"),
    "series": ("debian", "debian/patches/series", _link, "series: is a symbolic link"),
    "series-is-a-folder": ("quilt", "patches/series", _folder, "series: is a directory"),
    "manifest": ("quilt", MANIFESTS["quilt"], _fifo, "is a special file"),
    "lines": ("rpm", "torch-musa-patches.spec.inc", _link, "is a symbolic link"),
    "mbox": ("mbox", "stack.mbox", _folder, "stack.mbox: is a directory"),
}


@pytest.mark.parametrize("form, path, make, message", ODD.values(), ids=ODD)
def test_nothing_is_written_through_a_link_or_over_what_is_no_file(
    form: str, path: str, make: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    out = place(form, tmp_path / "out")
    run(form, out)
    make(tmp_path / "out" / path)
    before = snapshot(tmp_path)
    with pytest.raises(Refused, match=message):
        run(form, out, LATER)
    assert snapshot(tmp_path) == before


USAGE: dict[str, tuple[tuple[str, ...], int, str]] = {
    "no-release": (("rpm", "OUT"), 2, "--release R is missing"),
    "unknown-release": (("rpm", "OUT", "--release", "1"), 2, "'1' has no stack"),
    "unknown-form": (("deb", "OUT", "--release", NAME), 2, "FORM deb: expected one of debian, rpm, quilt, mbox"),
    "empty-form": (("", "OUT", "--release", NAME), 2, "expected one of debian"),
    "form-alone": (("rpm", "--release", NAME), 2, "expected FORM and OUT, got 1"),
    "pc-of-rpm": (("rpm", "OUT", "--release", NAME, "--pc"), 2, "--pc is quilt's own state"),
    "no-debian": (("debian", "OUT/debian", "--release", NAME), 2, "has no debian/"),
    "debian-absent": (("debian", "OUT/x", "--release", NAME), 2, "is not a directory"),
    "parent-absent": (("rpm", "OUT/x/y", "--release", NAME), 2, "cannot be made"),
    "out-is-empty": (("rpm", "", "--release", NAME), 2, "cannot be made"),
    "out-is-a-file": (("rpm", "OUT/debian/changelog", "--release", NAME), 2, "is not a directory"),
    "mbox-without-name": (("mbox", "OUT/", "--release", NAME), 2, "Name the file to write"),
    "mbox-odd-name": (("mbox", "OUT/a b", "--release", NAME), 2, "is not plain ASCII"),
    "mbox-parent-absent": (("mbox", "OUT/x/y", "--release", NAME), 2, "is not a directory"),
}


@pytest.mark.parametrize("args, code, message", USAGE.values(), ids=USAGE)
def test_a_mistake_leaves_no_trace(
    args: tuple[str, ...], code: int, message: str, tmp_path: Path, run_cli: RunCli
) -> None:
    place("debian", tmp_path / "out")
    before = snapshot(tmp_path)
    ran = run_cli("export", *(arg.replace("OUT", str(tmp_path / "out")) for arg in args))
    assert ran.code == code and message in ran.stderr and "Traceback" not in ran.stderr, ran
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("form", ["rpm", "quilt"])
def test_an_out_that_was_made_goes_again_when_nothing_comes_of_it(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise Environment("no")

    monkeypatch.setattr(command, "commit", broken)
    with pytest.raises(Environment):
        run(form, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert run(form, tmp_path / "out").outcome == "exported"


def test_a_broken_stack_is_told_of_before_anything_is_made(tmp_path: Path) -> None:
    def damage(stacks: Path) -> None:
        (stacks / "patches" / NAME / THIRD).write_bytes(b"")

    stacks = changed_stacks(tmp_path / "stacks", damage)
    for form in FORMS:
        with pytest.raises(StackError, match=THIRD):
            run(form, tmp_path / "out", NAME, stacks)
    assert not (tmp_path / "out").exists()


def test_json_says_what_was_written(tmp_path: Path, run_cli: RunCli) -> None:
    ran = run_cli("export", "rpm", tmp_path / "out", "--release", NAME, "--json")
    value = json.loads(ran.stdout)
    assert (value["exit"], value["outcome"], value["tree"]) == (0, "exported", str(tmp_path / "out"))
    assert value["data"]["form"] == "rpm" and value["data"]["patches"] == [FIRST, SECOND, THIRD]
    assert sorted(value["data"]["written"]) == sorted(os.listdir(tmp_path / "out"))
