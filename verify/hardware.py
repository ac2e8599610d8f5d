"""The hardware level: the carried tests on a real card, red without the fix and green with it. No rebuild.

The fix is in Python files. So an overlay takes the place of the installed package: links to everything in it, and
patched or unpatched copies of the touched files. That is honest only if the installed files are those that the tree has
before or after the stack, to the byte; else the level does not run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from stack.state import INIT, LAZY_INIT
from verify import child
from verify.carried import Run, judge_file
from verify.finding import Finding, Level, Status
from verify.scratch import overlay
from verify.subject import Images, Subject

_SCRIPT = Path(__file__).parent / "hardware_child.py"
_LOOK_SECONDS = 300.0
_TEST_SECONDS = 900.0
PACKAGE = "torch_musa/"


class Device(NamedTuple):
    """What is installed: the folder that holds torch_musa, the cards' names, and the versions."""

    site: Path
    cards: tuple[str, ...]
    versions: Mapping[str, str]


def look(subject: Subject, python: str, progress: Callable[[str], None]) -> Device | str:
    """Return the device on which the subject can be proven, or the reason why there is none."""
    if find_spec("torch_musa") is None:
        return f"torch_musa is not installed for {python}"
    if find_spec("pytest") is None:
        return f"pytest is not installed for {python}"
    progress("hardware level: looking for cards")
    result = child.run(python, _SCRIPT, ["{}"], seconds=_LOOK_SECONDS)
    if result.problem:
        return f"the child that imports the installed torch_musa {result.reason()}"
    seen: Mapping[str, Any] = result.value
    if "unprepared" in seen:
        return f"the installed torch_musa cannot be imported: {seen['unprepared']}"
    if not seen["cards"]:
        return "the installed torch_musa sees no MUSA device"
    site = Path(seen["package"]).parent
    return _foreign(site, subject) or Device(site, tuple(seen["cards"]), seen["versions"])


def _sides(subject: Subject) -> tuple[Images, Images]:
    """Return the package's touched files with and without the fix; equal where only the flag can be set."""
    if subject.files:
        post = {path: data for path, data in subject.files.items() if path.startswith(PACKAGE)}
    else:
        post = {path: (subject.root / path).read_bytes() for path in (INIT, LAZY_INIT)}
    return post, {path: (subject.unpatched or post).get(path) for path in post}


def _foreign(site: Path, subject: Subject) -> str:
    """Return why the overlay would be a lie: an installed file that is neither the tree's before nor after."""
    post, pre = _sides(subject)
    for path in post:
        file = site / path
        installed = file.read_bytes() if file.is_file() else None
        if installed not in (post[path], pre[path]):
            return f"{file} is neither the patched nor the unpatched file of this tree: another torch_musa is installed"
    return ""


def check_hardware(
    subject: Subject, scratch: Path, device: Device, python: str, progress: Callable[[str], None]
) -> list[Finding]:
    """Run the carried tests on the device, on both sides, each file in a process of its own."""
    post, pre = _sides(subject)
    sides = {
        "unpatched": (overlay(scratch / "installed-unpatched", device.site, {**pre, **subject.tests}), pre == post),
        "tree": (overlay(scratch / "installed-tree", device.site, {**post, **subject.tests}), False),
    }
    outcomes: dict[str, Mapping[str, Any]] = {}
    for test in sorted(subject.tests):
        for side, (root, stale) in sides.items():
            progress(f"hardware level: {side}: {test}")
            order = json.dumps({"root": str(root.absolute()), "test": test, "stale": stale})
            result = child.run(python, _SCRIPT, [order], seconds=_TEST_SECONDS)
            outcomes[f"tests {side} {test}"] = {
                "value": result.value,
                "problem": result.problem,
                "output": result.output,
            }
    cards = ", ".join(device.cards)
    how = f"on hardware: {cards}, " + ", ".join(f"{name} {text}" for name, text in sorted(device.versions.items()))
    run = Run(Level.HARDWARE, outcomes, how)
    data = {"versions": {**device.versions, "cards": cards}}
    claim = f"{len(device.cards)} cards are there, and the installed files are those of this tree"
    first = run.finding("cards", claim, Status.PROVEN, str(device.site), data=data)
    files = [judge_file(run, test, subject.must_be_red) for test in sorted(subject.tests)]
    return [first, *(finding for file in files for finding in file)]
