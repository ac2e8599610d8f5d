"""Every kind of input that broke somebody's tool, as a folder of tests/cases: our engine, patch and git apply."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cases_runner import CASES, TOOLS, WORDS, Came, Case, all_cases, run_engine, run_tool, says

ALL = all_cases()
LEAST = 120

# Kinds of input that broke somebody's tool, and the cases of each; NAME* is every case whose name begins so.
KINDS = {
    "line ends: the whole patch, the tree, the payload or the header alone, both": "ends-crlf-*",
    "line ends: one line, a bare CR, into and out of CR LF": "ends-one-crlf-line ends-bare-cr ends-*-to-*",
    "final newline: only the old file lacks it, only the new one, both": "newline-only-* newline-neither",
    "final newline: the marker repeated, missing, surplus, translated, in the wrong place": "newline-marker-*",
    "bytes that some readers take for line ends": "bytes-u2028 bytes-u0085 bytes-vt-ff bytes-latin-1-nel",
    "encodings: Latin-1, no UTF-8, UTF-16": "bytes-latin-1 bytes-invalid-* bytes-utf-*",
    "byte order marks and NUL": "bytes-bom-* bytes-nul-*",
    "names with a blank, or not ASCII": "names-space names-non-ascii",
    "names that git quotes": "names-quote* names-tab names-newline names-backslash",
    "names that differ between the lines of a header": "names-differ names-of-another-file names-with-time",
    "nesting: twenty folders, a thousand": "names-deep names-of-1000-folders",
    "renames and copies": "kinds-rename* kinds-copy",
    "a mode alone, with text, set-user-id, odd, contradictory": "kinds-mode-*",
    "symbolic links in patches": "kinds-link-* kinds-file-to-link",
    "submodules": "kinds-submodule",
    "binary files beside text, with and without payload": "kinds-binary-*",
    "new files: executable, empty, in new folders, over a file that is there": "kinds-new-*",
    "files that go: empty ones, with lines left": "kinds-removed*",
    "a file becomes a folder, and back": "kinds-file-to-folder kinds-folder-to-file",
    "a series that names an absent patch, or one twice": "series-names-an-absent-patch series-duplicate",
    "a series with blanks, options, comments, CR": "series-trailing-blank series-option series-crlf* series-*comment*",
    "a series with absolute names or ../, or with nothing": "series-absolute series-parent series-empty",
    "mails: two in a mailbox, a signature, mangled by a mail program": "mail-*",
    "surplus lines in a hunk": "hunk-surplus-* hunk-stray-line-between",
    "counts that are off by one, or overflow": "hunk-*-count-* hunk-counts-of-30-digits hunk-line-of-30-digits",
    "one hunk twice for one place": "hunk-twice",
    "displaced hunks, and equal places": "hunk-displaced* hunk-two-equal-sites hunk-stated-one-off",
    "hunks without context": "hunk-zero-context-*",
    "hunks that overlap or stand in the wrong order": "hunk-overlap hunk-out-of-order",
    "patches of patches": "like-patch-*",
    "payload that looks like a diff": "like-removed-* like-added-* like-hunk-header-in-payload",
    "a message that looks like a diff, plain or indented": "like-sample-* like-separator-*",
    "garbage before, between and behind": "like-garbage* like-prose-between-files like-no-*",
    "ed scripts, context, normal and combined diffs": "like-ed-* like-context-diff like-normal-diff like-combined-diff",
    "a file that is not there": "path-absent*",
    "file 1 applies and file 2 does not, patch 1 and patch 2, hunk 1 and hunk 2": "whole-second-*",
    "symbolic links on the path, at its end, dangling": "path-through-* path-is-a-link* path-is-a-dangling-link",
    "a link made by one entry and written through by the next": "path-link-*",
    "targets in .git, by any of its names": "path-git* path-new-git-hook",
    "FIFOs and sockets": "path-is-a-fifo path-is-a-socket",
    "absolute targets, and such that leave the tree": "path-absolute path-parent*",
    "hard links": "path-hard-link",
    "names that differ in case alone": "path-case-twins*",
    "states: in already, in part, mixed, undone, quilt's": "state-*",
    "blob ids: short, wrong, broken chain": "blob-*",
    "pins: malformed, of other bytes, of other files": "pins-*",
    "links, FIFOs, devices and folders where the stack's files should be": "data-*",
}  # fmt: skip


def named(words: str) -> set[str]:
    """Return the names of the cases that the words of a kind stand for, each of which must have one."""
    found: set[str] = set()
    for word in words.split():
        names = {path.name for path in CASES.glob(word)}
        assert names, f"no case {word}"
        found |= names
    return found


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is durable when has tests of its own."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def verdict(case: Case, came: Came) -> str:
    """Return in what the engine did not do as the case says, or nothing."""
    expected = case.text("error.txt")
    if not says(expected, came.error):
        return f"expected {expected or 'after/'!r}, came to {came.error or 'a tree'!r}"
    return came.wrong


@pytest.mark.parametrize("case", ALL, ids=[case.name for case in ALL])
def test_the_engine_does_what_the_case_says(case: Case, tmp_path: Path) -> None:
    assert verdict(case, run_engine(case, tmp_path)) == ""


TOLD = [(case, tool) for case in ALL for tool in case.statements]


@pytest.mark.distro
@pytest.mark.parametrize("case, tool", TOLD, ids=[f"{case.name}-{tool.split()[0]}" for case, tool in TOLD])
def test_patch_and_git_apply_do_what_the_case_says(case: Case, tool: str, tmp_path: Path) -> None:
    assert run_tool(case, TOOLS[tool], tmp_path) == case.statements[tool]


def test_every_kind_has_a_case_and_every_case_a_kind() -> None:
    known = set().union(*(named(words) for words in KINDS.values()))
    families = {
        "ends",
        "newline",
        "bytes",
        "names",
        "kinds",
        "series",
        "mail",
        "hunk",
        "like",
        "path",
        "whole",
        "state",
    }
    assert len(known) >= LEAST
    assert {case.name.partition("-")[0] for case in ALL} == families | {"blob", "pins", "data"}


PARTS = {"before", "released", "after", "patches", "series", "error.txt", "tools.txt", "why.txt", "special.txt"}


def test_every_case_can_be_read_and_says_what_it_expects() -> None:
    assert len(ALL) >= LEAST
    for case in ALL:
        parts = {path.name for path in case.folder.iterdir()}
        assert {"before", "patches", "series", "why.txt"} <= parts <= PARTS, case.name
        assert len(parts & {"after", "error.txt"}) == 1, case.name
        assert set(case.statements) <= set(TOOLS) and set(case.statements.values()) <= set(WORDS), case.name
        assert len(case.text("why.txt")) <= 400, case.name
        size = sum(path.stat().st_size for path in case.folder.rglob("*") if path.is_file() and not path.is_symlink())
        assert size < 20_000, f"{case.name}: {size} bytes are more than a person reads"


def test_no_two_cases_are_the_same() -> None:
    seen: dict[str, str] = {}
    for case in ALL:
        digest = hashlib.sha256()
        for path in sorted(case.folder.rglob("*")):
            name = str(path.relative_to(case.folder))
            if name not in ("why.txt", "tools.txt"):
                data = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
                digest.update(f"{name} {len(data)} {path.lstat().st_mode & 0o100}\n".encode() + data)
        twin = seen.setdefault(digest.hexdigest(), case.name)
        assert twin == case.name


def _append(path: str) -> Callable[[Path], object]:
    return lambda folder: (folder / path).write_bytes((folder / path).read_bytes() + b"x")


def _replace(old: str, new: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "error.txt").write_text((folder / "error.txt").read_text().replace(old, new))


def _link(path: Path) -> None:
    path.unlink()
    path.symlink_to("x")


# A wrong expectation: of which case, and what is done to it.
WRONG: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a-byte": ("ends-crlf-payload", _append("after/song")),
    "a-mode": ("kinds-mode-only", lambda folder: (folder / "after/song").chmod(0o644)),
    "a-kind": ("ends-bare-cr", lambda folder: _link(folder / "after/song")),
    "a-file-more": ("kinds-removed", lambda folder: (folder / "after/more").write_bytes(b"")),
    "a-file-less": ("kinds-new-empty", lambda folder: (folder / "after/song").unlink()),
    "a-folder-more": ("kinds-removed", lambda folder: (folder / "after/a").mkdir()),
    "an-error-of-another-line": ("hunk-surplus-added", _replace("patch:20", "patch:21")),
    "an-error-of-another-code": ("hunk-displaced", _replace("code 1", "code 3")),
    "an-error-that-is-none": ("ends-bare-cr", lambda folder: (folder / "error.txt").write_text("exit code 3\nx\n")),
    "no-error": ("like-garbage", lambda folder: (folder / "error.txt").unlink()),
    "another-before": ("ends-bare-cr", _append("before/song")),
}  # fmt: skip


@pytest.mark.parametrize("name, change", WRONG.values(), ids=WRONG)
def test_the_runner_catches_a_wrong_expectation(name: str, change: Callable[[Path], object], tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(CASES / name, folder, symlinks=True)
    (tmp_path / "right").mkdir()
    assert verdict(Case(folder), run_engine(Case(folder), tmp_path / "right")) == ""
    change(folder)
    (tmp_path / "wrong").mkdir()
    assert verdict(Case(folder), run_engine(Case(folder), tmp_path / "wrong")) != ""


@pytest.mark.parametrize(
    "name, tool, word",
    [("ends-bare-cr", ["true"], "differs"), ("ends-bare-cr", ["false"], "refuses"),
     ("ends-bare-cr", ["sh", "-c", "echo x > song; exit 1"], "half"),
     ("ends-bare-cr", ["sh", "-c", "echo x > ../outside/file"], "escapes"),
     ("ends-bare-cr", ["sh", "-c", "cat > /dev/null; printf 'one\\rTWO\\nthree\\n' > song"], "same")],
    ids=["does-nothing", "refuses", "half", "escapes", "same"],
)  # fmt: skip
def test_the_runner_tells_what_a_tool_did(name: str, tool: list[str], word: str, tmp_path: Path) -> None:
    assert run_tool(Case(CASES / name), tool, tmp_path) == word
