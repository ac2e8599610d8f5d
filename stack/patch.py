"""One patch file: a mail header, then a git diff of regular text files.

unidiff reads the hunks. It is a lenient reader, so nothing that it returns is believed before it
has been turned back into bytes and compared with the file: what the parse does not explain, byte
by byte, makes the patch malformed (exit code 3, with the line).

What is read: changes, new files, deleted files and executable bits (100644, 100755). Renames,
copies, symbolic links, submodules and binary files are refused by name, never half applied.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from stack.digest import split_lines
from stack.errors import Environment, Malformed
from stack.paths import check_path, check_twins

LARGEST = 16 * 1024 * 1024
"""Bytes that a patch file may have; a larger one is refused unread."""
MOST_LINES = 200_000
"""Lines that a patch file may have: unidiff takes some 20 microseconds for each."""

_MODE_LINES = (b"old mode", b"new mode", b"new file mode", b"deleted file mode")
_UNSUPPORTED = (
    *(b"rename ", b"copy ", b"similarity ", b"dissimilarity "),
    *(b"Binary files ", b"GIT binary patch", b"Subproject "),
)
# Lines that some applier would take for the start of a diff although they stand in the message.
_SAMPLE_DIFF = (b"diff ", b"--- ", b"+++ ", b"@@ ", b"*** ", b"Index: ", b"GIT binary patch")
# GNU patch takes a diff that is indented, by blanks or X, or quoted as in RFC 934 (pch.c).
_INDENTED_DIFF = (b"diff --git ", b"--- ", b"+++ ", b"@@ -", b"*** ", b"Index: ")
_ED_COMMAND = rb"\d+(,\d+)?[acd](\d+(,\d+)?)?\s*"
_NO_NEWLINE = b"\\ No newline at end of file\n"
_MODES = {b"100644": 0o644, b"100755": 0o755}
_ODD_MODES = {b"120000": "a symbolic link", b"160000": "a submodule"}
_HEX = frozenset(b"0123456789abcdef")
_KINDS = (" ", "-", "+")
# Nine digits: what no file has more lines than, and what every tool can hold in a machine word.
_COUNTS = re.compile(rb"@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
ABSENT = "0" * 40
"""The blob id that an index line has where the file is absent."""
_EMPTY = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
_GET_UNIDIFF = "It reads the patches: apt install python3-unidiff, or pip install unidiff."
_AGAIN = "apply.py refresh writes the form that is read here (see CONTRIBUTING)."


class Hunk(NamedTuple):
    """One hunk: `old` and `new` are the first lines (1-based, as in its header) of both images."""

    old: int
    new: int
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]
    lines: tuple[tuple[str, bytes], ...]
    """Each line: ' ', '-' or '+', and its bytes, the newline included where it has one."""
    number: int
    """The line of the patch file where the hunk header stands."""


class FileChange(NamedTuple):
    """What one patch does to one file. A mode is None where the file is absent."""

    path: str
    old_mode: int | None
    new_mode: int | None
    old_blob: str | None
    new_blob: str | None
    hunks: tuple[Hunk, ...]


class Patch(NamedTuple):
    """A parsed patch file; `head` is all before the diff, its `---` line included."""

    name: str
    head: bytes
    files: tuple[FileChange, ...]


def parse_patch(data: bytes, name: str) -> Patch:
    """Return the patch in data; raise Malformed with `name`, the line and what is wrong there."""
    if len(data) > LARGEST:
        raise Malformed(f"{name}: {len(data)} bytes; a patch has at most {LARGEST}")
    if (count := data.count(b"\n")) > MOST_LINES:
        raise Malformed(f"{name}: {count} lines; a patch has at most {MOST_LINES}")
    lines = split_lines(data)
    if lines and not lines[-1].endswith(b"\n"):
        raise Malformed(f"{name}:{len(lines)}: the last line has no newline: cut off?", _AGAIN)
    starts = [number for number, line in enumerate(lines) if line.startswith(b"diff --git ")]
    if not starts:
        raise Malformed(f"{name}:1: holds no git diff", _AGAIN)
    if lines[starts[0]].endswith(b"\r\n"):
        raise Malformed(f"{name}:{starts[0] + 1}: ends in CR LF: the patch was converted", _AGAIN)
    _check_head(lines[: starts[0]], name)
    ends = [*starts[1:], len(lines)]
    files = tuple(_Section(lines, *span, name).read() for span in zip(starts, ends, strict=True))
    seen: set[str] = set()
    for start, change in zip(starts, files, strict=True):
        if change.path in seen:
            raise Malformed(f"{name}:{start + 1}: changes one file in two places: {change.path}")
        seen.add(change.path)
    check_twins(seen, f"{name}:{starts[0] + 1}")
    return Patch(name, b"".join(lines[: starts[0]]), files)


def _check_head(head: list[bytes], name: str) -> None:
    if not head or head[-1] != b"---\n":
        raise Malformed(f"{name}:{len(head) + 1}: no line '---' between the message and the diff", _AGAIN)
    for number, line in enumerate(head[:-1], 1):
        if _misread(line):
            raise Malformed(
                f"{name}:{number}: an applier would take this line of the message for "
                "the end of the message or the start of a diff",
                "Say it in words, or put '> ' before it: GNU patch takes an indented diff, too.",
            )


def _misread(line: bytes) -> bool:
    bare = line.removeprefix(b"- ").lstrip(b" \tX")
    ends_message = line.startswith(b"---") and not line[3:].strip()
    return (
        ends_message
        or line.startswith(_SAMPLE_DIFF)
        or bare.startswith(_INDENTED_DIFF)
        or (bare[:1].isdigit() and re.fullmatch(_ED_COMMAND, bare) is not None)
    )


class _Section:
    """The lines of one file in a git diff, read from the top."""

    def __init__(self, lines: list[bytes], start: int, end: int, name: str) -> None:
        self.lines = lines
        self.at = self.start = start
        self.end = end
        self.name = name

    def fail(self, what: str, tip: str = _AGAIN) -> Malformed:
        return Malformed(f"{self.name}:{self.at + 1}: {what}", tip)

    def line(self) -> bytes:
        return self.lines[self.at] if self.at < self.end else b""

    def expect(self, line: bytes) -> None:
        if self.line() != line:
            found = self.line()[:80] if self.at < self.end else b"the end of the patch"
            raise self.fail(f"expected {_show(line)}, found {_show(found)}")
        self.at += 1

    def read(self) -> FileChange:
        path = self._path()
        modes = self._modes()
        self._check_supported()
        index = self._index()
        self._check_supported()
        change = self._header(path, modes, index)
        if not index and self.at < self.end:
            raise self.fail(f"expected an index line, found {_show(self.line())}")
        return change._replace(hunks=self._hunks(change)) if index else change

    def _check_supported(self) -> None:
        if self.line().startswith(_UNSUPPORTED):
            raise self.fail(f"{_show(self.line())} is not supported: only text changes are")

    def _path(self) -> str:
        names = self.line()[len(b"diff --git ") : -1]
        name = names[2 : (len(names) - 1) // 2]
        if names != b"a/%s b/%s" % (name, name):
            raise self.fail("the two names of a diff --git line differ, or are quoted")
        self.at += 1
        return check_path(name.decode("ascii", "backslashreplace"), f"{self.name}:{self.at}")

    def _modes(self) -> dict[bytes, int]:
        modes: dict[bytes, int] = {}
        while self.line().startswith(_MODE_LINES):
            kind, _, mode = self.line()[:-1].rpartition(b" ")
            if mode not in _MODES or kind not in _MODE_LINES:
                odd = _ODD_MODES.get(mode, "an odd mode")
                raise self.fail(f"{_show(self.line())} ({odd}) is not supported")
            modes[kind] = _MODES[mode]
            self.at += 1
        if tuple(modes) not in ((), _MODE_LINES[:2], _MODE_LINES[2:3], _MODE_LINES[3:]):
            raise self.fail("mode lines that do not belong together")
        if modes and len(modes) == 2 and len(set(modes.values())) == 1:
            raise self.fail("the two modes are the same")
        return modes

    def _index(self) -> tuple[str, str, bytes] | None:
        """Read the index line: both blob ids, and the mode if it names one."""
        if not self.line().startswith(b"index "):
            return None
        ids, _, mode = self.line()[len(b"index ") : -1].partition(b" ")
        old, dots, new = ids.partition(b"..")
        if not dots or not all(len(one) == 40 and _HEX.issuperset(one) for one in (old, new)):
            raise self.fail("the blob ids are not full, or the line is damaged")
        if mode and mode not in _MODES or self.line()[:-1].endswith(b" "):
            raise self.fail(f"{_show(self.line())} ({_ODD_MODES.get(mode, 'an odd mode')}) is not supported")
        self.at += 1
        return old.decode(), new.decode(), mode

    def _header(self, path: str, modes: dict[bytes, int], index: tuple[str, str, bytes] | None) -> FileChange:
        created, deleted = modes.get(b"new file mode"), modes.get(b"deleted file mode")
        old_mode, new_mode = modes.get(b"old mode", deleted), modes.get(b"new mode", created)
        if index and index[2]:
            if modes:
                raise self.fail("a mode in the index line beside other mode lines")
            old_mode = new_mode = _MODES[index[2]]
        if old_mode is None and new_mode is None or not index and (created or deleted):
            raise self.fail("no mode, or no blob ids, for this file")
        if not index:
            return FileChange(path, old_mode, new_mode, None, None, ())
        if [blob == ABSENT for blob in index[:2]] != [created is not None, deleted is not None]:
            raise self.fail("the blob ids do not go with a new or deleted file")
        return FileChange(path, old_mode, new_mode, index[0], index[1], ())

    def _hunks(self, change: FileChange) -> tuple[Hunk, ...]:
        if self.at == self.end and change.old_blob != change.new_blob and self._empty(change):
            return ()
        self.expect(b"--- a/%s\n" % change.path.encode() if change.old_mode else b"--- /dev/null\n")
        self.expect(b"+++ b/%s\n" % change.path.encode() if change.new_mode else b"+++ /dev/null\n")
        hunks = tuple(self._explained(self._parsed()))
        if not hunks or self.at != self.end:
            raise self.fail(f"not part of any hunk: {_show(self.line())}")
        self._check_positions(hunks, change)
        return hunks

    @staticmethod
    def _empty(change: FileChange) -> bool:
        """Whether the change makes or removes an empty file, which git writes without a hunk."""
        return {change.old_blob, change.new_blob} == {ABSENT, _EMPTY}

    def _parsed(self) -> Any:
        """Let unidiff read the hunks from here on, and nothing else.

        The names that it is given are not those of the file: they are checked already, and unidiff
        before 1.0 stumbles over those of new files. Latin-1 maps every byte to one character and back.
        """
        try:
            from unidiff import PatchSet
            from unidiff.errors import UnidiffParseError
        except ImportError as error:
            raise Environment(f"unidiff cannot be imported: {error}", _GET_UNIDIFF) from error

        self._check_headers()
        text = [line.decode("latin-1") for line in self.lines[self.at : self.end]]
        try:
            files = PatchSet(["--- a/x\n", "+++ b/x\n", *text])
        except (UnidiffParseError, ValueError) as error:
            raise self._locate(str(error).strip()) from error
        if len(files) != 1:
            raise self._locate("they read as those of several files")
        return files[0]

    def _check_headers(self) -> None:
        """Check each hunk header before unidiff makes numbers of it: no line of a hunk begins with @."""
        for number in range(self.at, self.end):
            if self.lines[number].startswith(b"@@") and not _COUNTS.match(self.lines[number]):
                self.at = number
                raise self.fail(f"not a hunk header: {_show(self.line()[:80])}")

    def _locate(self, message: str) -> Malformed:
        """Name the first line that is no part of a hunk, or the hunk that has not the lines it counts."""
        while self.at < self.end:
            match = _COUNTS.match(self.line())
            if not match:
                return self.fail(f"not part of any hunk: {_show(self.line())}")
            want = [1 if count is None else int(count) for count in match.groups()]
            have, end = self._counted(want)
            if have != want:
                return self.fail(f"the hunk has not the lines that its header counts ({message})")
            self.at = end
        self.at = self.start
        return self.fail(f"unreadable hunks ({message})")

    def _counted(self, want: list[int]) -> tuple[list[int], int]:
        """Return how many lines of both sides the hunk here has, at most `want`, and where it ends."""
        have = [0, 0]
        for number in range(self.at + 1, self.end):
            kind = self.lines[number][:1]
            if kind != b"\\" and (have == want or kind not in (b" ", b"-", b"+")):
                return have, number
            have[0] += kind in (b" ", b"-")
            have[1] += kind in (b" ", b"+")
        return have, self.end

    def _explained(self, parsed: Any) -> Iterator[Hunk]:
        """Yield the hunks, having found each byte of them again in the patch file."""
        for hunk in parsed:
            number = self.at + 1
            self._header_line(hunk)
            lines: list[tuple[str, bytes]] = []
            for line in hunk:
                if line.line_type == "\\":
                    self.expect(_NO_NEWLINE)
                    self._strip_newline(lines)
                elif line.line_type not in _KINDS:  # unidiff hangs an empty line on to the hunk before it
                    raise self.fail(f"not part of any hunk: {_show(self.line())}")
                else:
                    text = line.value.encode("latin-1")
                    self.expect(line.line_type.encode() + text)
                    lines.append((line.line_type, text))
            before = tuple(text for kind, text in lines if kind != "+")
            after = tuple(text for kind, text in lines if kind != "-")
            yield Hunk(hunk.source_start, hunk.target_start, before, after, tuple(lines), number)

    def _header_line(self, hunk: Any) -> None:
        def span(start: int, length: int) -> str:
            return f"{start}" if length == 1 else f"{start},{length}"

        old = span(hunk.source_start, hunk.source_length)
        new = span(hunk.target_start, hunk.target_length)
        section = f" {hunk.section_header}" if hunk.section_header else ""
        self.expect(f"@@ -{old} +{new} @@{section}\n".encode("latin-1"))

    def _strip_newline(self, lines: list[tuple[str, bytes]]) -> None:
        if not lines or not lines[-1][1].endswith(b"\n"):
            self.at -= 1
            raise self.fail("a marker for a missing newline that no line stands before")
        kind, text = lines[-1]
        lines[-1] = (kind, text[:-1])

    def _check_positions(self, hunks: tuple[Hunk, ...], change: FileChange) -> None:
        """The hunks are in order, apart, prove their place, and both numberings agree."""
        end, shift = 0, 0
        for hunk in hunks:
            self.at = hunk.number - 1
            first = hunk.old if hunk.before else hunk.old + 1
            if first <= end or first < 1:
                raise self.fail("the hunk overlaps the one before it, or stands before it")
            if (hunk.new if hunk.after else hunk.new + 1) != first + shift:
                raise self.fail("the line numbers of the two sides do not agree")
            if not hunk.before and (change.old_blob not in (ABSENT, _EMPTY) or len(hunks) > 1):
                raise self.fail("the hunk has no context: nothing would prove its place")
            if hunk.before == hunk.after:
                raise self.fail("the hunk changes nothing")
            self._check_last_lines(hunk, hunk is hunks[-1])
            end, shift = first + len(hunk.before) - 1, shift + len(hunk.after) - len(hunk.before)
        self._check_whole(hunks, change)

    def _check_last_lines(self, hunk: Hunk, last: bool) -> None:
        for side in (hunk.before, hunk.after):
            inner = side[:-1] if last else side
            if any(not line.endswith(b"\n") for line in inner):
                raise self.fail("a line without a newline is not the last one of the file")

    def _check_whole(self, hunks: tuple[Hunk, ...], change: FileChange) -> None:
        if change.old_mode is None and (len(hunks) != 1 or hunks[0].before or hunks[0].old):
            raise self.fail("a new file has lines before it is made")
        if change.new_mode is None and (len(hunks) != 1 or hunks[0].after or hunks[0].new):
            raise self.fail("a deleted file keeps lines")


def _show(line: bytes) -> str:
    return repr(line.rstrip(b"\n").decode("utf-8", "backslashreplace"))
