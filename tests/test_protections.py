"""Each protection matters: with it taken out, a case of tests/cases, or a forged journal, goes red."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from cases_runner import CASES, Case, run_engine, says
from conftest import INIT, STACKS
from test_hostile import FORGED

from stack import commands, drift, hunk, journal, outcome, patch, paths, pins, plan, series, store, transaction, tree
from stack.errors import Exit
from stack.journal import format_record
from stack.outcome import Outcome
from stack.patch import Hunk
from stack.paths import JOURNAL
from stack.store import Release, Store

Take = Callable[[pytest.MonkeyPatch], object]


class Anything:
    """Equal to all: what a comparison is that never fails."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


def nothing(*args: object, **more: object) -> None:
    """A check that checks nothing."""


def without(module: object, *names: str, put: object = nothing) -> Take:
    def take(monkeypatch: pytest.MonkeyPatch) -> None:
        for name in names:
            monkeypatch.setattr(module, name, put)

    return take


def _any_path(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (patch, pins):
        monkeypatch.setattr(module, "check_path", lambda path, where: path)


def _any_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (patch, store):
        monkeypatch.setattr(module, "check_twins", nothing)


def _skip(section: Any, line: bytes) -> None:
    section.at += 1


def _anywhere(lines: Sequence[bytes], hunks: Sequence[Hunk], reverse: bool, where: str) -> list[bytes]:
    """Apply hunks as patch does without fuzz: at the nearest place where they match."""
    moved = []
    for one in hunks:
        at = min(hunk.places(lines, one.before), key=lambda line: abs(line - one.old), default=one.old)
        moved.append(one._replace(old=at))
    return hunk.apply_hunks(lines, moved, reverse, where)


def _read(release: Release, label: str) -> bytes:
    return Path(release.stacks, label).read_bytes()


def _links_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.stat

    def stat(path: Any, **more: Any) -> os.stat_result:
        return real(path, **{**more, "follow_symlinks": True})

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(tree, "_FILE", os.O_RDONLY)


def _written_into(opened: Any, handle: int, number: int, step: Any) -> None:
    with open(f"{opened.root}/{step.path}", "wb") as file:
        file.write(step.after.data)
    os.unlink(f"{number}.new", dir_fd=handle)


def _names(data: bytes, name: str) -> tuple[str, ...]:
    return tuple(line.split()[0] for line in data.decode("latin-1").splitlines() if line)


def _pins(data: bytes, name: str) -> dict[str, str]:
    return {line[66:]: line[:64] for line in data.decode("latin-1").splitlines()}


def _mode(mode: bytes) -> Take:
    return lambda monkeypatch: monkeypatch.setitem(patch._MODES, mode, 0o755)


SECTION = patch._Section
# What is taken out, and the case that then goes red.
PROTECTIONS: dict[str, tuple[Take, str]] = {
    "paths-stay-in-the-tree": (_any_path, "path-parent"),
    "paths-are-plain": (_any_path, "names-single-quote"),
    "git-is-left-alone": (without(paths, "_is_git_directory"), "path-git"),
    "git-is-left-alone-by-any-name": (without(paths, "_is_git_directory"), "path-git-stream"),
    "our-journal-is-left-alone": (without(paths, "JOURNAL", put="x"), "path-our-journal"),
    "paths-have-an-end": (without(paths, "LONGEST", "DEEPEST", put=10**6), "names-of-1000-folders"),
    "no-twins": (_any_twin, "path-case-twins"),
    "no-file-below-a-file": (_any_twin, "path-file-and-folder"),
    "bytes-are-accounted-for": (without(SECTION, "expect", put=_skip), "mail-stripped-blank"),
    "bytes-of-markers-too": (without(SECTION, "expect", put=_skip), "newline-marker-localized"),
    "names-agree": (without(SECTION, "expect", put=_skip), "names-of-another-file"),
    "hunks-are-in-order": (without(SECTION, "_check_positions"), "hunk-out-of-order"),
    "hunks-have-context": (without(SECTION, "_check_positions"), "hunk-zero-context-inserted"),
    "new-files-begin-at-their-start": (without(SECTION, "_check_whole"), "kinds-new-at-line-five"),
    "last-lines-are-last": (without(SECTION, "_check_last_lines"), "newline-marker-in-mid-hunk"),
    "messages-hold-no-diff": (without(patch, "_check_head"), "like-sample-in-message"),
    "only-text": (without(SECTION, "_check_supported"), "kinds-binary-payload"),
    "no-links": (_mode(b"120000"), "kinds-link-new"),
    "no-odd-modes": (_mode(b"104755"), "kinds-mode-setuid"),
    "hunks-stand-at-their-line": (without(plan, "apply_hunks", put=_anywhere), "hunk-stated-one-off"),
    "images-have-their-blob-id": (without(plan, "git_blob", put=lambda data: Anything()), "blob-payload-edited"),
    "results-are-pinned": (without(plan, "_check_pins"), "pins-result-wrong"),
    "pins-and-blob-ids-agree": (without(drift, "_contradicts"), "blob-old-id-wrong"),
    "no-link-on-the-path": (without(tree, "_DIRECTORY", put=os.O_RDONLY), "path-through-a-link"),
    "no-link-at-its-end": (_links_followed, "path-is-a-link-outside"),
    "no-link-in-a-stack": (without(Release, "read", put=_read), "data-patch-is-a-link"),
    "files-are-replaced": (without(transaction, "_replace", put=_written_into), "path-hard-link"),
    "quilt-is-asked": (without(commands, "_check_quilt"), "state-quilt"),
    "series-have-a-grammar": (without(store, "parse_series", put=_names), "series-option"),
    "series-end-in-lf": (without(series, "_patch_name", put=lambda line, where: "0001-a.patch"), "series-crlf"),
    "pins-have-a-grammar": (without(store, "parse_pins", put=_pins), "pins-twice"),
}


@pytest.mark.parametrize("take, name", PROTECTIONS.values(), ids=PROTECTIONS)
def test_a_case_goes_red_without_the_protection(
    take: Take, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(CASES / name)
    expected = case.text("error.txt")
    if take is not PROTECTIONS["results-are-pinned"][0]:
        monkeypatch.setattr(plan, "_check_pins", nothing)  # who writes a hostile patch writes its pins, too
    (tmp_path / "with").mkdir()
    came = run_engine(case, tmp_path / "with")
    assert says(expected, came.error) and not came.wrong
    take(monkeypatch)
    (tmp_path / "without").mkdir()
    came = run_engine(case, tmp_path / "without")
    assert not says(expected, came.error) or came.wrong


def test_a_forged_journal_removes_a_file_without_the_check_of_its_place(
    specimen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (specimen / JOURNAL).mkdir()
    (specimen / JOURNAL / "record").write_bytes(format_record(FORGED["removes-a-file"](specimen)))
    monkeypatch.setattr(journal, "_check_place", nothing)
    with pytest.raises(Exception, match="is missing"):
        commands.apply(str(specimen), Store(str(STACKS)), commands.How())
    assert not (specimen / INIT).exists()


def test_a_tree_speaks_to_the_terminal_without_the_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Outcome("status", Exit.DONE, "state", "\x1b[31m")
    assert "\x1b" not in outcome.to_text(said)
    monkeypatch.setattr(outcome, "_SHOWN", {})
    assert "\x1b" in outcome.to_text(said)
