"""The simulated level: green with the fix, red without it, and no way to be fooled into green."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.runtime_helpers import INIT, TESTS, edit, patched, snapshot, unpatched
from verify import simulated
from verify.carried import Run
from verify.finding import Finding, Level, Status
from verify.simulated import Sides, check_simulated

ROOT = Path(simulated.__file__).parents[1]
RED = (
    f"{TESTS[0]}::TestLazyInit::test_lazy_init_flag",
    f"{TESTS[1]}::test_checkpoint_preserves_device_rng",
    f"{TESTS[1]}::test_checkpoint_dropout_gradient_matches_eager",
)


class Both(NamedTuple):
    """The specimen with and without the fix, each with the carried tests."""

    patched: Path
    unpatched: Path


@pytest.fixture
def both(tmp_path: Path) -> Both:
    tree, without = patched(tmp_path / "pätched"), unpatched(tmp_path / "unpatched")
    for test in TESTS:
        (without / test).write_bytes((tree / test).read_bytes())
    return Both(tree, without)


def judged(
    sides: Sides, tests: Sequence[str] = TESTS, red: Sequence[str] = RED, seconds: float = 60.0
) -> list[Finding]:
    findings = check_simulated(sides, tests, sys.executable, lambda text: None, red, seconds)
    assert {finding.level for finding in findings} == {Level.SIMULATED}
    assert len({(finding.check, finding.side) for finding in findings}) == len(findings)
    return findings


def by_check(findings: Sequence[Finding]) -> Mapping[tuple[str, str], Finding]:
    return {(finding.check, finding.side): finding for finding in findings}


def plant(both: Both, files: Mapping[str, str]) -> tuple[str, ...]:
    """Write more test files into both sides and return their paths."""
    for name, text in files.items():
        for side in both:
            (side / "tests" / name).write_text(text)
    return tuple(f"tests/{name}" for name in files)


@pytest.mark.torch
def test_proves_the_fix_and_leaves_both_sides_alone(both: Both) -> None:
    before = [snapshot(side) for side in both]
    seen: list[str] = []
    findings = check_simulated(Sides(*both), TESTS, sys.executable, seen.append, RED)
    refuted = [finding for finding in findings if finding.status is not Status.PROVEN]
    assert refuted == []
    assert [snapshot(side) for side in both] == before
    assert any("test_checkpoint" in text for text in seen)
    import torch

    assert f"torch {torch.__version__}" in findings[0].how
    for mode in ("reentrant", "non-reentrant"):
        draws = by_check(findings)[f"draws-{mode}", "tree"].data
        lost = by_check(findings)[f"draws-{mode}", "unpatched"].data
        assert len(draws["forward"]) == 16
        assert draws["forward"] == draws["recompute"] == lost["forward"]
        assert lost["forward"] != lost["recompute"]


@pytest.mark.torch
def test_recreates_the_defect_where_the_unpatched_side_is_not_to_be_had(both: Both) -> None:
    findings = judged(Sides(both.patched, None))
    assert {finding.status for finding in findings} == {Status.PROVEN}


@pytest.mark.torch
def test_refutes_an_unpatched_tree(both: Both) -> None:
    found = by_check(judged(Sides(both.unpatched, None)))
    refuted = {key for key, finding in found.items() if finding.status is Status.REFUTED}
    assert ("draws-reentrant", "tree") in refuted
    assert (f"carried-test:{RED[0]}", "tree") in refuted
    assert (f"carried-test:{RED[1]}[True]", "tree") in refuted
    assert (f"carried-test:{TESTS[0]}::TestLazyInit::test_manual_seed", "tree") not in refuted
    assert {side for _, side in refuted} == {"tree"}
    detail = found[f"carried-test:{RED[0]}", "tree"].detail
    assert detail.startswith(f"failed at {TESTS[0]}:") and "AssertionError" in detail


PLANTED = {
    "test_vacuous.py": "def test_it(): assert True\n",
    "test_skipped.py": "import pytest\n@pytest.mark.skip(reason='no card')\ndef test_it(): pass\n",
    "test_xfailed.py": "import pytest\n@pytest.mark.xfail\ndef test_it(): assert False\n",
    "test_xpassed.py": "import pytest\n@pytest.mark.xfail\ndef test_it(): pass\n",
    "test_setup.py": "import pytest\n@pytest.fixture\ndef card(): raise OSError('no card')\ndef test_it(card): pass\n",
    "test_teardown.py": "def teardown_module(): raise OSError('late')\ndef test_it(): pass\n",
    "test_wrong_reason.py": "import torch_musa\n"
    "def test_it():\n    if not torch_musa._initialized: raise OSError('other')\n",
    "test_none.py": "def helper(): pass\n",
    "test_syntax.py": "def (:\n",
    "test_import.py": "import no_such_module\ndef test_it(): pass\n",
    "test_module_skip.py": "import pytest\npytest.skip('no card', allow_module_level=True)\n",
    "test_crash.py": "import os\ndef test_it(): os.kill(os.getpid(), 11)\n",
    "test_exit.py": "import os\ndef test_it(): os._exit(0)\n",
    "test_hang.py": "import time, torch_musa\ndef test_it():\n    torch_musa._lazy_init()\n"
    "    assert torch_musa._initialized\n    time.sleep(600)\n",
    "test_unnamed_red.py": "import torch_musa\n"
    "def test_it():\n    torch_musa._lazy_init()\n    assert torch_musa._initialized\n",
    "test_other_name.py": "def test_other(): pass\n",
}
EXPECTED = {
    "test_vacuous.py": ("carried-test", "unpatched", "passes without the fix: the test is vacuous"),
    "test_skipped.py": ("carried-test", "tree", "skipped"),
    "test_xfailed.py": ("carried-test", "tree", "xfailed"),
    "test_xpassed.py": ("carried-test", "tree", "xpassed"),
    "test_setup.py": ("carried-test", "tree", "error"),
    "test_teardown.py": ("carried-test", "tree", "OSError: late"),
    "test_wrong_reason.py": ("carried-test", "unpatched", "OSError: other"),
    "test_none.py": ("carried-file", "tree", "no test was collected"),
    "test_syntax.py": ("carried-file", "tree", "SyntaxError"),
    "test_import.py": ("carried-file", "tree", "No module named 'no_such_module'"),
    "test_module_skip.py": ("carried-file", "tree", "no card"),
    "test_crash.py": ("carried-file", "tree", "killed by signal 11"),
    "test_exit.py": ("carried-file", "tree", "exit code 0"),
    "test_hang.py": ("carried-file", "tree", "stopped after its time limit"),
    "test_unnamed_red.py": (
        "carried-test",
        "unpatched",
        "is not said to show the defect, yet failed",
    ),
    "test_other_name.py": ("carried-file", "tree", "test_it was not collected"),
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], Finding]:
    """Judge all planted files in one run; each holds one way in which a test is no proof."""
    folder = tmp_path_factory.mktemp("planted")
    pair = Both(patched(folder / "patched"), unpatched(folder / "unpatched"))
    tests = plant(pair, PLANTED)
    red = [f"{test}::test_it" for test in tests if "unnamed" not in test]
    return by_check(judged(Sides(*pair), tests, red, seconds=15.0))


@pytest.mark.torch
@pytest.mark.parametrize("name", EXPECTED)
def test_a_test_that_proves_nothing_refutes(name: str, planted: Mapping[tuple[str, str], Finding]) -> None:
    kind, side, detail = EXPECTED[name]
    node = f"tests/{name}::test_it" if kind == "carried-test" else f"tests/{name}"
    finding = planted[f"{kind}:{node}", side]
    assert finding.status is Status.REFUTED
    assert detail in finding.detail


@pytest.mark.torch
def test_settings_and_conftests_around_the_tests_take_no_part(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    for side in both:
        (side / "conftest.py").write_text("raise SystemExit('conftest was loaded')\n")
        (side / "tests" / "conftest.py").write_text("raise SystemExit('conftest was loaded')\n")
        (side / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
        (side / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--no-such-option'\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    monkeypatch.setenv("PYTEST_PLUGINS", "no_such_plugin")
    assert {finding.status for finding in judged(Sides(*both))} == {Status.PROVEN}


@pytest.mark.torch
def test_a_tree_that_cannot_run_here_is_not_run_with_the_reason(both: Both) -> None:
    guard = "raise RuntimeError('torch version must not be less than v9.9')\n"
    edit(both.patched, INIT, [("import torch\n\n", f"import torch\n{guard}\n")])
    can_run, tests = judged(Sides(*both))
    assert (can_run.check, can_run.status) == ("can-run", Status.NOT_RUN)
    assert "torch version must not be less than v9.9" in can_run.detail
    assert (tests.check, tests.status) == ("carried-tests", Status.NOT_RUN)


def test_an_interpreter_without_torch_is_not_run_with_the_reason(both: Both, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    findings = check_simulated(Sides(*both), TESTS, str(python), lambda text: None, RED)
    assert {finding.status for finding in findings} == {Status.NOT_RUN}
    assert "ModuleNotFoundError: No module named" in findings[0].detail


NOT_GATING = {"reentrant": [0, 1], "non-reentrant": [1, 1]}
GATING = {"reentrant": [0, 1], "non-reentrant": [0, 1]}


def outcomes(gate: object, card: object) -> Mapping[str, Mapping[str, object]]:
    values = {"gate": gate, "card": card, "draws tree": {}, "draws unpatched": {}}
    return {name: {"name": name, "value": value, "problem": "", "output": ""} for name, value in values.items()}


@pytest.mark.parametrize(
    ("gate", "card", "check", "status", "detail"),
    [
        (
            NOT_GATING,
            [],
            "torch-asks-for-the-flag",
            Status.NOT_RUN,
            "cannot show the defect and proves nothing here",
        ),
        (
            {"reentrant": [0, 0]},
            [],
            "torch-asks-for-the-flag",
            Status.NOT_RUN,
            "reentrant: 0 with False, 0 with True",
        ),
        (GATING, ["dropout: cpu"], "card-draws-are-its-own", Status.REFUTED, "dropout: cpu"),
    ],
    ids=["always-stashes", "never-stashes", "draws-from-the-cpu"],
)
def test_nothing_is_proven_on_ground_that_does_not_hold(
    gate: object, card: object, check: str, status: Status, detail: str
) -> None:
    run = Run(Level.SIMULATED, outcomes(gate, card), "how")
    *_, last, tests = simulated._judge(run, TESTS, RED)
    assert (last.check, last.status) == (check, status)
    assert detail in last.detail
    assert (tests.status, tests.detail) == (Status.NOT_RUN, f"stopped by {check}")


def processes(mark: str) -> list[str]:
    """Return the command lines of the living processes that hold this text."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if mark in line:
            found.append(line)
    return found


@pytest.mark.torch
def test_sigint_leaves_no_process_and_no_temporary_file(both: Both, tmp_path: Path) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    (both.patched / TESTS[0]).write_text("import time\ndef test_it(): time.sleep(600)\n")
    program = (
        "import sys; from pathlib import Path; from verify.simulated import *\n"
        f"check_simulated(Sides(Path({str(both.patched)!r}), None), {TESTS!r}, sys.executable,"
        " lambda text: print(text, flush=True), [])\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-B", "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    assert parent.stdout is not None
    while b"draws tree" not in parent.stdout.readline():
        assert parent.poll() is None
    parent.send_signal(signal.SIGINT)
    _, errors = parent.communicate(timeout=20)
    assert b"KeyboardInterrupt" in errors
    time.sleep(0.2)
    assert [line for line in processes("session.py") if str(both.patched) in line] == []
    assert list(scratch.iterdir()) == []
