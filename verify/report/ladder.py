"""The picture of the ladder: one rung a level, whole, broken, or only outlined."""

from __future__ import annotations

from verify.finding import Level
from verify.report.markup import Markup, element, join
from verify.report.record import LEVELS, Report, Standing, at, is_asked, standing, tally

LEFT, RIGHT, STEP, TOP, THICK = 10, 96, 60, 24, 16
KINDS = {
    Standing.PROVEN: "good",
    Standing.REFUTED: "bad",
    Standing.NOT_RUN: "open",
    Standing.NOT_ASKED: "unasked",
}


def ladder(report: Report) -> Markup:
    """The SVG picture, the highest level on top; every rung says in words what its shape says."""
    height = TOP * 2 + STEP * (len(LEVELS) - 1) + THICK
    spoken = "; ".join(f"{level.value}: {standing(report, level).value}" for level in LEVELS)
    return element(
        "svg",
        element("title", "The ladder of levels", id="ladder-title"),
        element("desc", f"From the lowest rung up: {spoken}.", id="ladder-desc"),
        *(_rail(x, height) for x in (LEFT, RIGHT)),
        *(_rung(report, level, TOP + STEP * row) for row, level in enumerate(reversed(LEVELS))),
        viewBox=f"0 0 360 {height}",
        role="img",
        aria_labelledby="ladder-title ladder-desc",
    )


def _rail(x: int, height: int) -> Markup:
    return element("line", class_="rail", x1=x, x2=x, y1=4, y2=height - 4)


def _rung(report: Report, level: Level, y: int) -> Markup:
    came_to = standing(report, level)
    asked = ", asked for" if level is report.asked else ""
    return join(
        element("g", *_plank(came_to, y), class_=KINDS[came_to]),
        element("text", element("tspan", level.value, class_="strong"), asked, x=RIGHT + 20, y=y + 5),
        element("text", _caption(report, level), class_="small", x=RIGHT + 20, y=y + 23),
    )


def _caption(report: Report, level: Level) -> str:
    found = at(report, level)
    if found:
        return tally(found)
    return "no check ran" if is_asked(report, level) else Standing.NOT_ASKED.value


def _plank(came_to: Standing, y: int) -> list[Markup]:
    """A whole plank with a tick, a broken one with a cross, or an outline only."""
    middle = (LEFT + RIGHT) // 2
    if came_to is Standing.REFUTED:
        halves = (f"M{LEFT} {y}h32l-7 8l5 8h-30z", f"M{RIGHT} {y}h-32l-4 9l6 7h30z")
        tilt = (f"rotate(9 {LEFT} {y})", f"rotate(-9 {RIGHT} {y})")
        planks = [element("path", class_="fill", d=d, transform=turn) for d, turn in zip(halves, tilt, strict=True)]
        return [
            *planks,
            element("path", class_="mark", d=f"M{middle - 6} {y - 13}l12 12m0 -12l-12 12"),
        ]
    shape = "fill" if came_to is Standing.PROVEN else "outline"
    plank = element("rect", class_=shape, x=LEFT, y=y, width=RIGHT - LEFT, height=THICK, rx=3)
    if came_to is not Standing.PROVEN:
        return [plank]
    return [plank, element("path", class_="tick", d=f"M{middle - 7} {y + 8}l5 5l9 -10")]
