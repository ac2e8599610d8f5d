"""One result of one check: what is claimed, about which side, and how that was established."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple


class Level(str, Enum):
    """The rungs of the ladder, lowest first; each includes those below it."""

    STATIC = "static"
    IMPORT = "import"
    SIMULATED = "simulated"
    HARDWARE = "hardware"


class Status(str, Enum):
    """What a check came to. A check that did not run is a finding too, never a blank."""

    PROVEN = "proven"
    REFUTED = "refuted"
    NOT_RUN = "not run"


class Finding(NamedTuple):
    """One check of one level.

    check: stable identifier in kebab-case, unique within its level (and side).
    claim: the sentence that is proven or refuted, for people.
    how: how it was established, such as "by source reading" or
        "on the stand-in device, torch 2.13.0".
    detail: the evidence: file and line, values seen, or the reason why it did not run.
    side: "tree" for the tree that was handed over, "unpatched" for the side that must show the
        defect.
    data: what a picture needs, such as the numbers drawn; JSON values only.
    optional: true when the verdict can do without it, such as a linter that is not installed. It
        excuses a check that did not run; one that ran and was refuted counts all the same.
    """

    level: Level
    check: str
    claim: str
    status: Status
    how: str
    detail: str = ""
    side: str = "tree"
    data: Mapping[str, Any] = {}
    optional: bool = False
