"""The hardware level, whole, against an installed stand-in distribution of torch_musa."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests import standin_install
from tests.runtime_helpers import INIT, SPECIMEN, edit, patched, snapshot, unpatched

ROOT = Path(__file__).parents[1]
STACKS = SPECIMEN.parent / "stacks"

pytestmark = pytest.mark.torch


def verify(python: Path, tree: Path, *options: str) -> tuple[int, dict[str, object]]:
    """Run apply.py verify --json with an environment's interpreter."""
    command = [str(python), str(ROOT / "apply.py"), "verify", "--json", f"--stacks={STACKS}", *options, str(tree)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def hardware(outcome: dict[str, object]) -> list[dict[str, str]]:
    """Return the findings of the hardware level."""
    findings = outcome["data"]["report"]["findings"]  # type: ignore[index]
    return [finding for finding in findings if finding["level"] == "hardware"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed") / "venv"
    standin_install.make_environment(folder)
    return folder


@pytest.fixture
def python(environment: Path) -> Path:
    for old in (environment / "lib").glob("python3.*/site-packages/torch_musa"):
        subprocess.run(["rm", "-r", str(old)], check=True)
    return environment / "bin" / "python"


def test_auto_takes_the_hardware_green_with_the_fix_and_red_without_it(
    python: Path, environment: Path, tmp_path: Path
) -> None:
    tree = patched(tmp_path / "tree")
    where = standin_install.install(environment, unpatched(tmp_path / "base"))
    before = snapshot(where), snapshot(tree)
    code, outcome = verify(python, tree)
    found = hardware(outcome)
    assert [f for f in found if f["status"] != "proven"] == []
    assert code == 0
    red = [f["check"] for f in found if f["side"] == "unpatched" and "fails without the fix" in f["claim"]]
    assert len(red) == 5
    assert all(f["how"].startswith("on hardware: stand-in card 0, stand-in card 1, ") for f in found)
    assert (snapshot(where), snapshot(tree)) == before


def test_red_when_the_patch_is_withheld(python: Path, environment: Path, tmp_path: Path) -> None:
    tree = unpatched(tmp_path / "tree")
    standin_install.install(environment, tree)
    code, outcome = verify(python, tree, "--level", "hardware")
    refuted = [f for f in hardware(outcome) if f["status"] == "refuted"]
    assert code == 5
    assert {f["side"] for f in refuted} == {"tree"}
    assert len(refuted) == 5
    assert all("AssertionError" in f["detail"] for f in refuted)


@pytest.mark.parametrize("case", ["nothing-installed", "no-card", "another-release", "broken-import"])
def test_without_a_device_the_level_ends_with_4_and_auto_says_why(
    python: Path, environment: Path, tmp_path: Path, case: str
) -> None:
    tree = patched(tmp_path / "tree")
    expected = {
        "nothing-installed": "torch_musa is not installed",
        "no-card": "sees no MUSA device",
        "another-release": "neither the patched nor the unpatched file",
        "broken-import": "no driver",
    }[case]
    if case == "another-release":
        other = unpatched(tmp_path / "other")
        edit(other, INIT, [("import torch\n", "import torch  # other\n")])
        standin_install.install(environment, other)
    elif case == "no-card":
        standin_install.install(environment, tree, standin_install.NO_DEVICE)
    elif case == "broken-import":
        standin_install.install(environment, tree, "raise ImportError('no driver')\n")
    code, outcome = verify(python, tree, "--level", "hardware")
    assert code == 4
    assert expected in str(outcome["message"]), outcome["message"]
    if case == "no-card":
        code, outcome = verify(python, tree)
        (only,) = hardware(outcome)
        assert (code, only["status"]) == (0, "not run")
        assert expected in only["detail"]
