"""The stand-in card does what a card does, so far as the carried tests and checkpoint can see."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.runtime_helpers import patched, unpatched
from verify import child

SCRIPT = Path(__file__).parent / "card_cases.py"


def names() -> list[str]:
    """Return the cases, read from the script's source: importing it takes torch."""
    found = []
    for node in ast.parse(SCRIPT.read_text()).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Tuple):
            assert isinstance(node.target, ast.Name)
            cases = [case.id for case in node.value.elts if isinstance(case, ast.Name)]
            found += [f"{case}-{node.target.id.lower()}" for case in cases]
    return found


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run all cases in one child, each in a copy of it."""
    folder = tmp_path_factory.mktemp("card")
    roots = [str(patched(folder / "patched")), str(unpatched(folder / "unpatched"))]
    result = child.run(sys.executable, SCRIPT, roots, seconds=400)
    assert not result.problem, result.reason()
    cases: dict[str, str] = result.value["cases"]
    return cases


@pytest.mark.torch
@pytest.mark.parametrize("case", names())
def test_the_card(case: str, outcomes: dict[str, str]) -> None:
    assert outcomes[case] == ""
