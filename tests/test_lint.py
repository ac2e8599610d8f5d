"""The lint of the stacks: clean on ours, and red for a planted fault of every rule."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, STACKS, RunCli
from stacks import fingerprint, make_stack

from stack.digest import git_blob, sha256
from stack.store import Release, Store
from verify.lint import RULES, lint_folder, lint_stacks

A = "2.7.1+specimen"
FORWARD = f"patches/{A}/0001-forward-the-initialization-flag.patch"
TYPO = f"patches/{A}/0002-name-the-queued-calls-in-the-global-statement.patch"
TESTS = f"patches/{A}/0003-test-the-flag-and-checkpoint-replay.patch"
SERIES, BASE, RESULT = f"series/{A}", f"patches/{A}/base.sha256", f"patches/{A}/result.sha256"
SUMS = "SHA256SUMS"
ABOUT, PRINTS = f"patches/{A}/release.json", f"patches/{A}/fingerprint.json"
Fault = Callable[[Path], object]


def sub(file: str, pattern: str, new: str) -> Fault:
    """Replace the first match of the pattern in a file; there must be one."""

    def plant(stacks: Path) -> None:
        text, count = re.subn(pattern, new, (stacks / file).read_bytes().decode(), count=1, flags=re.M)
        assert count == 1, f"{pattern} is not in {file}"
        (stacks / file).write_bytes(text.encode())

    return plant


def about(**changes: object) -> Fault:
    def plant(stacks: Path) -> None:
        data = {**json.loads((stacks / ABOUT).read_text()), **changes}
        (stacks / ABOUT).write_text(json.dumps(data))

    return plant


def prints(change: Callable[[dict[str, dict[str, object]]], object]) -> Fault:
    def plant(stacks: Path) -> None:
        data = json.loads((stacks / PRINTS).read_text())
        change(data)
        (stacks / PRINTS).write_text(json.dumps(data))

    return plant


def rename(old: str, new: str) -> Fault:
    """Rename a patch of the first release, in its series as well."""

    def plant(stacks: Path) -> None:
        (stacks / f"patches/{A}/{old}").rename(stacks / f"patches/{A}/{new}")
        (stacks / SERIES).write_text((stacks / SERIES).read_text().replace(old, new))

    return plant


def both(*faults: Fault) -> Fault:
    return lambda stacks: [fault(stacks) for fault in faults]


def _new_file(stacks: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the lines of the new file and all digests of it, so that only what it says is wrong."""
    path = stacks / TESTS
    data = path.read_bytes()
    found = re.search(rb"@@ -0,0 \+1,\d+ @@\n((?:\+.*\n)+)", data)
    assert found
    old = b"".join(line[1:] + b"\n" for line in found.group(1).split(b"\n")[:-1])
    new = change(old)
    lines = new.split(b"\n")[:-1]
    hunk = b"@@ -0,0 +1,%d @@\n" % len(lines) + b"".join(b"+%s\n" % line for line in lines)
    data = data.replace(found.group(0), hunk).replace(git_blob(old).encode(), git_blob(new).encode())
    path.write_bytes(data)
    pins = (stacks / RESULT).read_text()
    assert sha256(old) in pins
    (stacks / RESULT).write_text(pins.replace(sha256(old), sha256(new)))


def new_file(old: bytes, new: bytes) -> Fault:
    return lambda stacks: _new_file(stacks, lambda data: data.replace(old, new, 1))


def _narrow(stacks: Path) -> None:
    """Take the first line of context away from the typo's hunk, with right counts."""
    data = (stacks / TYPO).read_bytes()
    match = re.search(rb"@@ -(\d+),(\d+) \+(\d+),(\d+) @@(.*)\n( .*\n)", data)
    assert match
    a, b, c, d = (int(match.group(number)) for number in range(1, 5))
    line = b"@@ -%d,%d +%d,%d @@%s\n" % (a + 1, b - 1, c + 1, d - 1, match.group(5))
    (stacks / TYPO).write_bytes(data.replace(match.group(0), line))


def _shift(stacks: Path) -> None:
    data = (stacks / TYPO).read_bytes()
    match = re.search(rb"@@ -(\d+),(\d+) \+(\d+),(\d+) @@", data)
    assert match
    a, b, c, d = (int(match.group(number)) for number in range(1, 5))
    (stacks / TYPO).write_bytes(data.replace(match.group(0), b"@@ -%d,%d +%d,%d @@" % (a + 1, b, c + 1, d)))


FAULTS: dict[str, tuple[str, Fault]] = {
    "series-without-patches": ("release-data", lambda stacks: (stacks / "series/9.9").write_text("0001-a.patch\n")),
    "patches-without-series": ("release-data", lambda stacks: (stacks / "patches/9.9").mkdir()),
    "series-of-odd-name": ("release-data", lambda stacks: (stacks / "series/main").write_text("0001-a.patch\n")),
    "about-missing": ("release-data", lambda stacks: (stacks / ABOUT).unlink()),
    "about-broken": ("release-data", lambda stacks: (stacks / ABOUT).write_text("{")),
    "about-more-keys": ("release-data", about(note="x")),
    "about-short-commit": ("release-data", about(upstream_commit="0bc05bf")),
    "fingerprint-broken": ("release-data", lambda stacks: (stacks / PRINTS).write_text('{"x": 1}')),
    "series-crlf": ("series-grammar", sub(SERIES, r"\n", "\r\n")),
    "series-option": ("series-grammar", sub(SERIES, r"\.patch$", ".patch -p0")),
    "series-twice": ("series-grammar", sub(SERIES, r"\A(.*\n)", r"\1\1")),
    "patch-absent": ("series-present", lambda stacks: (stacks / TYPO).unlink()),
    "patch-not-listed": ("series-listed", sub(SERIES, r"0003-.*\n", "")),
    "stray-file": ("series-listed", lambda stacks: (stacks / f"patches/{A}/0001.patch.orig").write_text("x")),
    "other-names": ("series-same", sub(SERIES, r"0003-.*\n", "")),
    "gap-in-numbers": ("patch-number", rename(Path(TESTS).name, Path(TESTS).name.replace("0003", "0004"))),
    "unordered": ("patch-number", sub(SERIES, r"\A(.*\n)(.*\n)", r"\2\1")),
    "short-ids": ("patch-form", sub(TYPO, r"index (\w{7})\w*\.\.(\w{7})\w*", r"index \1..\2")),
    "count-off-by-one": ("patch-form", sub(TYPO, r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@", r"@@ -\1,\2 +\3,9 @@")),
    "crlf-patch": ("patch-form", lambda stacks: _crlf(stacks / TYPO)),
    "path-outside": ("patch-form", sub(TYPO, r"diff --git .*", "diff --git a/../x b/../x")),
    "signature": ("patch-form", lambda stacks: _append(stacks / TYPO, b"-- \n2.39.5\n\n")),
    "narrow-context": ("patch-context", _narrow),
    "trailing-blank": ("patch-whitespace", sub(FORWARD, r"^\+(musart = .*)$", r"+\1 ")),
    "tab": ("patch-whitespace", sub(FORWARD, r"^\+(musart) = ", "+\\1\t= ")),
    "carriage-return": ("patch-whitespace", sub(FORWARD, r"^\+(musart = .*)$", "+\\1\r")),
    "no-final-newline": ("patch-whitespace", lambda stacks: _new_file_without_newline(stacks)),
    "shifted-by-one": ("patch-position", _shift),
    "other-context": ("patch-position", sub(FORWARD, r"^ (from|import) ", r" \1  ")),
    "line-digest-edited": ("patch-position", prints(lambda data: _edit_digests(data))),
    "no-python": ("patch-python", new_file(b"import pytest\n", b"import pytest as\n")),
    "deep-python": ("patch-python", new_file(b"SEED = 20\n", b"SEED = " + b"-" * 100_000 + b"1\n")),
    "pins-unsorted": ("pins-grammar", sub(BASE, r"\A(.*\n)(.*\n)", r"\2\1")),
    "pins-outside": ("pins-grammar", sub(BASE, r"  \S+$", "  ../x")),
    "pins-missing": ("pins-grammar", lambda stacks: (stacks / RESULT).unlink()),
    "pin-too-few": ("pins-chain", sub(BASE, r"\A.*\n", "")),
    "pin-of-a-new-file": ("pins-chain", sub(RESULT, r"^.*test_checkpoint.py\n", "")),
    "base-pin-edited": ("pins-base", sub(BASE, r"\A\w{4}", "0000")),
    "base-blob-edited": ("pins-base", sub(FORWARD, r"^index \w{4}", "index 0000")),
    "fingerprint-edited": ("pins-base", prints(lambda data: data["torch_musa/__init__.py"].update(sha256="0" * 64))),
    "fingerprint-of-more": ("pins-base", prints(lambda data: data.update(x=fingerprint(b"x\n", None)))),
    "result-pin-edited": ("pins-new", sub(RESULT, r"^\w{4}(.*test_checkpoint)", r"0000\1")),
    "new-blob-edited": ("pins-new", sub(TESTS, r"^index (0{40})\.\.\w{4}", r"index \1..0000")),
    "new-line-edited": ("pins-new", sub(TESTS, r"^\+SEED = 20$", "+SEED = 21")),
    "last-blob-edited": ("pins-result", sub(FORWARD, r"^index (\w+)\.\.\w{4}", r"index \1..0000")),
    "result-forgotten": ("pins-result", prints(lambda data: data["torch_musa/__init__.py"].pop("result"))),
    "folder-not-kept": ("directories", about(directories=[])),
    "sums-missing": ("sums", lambda stacks: (stacks / SUMS).unlink()),
    "sums-no-file": ("sums", lambda stacks: _become_directory(stacks / SUMS)),
    "sums-broken": ("sums", sub(SUMS, r"  ", " ")),
    "sums-of-more": ("sums", sub(SUMS, r"\Z", f"{'0' * 64}  series/9.9\n")),
    "sums-of-less": ("sums", sub(SUMS, r".*release.json\n", "")),
    "series-comment-edited": ("sums", sub(SERIES, r"\A", "# another word\n")),
    "message-edited": ("sums", sub(FORWARD, r"^What changes", "what changes")),
    "result-of-a-changed-file-edited": ("pins-result", sub(RESULT, r"^\w{4}(.*__init__)", r"0000\1")),
}  # fmt: skip


def _become_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _crlf(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


def _append(path: Path, data: bytes) -> None:
    path.write_bytes(path.read_bytes() + data)


def _edit_digests(data: dict[str, dict[str, object]]) -> None:
    lines = data["torch_musa/core/_lazy_init.py"]["lines"]
    assert isinstance(lines, list)
    lines[99] = "0" * 16


def _new_file_without_newline(stacks: Path) -> None:
    data = (stacks / TESTS).read_bytes()
    assert data.count(b"\ndiff --git ") == 2
    first, second, third = data.split(b"\ndiff --git ")
    marked = second + b"\n\\ No newline at end of file"
    (stacks / TESTS).write_bytes(b"\ndiff --git ".join((first, marked, third)))


@pytest.fixture
def stacks(tmp_path: Path) -> Path:
    shutil.copytree(STACKS, tmp_path / "stacks")
    return tmp_path / "stacks"


@pytest.mark.parametrize("rule, fault", FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_found_by_its_rule(stacks: Path, rule: str, fault: Fault) -> None:
    fault(stacks)
    found = lint_folder(Store(str(stacks)))
    assert rule in {problem.rule for problem in found}, found
    assert all(problem.where and problem.message for problem in found)


def test_a_patch_that_does_not_start_where_the_last_one_ended_is_found(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "x").write_text("a\nb\n")
    changes = [lambda tree, text=text: (tree / "x").write_text(text) for text in ("A\nb\n", "A\nB\n")]
    make_stack(tmp_path / "s", "1", tmp_path / "base", changes)
    store = Store(str(tmp_path / "s"))
    assert lint_stacks(store) == []
    patch = tmp_path / "s/patches/1/0002-change-2.patch"
    patch.write_bytes(re.sub(rb"index \w{4}", b"index 0000", patch.read_bytes()))
    assert {problem.rule for problem in lint_stacks(Store(store.stacks))} == {"pins-chain"}


def test_every_rule_has_a_fault_that_it_catches() -> None:
    from test_header import FAULTS as HEADER_FAULTS

    caught = {rule for rule, _ in FAULTS.values()} | {rule for rule, *_ in HEADER_FAULTS.values()}
    assert caught == set(RULES)
    assert len(FAULTS) + len(HEADER_FAULTS) >= 30


@pytest.mark.parametrize("folder", [STACKS, ROOT], ids=["specimen", "project"])
def test_our_stacks_are_clean(folder: Path) -> None:
    assert lint_folder(Store(str(folder))) == []


def test_each_file_of_a_stack_is_read_once(stacks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was judged is what is used: an edit between two readings would go unseen."""
    loaded: list[str] = []
    real = Release._load

    def load(release: Release, label: str) -> bytes:
        loaded.append(label)
        return real(release, label)

    monkeypatch.setattr(Release, "_load", load)
    assert lint_folder(Store(str(stacks))) == []
    assert len(loaded) == len(set(loaded)) == (stacks / SUMS).read_text().count("\n")


def test_all_findings_come_in_one_run(stacks: Path, run_cli: RunCli) -> None:
    both(about(note="x"), sub(TYPO, r"^From: .*$", "From: nobody"), sub(SERIES, r"0003-.*\n", ""))(stacks)
    ran = run_cli("lint", "--json", "--stacks", stacks)
    rules = {finding["rule"] for finding in json.loads(ran.stdout)["data"]["findings"]}
    assert ran.code == 3 and {"release-data", "header-from", "series-listed", "series-same"} <= rules
    text = run_cli("lint", "--stacks", stacks)
    assert text.code == 3 and all(f"[{rule}]" in text.stdout for rule in rules)
    assert re.search(r": \d+ findings$", text.stdout.strip())
