"""The picture of the draws: what the forward pass drew against what the recompute drew.

The numbers come from the findings "draws-reentrant" and "draws-non-reentrant", one for each side, with
data={"forward": [...], "recompute": [...], "card": "musa:0", "torch": "2.13.0"}. A finding without usable numbers,
or none at all, gets an empty frame that says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import zip_longest
from typing import NamedTuple

from verify.finding import Finding, Level, Status
from verify.report.markup import Markup, element, join
from verify.report.record import Report, at

MODES = {"draws-reentrant": "use_reentrant=True", "draws-non-reentrant": "use_reentrant=False"}
SIDES = {"unpatched": "Unpatched", "tree": "This tree"}
MOST = 16
LEFT, RIGHT, TOP, BOTTOM = 46, 352, 44, 176


class Draws(NamedTuple):
    """The pairs (forward, recompute); None stands where one pass drew fewer numbers than the other."""

    pairs: tuple[tuple[float | None, float | None], ...]

    @property
    def equal(self) -> int:
        """How many draws the recompute repeats exactly; repr tells -0.0 from 0.0 and makes nan equal to itself."""
        return sum(repr(forward) == repr(recompute) for forward, recompute in self.pairs)


class Scale(NamedTuple):
    """The range of the values shown, shared by all charts of a level."""

    low: float
    high: float

    def y(self, value: float) -> float:
        """Pixel height; halves keep the span of the largest floats finite."""
        share = (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return BOTTOM - 8 - share * (BOTTOM - TOP - 16)


def draws_findings(report: Report, level: Level) -> dict[tuple[str, str], Finding]:
    """The findings of a level that carry draws, by check and side."""
    return {(found.check, found.side): found for found in at(report, level) if found.check in MODES}


def parse(finding: Finding) -> Draws | None:
    """The numbers of a finding, or None when it has none."""
    forward, recompute = (_floats(finding.data.get(key)) for key in ("forward", "recompute"))
    pairs = tuple(zip_longest(forward, recompute))
    return Draws(pairs) if pairs else None


def _floats(values: object) -> list[float]:
    if not isinstance(values, list | tuple):
        return []
    return [float(value) for value in values[:MOST] if isinstance(value, float) or _is_small_int(value)]


def _is_small_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def figures(report: Report, level: Level) -> Markup:
    """Four charts: a row for each mode of checkpoint, unpatched beside the tree."""
    found = draws_findings(report, level)
    scale = _scale(parsed for parsed in map(parse, found.values()) if parsed)
    rows = [_row(level, check, found, scale) for check in MODES]
    return element("div", *rows, class_="draws")


def _row(level: Level, check: str, found: dict[tuple[str, str], Finding], scale: Scale) -> Markup:
    charts = [_figure(f"{level.value}-{check}-{side}", side, found.get((check, side)), scale) for side in SIDES]
    return join(element("h4", MODES[check]), element("div", *charts, class_="pair"))


def _scale(shown: Iterable[Draws]) -> Scale:
    values = [v for draws in shown for pair in draws.pairs for v in pair if v is not None and math.isfinite(v)]
    low, high = min(values, default=0.0), max(values, default=1.0)
    return Scale(low, high) if high / 2 > low / 2 else Scale(low - 1 - abs(low), high + 1 + abs(high))


def _figure(name: str, side: str, finding: Finding | None, scale: Scale) -> Markup:
    draws = parse(finding) if finding else None
    words = _words(finding, draws)
    kind = "open" if draws is None else "good" if draws.equal == len(draws.pairs) else "bad"
    return element(
        "figure",
        _svg(name, f"{SIDES[side]}: draws of forward and recompute", words, draws, scale),
        element("figcaption", element("strong", f"{SIDES[side]}: "), words, *_where(finding)),
        class_=kind,
    )


def _words(finding: Finding | None, draws: Draws | None) -> str:
    if finding is None or (draws is None and finding.status is Status.NOT_RUN):
        return "not run." if finding is None or not finding.detail else f"not run: {finding.detail}"
    if draws is None:
        return f"no numbers were recorded; {finding.claim}: {finding.status.value}."
    total = len(draws.pairs)
    if draws.equal == total:
        return f"the recompute repeats all {total} draws shown."
    return f"the recompute differs in {total - draws.equal} of {total} draws."


def _where(finding: Finding | None) -> list[Markup]:
    data = finding.data if finding else {}
    names = {"card": "card ", "torch": "torch "}
    facts = [f"{name}{data[key]}" for key, name in names.items() if data.get(key)]
    return [element("span", ", ".join(facts), class_="muted where")] if facts else []


def _svg(name: str, title: str, words: str, draws: Draws | None, scale: Scale) -> Markup:
    chart = [_empty()] if draws is None else [_axes(len(draws.pairs), scale), *_marks(draws, scale)]
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", words, id=f"{name}-desc"),
        *chart,
        viewBox="0 0 360 204",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )


def _empty() -> Markup:
    frame = element("rect", class_="outline", x=8, y=8, width=344, height=188, rx=6)
    return join(frame, element("text", "no draws to show", x=180, y=106, text_anchor="middle"))


def _axes(count: int, scale: Scale) -> Markup:
    middle = scale.low / 2 + scale.high / 2
    ticks = [_tick(value, scale.y(value)) for value in (scale.low, middle, scale.high)]
    ends = {1, count}
    numbers = [element("text", str(n), x=_x(n - 1, count), y=194, text_anchor="middle") for n in sorted(ends)]
    name = element("text", "draw", x=float((LEFT + RIGHT) / 2), y=194, text_anchor="middle")
    return element("g", _legend(), *ticks, *numbers, name, class_="small")


def _tick(value: float, y: float) -> Markup:
    line = element("line", class_="grid", x1=LEFT, x2=RIGHT, y1=y, y2=y)
    return join(line, element("text", f"{value:.3g}", x=LEFT - 6, y=y + 4, text_anchor="end"))


def _legend() -> Markup:
    return join(
        _forward(LEFT + 6.0, 16.0),
        element("text", "forward", x=LEFT + 18, y=20),
        _recompute(LEFT + 92.0, 16.0),
        element("text", "recompute", x=LEFT + 102, y=20),
        element("path", class_="gap", d=f"M{LEFT + 190} 16h22"),
        element("text", "they differ", x=LEFT + 218, y=20),
    )


def _marks(draws: Draws, scale: Scale) -> list[Markup]:
    count = len(draws.pairs)
    return [mark for row, pair in enumerate(draws.pairs) for mark in _pair(_x(row, count), pair, scale)]


def _pair(x: float, pair: tuple[float | None, float | None], scale: Scale) -> list[Markup]:
    """A circle for forward, a diamond for recompute, and a dashed line between them where they differ."""
    forward, recompute = (scale.y(v) if v is not None and math.isfinite(v) else None for v in pair)
    marks = []
    if forward is not None and recompute is not None and repr(pair[0]) != repr(pair[1]):
        marks.append(element("path", class_="gap", d=f"M{x:.1f} {forward:.1f}V{recompute:.1f}"))
    marks += [_forward(x, forward)] if forward is not None else []
    return marks + ([_recompute(x, recompute)] if recompute is not None else [])


def _forward(x: float, y: float) -> Markup:
    return element("circle", class_="forward", cx=x, cy=y, r=6)


def _recompute(x: float, y: float) -> Markup:
    return element("path", class_="fill", d=f"M{x:.1f} {y - 4:.1f}l4 4l-4 4l-4 -4z")


def _x(row: int, count: int) -> float:
    return LEFT + (row + 0.5) * (RIGHT - LEFT) / count
