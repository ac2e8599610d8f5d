"""The plugin tests/no_skips.py: a skip fails where CI=true, and all else stays as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
PASSES = "def test_passes():\n    pass\n"
XFAIL = 'import pytest\n@pytest.mark.xfail(reason="so")\ndef test_fails():\n    assert False\n'
SKIPS = {
    "mark": 'import pytest\n@pytest.mark.skip(reason="no card")\ndef test_skipped():\n    pass\n',
    "call": 'import pytest\ndef test_skipped():\n    pytest.skip("no card")\n',
    "fixture": 'import pytest\n@pytest.fixture\ndef card():\n    pytest.skip("no card")\ndef test_it(card): pass\n',
    "module": 'import pytest\npytest.skip("no card", allow_module_level=True)\n',
    "import": 'import pytest\npytest.importorskip("no_card", reason="no card")\n',
}


def _run(folder: Path, text: str, ci: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_one.py").write_text(text, encoding="utf-8")
    argv = [sys.executable, "-m", "pytest", "-p", "tests.no_skips", "-p", "no:cacheprovider", "-q", "-rs", str(folder)]
    argv += ["--rootdir", str(folder), "--confcutdir", str(folder), "-c", os.devnull]
    env = {**os.environ, "CI": ci, "PYTHONPATH": str(PROJECT)}
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("text", SKIPS.values(), ids=SKIPS)
def test_a_skip_fails_in_ci(tmp_path: Path, text: str) -> None:
    done = _run(tmp_path, PASSES + text, "true")
    assert done.returncode != 0, done.stdout
    assert "no card" in done.stdout
    assert "skipped, which CI=true does not allow" in done.stdout


@pytest.mark.parametrize("text", [PASSES, XFAIL], ids=["passes", "expected-failure"])
def test_what_ran_passes_in_ci(tmp_path: Path, text: str) -> None:
    done = _run(tmp_path, text, "true")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("text", SKIPS.values(), ids=SKIPS)
def test_a_skip_is_a_skip_elsewhere(tmp_path: Path, text: str) -> None:
    done = _run(tmp_path, PASSES + text, "")
    assert "1 skipped" in done.stdout
