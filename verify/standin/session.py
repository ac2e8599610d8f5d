"""The simulated level's child: imports torch and pytest once, then forks a copy for each piece.

Run as a script by verify.simulated: `session.py FD JSON` with the sides' roots and the test files.
Sends the versions and the outcome of every piece.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Run as a script: only its own folder is on the path.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import pytest
import torch

from verify.standin import card, device, draws, extension, finder, forked, gate, pytest_run, report

_AT_ONCE = 2
# What the trees, checkpoint and the tests import on the way: loaded once rather than in every copy.
_PRELOADED = (
    "torch._dynamo",
    "torch.distributed.fsdp.sharded_grad_scaler",
    "torch.testing",
    "torch.utils.checkpoint",
)


def preload() -> None:
    """Import what the copies will need.

    A torch that was built without a part is no reason to stop here.
    """
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    device.factories()
    pytest_run.isolate()
    # Loads pytest's own plugins, which it does not do on import.
    pytest.main(["--version", "-c", os.devnull])


def prepare(root: Path, stale: bool) -> None:
    """Import the real torch_musa of a tree on real torch, with stand-in cards behind it.

    stale: put the flag into the module's own dict, as the re-export does: the defect, recreated
    exactly.
    """
    # Threads do not survive a fork, and two cores are shared by two copies.
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="torch version should be")
    answers = {
        finder.EXTENSION: extension.Extension(card.generator).answers(),
        "torch_musa.core.amp.common": {"get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16]},
    }
    finder.Finder(root, answers).install()
    import torch_musa

    device.install()
    if stale:
        vars(torch_musa)["_initialized"] = False


def _on(root: str, stale: bool, function: Callable[[], Any]) -> Callable[[], Any]:
    """Return a piece of work on one side."""

    def work() -> Any:
        try:
            prepare(Path(root), stale)
        except Exception as error:  # whatever the tree raises is the reason
            return {"unprepared": f"{type(error).__name__}: {error}"}
        return function()

    return work


def works(tree: str, unpatched: str | None, tests: list[str]) -> list[forked.Work]:
    """Return the pieces: the gate, the card's self-check, each side's draws and each test file."""
    sides = {"tree": (tree, False), "unpatched": (unpatched or tree, unpatched is None)}
    pieces = [
        forked.Work("gate", gate.probe),
        forked.Work("card", _on(tree, False, draws.self_check)),
    ]
    for side, (root, stale) in sides.items():
        pieces.append(forked.Work(f"draws {side}", _on(root, stale, draws.record)))
        for test in tests:
            run = functools.partial(pytest_run.run, Path(root), test)
            pieces.append(forked.Work(f"tests {side} {test}", _on(root, stale, run)))
    return pieces


def main(descriptor: int, tree: str, unpatched: str | None, tests: list[str], seconds: float) -> None:
    """Do all the work that was ordered and send what came of it."""
    preload()
    report.send(descriptor, "progress", f"torch {torch.__version__} is loaded")
    outcomes = {}
    for outcome in forked.run(works(tree, unpatched, tests), at_once=_AT_ONCE, seconds=seconds):
        outcomes[outcome.name] = outcome._asdict()
        report.send(descriptor, "progress", f"{outcome.name}: {outcome.problem or 'done'}")
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    report.send(descriptor, "value", {**versions, "outcomes": outcomes})


if __name__ == "__main__":
    main(int(sys.argv[1]), **json.loads(sys.argv[2]))
    # Taking torch down in good order takes a second, and nothing is left to be done.
    os._exit(0)
