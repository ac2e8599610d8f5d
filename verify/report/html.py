"""The report as one HTML page, for people who would rather look than read.

The page's own policy forbids scripts and any load from elsewhere. Status is told by word and shape,
then by colour.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources

from verify.finding import Finding, Status
from verify.report.chart import legend
from verify.report.draws import draws_findings
from verify.report.figures import figures
from verify.report.ladder import ladder
from verify.report.markup import Markup, element, join
from verify.report.record import (
    LEVELS,
    MEANS,
    Report,
    at,
    common_how,
    conclusion,
    not_established,
    standing,
    tally,
    verdict,
)

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
WHY = (
    "torch.utils.checkpoint runs a piece of the model twice and must draw the same random numbers "
    "both times. It asks torch.musa._initialized whether there is random state to save and put "
    "back. Unpatched, that flag stays false for good: the second pass draws other numbers, and "
    "gradients are silently wrong."
)
ICONS = {
    Status.PROVEN: ("good", "M3 8.5l3.5 3.5l6.5 -8"),
    Status.REFUTED: ("bad", "M3.5 3.5l9 9m0 -9l-9 9"),
    Status.NOT_RUN: ("open", "M3 8h2m2 0h2m2 0h2"),
}


def to_html(report: Report) -> bytes:
    """The page, UTF-8; the same report gives the same bytes."""
    style = Markup(resources.files("verify.report").joinpath("page.css").read_text("utf-8"))
    words = conclusion(report)
    head = join(
        Markup('<meta charset="utf-8">\n<meta name="viewport" content="width=device-width">\n'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'),
        element("title", f"torch_musa: {words}"),
        element("style", style),
    )
    page = element(
        "html",
        element("head", head),
        element("body", element("main", *_sections(report))),
        lang="en",
    )
    return f"<!DOCTYPE html>\n{page}\n".encode()


def _sections(report: Report) -> Iterable[Markup]:
    yield element("h1", "Does random state survive the checkpoint in this torch_musa?")
    yield _banner(report)
    yield element("p", WHY)
    yield element("section", element("h2", "How far the proof reaches"), _overview(report))
    yield element("section", element("h2", "What each pass drew"), *_draws(report))
    yield element("section", element("h2", "Each claim, and how it was established"), *_claims(report))
    gaps = not_established(report) or ["Nothing that a level asks was left out."]
    items = [element("li", gap) for gap in gaps]
    yield element("section", element("h2", "Not established"), element("ul", *items))


def _banner(report: Report) -> Markup:
    good = verdict(report)
    words = conclusion(report)
    sign = _icon(Status.PROVEN if good else Status.REFUTED)
    return element("p", sign, " ", words[0].upper() + words[1:], class_=f"banner {'good' if good else 'bad'}")


def _overview(report: Report) -> Markup:
    facts = [("Tree", report.tree), ("By digest", report.identity), ("Started", report.started)]
    facts += sorted(report.versions.items())
    times = {level.value: report.seconds.get(level.value) for level in LEVELS}
    shown = [f"{name} {seconds:.2f} s" for name, seconds in times.items() if seconds is not None]
    facts.append(("Time", ", ".join(shown)))
    rows = [element("tr", element("th", name, scope="row"), element("td", value)) for name, value in facts if value]
    table = element("table", element("caption", "This run"), element("tbody", *rows), class_="facts")
    return element("div", element("div", ladder(report), class_="ladder"), table, class_="pair")


def _draws(report: Report) -> Iterable[Markup]:
    shown = [level for level in LEVELS if draws_findings(report, level)]
    if not shown:
        yield element("p", "Not run: no draws were recorded.")
        return
    yield legend()
    for level in shown:
        yield element("h3", f"{level.value}: {MEANS[level]}")
        yield figures(report, level)


def _claims(report: Report) -> Iterable[Markup]:
    for level in LEVELS:
        found = at(report, level)
        yield element("h3", f"{level.value}: {standing(report, level).value}")
        yield (_table(found) if found else element("p", "No claim: nothing ran at this level."))


def _table(found: list[Finding]) -> Markup:
    """The claims of one level; roles are spelt out because a narrow page makes rows a grid."""
    columns = (element("th", name, scope="col", role="columnheader") for name in ("Status", "Claim"))
    how = common_how(found)
    return element(
        "table",
        element("caption", f"{how[:1].upper()}{how[1:]}: {tally(found)}."),
        element("thead", element("tr", *columns, role="row"), role="rowgroup"),
        element("tbody", *(_row(finding, how) for finding in found), role="rowgroup"),
        class_="claims",
        role="table",
    )


def _row(finding: Finding, common: str) -> Markup:
    side = element("span", f"{finding.side}: ", class_="muted") if finding.side != "tree" else ""
    optional = element("span", " (optional)", class_="muted") if finding.optional else ""
    detail = element("div", finding.detail, class_="detail") if finding.detail else ""
    how = element("div", finding.how, class_="muted") if finding.how != common else ""
    kind, _ = ICONS[finding.status]
    badge = element("span", _icon(finding.status), " ", finding.status.value, class_=f"badge {kind}")
    cells = (badge, join(side, finding.claim, optional, detail, how))
    return element("tr", *(element("td", cell, role="cell") for cell in cells), role="row")


def _icon(status: Status) -> Markup:
    path = element("path", class_="mark", d=ICONS[status][1])
    return element("svg", path, class_="icon", viewBox="0 0 16 16", aria_hidden="true")
