"""After one fault: the world is wholly as before or wholly as after, or the command that `status` names makes it so."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from stack.errors import Exit
from tests.faults_lib import calls
from tests.faults_lib.calls import KILL, Call, Ran, Server
from tests.faults_lib.picture import Picture, differences, take, with_indexes_as_text
from tests.faults_lib.table import Row, environment

_DOCUMENTED = {int(code) for code in Exit} - {int(Exit.BUG)}
_SAID_SO = ("All files are changed as planned", "put back", "was cut off")
_LOCK = re.compile(r"you are to remove (/\S+\.lock)|and (/\S+\.lock)|Unable to create '(/\S+\.lock)': File exists")
"""Git's own, of a git that was killed: named by git itself, or by us."""
_NAMED = re.compile(r"(apply\.py recover|rm -r) (\S.*)$", re.M)


class Wholes(NamedTuple):
    """The pictures between which there must be nothing; as_text: those with each index of git as text."""

    before: Picture
    after: Picture
    after_as_text: Picture


class Verdict(NamedTuple):
    """outcome: a word or two for the table. problems: what must not be."""

    outcome: str
    problems: tuple[str, ...]


def judge(row: Row, world: Path, call: Call, fault: str, ran: Ran, wholes: Wholes, server: Server) -> Verdict:
    """Judge a world after a run with a fault. May run the command that `status` names, in that world."""
    problems = list(_of_the_run(call, fault, ran))
    unlocked = _remove_named_locks(ran, world)
    state = whole(row, world, wholes)
    outcome = state
    if not state:
        named = _status(row, world, server)
        if not named:
            what = _differences(world, wholes)
            return Verdict("neither", (*problems, f"neither before nor after, and status names no command: {what}"))
        recovered = _recover(named, world, server)
        if _remove_named_locks(recovered, world):
            unlocked, recovered = True, _recover(named, world, server)
        state = whole(row, world, wholes)
        outcome = f"{'rm -r' if named[0] == 'rm' else 'recover'}: {state}"
        if not state or recovered.code:
            said = recovered.said.strip()
            problems.append(f"{shlex.join(named)}: {recovered.code}: {said}: {_differences(world, wholes)}")
    if fault != KILL and ran.code == 0 and not state.startswith("after"):
        problems.append(f"exit code 0, but the state is {state!r}")
    if fault != KILL and ran.code and outcome == "after":
        outcome = "after, with an error"
        if call.name != "write" and not any(said in ran.said for said in _SAID_SO):
            problems.append(f"exit code {ran.code} and the change is in: {_last(ran)}")
    outcome = f"{outcome}, git's lock removed" if unlocked else outcome
    swept = _scratch(world)
    if swept and fault == KILL:
        server.run(["recover", str(world / "outside")], environment(world))
        outcome = f"{outcome}, scratch swept"
    left = _scratch(world)
    if left:
        problems.append(f"left in $TMPDIR: {left[:3]}")
    return Verdict(outcome, tuple(problems))


def _remove_named_locks(ran: Ran, world: Path) -> bool:
    """Remove the locks of git's own that a command names, as its user would; return whether it names any."""
    named = [Path(found[1] or found[2] or found[3]) for found in _LOCK.finditer(ran.said)]
    there = [path for path in dict.fromkeys(named) if path.exists()]
    for path in there:
        assert path.is_relative_to(world / "tree/.git") and path.name != "index.lock", path
        path.unlink()
    return bool(there)


def _scratch(world: Path) -> list[str]:
    return [path for path in take(world) if path.startswith("tmp/")]


def _of_the_run(call: Call, fault: str, ran: Ran) -> list[str]:
    if fault == KILL:
        # A git that is killed is a git that failed; what started it lives on, and says so.
        killed = ran.code == -9 or call.process and ran.code in _DOCUMENTED
        return [] if killed else [f"not killed: exit code {ran.code}: {_last(ran)}"]
    problems = []
    if ran.code not in _DOCUMENTED:
        problems.append(f"exit code {ran.code}: {_last(ran)}")
    if "Traceback" in ran.said:
        problems.append(f"a traceback: {_last(ran)}")
    return problems


def _last(ran: Ran) -> str:
    return " | ".join(ran.said.strip().split("\n")[-5:])[-500:]


def whole(row: Row, world: Path, wholes: Wholes) -> str:
    """Return which whole state the world is in, or nothing. What lies in $TMPDIR is judged apart."""
    now = {path: shot for path, shot in take(world).items() if not path.startswith("tmp/")}
    if not differences(now, wholes.before, _has_time):
        return "before"
    if _is_after(now, wholes.after, wholes.before):
        return "after"
    settled = any(path.endswith(".git/index") for path in now) and ".torch-musa-patches" not in " ".join(now)
    if settled and _is_after(with_indexes_as_text(world, now), wholes.after_as_text, wholes.before):
        return "after"
    return row.also(now)


def _has_time(path: str) -> bool:
    """Whether the time of a path counts: git writes a branch, or HEAD, that it moves back anew."""
    return "/.git/refs/" not in path and not path.endswith("/.git/HEAD")


def _is_after(now: Picture, after: Picture, before: Picture) -> bool:
    def untouched(path: str) -> bool:
        """Whether the command leaves this file alone: then its time must be that of before."""
        return path in before and before[path].data == after[path].data and before[path].mode == after[path].mode

    same = not differences(now, after, lambda path: False)
    return same and all(now[path].time == before[path].time for path in after if untouched(path) and now[path].time)


def _differences(world: Path, wholes: Wholes) -> str:
    now = {path: shot for path, shot in take(world).items() if not path.startswith("tmp/")}
    both = [differences(now, wholes.before, _has_time), differences(now, wholes.after, lambda path: False)]
    return f"from before: {both[0][:6]}; from after: {both[1][:6]}"


def _status(row: Row, world: Path, server: Server) -> list[str]:
    """Return the command that `status` names for what is left, or none."""
    ran = _patiently(lambda: server.run(["status", "--json", str(world / row.place)], environment(world)), "just now")
    try:
        found = _NAMED.search(json.loads(ran.said)["tip"])
    except ValueError:
        return []
    return shlex.split(found[0]) if found else []


def _recover(words: list[str], world: Path, server: Server) -> Ran:
    if words[0] == "rm":
        return calls.run(words, environment(world))
    return _patiently(lambda: server.run(words[1:], environment(world)), "this tool is at work here")


def _patiently(run: Callable[[], Ran], busy: str) -> Ran:
    """Run a command until what a killed run had started has ended."""
    for _ in range(50):
        ran = run()
        if busy not in ran.said:
            break
        time.sleep(0.05)
    return ran
