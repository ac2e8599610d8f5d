"""The state of a tree, by its bytes alone, and the words for each way in which it can differ."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import INIT, LAZY_INIT, NEW_TEST, OLD_TEST, SPECIMEN, STACKS, RunCli, copy_specimen, snapshot
from stacks import make_stack

from stack import commands
from stack.drift import first_difference
from stack.errors import Malformed, Refused
from stack.fingerprint import digest_lines
from stack.state import Standing, State, identify
from stack.store import Store
from stack.tree import Tree

RELEASE = "2.7.1+specimen"
STORE = Store(str(STACKS))


def look(tree: Path, wanted: str | None = None, store: Store = STORE) -> State:
    with Tree(str(tree)) as opened:
        return identify(store, opened.read_all(store.paths), wanted)


def evidence(state: State, path: str) -> tuple[str, int | None]:
    (found,) = (file for file in state.files if file.path == path)
    return found.kind, found.line


def step(tree: Path, count: int) -> None:
    """Bring a pristine tree to the state after `count` patches."""
    from stack.plan import File, change_file

    for patch in STORE.release(RELEASE).patches[:count]:
        for change in patch.files:
            path = tree / change.path
            image = File(path.read_bytes(), False) if path.exists() else None
            after = change_file(image, change, False, change.path)
            assert after
            path.write_bytes(after.data)


@pytest.mark.parametrize(
    "count, standing",
    [(0, Standing.PRISTINE), (1, Standing.PARTLY), (2, Standing.PARTLY), (3, Standing.APPLIED)],
)
def test_names_how_far_the_series_is(specimen: Path, count: int, standing: Standing) -> None:
    step(specimen, count)
    state = look(specimen)
    assert (state.standing, state.applied, state.total) == (standing, count, 3)
    assert state.release and state.release.name == RELEASE


def test_each_release_is_told_by_its_bytes(specimen: Path, specimen_291: Path) -> None:
    (specimen / "version.txt").write_text("2.9.1.post1\n")  # it lies, and nobody asks it
    assert [getattr(look(tree).release, "name", "") for tree in (specimen, specimen_291)] == [
        RELEASE, "2.9.1.post1+specimen",
    ]  # fmt: skip


@pytest.mark.parametrize("path", [INIT, OLD_TEST, NEW_TEST, LAZY_INIT])
def test_one_file_of_another_step_is_a_mixture(specimen: Path, path: str) -> None:
    shutil.copytree(specimen, patched := specimen.parent / "patched")
    step(patched, 3)
    if path == INIT:  # patches 2 and 3 without 1; patch 1 alone would be a step
        (specimen / LAZY_INIT).write_bytes((patched / LAZY_INIT).read_bytes())
    else:
        (specimen / path).write_bytes((patched / path).read_bytes())
    state = look(specimen)
    assert state.standing is Standing.MIXED
    assert state.release and state.release.name == RELEASE


def _edit(path: str, old: bytes, new: bytes) -> Callable[[Path], None]:
    def change(tree: Path) -> None:
        data = (tree / path).read_bytes()
        assert old in data
        (tree / path).write_bytes(data.replace(old, new))

    return change


def _replace(path: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(tree: Path) -> None:
        target = tree / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
        make(target)

    return change


def _crlf_from_line_5(tree: Path) -> None:
    lines = (tree / INIT).read_bytes().split(b"\n")
    (tree / INIT).write_bytes(b"\n".join(lines[:4]) + b"\n" + b"\r\n".join(lines[4:]))


def _move_and_link(tree: Path) -> None:
    (tree / "torch_musa/core").rename(tree / "elsewhere")
    (tree / "torch_musa/core").symlink_to("../elsewhere")


DRIFTS: dict[str, tuple[Callable[[Path], object], str, str, int | None]] = {
    "one-byte-first": (_edit(INIT, b'"""A min', b'"""B min'), INIT, "edited", 1),
    "one-byte-in-lazy-init": (_edit(LAZY_INIT, b"import", b"Import"), LAZY_INIT, "edited", None),
    "line-endings": (_edit(INIT, b"\n", b"\r\n"), INIT, "line endings", 1),
    "line-endings-from-line-5": (_crlf_from_line_5, INIT, "line endings", 5),
    "final-newline": (lambda tree: os.truncate(tree / INIT, (tree / INIT).stat().st_size - 1), INIT, "edited", 127),
    "one-line-more": (_edit(INIT, b"__version__ = ", b"x = 1\n__version__ = "), INIT, "edited", 15),
    "emptied": (_replace(INIT, Path.touch), INIT, "edited", 1),
    "cut-short": (_edit(INIT, b"\n", b""), INIT, "edited", 1),
    "bom": (_edit(INIT, b'"""A min', b'\xef\xbb\xbf"""A min'), INIT, "edited", 1),
    "executable": (lambda tree: (tree / INIT).chmod(0o755), INIT, "executable bit", None),
    "missing": (lambda tree: (tree / LAZY_INIT).unlink(), LAZY_INIT, "missing", None),
    "missing-with-folder": (_replace("tests", lambda path: None), OLD_TEST, "missing", None),
    "in-the-way": (lambda tree: (tree / NEW_TEST).write_bytes(b"mine\n"), NEW_TEST, "in the way", None),
    "in-the-way-empty": (lambda tree: (tree / NEW_TEST).touch(), NEW_TEST, "in the way", None),
    "in-the-way-directory": (lambda tree: (tree / NEW_TEST).mkdir(), NEW_TEST, "directory", None),
    "in-the-way-link": (lambda tree: (tree / NEW_TEST).symlink_to("none"), NEW_TEST, "symbolic link", None),
    "in-the-way-above": (_replace("tests/unittest/core", Path.touch), NEW_TEST, "name below a file", None),
    "link": (_replace(INIT, lambda path: path.symlink_to("core/ops.py")), INIT, "symbolic link", None),
    "link-to-itself": (_replace(INIT, lambda path: path.symlink_to(path.name)), INIT, "symbolic link", None),
    "link-on-the-way": (_move_and_link, LAZY_INIT, "symbolic link", None),
    "fifo": (_replace(INIT, os.mkfifo), INIT, "special file", None),
    "directory": (_replace(INIT, Path.mkdir), INIT, "directory", None),
    "another-release": (
        _replace(INIT, lambda path: shutil.copy(SPECIMEN / "2.9.1.post1" / INIT, path)), INIT, "another release", None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("drift, path, kind, line", DRIFTS.values(), ids=DRIFTS)
def test_names_each_way_to_differ_and_stays_out(
    specimen: Path, drift: Callable[[Path], object], path: str, kind: str, line: int | None
) -> None:
    if kind == "another release":  # with one more file of its own, so that it is no pure 2.9.1.post1
        (specimen / OLD_TEST).write_bytes((specimen / OLD_TEST).read_bytes() + b"\n")
    drift(specimen)
    before = snapshot(specimen)
    state = look(specimen, RELEASE)
    assert state.standing is Standing.DRIFTED
    assert evidence(state, path)[0] == kind
    assert line is None or evidence(state, path)[1] == line
    with pytest.raises(Refused) as caught:
        commands.apply(str(specimen), STORE, commands.How(RELEASE))
    assert f"{RELEASE}: {path} " in str(caught.value) and caught.value.tip
    assert line is None or f"line {line} on" in str(caught.value)
    with pytest.raises(Refused):
        commands.unapply(str(specimen), STORE)
    assert path in commands.status(str(specimen), STORE).message
    assert snapshot(specimen) == before


@pytest.mark.parametrize("count", range(4))
def test_the_first_differing_line_is_told_against_the_step_that_the_file_is_at(specimen: Path, count: int) -> None:
    step(specimen, count)
    lines = (specimen / INIT).read_bytes().split(b"\n")
    at = len(lines) - 3
    lines[at] += b" # ours"
    (specimen / INIT).write_bytes(b"\n".join(lines))
    assert evidence(look(specimen, RELEASE), INIT) == ("edited", at + 1)


@pytest.mark.parametrize(
    "data, line",
    [(b"a\nb\nc\n", 4), (b"x\nb\nc\n", 1), (b"a\nB\nc\nd\n", 2), (b"a\nB\nx\nd\n", 3), (b"", 1), (b"a\nb\nc\nd", 4)],
    ids=["shorter", "first", "of-the-other-version", "of-the-other-version-too", "empty", "no-final-newline"],
)
def test_first_difference_is_that_to_the_likest_version(data: bytes, line: int) -> None:
    known = [digest_lines(b"a\nb\nc\nd\n"), digest_lines(b"a\nB\nC\nd\n")]
    if line == 2:
        known[1] = digest_lines(b"a\nb\nc\nd\ne\n")
    assert first_difference(digest_lines(data), known) == line


FIXED = b"""from .core import _lazy_init as _state


def __getattr__(name):
    if name == "_initialized":
        return _state._initialized
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
"""


def test_a_tree_that_upstream_fixed_has_nothing_to_do(specimen: Path, run_cli: RunCli) -> None:
    (specimen / INIT).write_bytes(FIXED)
    before = snapshot(specimen)
    assert look(specimen).standing is Standing.FIXED
    ran = run_cli("apply", specimen)
    assert ran.code == 0 and "fixed upstream" in ran.stdout and "nothing to do" in ran.stdout
    assert "forwarded at line 4" in ran.stdout
    assert run_cli("unapply", specimen).code == 1
    assert snapshot(specimen) == before


NOT_FIXED = {
    "re-exported-too": FIXED + b"\nfrom .core._lazy_init import _initialized\n",
    "constant": FIXED.replace(b"_state._initialized", b"True"),
    "syntax-error": FIXED + b"(\n",
    "nul": FIXED + b"\0",
    "deeply-nested": b"(" * 100_000,
    "deep-unary": b"x = " + b"-" * 100_000 + b"1\n",
    "deep-attributes": b"x = a" + b".a" * 100_000 + b"\n",
    "empty": b"",
}


@pytest.mark.parametrize("data", NOT_FIXED.values(), ids=NOT_FIXED)
def test_a_tree_that_only_looks_fixed_is_refused(specimen: Path, run_cli: RunCli, data: bytes) -> None:
    (specimen / INIT).write_bytes(data)
    ran = run_cli("apply", specimen)
    assert ran.code == 1 and "Traceback" not in ran.stderr, ran.stderr[-300:]
    assert f"{INIT} differs" in ran.stderr


def test_a_tree_of_another_project_is_named_so(tmp_path: Path, run_cli: RunCli) -> None:
    (tmp_path / "other").mkdir()
    ran = run_cli("apply", tmp_path / "other")
    assert ran.code == 1 and "not torch_musa" in ran.stderr
    assert look(tmp_path / "other").standing is Standing.OTHER
    (tmp_path / "other" / "torch_musa").touch()
    assert look(tmp_path / "other").standing is Standing.OTHER


def test_the_package_directory_in_place_of_the_tree_is_told(specimen: Path, run_cli: RunCli) -> None:
    ran = run_cli("apply", specimen / "torch_musa")
    assert ran.code == 1 and "looks like the package itself" in ran.stderr


def test_release_that_the_bytes_contradict_is_refused(specimen: Path, run_cli: RunCli) -> None:
    before = snapshot(specimen)
    ran = run_cli("apply", "--release", "2.9.1.post1+specimen", specimen)
    assert ran.code == 1 and f"is {RELEASE} by digest, not 2.9.1.post1+specimen" in ran.stderr
    assert snapshot(specimen) == before
    assert run_cli("apply", "--release", RELEASE, specimen).code == 0


def test_unknown_release_is_usage_and_names_the_known_ones(specimen: Path, run_cli: RunCli) -> None:
    ran = run_cli("apply", "--release", "9.9", specimen)
    assert ran.code == 2 and f"Known: {RELEASE}, 2.9.1.post1+specimen." in ran.stderr


def test_a_drifted_tree_is_told_against_the_release_that_is_believed(specimen: Path) -> None:
    (specimen / INIT).write_bytes(b"x\n")
    state = look(specimen, "2.9.1.post1+specimen")
    assert state.release and state.release.name == "2.9.1.post1+specimen"


def test_the_hint_of_version_txt_is_shown_as_a_hint(specimen: Path, run_cli: RunCli) -> None:
    (specimen / "version.txt").write_bytes(b"9.9\xff\x1b[31m\n")
    (specimen / INIT).write_bytes(b"x\n")
    ran = run_cli("apply", specimen)
    assert "version.txt says" in ran.stderr and "of no known release" in ran.stderr and "\x1b" not in ran.stderr


def test_two_stacks_for_one_base_need_a_name(specimen: Path, tmp_path: Path, run_cli: RunCli) -> None:
    for name, text in (("1", b"a\n"), ("2", b"b\n")):
        make_stack(tmp_path / "s", name, specimen, [_edit("version.txt", b"2", text)])
    ran = run_cli("apply", "--stacks", tmp_path / "s", specimen)
    assert ran.code == 1 and "base of several stacks: 1, 2" in ran.stderr and "--release" in ran.stderr
    assert run_cli("apply", "--stacks", tmp_path / "s", "--release", "2", specimen).code == 0


def test_a_sparse_file_of_gigabytes_is_not_read(specimen: Path, run_cli: RunCli) -> None:
    os.truncate(specimen / INIT, 8 << 30)
    ran = run_cli("status", "--json", specimen)
    assert [file["kind"] for file in json.loads(ran.stdout)["state"]["files"]][2] == "huge file"


def test_status_of_a_copy_elsewhere_is_the_same(tmp_path: Path) -> None:
    tree = copy_specimen(tmp_path / "\u00dcber die Karten \u663e\u5361")
    assert look(tree).standing is Standing.PRISTINE


def test_a_step_without_the_files_that_name_the_package_is_a_step(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "f").write_bytes(b"0\n")

    def edit(tree: Path) -> None:
        (tree / "f").write_bytes(b"1\n")

    def make(tree: Path) -> None:
        (tree / INIT).parent.mkdir()
        (tree / INIT).write_bytes(b"x = 1\n")

    make_stack(tmp_path, "1", base, [edit, make])
    edit(base)
    state = look(base, None, Store(str(tmp_path)))
    assert (state.standing, state.applied) == (Standing.PARTLY, 1)


def test_refuses_a_series_that_makes_a_file_and_removes_it_again(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "f").write_bytes(b"0\n")

    def make(tree: Path) -> None:
        (tree / "f").write_bytes(b"1\n")
        (tree / "g").write_bytes(b"1\n")

    make_stack(tmp_path, "1", base, [make, lambda tree: (tree / "g").unlink()])
    for verb in (
        lambda: commands.apply(str(base), Store(str(tmp_path)), commands.How()),
        lambda: look(base, None, Store(str(tmp_path))),
    ):
        with pytest.raises(Malformed, match="g: is made and removed again within the series"):
            verb()


@pytest.mark.parametrize("name, key", [("fingerprint.json", "lines"), ("release.json", "torch")])
@pytest.mark.parametrize("text", ["\ud800", "\x1b[2J", "caf\xe9"], ids=["half-a-character", "escape", "not-ascii"])
def test_a_text_that_cannot_be_printed_is_malformed(tmp_path: Path, name: str, key: str, text: str) -> None:
    shutil.copytree(STACKS, tmp_path / "stacks")
    path = tmp_path / "stacks/patches" / RELEASE / name
    data = json.loads(path.read_bytes())
    (data if key == "torch" else data[INIT])[key] = text if key == "torch" else [text]
    path.write_text(json.dumps(data))
    release = Store(str(tmp_path / "stacks")).release(RELEASE)
    with pytest.raises(Malformed, match=name):
        print(release.about, release.fingerprint)
