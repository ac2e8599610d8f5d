"""Any bytes into a parser: a value, or an error that a user can act on; what is written is read again the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from conftest import STACKS
from fuzz_strategies import BLOCKS, bodies, cases, edited_lines, examples, joined
from fuzz_tools import git_apply, gnu_patch, make_diffs, read_tree, scratch, write_stack, write_tree
from hypothesis import event, given
from hypothesis import strategies as st

from stack.digest import line_digest, split_lines
from stack.errors import StackError
from stack.fingerprint import digest_lines, known_lines
from stack.header import parse_header
from stack.hunk import MOST_PLACES, places
from stack.journal import Line, Record, format_record, parse_record
from stack.patch import parse_patch
from stack.pins import format_pins, parse_pins
from stack.plan import File, change_file
from stack.series import parse_series
from stack.store import Release
from verify.lint import context_of

SPECIMEN = STACKS / "patches" / "2.7.1+specimen"
PATCH = (SPECIMEN / "0003-test-the-flag-and-checkpoint-replay.patch").read_bytes()
RECORD = b"torch-musa-patches journal 1\nhost a b\npid 9\nfile 0 - %s x\nmade d\ngone 755 e\nend\n" % (b"0" * 64)


class OneFile(Release):
    """A release of which every data file has the same bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__("x", "x")
        self.data = data

    def read(self, label: str) -> bytes:
        return self.data


def _lines_known(data: bytes) -> list[list[bytes]]:
    release = OneFile(data)
    return [known_lines(release, path) for path in release.fingerprint]


# What a parser is given besides noise: a good file of its kind, damaged.
PARSERS: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "patch": (lambda data: parse_header(parse_patch(data, "x").head, "x"), PATCH),
    "header": (lambda data: parse_header(data, "x"), PATCH[: PATCH.index(b"\n---\n") + 5]),
    "series": (lambda data: parse_series(data, "x"), b"# ours\n0001-a.patch\n0002-b.patch\n"),
    "pins": (lambda data: parse_pins(data, "x"), (SPECIMEN / "base.sha256").read_bytes()),
    "record": (lambda data: parse_record(data, "x"), RECORD),
    "release.json": (lambda data: OneFile(data).about, (SPECIMEN / "release.json").read_bytes()),
    "fingerprint.json": (_lines_known, b'{"f": {"size": 1, "lines": ["\\ud83d\\ude00", "00"], "result": null}}'),
}
NOISE = (
    *(
        b"\n",
        b"\r\n",
        b"\0",
        b"\xff",
        b"\xe2\x80\xa8",
        b" ",
        b"-",
        b"+",
        b"@@ -1 +1 @@\n",
        b"@@ -0,0 +1,0 @@\n",
        b"0" * 40,
    ),
    *(b"\\ No newline at end of file\n", b"--- a/x\n", b"diff --git a/x b/x\n", b"9" * 5000, b"_", b"..", b"/", b"."),
    *(
        b'"',
        b"[",
        b"{" * 9,
        b"[" * 100_000,
        b"null",
        b"1e999",
        b"\\ud800",
        b"\\u0000",
        b"\xef\xbb\xbf",
        b"#",
        b"\xd9\xa3",
    ),
)


@st.composite
def damaged(draw: Any, data: bytes) -> bytes:
    """Return data after one to four cuts, repeats and pieces of noise."""
    for _ in range(draw(st.integers(1, 4))):
        at, size = draw(st.integers(0, len(data))), draw(st.integers(0, 80))
        piece = draw(st.one_of(st.sampled_from(NOISE), st.binary(max_size=3)))
        data = (
            data[:at]
            + draw(st.sampled_from((piece, b"", data[at : at + size] * 2)))
            + data[at + size * draw(st.integers(0, 1)) :]
        )
    return data


@pytest.mark.parametrize("name", PARSERS)
def test_any_bytes_are_a_value_or_an_error_that_a_user_can_act_on(name: str) -> None:
    parse, good = PARSERS[name]

    @given(st.one_of(damaged(good), st.binary(max_size=200)))
    @examples(0.03)
    def check(data: bytes) -> None:
        try:
            parse(data)
        except StackError as error:
            str(error).encode()  # it is going to be printed

    check()


@st.composite
def shifted(draw: Any, data: bytes) -> bytes:
    """Return a diff with one line of a hunk changed, or one hunk moved by a line: counts and markers stay right."""
    lines = split_lines(data)
    at = draw(st.sampled_from([at for at, line in enumerate(lines) if line[:1] in (b" ", b"-", b"@")] or [0]))
    if lines[at].startswith(b"@@ -"):
        by = draw(st.sampled_from((-1, 1)))
        words = [
            b"%b%d%b" % (word[:1], int(re.findall(rb"\d+", word)[0]) + by, re.sub(rb"^.\d+", b"", word))
            for word in lines[at].split(b" ")[1:3]
        ]
        lines[at] = b" ".join([b"@@", *words, *lines[at].split(b" ")[3:]])
    else:
        lines[at] = (
            lines[at][:1] + draw(st.sampled_from((b"", b" ", b"a", b"\r"))) + lines[at][draw(st.integers(1, 2)) :]
        )
    return b"".join(lines)


names = st.from_regex(r"[A-Za-z0-9_+.-]{1,6}", fullmatch=True).filter(lambda name: name.strip(".") and name != ".git")
paths = st.lists(names, min_size=1, max_size=3).map("/".join).filter(lambda path: "git" not in path.lower())
digests = st.integers(0, 2**256 - 1).map(lambda number: f"{number:064x}")


@given(st.dictionaries(paths, digests, min_size=1, max_size=8))
@examples(0.03)
def test_pins_are_read_as_they_were_written(pins: dict[str, str]) -> None:
    assert parse_pins(format_pins(pins), "x") == pins


LINES = st.builds(
    Line, st.integers(0, 10**6), st.one_of(st.just("-"), digests), st.one_of(st.just("-"), digests), paths
)
RECORDS = st.builds(
    Record,
    st.sampled_from(("host 0-1", "- -", "a.b c")),
    st.integers(1, 2**31 - 1),
    st.lists(LINES, max_size=4).map(tuple),
    st.lists(paths, max_size=3).map(tuple),
    st.lists(st.tuples(st.integers(0, 0o7777), paths), max_size=3).map(tuple),
    st.integers(0, 2**64 - 1),
)


@given(RECORDS, st.integers(0, 500))
@examples(0.03)
def test_a_record_is_read_as_it_was_written_and_one_cut_off_is_none(record: Record, end: int) -> None:
    data = format_record(record)
    assert parse_record(data, "x") == record
    assert parse_record(data[: min(end, len(data) - 1)], "x") is None


@given(st.lists(names.map("{}.patch".format).filter(lambda name: name[0].isalnum()), min_size=1, unique=True))
@examples(0.02)
def test_a_series_is_read_as_it_was_written(names: list[str]) -> None:
    assert parse_series("# ours\n{}\n".format("\n".join(names)).encode(), "x") == tuple(names)


MESSAGE = st.text("abz .,:;()", min_size=1, max_size=30).map(lambda text: f"t{text}t")


@given(
    MESSAGE,
    st.lists(MESSAGE, max_size=3),
    st.dictionaries(st.sampled_from(("Origin", "Bug", "Forwarded")), MESSAGE, min_size=1),
)
@examples(0.02)
def test_a_header_is_read_as_it_was_written(subject: str, body: list[str], fields: dict[str, str]) -> None:
    last = "\n".join(f"{key}: {value}" for key, value in fields.items())
    text = "\n\n".join([f"From: {subject}\nDate: {subject}\nSubject: {subject}", *body, last])
    header = parse_header(f"{text}\n---\n".encode(), "x")
    assert (header.subject, header.body, dict(header.fields)) == (subject, tuple(body), fields)


@given(bodies, st.booleans())
@examples(0.03)
def test_lines_and_their_digests_are_those_of_the_bytes(body: list[bytes], newline: bool) -> None:
    data = joined(body, newline)
    lines = split_lines(data)
    assert b"".join(lines) == data and all(line.endswith(b"\n") for line in lines[:-1])
    assert all(line.count(b"\n") <= 1 for line in lines)
    assert digest_lines(data) == [f"{line_digest(line)}\n".encode() for line in lines]
    prints = {"f": {"lines": [line_digest(line) for line in lines]}}
    assert known_lines(OneFile(json.dumps(prints).encode()), "f") == digest_lines(data)


@given(BLOCKS, st.booleans(), st.integers(0, 60), st.integers(0, 6))
@examples(0.06)
def test_a_hunk_is_found_at_every_place_where_its_lines_stand(
    body: list[bytes], newline: bool, at: int, size: int
) -> None:
    lines = split_lines(joined(body, newline))
    want = lines[at % (len(lines) + 1) :][:size]
    expected = [start for start in range(1, len(lines) + 1) if want and lines[start - 1 :][: len(want)] == want]
    assert places(lines, want) == expected[:MOST_PLACES]


# Why we refuse a damaged patch that git apply or patch takes: our grammar explains each byte, theirs skips what it can.
STRICTER = {
    "not-a-hunk": r"not part of any hunk|not a hunk header",
    "counts": r"the hunk has not the lines that its header counts|unreadable hunks",
    "header": r"expected ('|an index)|an? .*(mode|blob)|the blob ids|are not full|mode lines|the two modes|no mode",
    "place": r"does not match at line|overlaps the one before|the two sides do not agree|has no context|goes on after",
    "empty-change": r"the hunk changes nothing",
    "names": r"the two names|is not plain ASCII|absolute or leaves|in case only|lies below|two places|reaches into",
    "end": r"the last line has no newline|marker for a missing newline|a line without a newline",
    "whole": r"a new file has lines|a deleted file keeps lines",
    "message": r"an applier would take this line|no line '---'|holds no git diff|CR LF",
    "kind": r"is not supported",
}


def _applied(patch: bytes, image: dict[str, File]) -> dict[str, File]:
    """Apply a patch by its text alone: the damage is in the text, and the blob ids would catch it all."""
    result = dict(image)
    for change in parse_patch(patch, "x").files:
        free = change._replace(old_blob=None, new_blob=None)
        if (change.old_mode is None) != (change.path not in image):
            raise StackError("x does not match at line 0: there, or not there")
        after = change_file(image.get(change.path), free, False, "x")
        result.pop(change.path, None)
        if after is not None:
            result[change.path] = after
    return result


@given(cases(1), st.data())
@examples(0.1)
def test_a_damaged_patch_comes_to_the_bytes_of_git_and_gnu_patch_or_is_refused_by_name(case: Any, data: Any) -> None:
    with scratch() as folder:
        (diff,) = make_diffs(folder, case)
        (name,) = write_stack(folder, case.images, [diff])
        with open(name, "rb") as stream:
            text = stream.read()
        start = text.index(b"\n---\n") + 5
        damage = data.draw(st.sampled_from((shifted, edited_lines, damaged)))
        text = text[:start] + data.draw(damage(text[start:]))
        with open(name, "wb") as stream:
            stream.write(text)
        try:
            ours, why = _applied(text, case.images[0]), ""
        except StackError as error:
            ours, why = None, str(error)
        if ours is not None and _moved_by_patch(text, case.images[0]):
            event("a hunk in mid-file with less context on one side")  # the case hunk-at-the-end-stated-above-it
            return
        taken = [
            tool for tool in (git_apply, gnu_patch) if _comes_to_ours(folder, tool, case.images[0], name, ours, why)
        ]
        assert taken or ours is None, "we take what neither git apply nor patch takes"


def _moved_by_patch(patch: bytes, image: dict[str, File]) -> bool:
    """Whether a hunk has less context on one side and is not at that end: patch moves it there (patch.c, locate_hunk).

    git apply refuses most of them (apply.c, find_pos). We put it where it says, and the digests tell.
    """
    for change in parse_patch(patch, "x").files:
        length = len(split_lines(image[change.path].data)) if change.path in image else 0
        for hunk in change.hunks:
            above, below = context_of(hunk)
            if above < below and hunk.old > 1 or below < above and hunk.old + len(hunk.before) <= length:
                return True
    return False


def _comes_to_ours(folder: str, tool: Any, image: Any, name: str, ours: Any, why: str) -> bool:
    """Whether a tool takes the patch; if so, it comes to our bytes, or we have refused by name."""
    tree = write_tree(f"{folder}/{tool.__name__}", image)
    took, said = tool(tree, [name])
    if took and ours is not None:
        assert read_tree(tree)[0] == ours, said
    elif took:
        kinds = [kind for kind, message in STRICTER.items() if re.search(message, why)]
        assert kinds, why
        event(f"{tool.__name__} takes it, we do not: {kinds[0]}")
    return took
