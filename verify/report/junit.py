"""The report as JUnit XML: one suite for each level, one case for each claim.

Elements and attributes are those that pytest's junitxml writes and that Jenkins' xunit schema
(junit-10.xsd) allows. The file has a failure or an error exactly when the verdict is "not proven":
a refuted claim is a failure; a check that should have run and did not is an error, and so is a
level that was asked for and proved nothing (case "level"); what the verdict can do without is
skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from verify.finding import Finding, Level, Status
from verify.report.record import LEVELS, MEANS, Report, at, conclusion, is_asked, supports
from verify.report.visible import visible, visible_lines

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


class _Case(NamedTuple):
    """name and output of a case; outcome is the child element, empty for a pass."""

    name: str
    output: str
    outcome: str = ""
    message: str = ""
    detail: str = ""


def to_junit(report: Report) -> bytes:
    """The XML document, UTF-8, one element a line."""
    from xml.etree import ElementTree

    cases = {level: list(_cases(report, level)) for level in LEVELS}
    every = [case for level in LEVELS for case in cases[level]]
    counts = _counts(every)
    del counts["skipped"]  # the schema has it on suites only
    total = _seconds(sum(report.seconds.get(level.value, 0.0) for level in LEVELS))
    root = ElementTree.Element("testsuites", {"name": "torch_musa verification", **counts, "time": total})
    for level in LEVELS:
        _append_suite(root, report, level, cases[level])
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _cases(report: Report, level: Level) -> Iterator[_Case]:
    found = at(report, level)
    for finding in found:
        yield _case(report, finding)
    if is_asked(report, level) and not any(map(supports, found)):
        yield _Case("level", MEANS[level], "error", "asked for, and no required claim was proven")
    elif not found:
        yield _Case("level", MEANS[level], "skipped", "not asked for")


def _case(report: Report, finding: Finding) -> _Case:
    name = finding.check if finding.side == "tree" else f"{finding.check}[{finding.side}]"
    output = f"{finding.claim}\n{finding.status.value} {finding.how}"
    outcome = _outcome(report, finding)
    return _Case(name, output, outcome, f"{finding.status.value}: {finding.claim}", finding.detail)


def _outcome(report: Report, finding: Finding) -> str:
    if finding.status is Status.PROVEN:
        return ""
    if finding.status is Status.REFUTED:
        return "failure"
    return "skipped" if finding.optional or not is_asked(report, finding.level) else "error"


def _append_suite(root: Element, report: Report, level: Level, cases: list[_Case]) -> None:
    time = _seconds(report.seconds.get(level.value, 0.0))
    facts = {
        "name": level.value,
        **_counts(cases),
        "time": time,
        "timestamp": visible(report.started),
    }
    suite = _child(root, "testsuite", facts)
    properties = _child(suite, "properties", {})
    for name, value in _facts(report):
        _child(properties, "property", {"name": visible(name), "value": visible(value)})
    for case in cases:
        _append_case(suite, f"verify.{level.value}", case)


def _append_case(suite: Element, classname: str, case: _Case) -> None:
    node = _child(suite, "testcase", {"classname": classname, "name": visible(case.name), "time": "0.000"})
    if case.outcome:
        kind = {"type": f"verify.{case.outcome}", "message": visible(case.message)}
        _child(node, case.outcome, kind, case.detail)
    _child(node, "system-out", {}, case.output)


def _child(parent: Element, name: str, attributes: dict[str, str], text: str = "") -> Element:
    from xml.etree import ElementTree

    node = ElementTree.SubElement(parent, name, attributes)
    node.text = "\n".join(visible_lines(text)) or None
    return node


def _facts(report: Report) -> list[tuple[str, str]]:
    own = [("tree", report.tree), ("identity", report.identity), ("asked", report.asked.value)]
    return [*own, ("verdict", conclusion(report)), *sorted(report.versions.items())]


def _counts(cases: list[_Case]) -> dict[str, str]:
    outcomes = [case.outcome for case in cases]
    plural = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    return {
        "tests": str(len(cases)),
        **{name: str(outcomes.count(kind)) for name, kind in plural.items()},
    }


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"
