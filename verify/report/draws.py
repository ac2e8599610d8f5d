"""The numbers that the two passes of a checkpoint drew, as the findings carry them.

They come from the findings "draws-reentrant" and "draws-non-reentrant", one for each side, with
data={"forward": [...], "recompute": [...], "card": "musa:0", "torch": "2.13.0"}.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import NamedTuple

from verify.finding import Finding, Level
from verify.report.record import Report, at

MODES = {"draws-reentrant": "use_reentrant=True", "draws-non-reentrant": "use_reentrant=False"}
MOST = 16

Pair = tuple[float | None, float | None]


def same(pair: Pair) -> bool:
    """Whether both passes drew this number; repr tells -0.0 from 0.0 and lets nan equal itself."""
    return repr(pair[0]) == repr(pair[1])


class Draws(NamedTuple):
    """The pairs (forward, recompute); None stands where one pass drew fewer numbers."""

    pairs: tuple[Pair, ...]

    @property
    def equal(self) -> int:
        """How many draws the recompute repeats exactly; None counts as different."""
        return sum(map(same, self.pairs))


def draws_findings(report: Report, level: Level) -> dict[tuple[str, str], Finding]:
    """The findings of a level that carry draws, by check and side."""
    return {(found.check, found.side): found for found in at(report, level) if found.check in MODES}


def parse(finding: Finding) -> Draws | None:
    """The numbers of a finding, or None when either pass has no list of numbers."""
    forward, recompute = (_floats(finding.data.get(key)) for key in ("forward", "recompute"))
    if forward is None or recompute is None:
        return None
    return Draws(tuple(zip_longest(forward, recompute)))


def _floats(values: object) -> list[float] | None:
    if not isinstance(values, list | tuple) or not all(map(_is_number, values)):
        return None
    return [float(value) for value in values[:MOST]]


def _is_number(value: object) -> bool:
    """Whether it is a number that a float holds; a bool is none."""
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**53)
