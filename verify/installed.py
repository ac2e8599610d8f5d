"""--installed, as far as it judges: the proof before apply writes, and for status the module that is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from stack.commands import Proof, Prove
from stack.defect import read_init
from stack.errors import Usage
from stack.installed import command
from stack.installed.child import kept
from stack.installed.find import Installed
from stack.message import headline
from stack.outcome import Claim, Outcome
from stack.plan import Plan
from stack.state import INIT, Standing, State
from stack.store import Store
from stack.tree import Entry, Kind, Tree
from verify import child
from verify.command import prover
from verify.finding import Level

_SCRIPT = Path(__file__).parent / "installed_child.py"
_SECONDS = 300.0
_GAP = "  not proven here: the simulated and the hardware level need a source tree (apply.py verify TREE)"


def apply(store: Store, options: Mapping[str, str]) -> Outcome:
    """Prove, then apply to the installed package."""
    level = options.get("tests", "auto")
    return command.apply(store, options, lambda installed: _prove(installed, level))


def _prove(installed: Installed, level: str) -> Prove | None:
    if level == "none":
        return None
    if installed.editable:
        return prover(level)
    if level not in ("auto", Level.IMPORT.value, Level.STATIC.value):
        raise Usage(
            f"--tests {level}: an installed package has no tests for that level",
            "Say --tests import, or prove it on a source tree: apply.py verify TREE.",
        )
    python = installed.python if installed.version_info >= (3, 10) else sys.executable
    judge = prover(Level.IMPORT.value if level == "auto" else level, python, "torch_musa")

    def prove(tree: Tree, entries: Mapping[str, Entry], state: State, plan: Plan) -> Proof:
        proof = judge(tree, entries, state, plan)
        return proof._replace(message=f"{proof.message}\n{_GAP}")

    return prove


class Live(str, Enum):
    """What the module that an interpreter imports is like."""

    FIXED = "fixed"
    BROKEN = "broken"
    SHADOWED = "shadowed by a workaround"
    UNKNOWN = "not known"


class Look(NamedTuple):
    """One look at the live module: what it is, why, and what the child saw (empty when it cannot be imported)."""

    live: Live
    why: str
    seen: Mapping[str, Any]


def status(store: Store, options: Mapping[str, str]) -> Outcome:
    """Name the state by the bytes, then by the module that is imported, and say where the two disagree."""
    installed = command.locate(options)
    outcome = command.status(installed, store)
    look = look_at(installed)
    bytes_fixed = _bytes_fixed(installed)
    how = f"by import of the real module, {_versions(look)}" if look.seen else "by an import that was tried"
    known = outcome.state is not None and outcome.state.pinned
    what = headline(outcome.state).removesuffix(" (by source reading)") if outcome.state else ""
    if outcome.state is None or outcome.state.standing is not Standing.FIXED:
        what = f"{'fixed' if bytes_fixed else 'not fixed'}: {what}"
    claims = [
        Claim(f"the files: {what}", "by digest" if known else "by source reading"),
        Claim(f"the module that is imported: {look.live.value}: {look.why}", how),
    ]
    disagreement = _disagreement(installed, look, bytes_fixed)
    if disagreement:
        claims.append(Claim(f"the files and the module disagree: {disagreement}", "by comparing the two"))
    live = {"live": look.live.value, "why": look.why, "seen": dict(look.seen), "disagreement": disagreement}
    tip = outcome.tip or _tip(installed, look, bytes_fixed, outcome)
    message = f"{outcome.message}\n{command.RESTART}" if bytes_fixed else outcome.message
    return outcome._replace(message=message, tip=tip, claims=tuple(claims), data={**outcome.data, "live": live})


def look_at(installed: Installed) -> Look:
    """Import torch and torch_musa in a child of the environment's interpreter; no device is initialized."""
    result = child.run(installed.python, _SCRIPT, [], seconds=_SECONDS, also=kept())
    if result.problem:
        return Look(Live.UNKNOWN, f"the child that imports it {result.reason()}", {})
    if "unprepared" in result.value:
        return Look(Live.UNKNOWN, f"it cannot be imported here: {result.value['unprepared']}", {})
    return judge(result.value)


def judge(seen: Mapping[str, Any]) -> Look:
    """Say what a module is that looks like this (installed_child.look)."""
    if not seen["stored"]:
        if seen["follows"]:
            return Look(Live.FIXED, "the flag is no entry of the module, and follows core._lazy_init", seen)
        return Look(Live.BROKEN, "the flag does not follow core._lazy_init", seen)
    value = seen["value"]
    if seen["forwarder"]:
        return Look(Live.SHADOWED, f"the flag is forwarded, but somebody has set it to {value} by hand", seen)
    if value == "True" and seen["initialized"] == "False":
        return Look(Live.SHADOWED, "somebody has set the flag to True by hand, before any initialization", seen)
    return Look(Live.BROKEN, f"the flag is an entry of the module, a snapshot: {value}", seen)


def _versions(look: Look) -> str:
    return ", ".join(f"{name} {text}" for name, text in look.seen["versions"].items())


def _bytes_fixed(installed: Installed) -> bool:
    with Tree(installed.site) as tree:
        entry = tree.read(INIT)
    return entry.kind is Kind.FILE and read_init(entry.data).fixed


def _disagreement(installed: Installed, look: Look, bytes_fixed: bool) -> str:
    if look.live is Live.UNKNOWN:
        return ""
    where = os.path.dirname(look.seen["file"])
    if os.path.realpath(where) != os.path.realpath(installed.package):
        return f"what is imported is {where}"
    if bytes_fixed == (look.live is Live.FIXED) or look.live is Live.SHADOWED and look.seen["forwarder"] == bytes_fixed:
        return ""
    return "what runs is not what these files say: stale bytecode, or code that changes the module when it is imported"


def _tip(installed: Installed, look: Look, bytes_fixed: bool, outcome: Outcome) -> str:
    words = f"apply.py apply --installed --python {quote(installed.python)}"
    if look.live is Live.SHADOWED:
        return (
            "Remove what sets torch.musa._initialized (a sitecustomize, a .pth file, a plugin): it hides the real flag."
        )
    state = outcome.state
    if not bytes_fixed and state is not None and not state.pinned:
        whole = f"It is a source tree: apply.py status {quote(installed.site)}"
        return whole if installed.editable else command.tip_for(state)
    if not bytes_fixed:
        return f"To put the fix in: {words}"
    if look.live is Live.BROKEN or outcome.data["amiss"]:
        return f"To put what goes with the files right: {words}"
    return ""
