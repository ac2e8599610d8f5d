"""What stands before the diff: mail lines that git am takes, a reason, and DEP-3 fields last."""

from __future__ import annotations

import pytest
from conftest import STACKS
from stacks import head
from test_patch import section

from stack.errors import Malformed
from stack.header import parse_header, slug
from stack.patch import parse_patch
from verify.lint_header import HEADER_RULES, check_header

NAME = "patches/1/0001-make-it-so.patch"
GOOD = head(1, "make it so")
SUBJECT = b"Subject: make it so\n"

FAULTS: dict[str, tuple[str, bytes, bytes]] = {
    "no-from": ("header-form", b"From: A Tester <tester@example.org>\n", b""),
    "mbox-line": ("header-form", b"From: A", b"From 0123 Mon Sep 17 00:00:00 2001\nFrom: A"),
    "other-order": ("header-form", b"Date: Mon, 2 Nov 2026 12:00:00 +0000\n" + SUBJECT, SUBJECT + b"Date: x\n"),
    "folded-subject": ("header-form", SUBJECT, SUBJECT[:-1] + b"\n and more\n"),
    "no-empty-line": ("header-form", SUBJECT + b"\n", SUBJECT),
    "non-ascii": ("header-form", b"A Tester", "\u00c4 Tester".encode()),
    "trailing-blank-in-mail-line": ("header-form", SUBJECT, SUBJECT[:-1] + b" \n"),
    "last-paragraph-is-prose": ("header-form", b"\nLast-Update: 2026-11-02\n", b"\nLast-Update: 2026-11-02\n\nBye.\n"),
    "field-without-value": ("header-form", b"Forwarded: no\n", b"Forwarded: \n"),
    "address-missing": ("header-from", b" <tester@example.org>", b""),
    "address-odd": ("header-from", b"tester@example.org", b"tester at example.org"),
    "date-odd": ("header-date", b"Mon, 2 Nov 2026 12:00:00 +0000", b"yesterday"),
    "date-without-zone": ("header-date", b" +0000", b""),
    "date-in-the-future": ("header-date", b"2 Nov 2026", b"2 Nov 2926"),
    "date-overflows": ("header-date", b"2 Nov 2026", b"2 Nov 99999999999"),
    "date-absurd-zone": ("header-date", b"+0000", b"+9999999999"),
    "subject-patch": ("header-subject", b"Subject: make", b"Subject: [PATCH 1/2] make"),
    "subject-full-stop": ("header-subject", b"it so\n\n", b"it so.\n\n"),
    "subject-long": ("header-subject", b"make it so", b"make it so" + b" and so" * 12),
    "slug-of-another-subject": ("header-slug", b"make it so", b"make it not so"),
    "wide-line": ("header-width", b"Patch 1 of", b"Patch 1 of" + b" a" * 40),
    "trailing-blank": ("header-width", b"a test.\n", b"a test. \n"),
    "no-reason": ("body-reason", b"Patch 1 of a test.\n\n", b""),
    "no-condition": ("body-drop", b"Drop this patch when", b"Keep this patch until"),
    "field-missing": ("dep3-fields", b"Bug: https://example.org/1\n", b""),
    "field-twice": ("dep3-fields", b"Forwarded: no\n", b"Forwarded: no\nForwarded: no\n"),
    "field-unknown": ("dep3-fields", b"Forwarded: no\n", b"Forwarded: no\nReviewed-by: x\n"),
    "origin-odd": ("dep3-values", b"Origin: vendor", b"Origin: somewhere"),
    "bug-no-url": ("dep3-values", b"https://example.org/1", b"150"),
    "forwarded-odd": ("dep3-values", b"Forwarded: no", b"Forwarded: later"),
    "applied-without-version": ("dep3-values", b"Applied-Upstream: no", b"Applied-Upstream: yes"),
    "update-odd": ("dep3-date", b"Last-Update: 2026-11-02", b"Last-Update: 2026-11-31"),
    "update-before-date": ("dep3-date", b"Last-Update: 2026-11-02", b"Last-Update: 2026-11-01"),
    "update-in-the-future": ("dep3-date", b"Last-Update: 2026", b"Last-Update: 2926"),
}


def rules(header: bytes) -> set[str]:
    return {problem.rule for problem in check_header(parse_patch(header + section(), NAME), slug)}


@pytest.mark.parametrize("rule, old, new", FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_found_by_its_rule(rule: str, old: bytes, new: bytes) -> None:
    assert GOOD.count(old) == 1
    assert rule in rules(GOOD.replace(old, new))


def test_a_good_header_passes_and_every_rule_is_tried() -> None:
    assert rules(GOOD) == set()
    assert {rule for rule, *_ in FAULTS.values()} == set(HEADER_RULES)


@pytest.mark.parametrize(
    "header", [b"---\n", b"\n---\n", b"From: a\n---\n", b"From: a\nDate: b\nSubject: c\n---\n"],
    ids=["nothing", "empty-line", "one-line", "no-message"],
)  # fmt: skip
def test_a_header_that_is_cut_short_is_malformed(header: bytes) -> None:
    with pytest.raises(Malformed, match=rf"^{NAME}:\d: "):
        parse_header(header, NAME)


def test_fields_are_read_in_order() -> None:
    header = parse_header(GOOD, NAME)
    assert header.subject == "make it so" and header.author == "A Tester <tester@example.org>"
    assert header.body == ("Patch 1 of a test.", "Drop this patch when the test goes.")
    assert [key for key, _ in header.fields] == ["Origin", "Bug", "Forwarded", "Applied-Upstream", "Last-Update"]


def test_git_makes_the_same_slugs(tmp_path: object) -> None:
    for path in (STACKS / "patches" / "2.7.1+specimen").glob("*.patch"):
        assert path.name[5:] == slug(parse_header(parse_patch(path.read_bytes(), "p").head, "p").subject) + ".patch"
