"""Random trees and random edits of them: what a hypothesis test draws before a real tool makes the diffs.

The contents are small and awkward: bytes that some line reader breaks a line at, lines that look like a diff, equal
blocks, no final newline. Everything shrinks towards one file of a few plain lines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase

from stack.plan import File
from stack.state import INIT, LAZY_INIT

BUILD = Path(__file__).resolve().parents[1] / "build" / "hypothesis"
EXAMPLES = int(os.environ.get("EXAMPLES", "2000"))
"""Examples of all properties together; each takes its share."""

Image = dict[str, File]
"""The files of a tree, by path."""


def examples(share: float) -> Callable[[Any], Any]:
    """Return the settings of one property: its share of EXAMPLES; the same ones each time unless more are asked for.

    No deadline: a real tool on a loaded machine takes its time.
    """
    repeat = "EXAMPLES" not in os.environ
    return settings(
        max_examples=max(1, int(EXAMPLES * share)),
        derandomize=repeat,
        database=None if repeat else DirectoryBasedExampleDatabase(BUILD),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=not repeat,
        phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    )


LINES = (
    *(b"a", b"b", b"", b"}", b"    return x", b"def f():", b"x = 1", b" ", b"\t", b"-", b"+"),
    *(b"\r", b"a\r", b"a\rb", b"x\x0by", b"\x0c", b"\x1c", b"caf\xe9", b"\xff\xfe", b"\xe2\x80\xa8", b"\xc2\x85"),
    *(b"-- a/f", b"++ b/f", b"--- a/f", b"+++ b/f", b"@@ -1 +1 @@", b"diff --git a/f b/f", b"index 1..2 100644"),
    *(b"\\ No newline at end of file", b"GIT binary patch", b"Binary files a and b differ", b"rename from f"),
    *(b"x" * 300, b"\xef\xbb\xbf", b"From: a", b"---", b"1,2d", b"Index: f"),
)
PATHS = ("f", "d/g.py", "d/e/h.sh", INIT, LAZY_INIT, "tests/t.py", "z-1_2.txt")
MODES = {False: 0o644, True: 0o755}


def _lines(raw: bytes) -> list[bytes]:
    """Return a line for each byte: one draw for many lines is what makes a thousand trees quick."""
    return [LINES[byte] if byte < len(LINES) else bytes([byte]) * (byte % 3 + 1) for byte in raw]


def _numbered(start: int, count: int) -> list[bytes]:
    return [b"line %d" % number for number in range(start, start + count)]


# Distinct lines keep hunks apart; a block that comes again gives a hunk a second place.
few = st.binary(min_size=1, max_size=6).map(_lines)
segments = st.one_of(
    few,
    st.builds(_numbered, st.integers(0, 3), st.integers(1, 24)),
    st.builds(lambda block, times: block[:3] * times, few, st.integers(2, 4)),
)
bodies = st.lists(segments, max_size=4).map(lambda parts: [line for part in parts for line in part])

# Two or three lines that differ, over and over: a block stands at many places.
BLOCKS = st.lists(st.sampled_from((b"a", b"b", b"", b"ab")), max_size=40)


def joined(lines: Sequence[bytes], newline: bool) -> bytes:
    """Return the lines as a file, with or without a newline at its end."""
    data = b"\n".join(lines)
    return data + b"\n" if newline and lines else data


newlines = st.sampled_from((True, True, True, False))
files = st.builds(lambda lines, newline, bit: File(joined(lines, newline), bit), bodies, newlines, st.booleans())


@st.composite
def edited_lines(draw: Callable[..., Any], data: bytes) -> bytes:
    """Return a file after one to three edits: lines put in, taken out, changed, doubled or moved."""
    newline = data.endswith(b"\n") or not data
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(lines)))
        end = min(len(lines), start + draw(st.integers(0, 3)))
        kind = draw(st.sampled_from(("put", "cut", "change", "double", "move", "newline")))
        if kind == "put":
            lines[start:start] = draw(segments)
        elif kind == "cut":
            del lines[start : end + 1]
        elif kind == "change":
            lines[start:end] = draw(few)[:3]
        elif kind == "double":
            lines[end:end] = lines[start:end]
        elif kind == "move":
            block = lines[start:end]
            del lines[start:end]
            at = draw(st.integers(0, len(lines)))
            lines[at:at] = block
        else:
            newline = not newline
    return joined(lines, newline)


@st.composite
def edited(draw: Callable[..., Any], image: Image) -> Image:
    """Return a tree after edits of one to three of its files; never the same tree."""
    result = dict(image)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(PATHS))
        file = result.get(path)
        kind = draw(st.sampled_from(("edit", "edit", "edit", "both", "mode", "delete", "empty")))
        if file is None:
            result[path] = draw(files)
        elif kind in ("edit", "both"):
            result[path] = File(draw(edited_lines(file.data)), file.executable != (kind == "both"))
        elif kind == "mode":
            result[path] = file._replace(executable=not file.executable)
        elif kind == "empty":
            result[path] = file._replace(data=b"")
        else:
            del result[path]
    if result == image:
        file = result.get("f", File(b"", False))
        result["f"] = file._replace(data=b"only here\n" + file.data)
    return result


class Case(NamedTuple):
    """A tree before, and after each patch; which real tool makes the diffs, and with what options."""

    images: tuple[Image, ...]
    maker: str
    context: int
    options: tuple[str, ...]


trees = st.dictionaries(st.sampled_from(PATHS), files, min_size=1, max_size=4)
GIT_OPTIONS = ((), ("--patience",), ("--histogram",), ("--minimal",), ("-W",), ("--inter-hunk-context=9",))
DIFF_OPTIONS = ((), ("--minimal",), ("-p",), ("--speed-large-files",))


@st.composite
def cases(draw: Callable[..., Any], most_patches: int = 3) -> Case:
    """Return a tree and the trees after each of one to three patches."""
    images = [draw(trees)]
    for _ in range(draw(st.integers(1, most_patches))):
        images.append(draw(edited(images[-1])))
    if pins_nothing(images) and draw(st.integers(0, 9)) < 9:  # the rule is tried often enough with one in ten
        images = [{**image, "f": File(b"%d\n" % number, False)} for number, image in enumerate(images)]
    maker = draw(st.sampled_from(("git", "diff")))
    context = draw(st.sampled_from((3, 3, 3, 1, 2, 8, 0)))
    options = draw(st.sampled_from(GIT_OPTIONS if maker == "git" else DIFF_OPTIONS))
    return Case(tuple(images), maker, context, options)


def touched(images: Sequence[Image]) -> set[str]:
    """Return the paths that some patch touches."""
    return {path for one in images for path in one if len({image.get(path) for image in images}) > 1}


def pins_nothing(images: Sequence[Image]) -> bool:
    """Whether the stack touches no file of its first tree, or of its last."""
    paths = touched(images)
    return not paths & set(images[0]) or not paths & set(images[-1])
