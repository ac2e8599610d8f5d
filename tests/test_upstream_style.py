"""The Python that the patches add is in upstream's style: black 24.2.0, and the rules of pylint that upstream holds to.

The rules are stated here, since the project carries no text of upstream's. `apply.py verify` runs the rules of the
tree at hand, from its own tools/lint/pylintrc.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stock_tools import RELEASES, STACKS, TOUCHED, environment, specimen

APPLY = Path(__file__).resolve().parent.parent / "apply.py"
CHECKPOINT = TOUCHED[0]

# Off, as upstream has them: what needs torch to be there, what its tests do all the time, and the design metrics.
RULES = """\
[MAIN]
load-plugins=pylint.extensions.docparams
[MESSAGES CONTROL]
disable=design,similarities,import-error,no-member,no-name-in-module,protected-access,global-statement
[FORMAT]
max-line-length=100
[BASIC]
docstring-min-length=10
no-docstring-rgx=^_
function-rgx=[a-z_][a-z0-9_]{2,48}$
argument-rgx=[a-z_][a-z0-9_]{2,30}$
variable-rgx=[a-z_][a-z0-9_]{2,30}$
good-names=i,j,_,a,b,c,d,op,x,y,kv,k,v,r,s,p,h,m,n,t,g,f
"""

# What each rule catches: a text added at the end of the file, and the message that must come of it.
LONG = "    assert True\n" * 10
UNPYLINTED: dict[str, tuple[str, str]] = {
    "long-line": (f"VALUE = '{'x' * 100}'\n", "line-too-long"),
    "long-name": (f"\n\ndef test_{'x' * 50}():\n    assert True\n", "invalid-name"),
    "short-variable": ("\n\ndef test_it():\n    q = 1\n    assert q\n", "invalid-name"),
    "no-docstring": (f"\n\ndef test_it():\n{LONG}", "missing-function-docstring"),
    "unused-import": ("import os\n", "unused-import"),
    "unknown-parameter": (
        f'\n\ndef helper(x):\n    """help\n\n    Args:\n        y: no such\n    """\n{LONG}    return x\n',
        "differing-param-doc",
    ),
}
UNFORMATTED: dict[str, str] = {
    "single-quotes": "VALUE = 'x'\n",
    "long-line": "VALUE = dict(\n" + "".join(f"    a{i}=1, " for i in range(20)) + ")\n",
    "one-blank-line": "\ndef helper():\n    return 1\n",
}


def _patched(release: str, tree: Path) -> Path:
    specimen(release, tree)
    argv = [sys.executable, str(APPLY), "apply", "--tests", "none", "--stacks", str(STACKS), str(tree)]
    subprocess.run(argv, env=environment(), check=True, capture_output=True, timeout=120)
    return tree


@pytest.fixture(params=RELEASES)
def patched(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A patched specimen tree."""
    return _patched(request.param, tmp_path / "tree")


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What pylint says of the new tests, and of a copy for each fault: one run, since a run takes seconds."""
    tree = _patched(RELEASES[0], tmp_path_factory.mktemp("pylint") / "tree")
    good = (tree / CHECKPOINT).read_text(encoding="utf-8")
    copies = {"": good} | {fault: good + text for fault, (text, _) in UNPYLINTED.items()}
    names = {fault: f"test_{fault.replace('-', '_')}.py" for fault in copies}
    for fault, text in copies.items():
        (tree / names[fault]).write_text(text, encoding="utf-8")
    rules = tree / "pylintrc"
    rules.write_text(RULES, encoding="utf-8")
    arguments = [f"--rcfile={rules}", "--persistent=n", "--output-format=json", *names.values()]
    _, said = _module(tree, "pylint", *arguments)
    found = json.loads(said)
    return {fault: [one["symbol"] for one in found if one["path"] == name] for fault, name in names.items()}


def _module(tree: Path, *arguments: str) -> tuple[int, str]:
    env = environment(HOME=str(tree.parent), PYTHONDONTWRITEBYTECODE="1")
    argv = [sys.executable, "-m", *arguments]
    done = subprocess.run(argv, cwd=tree, env=env, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


def _black(tree: Path, *paths: str) -> tuple[int, str]:
    # --config: the defaults, whatever pyproject.toml stands above.
    return _module(tree, "black", "--required-version", "24.2.0", "--check", "--config", os.devnull, *paths)


def _append(tree: Path, text: str) -> None:
    with (tree / CHECKPOINT).open("a", encoding="utf-8") as file:
        file.write(text)


def test_black_passes_the_patched_files(patched: Path) -> None:
    code, said = _black(patched, *TOUCHED)
    assert (code, "4 files would be left unchanged" in said) == (0, True), said


@pytest.mark.parametrize("patched", RELEASES[:1], indirect=True)
@pytest.mark.parametrize("text", UNFORMATTED.values(), ids=UNFORMATTED)
def test_black_catches(text: str, patched: Path) -> None:
    _append(patched, text)
    code, said = _black(patched, CHECKPOINT)
    assert (code, "1 file would be reformatted" in said) == (1, True), said


def test_pylint_passes_the_new_tests(messages: dict[str, list[str]]) -> None:
    assert messages[""] == []


@pytest.mark.parametrize(("fault", "symbol"), [(fault, symbol) for fault, (_, symbol) in UNPYLINTED.items()])
def test_pylint_catches(fault: str, symbol: str, messages: dict[str, list[str]]) -> None:
    assert symbol in messages[fault]
