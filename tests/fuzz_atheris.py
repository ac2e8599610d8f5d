"""Coverage-guided fuzzing of one target: python tests/fuzz_atheris.py TARGET CORPUS [options of libFuzzer].

A target is a parser, or `apply`: a small tree in memory, of which one file, or one file of its stack, is the input.
Only a StackError may come out; a malformed input must leave every byte and mode of the tree as it was. A hang and a
growth of memory are libFuzzer's to catch (-timeout, -rss_limit_mb). `make fuzz` runs all targets; it needs
requirements/fuzz.txt. CORPUS gets the seeds: our own patches, series, pins and journals.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator

import atheris

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [ROOT]

with atheris.instrument_imports(include=["stack", "unidiff"]):
    import unidiff  # noqa: F401

    import stack.drift
    import stack.fork
    import stack.fork_commands
    from stack import commands
    from stack.commands import How
    from stack.digest import sha256
    from stack.errors import StackError
    from stack.header import parse_header
    from stack.journal import format_record, parse_record
    from stack.patch import parse_patch
    from stack.paths import JOURNAL
    from stack.pins import format_pins, parse_pins
    from stack.series import parse_series
    from stack.store import Release, Store

Shot = dict[str, tuple[int, bytes]]
SPECIMEN = f"{ROOT}/tests/specimen"
STACK = "2.7.1+specimen"
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
PLACE = b"place 7\n"
RECORD = b"torch-musa-patches journal 1\nhost a b\npid 9\n%sfile 0 - %s x\nmade d\ngone 755 e\nend\n"
RECORD %= (PLACE, b"0" * 64)
# Words that chance would be long in finding.
WORDS = (
    *(b"diff --git a/x b/x\n", b"--- a/x\n", b"+++ b/x\n", b"--- /dev/null\n", b"@@ -1 +1 @@\n", b"@@ -0,0 +1,0 @@\n"),
    *(b"\\ No newline at end of file\n", b"new file mode 100644\n", b"old mode 100644\nnew mode 100755\n", b"0" * 40),
    *(
        b"../",
        b".git/",
        b".patch\n",
        b"\\ud800",
        b"\\u001b",
        b"null",
        b"[[[[[[[[",
        b"9999999999",
        b"gone 755 x\n",
        b"made x\n",
    ),
)


def _read(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()


def _files(folder: str) -> Iterator[str]:
    for above, folders, names in os.walk(folder):
        folders.sort()
        yield from (f"{above}/{name}" for name in sorted(names) if not name.endswith(".pyc"))


def _ours(*ends: str) -> list[bytes]:
    """Return our own files whose names end so: the seeds."""
    folders = (f"{ROOT}/patches", f"{ROOT}/series", f"{SPECIMEN}/stacks")
    return [_read(path) for folder in folders for path in _files(folder) if path.endswith(ends)]


def patch(data: bytes) -> None:
    """What parses comes to hunks that are within the patch, and its head to a header or an error."""
    parsed = parse_patch(data, "x")
    assert parsed.files and data.startswith(parsed.head)
    parse_header(parsed.head, "x")


def series(data: bytes) -> None:
    """What parses is written again as the same names."""
    names = parse_series(data, "x")
    assert len(set(names)) == len(names)
    assert parse_series("".join(f"{name}\n" for name in names).encode(), "x") == names


def pins(data: bytes) -> None:
    """What parses is written again as the same bytes."""
    assert format_pins(parse_pins(data, "x")) == data


def header(data: bytes) -> None:
    """A header or an error."""
    parse_header(data, "x")


def record(data: bytes) -> None:
    """What parses is written again, and parses as the same record."""
    found = parse_record(data, "x")
    assert found is None or parse_record(format_record(found), "x") == found


class _Given(Release):
    """A release of which every file is the input."""

    data = b""

    def read(self, label: str) -> bytes:
        return self.data


def data_files(data: bytes) -> None:
    """release.json or fingerprint.json: the first byte says which."""
    release = _Given("x", "x")
    release.data = data[1:]
    if data[:1] < b"\x80":
        assert isinstance(release.about["directories"], list)
    else:
        for path in release.fingerprint:
            stack.fingerprint.known_lines(release, path)


def _own_folder() -> str:
    """Return a new folder in memory, in a child process: libFuzzer ends without cleaning up, so the parent does."""
    folder = tempfile.mkdtemp(prefix="fuzz-", dir=MEMORY)
    if os.fork():
        _, status = os.wait()
        shutil.rmtree(folder)
        sys.exit(os.waitstatus_to_exitcode(status))
    return folder


class World:
    """A copy of the specimen and its stack, one file of which is the input; put right again after each run."""

    def __init__(self) -> None:
        self.folder = _own_folder()
        self.tree, self.stacks = f"{self.folder}/tree", f"{self.folder}/stacks"
        for kind in ("series", "patches"):
            os.makedirs(f"{self.stacks}/{kind}")
        patches = f"{self.stacks}/patches/{STACK}"
        shutil.copytree(f"{SPECIMEN}/stacks/patches/{STACK}", patches)
        shutil.copy(f"{SPECIMEN}/stacks/series/{STACK}", f"{self.stacks}/series/{STACK}")
        paths = sorted(Store(self.stacks).paths)
        self.slots = [*_files(self.stacks), *(f"{self.tree}/{path}" for path in paths), f"{self.tree}/{JOURNAL}/record"]
        self.kept = {path: _read(path) for path in _files(self.stacks)}
        self.store = Store(self.stacks)
        self.reset()
        self.before = self.shot()

    def reset(self) -> None:
        """Make the tree that of the release again."""
        shutil.rmtree(self.tree, ignore_errors=True)
        for path in Store(self.stacks).release(STACK).base:
            os.makedirs(os.path.dirname(f"{self.tree}/{path}"), exist_ok=True)
            shutil.copyfile(f"{SPECIMEN}/2.7.1/{path}", f"{self.tree}/{path}")

    def shot(self) -> Shot:
        """Return the mode and the bytes of all that is in the tree."""
        found = {}
        for above, folders, names in os.walk(self.tree):
            for name in [*folders, *names]:
                path = f"{above}/{name}"
                found[path] = (os.lstat(path).st_mode, _read(path) if name in names else b"")
        return found

    def put(self, slot: str, data: bytes) -> None:
        """Let one file be the input; a record is that of this very place, else none would be obeyed."""
        folder = os.path.dirname(slot)
        os.makedirs(folder, exist_ok=True)
        if slot.endswith("/record"):
            data = data.replace(PLACE, b"place %d\n" % os.stat(folder).st_ino)
        with open(slot, "wb") as stream:
            stream.write(data)

    def run(self, data: bytes) -> None:
        """Status, apply and unapply with the input in the place that its first byte names."""
        slot = self.slots[(data[0] if data else 0) % len(self.slots)]
        self.put(slot, data[1:])
        self.store = Store(self.stacks)
        try:
            for verb in (self._status, self._apply, self._unapply):
                self._try(verb, slot)
        finally:
            if slot in self.kept:
                self.put(slot, self.kept[slot])
            if self.shot() != self.before:
                self.reset()

    def _try(self, verb: Callable[[], bool], slot: str) -> None:
        start = self.shot()
        try:
            wrote = verb()
        except StackError:
            wrote = False
        # A journal is a run that was cut off: to undo it is to write.
        if not wrote and not slot.endswith("/record"):
            assert self.shot() == start, f"{verb.__name__} wrote although it refused"

    def _status(self) -> bool:
        commands.status(self.tree, self.store)
        return False

    def _apply(self) -> bool:
        outcome = commands.apply(self.tree, self.store, How()).outcome
        self._check_digests("result.sha256")
        return outcome == "applied"

    def _unapply(self) -> bool:
        outcome = commands.unapply(self.tree, self.store).outcome
        if outcome != "unapplied from a fork":
            self._check_digests("base.sha256")
        return outcome != "already unapplied"

    def _check_digests(self, name: str) -> None:
        pinned = parse_pins(_read(f"{self.stacks}/patches/{STACK}/{name}"), name)
        for path, digest in pinned.items():
            assert sha256(_read(f"{self.tree}/{path}")) == digest, f"{path} is not what {name} says"

    def seeds(self) -> list[bytes]:
        """Return each file as it is and with one byte changed, after the byte that names its place."""
        found = []
        for number, slot in enumerate(self.slots):
            data = RECORD if slot.endswith("/record") else _read(slot) if os.path.exists(slot) else b"x\n"
            changed = [
                data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(0, len(data), len(data) // 8 + 1)
            ]
            found += [bytes([number]) + one for one in (data, *changed)]
        return found


def _targets(name: str) -> tuple[Callable[[bytes], None], list[bytes]]:
    if name == "apply":
        world = World()
        return world.run, world.seeds()
    plain: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
        "patch": (patch, _ours(".patch")),
        "series": (series, [b"0001-a.patch\n", *_ours("/2.7.1", "/2.11.0.post1", "specimen")]),
        "pins": (pins, _ours(".sha256")),
        "header": (header, [one[: one.index(b"\n---\n") + 5] for one in _ours(".patch")]),
        "record": (record, [RECORD]),
        "data": (
            data_files,
            [b"\0" + one for one in _ours("release.json")] + [b"\xff" + one for one in _ours("int.json")],
        ),
    }
    return plain[name]


def main() -> None:
    """Write the seeds, then let libFuzzer run the target."""
    name, corpus = sys.argv[1:3]
    call, seeds = _targets(name)
    os.makedirs(corpus, exist_ok=True)
    for number, seed in enumerate(seeds):
        with open(f"{corpus}/seed-{number}", "wb") as stream:
            stream.write(seed)
    with open(f"{corpus}.dict", "w") as words:
        words.writelines('"{}"\n'.format("".join(f"\\x{byte:02x}" for byte in word)) for word in WORDS)

    def one(data: bytes) -> None:
        try:
            call(data)
        except StackError as error:
            str(error).encode()  # a message must be fit to print

    atheris.Setup([sys.argv[0], *sys.argv[2:], f"-dict={corpus}.dict"], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
