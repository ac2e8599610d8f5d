"""The command line: exit codes, messages, one JSON schema, and no traceback for what a user can do."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import INIT, ROOT, STACKS, RunCli, copy_specimen, snapshot

from stack import cli
from stack.errors import MEANING

KEYS = ["schema", "command", "exit", "outcome", "message", "tip", "tree", "state", "claims", "data"]
STATE_KEYS = ["standing", "release", "applied", "total", "note", "interrupted", "files"]
FILE_KEYS = ["path", "kind", "steps", "line", "note"]
VERBS = tuple(cli.VERBS)

JSON: dict[str, tuple[tuple[str, ...], int, str]] = {
    "apply": (("apply", "TREE"), 0, "applied"),
    "apply-dry-run": (("apply", "--dry-run", "TREE"), 0, "would apply"),
    "unapply": (("unapply", "TREE"), 0, "already unapplied"),
    "status": (("status", "TREE"), 0, "state"),
    "releases": (("releases", "--stacks", str(STACKS)), 0, "releases"),
    "lint": (("lint", "--stacks", str(STACKS)), 0, "lint"),
    "refused": (("apply", "--release", "2.9.1.post1+specimen", "TREE"), 1, "error"),
    "no-tree": (("apply", "/nonexistent"), 2, "error"),
    "no-verb": ((), 2, "error"),
    "unknown-verb": (("frobnicate", "TREE"), 2, "error"),
    "unknown-option": (("status", "--frob", "TREE"), 2, "error"),
    "no-stacks": (("status", "--stacks", "/nonexistent", "TREE"), 2, "error"),
}


@pytest.mark.parametrize("args, code, outcome", JSON.values(), ids=JSON)
def test_json_has_one_schema_for_every_command(
    specimen: Path, run_cli: RunCli, args: tuple[str, ...], code: int, outcome: str
) -> None:
    words = [str(specimen) if arg == "TREE" else arg for arg in args]
    ran = run_cli(*words[:1], "--json", *words[1:])
    assert (ran.code, ran.stderr) == (code, "")
    value = json.loads(ran.stdout)
    assert list(value) == KEYS
    assert (value["schema"], value["exit"], value["outcome"]) == (1, code, outcome)
    assert value["command"] == (words[0] if words else "--json")
    assert outcome != "error" or value["message"]
    if value["state"]:
        assert list(value["state"]) == STATE_KEYS
        assert all(list(file) == FILE_KEYS for file in value["state"]["files"])
    assert all(list(claim) == ["claim", "how"] for claim in value["claims"])


USAGE: dict[str, tuple[tuple[str, ...], str]] = {
    "no-verb": ((), "no verb: expected one of"),
    "unknown-verb": (("aply", "x"), "aply: expected one of"),
    "no-tree": (("apply", "--stacks", str(STACKS)), "expected one TREE, got 0"),
    "two-trees": (("apply", "a", "b"), "expected one TREE, got 2"),
    "a-tree-too-many": (("releases", "x"), "expected no argument, got 1"),
    "unknown-option": (("apply", "--fuzz", "x"), "option --fuzz not recognized"),
    "option-of-another-verb": (("status", "--dry-run", "x"), "option --dry-run not recognized"),
    "option-without-value": (("apply", "x", "--release"), "option --release requires argument"),
    "empty-release": (("apply", "--release", "", "x"), "--release has an empty value"),
    "empty-stacks": (("status", "--stacks=", "x"), "--stacks has an empty value"),
    "flag-with-value": (("apply", "--json=yes", "x"), "option --json must not have an argument"),
    "unknown-level": (("apply", "--tests", "all", "x"), "--tests all: expected one of"),
    "tree-is-absent": (("status", "/nonexistent"), "/nonexistent: is not a directory"),
    "tree-is-empty": (("status", ""), "is not a directory"),
    "tree-is-a-file": (("status", __file__), "is not a directory that can be opened"),
    "tree-name-too-long": (("status", "x" * 5000), "is not a directory that can be opened"),
    "stacks-absent": (("status", "--stacks", "/nonexistent", "/"), "/nonexistent: no stacks here"),
    "stacks-is-a-file": (("lint", "--stacks", __file__), "no stacks here"),
}


@pytest.mark.parametrize("args, message", USAGE.values(), ids=USAGE)
def test_a_mistake_on_the_command_line_is_usage(run_cli: RunCli, args: tuple[str, ...], message: str) -> None:
    ran = run_cli(*args)
    assert (ran.code, ran.stdout) == (2, "")
    assert message in ran.stderr and "Traceback" not in ran.stderr


def _write(path: str, data: bytes) -> Callable[[Path], object]:
    return lambda stacks: (stacks / path).write_bytes(data)


def _empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _to_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


FOLDER = "patches/2.7.1+specimen"
PATCH = f"{FOLDER}/0002-name-the-queued-calls-in-the-global-statement.patch"
ABOUT = b'{"upstream_commit":"","torch":"","fixed_in":"","directories":[%s]}'
BROKEN: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "empty-series-folder": (lambda stacks: _empty(stacks / "series"), 2, "/series"),
    "no-patches": (lambda stacks: shutil.rmtree(stacks / "patches"), 3, "base.sha256: is missing"),
    "no-pins": (lambda stacks: (stacks / FOLDER / "base.sha256").unlink(), 3, "base.sha256: is missing"),
    "no-patch": (lambda stacks: (stacks / PATCH).unlink(), 3, f"{PATCH}: is missing"),
    "patch-is-a-directory": (lambda stacks: _to_directory(stacks / PATCH), 3, "is a directory, not a regular file"),
    "patch-is-cut": (lambda stacks: os.truncate(stacks / PATCH, 900), 3, f"{PATCH}:"),
    "patch-is-empty": (_write(PATCH, b""), 3, f"{PATCH}:1: "),
    "empty-series": (_write("series/2.7.1+specimen", b""), 3, "series/2.7.1+specimen: names no patch"),
    "odd-series": (_write("series/2.7.1+specimen", b"../x.patch\n"), 3, "series/2.7.1+specimen:1: "),
    "odd-pins": (_write(f"{FOLDER}/result.sha256", b"x\n"), 3, f"{FOLDER}/result.sha256:1: "),
    "broken-json": (_write(f"{FOLDER}/release.json", b"{"), 3, f"{FOLDER}/release.json: "),
    "deep-json": (_write(f"{FOLDER}/release.json", b"[" * 200_000), 3, f"{FOLDER}/release.json: "),
    "json-list": (_write(f"{FOLDER}/release.json", b"[]"), 3, f"{FOLDER}/release.json: is not a JSON object"),
    "json-bytes": (_write(f"{FOLDER}/release.json", b"\xff"), 3, f"{FOLDER}/release.json: "),
    "json-keys": (_write(f"{FOLDER}/release.json", b"{}"), 3, f"{FOLDER}/release.json: needs"),
    "json-folders": (_write(f"{FOLDER}/release.json", ABOUT % b"5"), 3, "directories"),
    "json-outside": (_write(f"{FOLDER}/release.json", ABOUT % b'"../x"'), 3, "leaves"),
}  # fmt: skip


@pytest.mark.parametrize("damage, code, message", BROKEN.values(), ids=BROKEN)
def test_broken_stacks_are_named_by_file(
    specimen: Path, tmp_path: Path, run_cli: RunCli, damage: Callable[[Path], object], code: int, message: str
) -> None:
    shutil.copytree(STACKS, tmp_path / "stacks")
    assert run_cli("apply", specimen).code == 0  # so that unapply needs every file
    damage(tmp_path / "stacks")
    before = snapshot(specimen)
    ran = run_cli("unapply", "--stacks", tmp_path / "stacks", specimen)
    assert (ran.code, ran.stdout) == (code, ""), ran
    assert message in ran.stderr and "Traceback" not in ran.stderr
    assert snapshot(specimen) == before
    for verb in ("lint", "releases"):
        assert "Traceback" not in run_cli(verb, "--stacks", tmp_path / "stacks").stderr


def test_a_name_that_no_terminal_can_print_is_escaped(tmp_path: Path, run_cli: RunCli) -> None:
    ran = run_cli("status", tmp_path / "\udcff\u663e\x1b[2J", env={"PYTHONIOENCODING": "ascii"})
    assert ran.code == 2 and ran.stderr.startswith(f"{tmp_path}/\\udcff\\u663e\\x1b[2J: "), ran


def test_an_unreadable_tree_is_an_environment(specimen: Path, run_cli: RunCli) -> None:
    if os.geteuid():
        (specimen / INIT).chmod(0)
    else:  # root reads all: a loop in the path is what it cannot
        shutil.rmtree(specimen / "torch_musa")
        (specimen / "torch_musa").symlink_to("torch_musa")
    assert run_cli("apply", specimen).code in (1, 4)


@pytest.mark.parametrize("verb", VERBS)
def test_help_lists_the_options_that_the_verb_takes(run_cli: RunCli, verb: str) -> None:
    for option in ("--help", "-h"):
        ran = run_cli(verb, option)
        assert (ran.code, ran.stderr) == (0, "")
    for name in (*cli.VERBS[verb].options, *cli.EVERYWHERE):
        assert f"  --{name.rstrip('=')} " in ran.stdout
    assert ran.stdout.split("\n")[0].endswith(" ".join(["[OPTIONS]", *cli.VERBS[verb].arguments]))


def test_the_overview_tells_every_verb_and_the_exit_codes(run_cli: RunCli) -> None:
    import apply

    assert list(apply.RUN) == list(cli.VERBS)
    ran = run_cli("--help")
    assert ran.code == 0
    table = re.findall(r"^  (\d+) +(.*)$", ran.stdout, re.M)
    assert table == [(str(code.value), meaning) for code, meaning in MEANING.items()]
    assert all(f"\n  {verb} " in ran.stdout for verb in cli.VERBS)


@pytest.mark.parametrize("args", [("status",), ("status", "--json"), ("apply", "--help")])
def test_a_reader_that_goes_away_is_no_error(specimen: Path, args: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    argv = [sys.executable, str(ROOT / "apply.py"), *args, "--stacks", str(STACKS), str(specimen)]
    done = subprocess.run(argv, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_stream_that_was_closed_from_the_start_is_no_error(specimen: Path) -> None:
    command = 'exec "$@" >&- 2>&-'
    argv = ["sh", "-c", command, "sh", sys.executable, str(ROOT / "apply.py"), "apply"]
    argv += ["--tests=import", "--stacks", str(STACKS), str(specimen)]
    assert subprocess.run(argv).returncode == 0
    argv[-1] = "/nonexistent"
    assert subprocess.run(argv).returncode == 2


def test_a_result_that_cannot_be_printed_is_not_success(specimen: Path) -> None:
    with open("/dev/full", "wb") as full:
        argv = [sys.executable, str(ROOT / "apply.py"), "status", "--stacks", str(STACKS), str(specimen)]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 4 and b"Traceback" not in done.stderr


def test_unidiff_missing_is_an_environment_with_a_tip(specimen: Path, tmp_path: Path, run_cli: RunCli) -> None:
    (tmp_path / "block").mkdir()
    (tmp_path / "block" / "unidiff.py").write_text("raise ModuleNotFoundError('No module named unidiff')\n")
    before = snapshot(specimen)
    ran = run_cli("apply", specimen, env={"PYTHONPATH": str(tmp_path / "block")})
    assert ran.code == 4 and "unidiff cannot be imported" in ran.stderr
    assert "TIP: " in ran.stderr and "python3-unidiff" in ran.stderr and "Traceback" not in ran.stderr
    assert snapshot(specimen) == before
    assert run_cli("lint", "--stacks", STACKS, env={"PYTHONPATH": str(tmp_path / "block")}).code != 0


def test_an_old_python_is_told_so(specimen: Path) -> None:
    script = (
        f"import sys, runpy; sys.version_info = (3, 9, 2); sys.argv = ['apply.py'];"
        f"runpy.run_path({str(ROOT / 'apply.py')!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True)
    assert done.returncode == 1 and b"needs Python 3.10 or later" in done.stderr and b"Traceback" not in done.stderr


def test_a_link_to_the_command_finds_its_stacks(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "patch-musa").symlink_to(ROOT / "apply.py")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "bin" / "patch-musa"), "releases"], capture_output=True, cwd="/"
    )
    assert done.returncode == 0 and done.stdout.startswith(b"2.7.1: ")


def test_a_tree_named_by_a_relative_path_or_a_link_will_do(tmp_path: Path, run_cli: RunCli) -> None:
    copy_specimen(tmp_path / "tree")
    (tmp_path / "link").symlink_to("tree")
    assert run_cli("apply", "link").code == 0  # run_cli stands in tmp_path
    assert run_cli("unapply", "./tree/").code == 0


def test_a_bug_of_ours_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import apply

    def broken(*args: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("stack.commands.releases", broken)
    assert apply.main(["releases"]) == 70
    assert "a bug of ours: ZeroDivisionError('oops')" in capsys.readouterr().err
