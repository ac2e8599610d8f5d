"""The draws side by side: unpatched and this tree, a row for each mode of checkpoint.

A finding without usable numbers, or none at all, gets an empty frame that says so.
"""

from __future__ import annotations

from verify.finding import Finding, Level, Status
from verify.report.chart import Scale, chart, scale_of
from verify.report.draws import MODES, Draws, draws_findings, parse
from verify.report.markup import Markup, element, join
from verify.report.record import Report

SIDES = {"unpatched": "Unpatched", "tree": "This tree"}


def figures(report: Report, level: Level) -> Markup:
    """Four charts: a row for each mode of checkpoint, unpatched beside the tree."""
    found = draws_findings(report, level)
    scale = scale_of(parsed for parsed in map(parse, found.values()) if parsed)
    rows = [_row(level, check, found, scale) for check in MODES]
    return element("div", *rows, class_="draws")


def _row(level: Level, check: str, found: dict[tuple[str, str], Finding], scale: Scale) -> Markup:
    charts = [_figure(f"{level.value}-{check}-{side}", side, found.get((check, side)), scale) for side in SIDES]
    return join(element("h4", MODES[check]), element("div", *charts, class_="pair"))


def _figure(name: str, side: str, finding: Finding | None, scale: Scale) -> Markup:
    draws = parse(finding) if finding else None
    words = _words(finding, draws)
    kind = _kind(draws)
    return element(
        "figure",
        chart(name, f"{SIDES[side]}: draws of forward and recompute", words, draws, scale),
        element("figcaption", element("strong", f"{SIDES[side]}: "), words, *_where(finding)),
        class_=kind,
    )


def _kind(draws: Draws | None) -> str:
    if draws is None or not draws.pairs:
        return "open"
    return "good" if draws.equal == len(draws.pairs) else "bad"


def _words(finding: Finding | None, draws: Draws | None) -> str:
    if finding is None or (draws is None and finding.status is Status.NOT_RUN):
        return "not run." if finding is None or not finding.detail else f"not run: {finding.detail}"
    if draws is None:
        return f"no numbers were recorded; {finding.claim}: {finding.status.value}."
    return _comparison(draws)


def _comparison(draws: Draws) -> str:
    total = len(draws.pairs)
    forward, recompute = (sum(pair[turn] is not None for pair in draws.pairs) for turn in (0, 1))
    if forward != recompute or not total:
        return f"the forward pass drew {forward} numbers, the recompute {recompute}."
    if draws.equal == total:
        return f"the recompute repeats all {total} draws shown."
    return f"the recompute differs in {total - draws.equal} of {total} draws."


def _where(finding: Finding | None) -> list[Markup]:
    data = finding.data if finding else {}
    names = {"card": "card ", "torch": "torch "}
    facts = [f"{name}{data[key]}" for key, name in names.items() if data.get(key)]
    return [element("span", ", ".join(facts), class_="muted where")] if facts else []
