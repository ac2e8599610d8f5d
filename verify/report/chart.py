"""One chart of draws: circles for the forward pass, diamonds or crosses for the recompute."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from verify.report.draws import Draws, Pair, same
from verify.report.markup import Markup, element, join

LEFT, RIGHT, TOP, BOTTOM = 54, 352, 8, 148
RADIUS = 6


class Scale(NamedTuple):
    """The range of the values shown, shared by all charts of a level."""

    low: float
    high: float

    def y(self, value: float) -> float:
        """Pixel height; halves keep the span of the largest floats finite."""
        share = (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return BOTTOM - 8 - share * (BOTTOM - TOP - 16)


def scale_of(shown: Iterable[Draws]) -> Scale:
    """A scale that holds every finite number of these draws."""
    values = [v for draws in shown for pair in draws.pairs for v in pair if v is not None and math.isfinite(v)]
    low, high = min(values, default=0.0), max(values, default=1.0)
    return Scale(low, high) if high / 2 > low / 2 else Scale(low - 1 - abs(low), high + 1 + abs(high))


def legend() -> Markup:
    """What the marks mean, once for all charts."""
    circle = element("circle", class_="forward", cx=8, cy=8, r=RADIUS)
    signs = (
        ("open", circle, "drawn by the forward pass"),
        ("good", join(circle, _diamond(8, 8)), "the recompute drew it again"),
        ("bad", _cross(8, 8), "the recompute drew this instead"),
    )
    return element("ul", *(_sign(*sign) for sign in signs), class_="legend")


def _sign(kind: str, mark: Markup, words: str) -> Markup:
    icon = element("svg", mark, class_="icon", viewBox="0 0 16 16", aria_hidden="true")
    return element("li", icon, f" {words}", class_=kind)


def chart(name: str, title: str, words: str, draws: Draws | None, scale: Scale) -> Markup:
    """The SVG picture, or an empty frame; `name` makes its ids unique, `words` describe it."""
    drawing = [_empty()]
    if draws is not None and draws.pairs:
        drawing = [_axes(len(draws.pairs), scale), *_marks(draws, scale)]
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", words, id=f"{name}-desc"),
        *drawing,
        viewBox="0 0 360 176",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )


def _empty() -> Markup:
    frame = element("rect", class_="outline", x=8, y=8, width=344, height=160, rx=6)
    return join(frame, element("text", "no draws to show", x=180, y=92, text_anchor="middle"))


def _axes(count: int, scale: Scale) -> Markup:
    middle = scale.low / 2 + scale.high / 2
    ticks = [_tick(value, scale.y(value)) for value in (scale.low, middle, scale.high)]
    ends = {1, count}
    numbers = [element("text", str(n), x=_x(n - 1, count), y=168, text_anchor="middle") for n in sorted(ends)]
    name = element("text", "draw", x=float((LEFT + RIGHT) / 2), y=168, text_anchor="middle")
    return element("g", *ticks, *numbers, name, class_="small")


def _tick(value: float, y: float) -> Markup:
    line = element("line", class_="grid", x1=LEFT, x2=RIGHT, y1=y, y2=y)
    return join(line, element("text", f"{value:.2g}", x=LEFT - 6, y=y + 4, text_anchor="end"))


def _marks(draws: Draws, scale: Scale) -> list[Markup]:
    count = len(draws.pairs)
    return [mark for row, pair in enumerate(draws.pairs) for mark in _pair(_x(row, count), pair, scale)]


def _pair(x: float, pair: Pair, scale: Scale) -> list[Markup]:
    """A circle for forward; a diamond inside it or a cross linked to it for the recompute."""
    forward, recompute = (scale.y(v) if v is not None and math.isfinite(v) else None for v in pair)
    marks = []
    if forward is not None and recompute is not None and not same(pair):
        marks.append(_gap(x, forward, recompute))
    if forward is not None:
        marks.append(element("circle", class_="forward", cx=x, cy=forward, r=RADIUS))
    if recompute is not None:
        marks.append(_diamond(x, recompute) if same(pair) else _cross(x, recompute))
    return marks


def _gap(x: float, forward: float, recompute: float) -> Markup:
    edge = max(-RADIUS, min(RADIUS, recompute - forward))
    return element("path", class_="bad gap", d=f"M{x:.1f} {forward + edge:.1f}V{recompute:.1f}")


def _diamond(x: float, y: float) -> Markup:
    return element("path", class_="good fill", d=f"M{x:.1f} {y - 4:.1f}l4 4l-4 4l-4 -4z")


def _cross(x: float, y: float) -> Markup:
    return element("path", class_="bad mark", d=f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8")


def _x(row: int, count: int) -> float:
    return LEFT + (row + 0.5) * (RIGHT - LEFT) / count
