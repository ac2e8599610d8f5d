"""What a command came to: one record, printed as text or as JSON.

JSON, schema 1, one object for every command, keys always present:
  schema    1
  command   the verb
  exit      the exit code (stack.errors.Exit)
  outcome   one word or two: applied, already applied, would apply, unapplied, already unapplied,
            would restore, fixed upstream, state, releases, lint, proven, not proven, scan, ported,
            refreshed, exported, wheel written, already so, put right, nothing to put right, or error
  message   for people; tip: what to do next, may be empty
  tree      the path as given, null where none is; with --installed the folder that holds torch_musa
  state     null, or {standing, release, applied, total, note, interrupted, files}, where a file is
            {path, kind, steps, line, note}; steps are [first, last] ranges of the release's series
  claims    [{claim, how}]: what the command established, and how
  data      what only this command has: releases, findings, hits, commits, installed, live, wheel; export: form,
            release, patches, and the paths in OUT that were written, removed, kept; else {}
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from stack.errors import Exit
from stack.state import State

# What a terminal obeys, or shows in another order than it stands: a tree, a patch or a name may be made to deceive.
_UNSEEN = {*range(0x20), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)}
_SHOWN = {code: ascii(chr(code))[1:-1] for code in _UNSEEN - {0x0A}}


class Claim(NamedTuple):
    """What was established, and how: by digest, by source reading, by import, on a device."""

    claim: str
    how: str


class Outcome(NamedTuple):
    """The record of one command."""

    command: str
    exit: Exit
    outcome: str
    message: str
    tip: str = ""
    tree: str | None = None
    state: State | None = None
    claims: tuple[Claim, ...] = ()
    data: Mapping[str, Any] = {}
    interrupted: bool = False


def to_text(outcome: Outcome) -> str:
    """Return the outcome for people, control characters as escapes."""
    lines = [outcome.message]
    lines += [f"  {claim.claim} ({claim.how})" for claim in outcome.claims]
    if outcome.tip:
        lines.append(f"TIP: {outcome.tip}")
    return "\n".join(lines).translate(_SHOWN) + "\n"


def to_json(outcome: Outcome) -> str:
    """Return the outcome as one JSON object, schema 1 (module docstring)."""
    import json

    value = {
        "schema": 1,
        "command": outcome.command,
        "exit": int(outcome.exit),
        "outcome": outcome.outcome,
        "message": outcome.message,
        "tip": outcome.tip,
        "tree": outcome.tree,
        "state": _state(outcome.state, outcome.interrupted) if outcome.state else None,
        "claims": [claim._asdict() for claim in outcome.claims],
        "data": dict(outcome.data),
    }
    return json.dumps(value, indent=1, ensure_ascii=True) + "\n"


def _state(state: State, interrupted: bool) -> dict[str, Any]:
    return {
        "standing": state.standing.value,
        "release": state.release.name if state.release else None,
        "applied": state.applied,
        "total": state.total,
        "note": state.note,
        "interrupted": interrupted,
        "files": [
            {
                "path": evidence.path,
                "kind": evidence.kind,
                "steps": [list(span) for span in evidence.spans],
                "line": evidence.line,
                "note": evidence.note,
            }
            for evidence in state.files
        ],
    }
