"""The HTML page: parsed, judged for access and contrast, and laid out by a real browser."""

from __future__ import annotations

import itertools
import json
import math
import re
import subprocess
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.report_samples import FORWARD, OTHER, drawn, each_report, full, made, report
from verify.finding import Finding, Level, Status
from verify.report import draws
from verify.report.chart import BOTTOM, TOP, scale_of
from verify.report.html import to_html
from verify.report.markup import Markup, element
from verify.report.record import Report


class Page(HTMLParser):
    """The elements of a page, its text without the style sheet, and every unbalanced end tag."""

    void = ("meta",)

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.stack: list[str] = []
        self.unbalanced: list[str] = []
        self.words: list[str] = []
        self.feed(page.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        self.stack += [] if tag in self.void else [tag]

    def handle_endtag(self, tag: str) -> None:
        if not self.stack or self.stack.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        if "style" not in self.stack:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def classes(self, tag: str) -> list[str]:
        return [attributes.get("class", "") for name, attributes in self.tags if name == tag]


@each_report
def test_page_is_well_formed_and_self_contained(whole: Report) -> None:
    page = Page(to_html(whole))
    assert page.unbalanced == [] and page.stack == []
    assert page.tags[0] == ("html", {"lang": "en"})
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "link", "img", "iframe", "object", "base", "a", "image", "use"}
    attributes = {name for _, found in page.tags for name in found}
    assert not attributes & {"src", "href", "style", "srcset"} and not any(name.startswith("on") for name in attributes)
    assert not re.search(rb"url\(|@import|https?:", to_html(whole))


def test_page_parser_catches_what_it_looks_for() -> None:
    page = Page(b"<p><b>x</p></b><script src=y></script>")
    assert page.unbalanced == ["p", "b"]
    assert ("script", {"src": "y"}) in page.tags


@each_report
def test_page_is_accessible(whole: Report) -> None:
    page = Page(to_html(whole))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in page.tags:
        if tag == "svg" and "aria-hidden" not in attributes:
            assert attributes["role"] == "img" and set(attributes["aria-labelledby"].split()) <= set(ids)
        if tag == "th":
            assert attributes["scope"] in ("row", "col")
    headings = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == 1 and headings.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(headings))
    assert page.classes("table").count("claims") == len({finding.level for finding in whole.findings})


def test_page_tells_every_finding_how_and_what_is_open() -> None:
    lint = made(
        Level.STATIC,
        Status.NOT_RUN,
        claim="lint is no worse",
        how="by black",
        detail="no black",
        optional=True,
    )
    text = Page(to_html(report(*full().findings, lint, asked=Level.SIMULATED))).text
    for words in (
        "Proven at the simulated level",
        "2.7.1, patched (3 of 3)",
        "not run lint is no worse (optional)no blackby black",
        "By importing the real module: 1 of 2 proven, 1 not run.",
        "static: lint is no worse: not run: no black",
        "on hardware: not asked for",
        "static: proven; import: proven; simulated: proven; hardware: not asked for.",
    ):
        assert re.sub(r"\W", "", words) in re.sub(r"\W", "", text), words


def test_page_draws_red_and_green_side_by_side() -> None:
    page = Page(to_html(full()))
    assert page.classes("figure") == ["bad", "good"] * 2
    assert page.text.count("Unpatched: the recompute differs in 2 of 3 draws.") == 2
    assert page.text.count("This tree: the recompute repeats all 3 draws shown.") == 2
    charts = page.classes("path")
    assert charts.count("bad gap") == 4
    assert charts.count("bad mark") == 4 + 1 and charts.count("good fill") == 2 + 6 + 1  # one more in the legend


def test_page_shows_a_broken_tree_as_broken() -> None:
    whole = report(drawn("draws-reentrant", "tree", OTHER, Status.REFUTED), asked=Level.SIMULATED)
    page = Page(to_html(whole))
    assert page.classes("figure") == ["open", "bad", "open", "open"]
    assert page.classes("g")[1] == "bad"
    assert page.text.count("not run.") == 6  # in the words under each empty frame, and in its description


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        pytest.param(
            drawn("draws-reentrant", "tree", []),
            "the forward pass drew 3 numbers, the recompute 0.",
            id="one-pass",
        ),
        pytest.param(
            drawn("draws-reentrant", "tree", FORWARD[:2]),
            "drew 3 numbers, the recompute 2.",
            id="fewer",
        ),
        pytest.param(
            drawn("draws-reentrant", "tree", [*FORWARD, *range(99)]),
            "the recompute 16.",
            id="too-many",
        ),
        pytest.param(
            drawn("draws-reentrant", "tree", [0.5, True]),
            "no numbers were recorded",
            id="not-numbers",
        ),
        pytest.param(
            drawn("draws-reentrant", "tree", [10**400]),
            "no numbers were recorded",
            id="beyond-float",
        ),
        pytest.param(
            drawn("draws-reentrant", "tree", [0.25, 0.5, 1e308 * -1.7]),
            "differs in 1 of 3 draws",
            id="huge",
        ),
        pytest.param(
            drawn("draws-reentrant", "tree", [])._replace(data={}),
            "no numbers were recorded",
            id="no-data",
        ),
        pytest.param(
            made(Level.SIMULATED, Status.NOT_RUN, check="draws-reentrant", detail="time limit"),
            "not run: time limit",
            id="not-run",
        ),
    ],
)
def test_page_is_robust_about_draws(finding: Finding, words: str) -> None:
    assert words in Page(to_html(report(finding))).text


@pytest.mark.parametrize(
    "values",
    [(0.25, 0.75), (-1.7e308, 1.7e308), (0.5, 0.5), (5e-324, 0.0), (float("nan"), 1e308)],
    ids=["plain", "huge", "one-value", "tiny", "nan"],
)
def test_scale_keeps_every_finite_number_inside_the_chart(values: tuple[float, float]) -> None:
    scale = scale_of([draws.Draws((values,))])
    assert all(TOP <= scale.y(value) <= BOTTOM for value in values if math.isfinite(value))


def test_ladder_shows_each_standing_as_its_own_shape() -> None:
    missing = made(Level.IMPORT, Status.NOT_RUN)
    refuted = made(Level.SIMULATED, Status.REFUTED)
    page = Page(to_html(report(made(Level.STATIC), missing, refuted, asked=Level.SIMULATED)))
    assert page.classes("g") == ["unasked", "bad", "open", "good"]
    assert [name for name in page.classes("rect") if name] == ["outline", "outline", "fill"]


def test_page_says_not_run_without_draws() -> None:
    assert "Not run: no draws were recorded." in Page(to_html(report(made(Level.STATIC)))).text


@pytest.mark.parametrize(
    ("forward", "recompute", "equal"),
    [
        (0.5, 0.5, True),
        (0.0, -0.0, False),
        (float("nan"), float("nan"), True),
        (0.1, 0.1 + 2**-56, False),
    ],
    ids=["equal", "signed-zero", "nan", "last-bit"],
)
def test_draws_are_compared_bit_for_bit(forward: float, recompute: float, equal: bool) -> None:
    assert draws.same((forward, recompute)) is equal


def test_element_escapes_all_but_markup() -> None:
    made_of = element("p", "<i>", Markup("<b></b>"), class_='"x"')
    assert made_of == '<p class="&quot;x&quot;">&lt;i&gt;<b></b></p>'


def luminance(colour: str) -> float:
    """Relative luminance of a hex colour, as WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    """Contrast of two hex colours, from 1 to 21."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_have_contrast_in_both_schemes() -> None:
    css = (Path(draws.__file__).parent / "page.css").read_text()
    schemes = [dict(re.findall(r"--(\w+): (#\w{6});", block)) for block in re.findall(r":root \{(.*?)\}", css, re.S)]
    assert len(schemes) == 2
    for colours in schemes:
        for front, back in itertools.product(("text", "muted", "good", "bad", "open"), ("back", "card")):
            assert contrast(colours[front], colours[back]) >= 4.5, (front, back)
    assert contrast("#777777", "#ffffff") < 4.5 < contrast("#000000", "#ffffff")


# A real browser

# A fresh profile, nothing shown, and nothing asked of any network.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--dump-dom",
]
MEASURE = """<script>onload = () => {
  const found = [];
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, width = frame.clientWidth;
    const whole = page.documentElement.scrollWidth, name = frame.title + ": ";
    if (whole > width) found.push(name + "the page is " + whole + " wide");
    for (const figure of page.querySelectorAll("figure"))
      if (figure.clientWidth < 300) found.push(name + "figure of " + figure.clientWidth);
    for (const node of page.querySelectorAll("body *")) {
      const box = node.getBoundingClientRect(), frameOf = node.closest("svg:not(.icon)");
      const edge = frameOf ? frameOf.getBoundingClientRect().right : width;
      if (box.right > edge + 1) found.push(name + node.tagName + " ends at " + box.right);
    }
  }
  document.title = JSON.stringify(found);
}</script>"""


def misfits(page: bytes, directory: Path) -> list[str]:
    """What is beyond the right edge, or a figure too small to read, at 400 and 1200 pixels."""
    source = escape(page.decode())
    frames = [f'<iframe title="{w}" style="width:{w}px;height:900px" srcdoc="{source}"></iframe>' for w in (400, 1200)]
    file = directory / "frames.html"
    file.write_text(f'<!DOCTYPE html><meta charset="utf-8">{MEASURE}{"".join(frames)}', "utf-8")
    profile = f"--user-data-dir={directory / 'profile'}"
    command = ["chromium", *FLAGS, profile, "--window-size=1300,2000", file.as_uri()]
    run = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    title = re.search(r"<title>(.*?)</title>", run.stdout)
    assert title, f"{command}: exit {run.returncode}\n{run.stdout[:2000]}\n{run.stderr[:2000]}"
    found: list[str] = json.loads(title[1])
    return found


@pytest.mark.chromium
@each_report
def test_page_never_scrolls_sideways(whole: Report, tmp_path: Path) -> None:
    assert misfits(to_html(whole), tmp_path) == []


@pytest.mark.chromium
@pytest.mark.parametrize(
    "wide",
    [
        b'<div style="width:600px">x</div>',
        b"<div class=pair><figure style=width:200px>x</figure></div>",
        b'<svg viewBox="0 0 10 10"><text x="9" y="5" font-size="9">beyond the edge</text></svg>',
    ],
    ids=["block", "small-figure", "text-in-picture"],
)
def test_layout_check_catches_what_does_not_fit(wide: bytes, tmp_path: Path) -> None:
    page = to_html(full()).replace(b"</main>", wide + b"</main>")
    assert any(line.startswith("400: ") for line in misfits(page, tmp_path))
