"""What the writers of `verify/report` say and refuse to say: verdict, text, JSON, JUnit XML."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from tests.report_samples import FORWARD, each_report, full, hostile, made, report
from verify.finding import Finding, Level, Status
from verify.report.as_json import to_json
from verify.report.html import to_html
from verify.report.junit import to_junit
from verify.report.record import Report, Standing, not_established, standing, verdict
from verify.report.text import to_text
from verify.report.visible import visible, visible_lines


def suites(whole: Report) -> dict[str, ElementTree.Element]:
    """The suites of the JUnit file by name."""
    return {suite.attrib["name"]: suite for suite in ElementTree.fromstring(to_junit(whole)).iter("testsuite")}


def outcomes(suite: ElementTree.Element) -> list[tuple[str, str]]:
    """Name and outcome of every case of a suite, "passed" when it has none."""
    kinds = {"failure", "error", "skipped"}
    tags = [(case.attrib["name"], {child.tag for child in case} & kinds) for case in suite.iter("testcase")]
    assert all(len(found) <= 1 for _, found in tags)
    return [(name, found.pop() if found else "passed") for name, found in tags]


# The verdict


@pytest.mark.parametrize(
    ("findings", "asked", "expected"),
    [
        pytest.param([made(Level.STATIC)], Level.STATIC, True, id="proven"),
        pytest.param(
            [made(Level.STATIC, optional=False), made(Level.IMPORT)],
            Level.IMPORT,
            True,
            id="two-levels",
        ),
        pytest.param([], Level.STATIC, False, id="no-findings"),
        pytest.param([made(Level.IMPORT)], Level.IMPORT, False, id="lower-level-empty"),
        pytest.param([made(Level.STATIC)], Level.IMPORT, False, id="asked-level-empty"),
        pytest.param([made(Level.STATIC, Status.REFUTED)], Level.STATIC, False, id="refuted"),
        pytest.param(
            [made(Level.STATIC), made(Level.STATIC, Status.REFUTED)],
            Level.STATIC,
            False,
            id="one-refuted",
        ),
        pytest.param(
            [made(Level.STATIC), made(Level.STATIC, Status.NOT_RUN)],
            Level.STATIC,
            False,
            id="one-not-run",
        ),
        pytest.param(
            [made(Level.STATIC), made(Level.STATIC, Status.NOT_RUN, optional=True)],
            Level.STATIC,
            True,
            id="optional-not-run",
        ),
        pytest.param(
            [made(Level.STATIC), made(Level.STATIC, Status.REFUTED, optional=True)],
            Level.STATIC,
            False,
            id="optional-refuted",
        ),
        pytest.param([made(Level.STATIC, optional=True)], Level.STATIC, False, id="only-optional"),
        pytest.param([made(Level.STATIC, side="unpatched")], Level.STATIC, False, id="only-unpatched"),
        pytest.param(
            [made(Level.STATIC), made(Level.HARDWARE, Status.NOT_RUN)],
            Level.STATIC,
            True,
            id="not-run-above-asked",
        ),
        pytest.param(
            [made(Level.STATIC), made(Level.HARDWARE, Status.REFUTED)],
            Level.STATIC,
            False,
            id="refuted-above-asked",
        ),
    ],
)
def test_verdict_needs_every_level_up_to_the_one_asked_for(
    findings: list[Finding], asked: Level, expected: bool
) -> None:
    assert verdict(report(*findings, asked=asked)) is expected


@pytest.mark.parametrize(
    ("findings", "level", "expected"),
    [
        pytest.param([], Level.STATIC, Standing.NOT_RUN, id="asked-and-empty"),
        pytest.param([], Level.HARDWARE, Standing.NOT_ASKED, id="not-asked"),
        pytest.param(
            [made(Level.HARDWARE, Status.NOT_RUN)],
            Level.HARDWARE,
            Standing.NOT_RUN,
            id="tried-above",
        ),
        pytest.param([made(Level.HARDWARE)], Level.HARDWARE, Standing.PROVEN, id="more-than-asked"),
    ],
)
def test_standing_tells_not_run_from_not_asked(findings: list[Finding], level: Level, expected: Standing) -> None:
    assert standing(report(*findings), level) is expected


def test_not_established_names_each_gap_and_its_reason() -> None:
    lint = made(
        Level.STATIC,
        Status.NOT_RUN,
        claim="lint is no worse",
        detail="no black\nmore",
        optional=True,
    )
    assert not_established(report(made(Level.STATIC), lint, asked=Level.IMPORT)) == [
        "static: lint is no worse: not run: no black",
        "by importing the real module: no check ran",
        "on a stand-in device: not asked for",
        "on hardware: not asked for",
    ]
    assert not_established(report(*map(made, Level), asked=Level.HARDWARE)) == []


# Text


def test_text_says_how_once_for_a_level_and_where_it_differs() -> None:
    lint = made(Level.STATIC, claim="lint is no worse", how="by black", optional=True)
    plain = [made(Level.STATIC, claim=f"claim {n}", how="by source reading") for n in (1, 2)]
    lines = to_text(report(lint, *plain)).splitlines()
    place = lines.index("static: proven, by source reading (3 of 3 proven; 0.12 s)")
    assert lines[place + 1 : place + 4] == [
        "  proven   lint is no worse (by black, optional)",
        "  proven   claim 1",
        "  proven   claim 2",
    ]


def test_text_gives_status_claim_and_detail() -> None:
    lines = to_text(report(made(Level.STATIC, Status.REFUTED, detail="line 1\nline 2"))).splitlines()
    place = lines.index("  refuted  the flag follows initialization")
    assert [line.strip() for line in lines[place + 1 : place + 3]] == ["line 1", "line 2"]
    assert "  on hardware: not asked for" in lines
    assert lines[-1] == "verdict: NOT proven at the static level (static refuted)"


def test_text_shows_no_detail_of_what_is_proven() -> None:
    assert "evidence" not in to_text(report(made(Level.STATIC, detail="evidence")))
    assert "evidence" in to_text(report(made(Level.STATIC, Status.NOT_RUN, detail="evidence")))


def test_text_is_ascii_and_ends_with_one_verdict() -> None:
    text = to_text(full())
    assert text.isascii()
    assert text.endswith("\n\nverdict: proven at the simulated level\n")


def test_text_cannot_be_forged_by_foreign_text() -> None:
    text = to_text(hostile())
    assert [line for line in text.splitlines() if line.startswith("verdict:")] == [text.splitlines()[-1]]
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a\u6811 b", "a\u6811 b"), ("\x1b\n\udcff\u202e", "\\x1b\\n\\udcff\\u202e")],
    ids=["prints", "does-not"],
)
def test_visible_escapes_what_does_not_print(text: str, expected: str) -> None:
    assert visible(text) == expected


def test_visible_lines_keep_lines_and_indentation() -> None:
    assert visible_lines("\na\n\tb\r\n") == ["a", "        b\\r"]
    assert visible_lines("\n") == []


# JSON


def test_json_has_the_documented_keys_in_order() -> None:
    plain = to_json(full())
    documented = re.findall(r"^    (\w+)  ", to_json.__globals__["__doc__"], re.MULTILINE)
    assert list(plain) == documented
    assert (plain["schema"], plain["proven"], plain["asked"]) == (1, True, "simulated")
    assert list(plain["versions"]) == ["python", "torch"]
    assert plain["levels"][0] == {"level": "static", "standing": "proven", "seconds": 0.125}
    assert plain["levels"][3] == {"level": "hardware", "standing": "not asked for", "seconds": None}
    assert [finding["level"] for finding in plain["findings"]] == ["static", "import"] + ["simulated"] * 4
    assert plain["findings"][2]["data"]["forward"] == FORWARD


@each_report
def test_json_is_strict_and_keeps_every_finding(whole: Report) -> None:
    text = json.dumps(to_json(whole), ensure_ascii=False, allow_nan=False)
    assert json.loads(text.encode("utf-8")) == to_json(whole)
    assert len(to_json(whole)["findings"]) == len(whole.findings)


# JUnit

# Jenkins' junit-10.xsd, as far as it is used: required attributes, optional ones, children.
ALLOWED = {
    "testsuites": ("", "name time tests failures errors", "testsuite"),
    "testsuite": ("name tests failures errors", "time skipped timestamp", "properties testcase"),
    "properties": ("", "", "property"),
    "property": ("name value", "", ""),
    "testcase": ("name", "classname time", "failure error skipped system-out"),
    **dict.fromkeys(("failure", "error", "skipped"), ("", "type message", "")),
    "system-out": ("", "", ""),
}


def schema_faults(root: ElementTree.Element) -> Iterator[str]:
    """What the schema does not allow."""
    for node in root.iter():
        required, optional, children = (set(words.split()) for words in ALLOWED[node.tag])
        if not required <= set(node.attrib) <= required | optional:
            yield f"{node.tag}: {sorted(node.attrib)}"
        yield from (f"{node.tag}: {child.tag}" for child in node if child.tag not in children)
        if "time" in node.attrib and not re.fullmatch(r"[0-9]+\.[0-9]{3}", node.attrib["time"]):
            yield f"{node.tag}: time {node.attrib['time']}"


@each_report
def test_junit_keeps_to_the_schema_and_counts_right(whole: Report) -> None:
    root = ElementTree.fromstring(to_junit(whole))
    assert list(schema_faults(root)) == []
    for suite in root:
        found = [outcome for _name, outcome in outcomes(suite)]
        assert suite.attrib["tests"] == str(len(found))
        for name, kind in {"failures": "failure", "errors": "error", "skipped": "skipped"}.items():
            assert suite.attrib[name] == str(found.count(kind))
    assert root.attrib["tests"] == str(len(list(root.iter("testcase"))))
    assert root.attrib["failures"] == str(len(list(root.iter("failure"))))


def test_schema_check_catches_a_stranger() -> None:
    root = ElementTree.fromstring(
        '<testsuite name="x" tests="1" failures="0" errors="0" cards="2"><skipped/></testsuite>'
    )
    assert len(list(schema_faults(root))) == 2


def test_junit_maps_what_matters_to_failure_or_error() -> None:
    findings = [
        made(Level.STATIC, check="proven"),
        made(Level.STATIC, Status.REFUTED, check="refuted", side="unpatched", detail="seen"),
        made(Level.STATIC, Status.NOT_RUN, check="missing"),
        made(Level.STATIC, Status.NOT_RUN, check="lint", optional=True),
        made(Level.HARDWARE, Status.NOT_RUN, check="card"),
    ]
    found = suites(report(*findings, asked=Level.IMPORT))
    assert dict(outcomes(found["static"])) == {
        "proven": "passed",
        "refuted[unpatched]": "failure",
        "missing": "error",
        "lint": "skipped",
    }
    assert outcomes(found["import"]) == [("level", "error")]
    assert outcomes(found["simulated"]) == [("level", "skipped")]
    assert outcomes(found["hardware"]) == [("card", "skipped")]
    assert found["static"].findtext("testcase/failure") == "seen"


def test_junit_is_red_exactly_when_the_verdict_is() -> None:
    kinds = [made(Level.STATIC, s, optional=o, side=d) for s in Status for o in (0, 1) for d in ("tree", "unpatched")]
    above = [made(Level.IMPORT, status) for status in Status]
    for findings in itertools.chain([()], itertools.combinations([*kinds, *above], 2), zip(kinds, strict=True)):
        whole = report(*findings)
        root = ElementTree.fromstring(to_junit(whole))
        assert (root.attrib["failures"] == root.attrib["errors"] == "0") is verdict(whole), findings


def test_junit_survives_hostile_text() -> None:
    text = to_junit(hostile()).decode()
    assert "]]>" not in text
    assert "\\x1b[2J\\x00\\udcff\\u202e" in text


@each_report
def test_writers_are_deterministic(whole: Report) -> None:
    turned = whole._replace(versions=dict(reversed(list(whole.versions.items()))))
    for write in (to_text, to_junit, to_html):
        assert write(whole) == write(turned)
    assert json.dumps(to_json(whole)) == json.dumps(to_json(turned))
