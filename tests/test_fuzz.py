"""Random trees and edits of them, diffs by the real git and diff: apply gives the new tree, unapply the old one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fuzz_strategies import Case, Image, cases, edited_lines, examples, files, pins_nothing, touched
from fuzz_tools import RELEASE, git_apply, gnu_patch, make_diffs, read_tree, scratch, write_stack, write_tree
from hypothesis import event, example, given
from hypothesis import strategies as st

from stack import commands
from stack.commands import How, Proof
from stack.digest import split_lines
from stack.errors import StackError
from stack.plan import File
from stack.state import INIT, LAZY_INIT, Standing
from stack.store import Store


@pytest.fixture(autouse=True, scope="module")
def usual_umask() -> Iterator[None]:
    """New files get the modes of a checkout, whatever the umask here."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def expected_step(images: tuple[Image, ...], at: int) -> int:
    """Return the last step of the series whose tree is that of step `at`."""
    return max(step for step, image in enumerate(images) if image == images[at])


def standing(step: int, total: int) -> Standing:
    """Return what a tree after `step` patches is called."""
    return Standing.APPLIED if step == total else Standing.PARTLY if step else Standing.PRISTINE


def on_purpose(case: Case, diffs: list[bytes]) -> list[str]:
    """Return what our refusal may say where our grammar takes less than git's; none where it must take the diffs."""
    images = case.images
    kinds = {
        "pins no file": pins_nothing(images),
        "made and removed": bool(touched(images) - set(images[0]) - set(images[-1])),
        "has no context": any(without_context(old, diff) for old, diff in zip(images, diffs, strict=False)),
        "overlaps the one before": any(map(overlapping, diffs)),
    }
    return [kind for kind, so in kinds.items() if so]


def without_context(old: Image, diff: bytes) -> bool:
    """Whether a hunk of the diff puts lines into a file without naming one that is there."""
    for section in (b"\n" + diff).split(b"\ndiff --git a/")[1:]:
        file = old.get(section.partition(b" ")[0].decode())
        if file and file.data and re.search(rb"^@@ -\d+,0 ", section, re.MULTILINE):
            return True
    return False


def overlapping(diff: bytes) -> bool:
    """Whether two hunks of a file share a line, as those of git diff -W can; git apply refuses its own diff then."""
    for section in (b"\n" + diff).split(b"\ndiff --git a/")[1:]:
        end = 0
        for start, count in re.findall(rb"^@@ -(\d+)(?:,(\d+))? ", section, re.MULTILINE):
            first = int(start) + (count == b"0")  # an empty range is told by the line before it
            if first <= end:
                return True
            end = first + int(count or 1) - 1
    return False


@given(cases(), st.integers(0, 3), st.booleans())
@examples(0.25)
def test_apply_gives_the_new_tree_and_unapply_the_old_one(case: Case, at: int, reverse: bool) -> None:
    with scratch() as folder:
        diffs = make_diffs(folder, case)
        patches = write_stack(folder, case.images, diffs)
        kinds = on_purpose(case, diffs)
        try:
            _check_engine(folder, case.images, at % len(case.images))
            assert not kinds
        except StackError as error:
            assert any(kind in str(error) for kind in kinds), (kinds, error)
            event(f"refused: {kinds}")
        _check_others(folder, case, patches, reverse)


def _check_engine(folder: str, images: tuple[Image, ...], at: int) -> None:
    """Name every step; apply what is missing from one of them, then take all out again."""
    total = len(images) - 1
    store = Store(folder)

    def check_state(tree: str, number: int) -> None:
        state = commands.status(tree, store).state
        step = expected_step(images, number)
        assert state and (state.standing, state.applied) == (standing(step, total), step)

    for number, image in enumerate(images):
        check_state(write_tree(f"{folder}/tree-{number}", image), number)
    tree = f"{folder}/tree-{at}"
    before, here = read_tree(f"{folder}/tree-0"), read_tree(tree)
    commands.apply(tree, store, How(dry_run=True))
    assert read_tree(tree) == here
    commands.apply(tree, store, How())
    assert read_tree(tree)[0] == images[-1]
    check_state(tree, total)
    assert commands.apply(tree, store, How()).outcome == "already applied"
    commands.unapply(tree, store)
    assert read_tree(tree) == before
    check_state(tree, 0)


def _check_others(folder: str, case: Case, patches: list[str], reverse: bool) -> None:
    """Where git apply and patch take the diffs, they come to the same bytes."""
    start, end = (case.images[-1], case.images[0]) if reverse else (case.images[0], case.images[-1])
    for name, tool in TOOLS.items():
        tree = write_tree(f"{folder}/{name}", start)
        took, said = tool(tree, patches, reverse)
        if not took or read_tree(tree)[0] != end:
            assert _known(name, case), (name, said)
            event(f"{name}: {_known(name, case)}")


TOOLS = {"git apply": git_apply, "patch": gnu_patch}


def _known(name: str, case: Case) -> str | None:
    """Return why a tool does not come to our bytes though the diff is right, or None where it must."""
    if name == "git apply" and case.context == 0:
        return "takes a hunk without context for the end of the file"  # git manual, apply --unidiff-zero
    if "-W" in case.options:
        if name == "patch":
            return "takes a hunk with less context on one side for an end of the file"  # patch.c, locate_hunk
        return "refuses hunks that overlap, or stand at an end of the file with less context"  # apply.c, find_pos
    return None


SPOIL = ("byte", "byte", "lines", "mode", "gone", "there", "link", "folder", "crlf")


@st.composite
def spoiled(draw: Any) -> tuple[Case, Image, dict[str, str]]:
    """Return a case, one of its trees with one touched file changed, and what is no file there: a link or a folder."""
    case = draw(cases(2))
    image = dict(case.images[draw(st.integers(0, 2)) % len(case.images)])
    path = draw(st.sampled_from(sorted(touched(case.images))))
    file = image.pop(path, None)
    kind = draw(st.sampled_from(SPOIL))
    if kind in ("link", "folder"):
        return case, image, {path: kind}
    if file is None or kind == "there":
        image[path] = draw(files)
    elif kind == "byte":
        at, byte, more = draw(st.integers(0, 60)), draw(st.binary(max_size=1)), draw(st.integers(0, 1))
        image[path] = file._replace(data=file.data[:at] + byte + file.data[at + more :])
    elif kind == "lines":
        image[path] = file._replace(data=draw(edited_lines(file.data)))
    elif kind == "mode":
        image[path] = file._replace(executable=not file.executable)
    elif kind == "crlf":
        image[path] = file._replace(data=file.data.replace(b"\n", b"\r\n"))
    return case, image, {}


def _spoil(tree: str, odd: dict[str, str]) -> None:
    for path, kind in odd.items():
        os.makedirs(os.path.dirname(f"{tree}/{path}"), exist_ok=True)
        if kind == "link":
            os.symlink("../elsewhere", f"{tree}/{path}")
        else:
            os.mkdir(f"{tree}/{path}")


def _refused(call: Any) -> bool:
    """Whether a command refuses; what is in already, or fixed, is no refusal and writes nothing either."""
    try:
        outcome = call().outcome
    except StackError:
        return True
    return outcome in ("already applied", "fixed upstream", "already unapplied")


@given(spoiled())
@examples(0.15)
def test_a_tree_that_differs_in_one_touched_file_is_refused_and_left_as_it_is(
    given: tuple[Case, Image, dict[str, str]],
) -> None:
    case, image, odd = given
    paths = touched(case.images)
    if not odd and any(all(one.get(path) == image.get(path) for path in paths) for one in case.images):
        return
    with scratch() as folder:
        diffs = make_diffs(folder, case._replace(maker="git", options=()))
        write_stack(folder, case.images, diffs)
        if on_purpose(case, diffs):
            return
        store = Store(folder)
        tree = write_tree(f"{folder}/tree", image)
        _spoil(tree, odd)
        before = read_tree(tree)
        state = commands.status(tree, store).state
        assert state and state.standing in OTHERS
        event(state.standing.value)
        for how in (How(), How(dry_run=True), How(RELEASE)):
            assert _refused(lambda how=how: commands.apply(tree, store, how))
            assert read_tree(tree) == before
        if state.standing is not Standing.FORKED:
            assert _refused(lambda: commands.unapply(tree, store))
            assert read_tree(tree) == before


OTHERS = (Standing.DRIFTED, Standing.MIXED, Standing.FORKED, Standing.FIXED, Standing.OTHER)


@st.composite
def forks(draw: Any) -> tuple[Case, Image]:
    """Return a case and its first tree with lines of its own put into some touched files, seldom into a hunk."""
    case = draw(cases(2))
    if draw(st.booleans()):  # the bytes and the bit of one file together
        first, *later = case.images
        later = [{**image, "f": image["f"]._replace(executable=True)} if "f" in image else image for image in later]
        case = case._replace(images=(first, *later))
    image = dict(case.images[0])
    for path in sorted(touched(case.images) & set(image)):
        lines = split_lines(image[path].data)
        for _ in range(draw(st.integers(0, 2))):
            at = draw(st.sampled_from((0, len(lines), len(lines) // 2)))
            lines[at:at] = [b"mine %d\n" % number for number in range(draw(st.integers(1, 4)))]
        image[path] = image[path]._replace(data=b"".join(lines))
    return case, image


def _loses_an_end(case: Case, diffs: list[bytes]) -> bool:
    """Whether patch may take a line that loses its newline, and has no context, for an equal one in mid-file.

    Then it says that it has patched the file, and changes nothing (2.7.6). Only the last line can be meant.
    """
    return case.context == 0 and any(b"\\ No newline" in diff for diff in diffs)


def _one_file(*contents: bytes) -> tuple[Image, ...]:
    return tuple({"f": File(data, False)} for data in contents)


def _with_a_mode(*contents: bytes) -> tuple[Image, ...]:
    """Trees of the package's file, and another whose executable bit the second tree sets."""
    return tuple({INIT: File(data, False), "f": File(b"", number == 1)} for number, data in enumerate(contents))


ANYWAY = b"b\na\na\nb\na\na\na\n"
"""What a hunk makes of its end stands in it before."""

FORK = How(fork=True, prove=lambda *_: Proof(True, "proven"))


@given(forks())
@example((Case(_one_file(b"a\na\n", b"a\na"), "git", 0, ()), *_one_file(b"mine 0\na\na\n")))
@example((Case(_with_a_mode(b"a\nb\na\nb", b"a\nb\na\nb\n"), "git", 1, ()), _with_a_mode(b"a\nb\na\nbmine\n")[0]))
@example((Case(_with_a_mode(b"a\nb\n", b"a\n"), "git", 3, ()), _with_a_mode(b"a\nmine 0\nb\n")[0]))
@example((Case(_one_file(ANYWAY, b"b\na\na\n" + ANYWAY), "git", 3, ()), *_one_file(b"mine 0\n" + ANYWAY)))
@examples(0.1)
def test_a_fork_is_patched_as_gnu_patch_would_or_refused_and_unapply_is_the_way_back(given: tuple[Case, Image]) -> None:
    case, image = given
    with scratch() as folder:
        diffs = make_diffs(folder, case._replace(maker="git", options=()))
        patches = write_stack(folder, case.images, diffs)
        names = {INIT, LAZY_INIT} & touched(case.images)
        unnamed = names & set(image) and not names & set(case.images[-1])  # what is left is no torch_musa
        if on_purpose(case, diffs) or image in case.images or unnamed:
            return
        store = Store(folder)
        tree, other = write_tree(f"{folder}/tree", image), write_tree(f"{folder}/other", image)
        before = read_tree(tree)
        took, _ = gnu_patch(other, patches)
        try:
            outcome = commands.apply(tree, store, FORK)
        except StackError:
            event(f"refused, patch takes it: {took}")
            assert read_tree(tree) == before
            return
        after = read_tree(tree)
        event(f"{outcome.outcome}, patch takes it: {took}")
        if took and not outcome.data.get("left_out") and not _loses_an_end(case, diffs):
            assert after[0] == read_tree(other)[0]
        state = commands.status(tree, store).state
        assert state
        event(f"then {state.standing.value}")
        assert state.standing is Standing.FORKED
        commands.unapply(tree, store)
        assert read_tree(tree) == before
