"""The report as JSON values.

`to_json` gives a dict whose keys always stand in this order:

    schema           1; a change that breaks a reader raises it
    tree             the path that was judged
    identity         what the tree is, by digest
    asked            the level asked for: "static", "import", "simulated" or "hardware"
    proven           the verdict, true or false
    started          ISO 8601 time
    versions         name to version, sorted by name
    levels           one for each level, lowest first: level, standing ("proven", "refuted",
                     "not run", "not asked for"), seconds (null when none were taken)
    findings         by level, then as the checks gave them: level, check, side ("tree" or
                     "unpatched"), claim, status ("proven", "refuted", "not run"), optional,
                     how, detail, data (free form, keys sorted)
    not_established  sentences: what was not run, or not asked for

JSON has no NaN and no infinity, and UTF-8 no lone surrogates (which stand for undecodable bytes in
file names): such numbers become the strings "nan", "inf", "-inf", such letters become backslash
escapes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

from verify.finding import Finding, Level
from verify.report.record import LEVELS, Report, at, not_established, standing, verdict

SCHEMA = 1


def to_json(report: Report) -> dict[str, Any]:
    """The record as JSON values; the module's docstring is the schema."""
    return {
        "schema": SCHEMA,
        "tree": _plain(report.tree),
        "identity": _plain(report.identity),
        "asked": report.asked.value,
        "proven": verdict(report),
        "started": _plain(report.started),
        "versions": _plain(report.versions),
        "levels": [_level(report, level) for level in LEVELS],
        "findings": [_finding(finding) for level in LEVELS for finding in at(report, level)],
        "not_established": _plain(not_established(report)),
    }


def _level(report: Report, level: Level) -> dict[str, Any]:
    seconds = report.seconds.get(level.value)
    return {
        "level": level.value,
        "standing": standing(report, level).value,
        "seconds": _plain(seconds),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    keys = ("level", "check", "side", "claim", "status", "optional", "how", "detail", "data")
    return {key: _plain(getattr(finding, key)) for key in keys}


def _plain(value: Any) -> Any:
    """The value as strict JSON: keys sorted, no NaN, no lone surrogates, no other types."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    text = value.value if isinstance(value, Enum) else value
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")
