"""Hostile patches, series, pins and trees: no command is run, nothing outside is written, and time and memory end.

What a person can read is in tests/cases; here is what is too large for that, or is about the process.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cases_runner import CASES, RELEASE, Case, lay_out, make_stacks
from conftest import INIT, LAZY_INIT, ROOT, STACKS, Ran, contents, copy_specimen
from fuzz_tools import wrapped, write_stack
from stacks import git

import apply as command
from stack import commands, fork, gitrecover, history
from stack.bindings import LARGEST_SOURCE, parse
from stack.digest import git_blob, sha256
from stack.errors import StackError
from stack.journal import GIT, Record, format_record
from stack.journal import Line as JournalLine
from stack.lock import this_host
from stack.patch import LARGEST
from stack.paths import JOURNAL
from stack.plan import File
from stack.store import Store
from verify.lint import lint_command

MEMORY = 1 << 30
"""Bytes of address space that a run gets: more than any real one needs, less than any machine has."""
SECONDS = 20
"""Seconds of processor time; what is slow here takes five on a slow machine."""


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


def limited(*words: object, env: dict[str, str] | None = None) -> Ran:
    """Run apply.py with limits of memory and time, in the C locale; it must end by itself, without a traceback."""
    argv = [sys.executable, str(ROOT / "apply.py"), *map(str, words)]
    plain = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONUTF8": "0"}
    done = subprocess.run(argv, env={**plain, **(env or {})}, capture_output=True, timeout=60, preexec_fn=_limit)
    said = Ran(done.returncode, done.stdout.decode("ascii"), done.stderr.decode("ascii"))
    assert said.code in (0, 1, 2, 3, 4) and "Traceback" not in said.stderr, said
    return said


class Place:
    """A tree and a stacks folder, made from a small case."""

    def __init__(self, scratch: Path, case: str = "series-two-patches") -> None:
        self.tree = lay_out(Case(CASES / case), scratch)
        self.song = self.tree / "song"
        self.stacks = scratch / "stacks"
        make_stacks(Case(CASES / case), self.stacks)
        self.folder = self.stacks / "patches" / RELEASE
        self.patch = self.folder / "0001-a.patch"
        self.series = self.stacks / "series" / RELEASE

    def put(self, hunks: bytes) -> None:
        """Give the first patch other hunks."""
        head = self.patch.read_bytes().partition(b"@@ ")[0]
        self.patch.write_bytes(head + hunks)

    def message(self, text: bytes) -> None:
        data = self.patch.read_bytes()
        self.patch.write_bytes(data.replace(b"\n---\n", b"\n" + text + b"\n---\n", 1))

    def drift(self) -> None:
        self.song.write_bytes(b"other\n")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def _deep_json(place: Place) -> None:
    (place.folder / "fingerprint.json").write_bytes(b"[" * 1_000_000)
    place.drift()


def _wide_json(place: Place) -> None:
    (place.folder / "fingerprint.json").write_bytes(b'{"song": {"lines": [' + b'"",' * 2_000_000 + b'""]}}')
    place.drift()


def _odd_json(place: Place) -> None:
    (place.folder / "fingerprint.json").write_bytes(b'{"song": {"lines": ["\\ud800bcdefabcdefabc"]}}')
    place.drift()


def _many_names(place: Place) -> None:
    for number in range(2000):
        (place.series.parent / f"{number}.0\x1b[31m").touch()


MANY = 700_000
# What is made, and what the message says of it.
SIZES: dict[str, tuple[Callable[[Place], object], str]] = {
    "a-gigabyte-on-one-line": (lambda place: sparse(place.song, 1 << 30), "song is a huge file"),
    "a-file-of-newlines": (lambda place: place.song.write_bytes(b"\n" * (60 << 20)), "song is a huge file"),
    "a-line-just-below-the-limit": (lambda place: sparse(place.song, 64 << 20), "song differs from line 1"),
    "lines-below-the-limit": (lambda place: place.song.write_bytes(b"x\n" * 200_000), "song differs from line 1"),
    "a-patch-of-a-gigabyte": (lambda place: sparse(place.patch, 1 << 30), "huge file"),
    "a-line-of-a-patch-just-below-the-limit": (
        lambda place: place.put(b"@@ -1 +1 @@\n-one\n+" + b"x" * (LARGEST - 1000) + b"\n"), "do not lead to blob"),
    "a-million-lines-of-a-hunk": (lambda place: place.put(b"@@ -1,0 +1,9 @@\n" + b"+\n" * 5 * MANY), "huge file"),
    "a-hunk-of-300000-lines": (
        lambda place: place.put(b"@@ -1,0 +1,9 @@\n" + b"+\n" * 300_000), "more than 200000 lines"),
    "a-million-hunks": (lambda place: place.put(b"@@ -1 +1 @@\n-a\n+b\n" * MANY), "huge file"),
    "a-hundred-thousand-lines": (
        lambda place: place.put(b"@@ -1,7 +1,100007 @@\n-one\n+uno\n" + b"+\n" * 100_000 + b" two\n"), "0001-a.patch:"),
    "ten-thousand-hunks": (
        lambda place: place.put(b"".join(b"@@ -%d +%d @@\n-a\n+b\n" % (n, n) for n in range(1, 40_000, 4))),
        "does not match"),
    "twenty-thousand-files": (
        lambda place: place.patch.write_bytes(b"x\n---\n" + b"".join(
            b"diff --git a/%d b/%d\nold mode 100644\nnew mode 100755\n" % (n, n) for n in range(20_000))),
        "and 19990 more"),
    "a-million-files-in-a-patch": (
        lambda place: place.patch.write_bytes(b"x\n---\n" + b"diff --git a/x b/x\n" * MANY), "huge file"),
    "a-line-number-of-millions-of-digits": (
        lambda place: place.put(b"@@ -" + b"9" * (LARGEST - 1000) + b" +1 @@\n-a\n+b\n"), "not a hunk header"),
    "a-message-of-digits": (lambda place: place.message(b"1" * (4 << 20)), "applied"),
    "a-message-of-blanks": (lambda place: place.message(b" " * (LARGEST - 2000) + b"x"), "applied"),
    "a-name-of-a-thousand-folders": (
        lambda place: place.patch.write_bytes(place.patch.read_bytes().replace(b"/song", b"/a" * 1000)), "100 parts"),
    "a-series-of-a-million-lines": (lambda place: place.series.write_bytes(b"a.patch\n" * MANY), "huge file"),
    "a-series-of-many-lines": (lambda place: place.series.write_bytes(b"a.patch\n" * 400_000), "series has at most"),
    "a-series-of-one-line": (lambda place: sparse(place.series, 64 << 20), "huge file"),
    "a-million-pins": (lambda place: (place.folder / "base.sha256").write_bytes(b"0\n" * MANY), "huge file"),
    "many-pins": (lambda place: (place.folder / "base.sha256").write_bytes(b"0\n" * 20_000), "touches at most"),
    "pins-of-one-line": (lambda place: sparse(place.folder / "base.sha256", 64 << 20), "huge file"),
    "deeply-nested-json": (_deep_json, "fingerprint.json"),
    "wide-json": (_wide_json, "no line digest"),
    "odd-json": (_odd_json, "no line digest"),
    "names-that-are-no-releases": (_many_names, "applied"),
}  # fmt: skip


@pytest.mark.parametrize("make, message", SIZES.values(), ids=SIZES)
def test_size_ends_in_a_message_and_not_in_memory_or_time(
    place: Place, make: Callable[[Place], object], message: str
) -> None:
    make(place)
    before = sha256(place.song.read_bytes()) if place.song.stat().st_size < 1 << 20 else ""
    ran = limited("apply", "--tests=none", "--stacks", place.stacks, place.tree)
    said = ran.stdout + ran.stderr
    assert any(words in said for words in message.split("|")), said[:2000]
    assert ran.code == (0 if message == "applied" else ran.code)
    assert not before or ran.code == 0 or sha256(place.song.read_bytes()) == before
    assert len(said) < 4000 and sorted(os.listdir(place.tree)) == ["song"]


def test_the_whole_stack_is_limited_and_not_each_patch_alone(place: Place) -> None:
    data = place.patch.read_bytes()
    place.message(b"why\n" * 60_000)
    names = [f"{number:04d}-a.patch" for number in range(1, 40)]
    for name in names[1:]:
        shutil.copy(place.patch, place.folder / name)
    place.series.write_text("".join(f"{name}\n" for name in names))
    ran = limited("lint", "--stacks", place.stacks)
    assert ran.code == 3 and "0004-a.patch: with it the stack has more than" in ran.stdout
    assert data != place.patch.read_bytes()


LARGE = [(verb, b"") for verb in ("apply", "unapply", "lint")]
LARGE += [(verb, b"mine\n") for verb in ("apply", "unapply", "status")]


@pytest.mark.parametrize("verb, drift", LARGE)
def test_many_patches_of_a_large_file_end_in_a_message_and_not_in_hours(
    tmp_path: Path, verb: str, drift: bytes
) -> None:
    rest = b"".join(b"%d\n" % number for number in range(200_000))
    base, odd, even = (File(word + b"\n" + rest, False) for word in (b"base", b"odd", b"even"))
    pairs = ((base, odd), (odd, even), (even, odd))
    first, there, back = (wrapped("song", *pair, b"@@ -1 +1 @@\n-%s\n+%s\n" % _first_words(pair)) for pair in pairs)
    images = [{"song": base}, {"song": odd}]
    write_stack(str(tmp_path), images, [first, *[there, back] * 500])
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/song").write_bytes(drift + images[verb == "unapply"]["song"].data)
    before = contents(tmp_path / "tree")
    words = ["--tests=none"] if verb == "apply" else []
    ran = limited(verb, *words, "--stacks", tmp_path, *([] if verb == "lint" else [tmp_path / "tree"]))
    assert ran.code == 3 and "the patches of the stack go over large files too often" in ran.stdout + ran.stderr
    assert contents(tmp_path / "tree") == before


def _first_words(files: tuple[File, ...]) -> tuple[bytes, ...]:
    return tuple(file.data.partition(b"\n")[0] for file in files)


SOURCES = {
    "statements": b"a;" * 30_000,
    "attributes": b"a" + b".b" * 90_000,
    "sums": b"1" + b"+1" * 90_000,
    "calls": b"f" + b"()" * 90_000,
    "parentheses": b"(" * 90_000,
    "signs": b"-" * 90_000 + b"1",
    "megabytes": b"a;" * 2_000_000,
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_source_that_is_made_to_break_its_reader_is_drift_like_any_other(specimen: Path, source: bytes) -> None:
    for path in (INIT, LAZY_INIT):
        (specimen / path).write_bytes(source)
    before = contents(specimen)
    assert limited("apply", "--tests=none", "--stacks", STACKS, specimen).code == 1
    assert contents(specimen) == before


def test_a_source_larger_than_any_of_upstream_is_not_parsed() -> None:
    parse(b"#" * LARGEST_SOURCE)
    with pytest.raises(ValueError, match="at most"):
        parse(b"#" * (LARGEST_SOURCE + 1))


def test_a_search_for_too_many_hunks_in_too_large_a_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, "hunk-displaced")
    monkeypatch.setattr(fork, "_MOST_SEARCHED", 10)
    with pytest.raises(StackError, match="the file has too many bytes for so many hunks"):
        VERBS["apply"](str(place.tree), Store(str(place.stacks)))


VERBS: dict[str, Callable[[str, Store], object]] = {
    "apply": lambda tree, store: commands.apply(tree, store, commands.How()),
    "unapply": commands.unapply,
    "status": commands.status,
    "releases": lambda tree, store: commands.releases(store),
    "lint": lambda tree, store: lint_command(store),
}
JUNK = {
    "all-bytes": bytes(range(256)) * 4,
    "invalid-utf-8": b"\xff\xfe\xc3\n\x80\n",
    "utf-16": "0001-a.patch\n".encode("utf-16"),
    "nul": b"\0" * 100,
    "nothing": b"",
    "newline": b"\n",
    "null": b"null",
    "lone-surrogate": b'{"a": "\\ud800", "upstream_commit": "\\ud800", "torch": "", "fixed_in": "", "directories": []}',
    "not-a-number": b'{"song": NaN, "directories": [Infinity, -1e999, 1' + b"0" * 5000 + b"]}",
    "odd-types": b'{"song": {"lines": [1], "sha256": [], "git_blob": {}, "result": 1}, "torch": {}, "directories": {}}',
    "escape-sequences": b"\x1b]0;title\x07\x9b31m\n",
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_no_file_of_a_stack_can_break_a_command(place: Place, junk: bytes) -> None:
    for path in sorted(path for path in place.stacks.rglob("*") if path.is_file()):
        kept = path.read_bytes()
        for data in (junk, kept + junk):
            path.write_bytes(data)
            for tree in ("as released", "other"):
                song = place.song.read_bytes()
                if tree == "other":
                    place.drift()
                for verb in VERBS.values():
                    try:
                        verb(str(place.tree), Store(str(place.stacks)))
                    except StackError as error:
                        assert str(error)
                place.song.write_bytes((CASES / "series-two-patches/before/song").read_bytes())
                assert song == place.song.read_bytes() or path.name.endswith((".json", ".patch", ".sha256"))
        path.write_bytes(kept)


INSTEAD: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "file": Path.touch,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "process": lambda path: path.symlink_to("/proc/self/mem"),
    "dangling": lambda path: path.symlink_to("nothing"),
    "loop": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("make", INSTEAD.values(), ids=INSTEAD)
@pytest.mark.parametrize("what", ["tree", "stacks", "series", "patches", "release"])
def test_what_is_no_folder_is_told_and_never_waited_for(
    place: Place, what: str, make: Callable[[Path], object]
) -> None:
    path = {"tree": place.tree, "stacks": place.stacks, "series": place.series.parent, "release": place.folder}.get(
        what
    )
    path = path or place.folder.parent
    shutil.rmtree(path)
    make(path)
    with pytest.raises(StackError) as caught:
        commands.apply(str(place.tree), Store(str(place.stacks)), commands.How())
    assert caught.value.exit in (2, 3, 4)


def test_the_root_of_the_machine_is_no_tree() -> None:
    ran = limited("apply", "--tests=none", "--stacks", STACKS, "/")
    assert ran.code == 1 and "not torch_musa" in ran.stderr


# A journal that came with the tree: what it holds beside the record, and the record's lines.
def _record(tree: Path, lines: tuple[JournalLine, ...], **more: object) -> Record:
    record = Record(this_host(), 4242, lines, (), (), (tree / JOURNAL).stat().st_ino + 1)
    return record._replace(**more)  # type: ignore[arg-type]


def _line(tree: Path, before: str, path: str = INIT) -> JournalLine:
    return JournalLine(0, before, sha256((tree / path).read_bytes()), path)


FORGED: dict[str, Callable[[Path], Record]] = {
    "removes-a-file": lambda tree: _record(tree, (_line(tree, "-"),)),
    "replaces-a-file": lambda tree: _record(tree, (_line(tree, "0" * 64),)),
    "of-a-file-that-is-none-of-ours": lambda tree: _record(tree, (_line(tree, "-", "version.txt"),)),
    "makes-folders": lambda tree: _record(tree, (), gone=((0o7777, "made"),)),
    "removes-folders": lambda tree: _record(tree, (), made=("empty",)),
    "of-place-0": lambda tree: _record(tree, (_line(tree, "-"),), place=0),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("old", ["file", "link"])
def test_a_journal_that_came_with_the_tree_is_not_obeyed(
    specimen: Path, forge: Callable[[Path], Record], old: str
) -> None:
    (specimen / JOURNAL).mkdir()
    (specimen / "empty").mkdir()
    if old == "file":
        (specimen / JOURNAL / "0.old").write_bytes(b"evil\n")
    else:
        (specimen / JOURNAL / "0.old").symlink_to("/etc/passwd")
    (specimen / JOURNAL / "record").write_bytes(format_record(forge(specimen)))
    before = contents(specimen)
    for verb in (VERBS["apply"], VERBS["unapply"]):
        with pytest.raises(StackError, match="was not written here"):
            verb(str(specimen), Store(str(STACKS)))
    assert contents(specimen) == before


@pytest.mark.parametrize(
    "forged", [b"place 7\nend\n", b"place 7 \n", b"x", None], ids=["place", "odd", "short", "link"]
)
def test_a_note_that_git_takes_part_is_believed_only_where_it_was_written(
    specimen: Path, forged: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gitrecover, "recover_git", lambda *args: pytest.fail("git was asked"))
    (specimen / JOURNAL).mkdir()
    if forged is None:
        (specimen / JOURNAL / GIT).symlink_to("/dev/null")
    else:
        (specimen / JOURNAL / GIT).write_bytes(forged)
    before = contents(specimen)
    for verb in (commands.recover, lambda tree: VERBS["apply"](tree, Store(str(STACKS)))):
        with pytest.raises(StackError, match="was not written here"):
            verb(str(specimen))
    assert contents(specimen) == before


@pytest.mark.parametrize("length", [0, 1, 6])
def test_a_note_that_was_cut_off_goes(specimen: Path, length: int) -> None:
    before = contents(specimen)
    (specimen / JOURNAL).mkdir()
    (specimen / JOURNAL / GIT).write_bytes(b"place "[:length])
    commands.recover(str(specimen))
    assert contents(specimen) == before


def test_a_journal_that_is_a_link_is_left(specimen: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "0.old").write_bytes(b"mine\n")
    (specimen / JOURNAL).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StackError, match="is a symbolic link"):
        VERBS["apply"](str(specimen), Store(str(STACKS)))
    assert (tmp_path / "elsewhere" / "0.old").exists()


WATCH = """
import os, sys
sys.path.insert(0, {root!r})
import apply
inside, seen = os.path.realpath({tree!r}), []
RUNS = ("subprocess.", "os.exec", "os.system", "os.posix_spawn", "os.fork", "socket.", "ctypes.", "pty.")
WRITES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.chown",
          "os.truncate", "os.utime", "os.setxattr", "shutil.")
def place(name, handle):
    above = os.readlink(f"/proc/self/fd/{{handle}}") if isinstance(handle, int) and handle >= 0 else os.getcwd()
    return os.path.realpath(os.path.join(above, os.fsdecode(name)))
def check(event, name, handle):
    if not isinstance(name, int) and not (place(name, handle) + "/").startswith(inside + "/"):
        seen.append(f"{{event}} {{place(name, handle)}}")
def hook(event, args):
    if event.startswith(RUNS):
        seen.append(event)
    elif event in ("os.rename", "os.link"):
        check(event, args[0], args[2]); check(event, args[1], args[3])
    elif event.startswith(WRITES):
        check(event, args[0], args[-1])
    elif event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and args[0] != os.devnull:
        if opening[-1:] != [args[0]] and not isinstance(args[0], int):
            check(event, args[0], -1)
opening, real = [], os.open
def spy(path, flags, mode=0o777, *, dir_fd=None):
    if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and path != os.devnull:
        check("os.open", path, -1 if dir_fd is None else dir_fd)
    opening.append(path)
    try:
        return real(path, flags, mode, dir_fd=dir_fd)
    finally:
        opening.pop()
os.open = spy
sys.addaudithook(hook)
sys.dont_write_bytecode = True
code = apply.main(sys.argv[1:])
print(seen)
sys.exit(code)
"""


def watched(tree: Path, *words: object) -> Ran:
    """Run a verb with every event of the interpreter watched, without a PATH; the last line lists what is forbidden."""
    script = WATCH.format(root=str(ROOT), tree=str(tree))
    argv = [sys.executable, "-c", script, *map(str, words)]
    done = subprocess.run(argv, env={"PATH": "/nonexistent"}, capture_output=True, timeout=60)
    return Ran(done.returncode, done.stdout.decode().splitlines()[-1], done.stderr.decode())


def _drift(tree: Path) -> None:
    (tree / INIT).write_bytes((tree / INIT).read_bytes().replace(b"import", b"import ", 1))


SITUATIONS: dict[str, tuple[Callable[[Path], object], int]] = {
    "pristine": (lambda tree: None, 0),
    "drifted": (_drift, 1),
    "another-project": (lambda tree: shutil.rmtree(tree / "torch_musa"), 1),
}


@pytest.mark.parametrize("change, code", SITUATIONS.values(), ids=SITUATIONS)
def test_no_command_is_run_and_nothing_is_written_outside(
    specimen: Path, change: Callable[[Path], object], code: int
) -> None:
    change(specimen)
    for verb, right in (("status", 0), ("apply", code), ("status", 0), ("unapply", code), ("lint", 0)):
        words = ["--tests=none"] if verb == "apply" else []
        ran = watched(specimen, verb, *words, "--stacks", STACKS, *([specimen] if verb != "lint" else []))
        assert (ran.code, ran.stdout) == (right, "[]"), ran


def test_the_watch_sees_a_command_and_a_write_outside(specimen: Path) -> None:
    (specimen / LAZY_INIT).write_bytes(b"x = 1\n")  # the one case in which git is asked, for a message
    ran = watched(specimen, "apply", "--tests=none", "--stacks", STACKS, specimen)
    assert ran.code == 1 and "subprocess.Popen" in ran.stdout
    other = copy_specimen(specimen.parent / "other")
    ran = watched(specimen, "apply", "--tests=none", "--stacks", STACKS, other)
    assert ran.code == 0 and "os.rename" in ran.stdout and "os.open" in ran.stdout


def _ssh(pwned: Path) -> str:
    return f'[core]\n\tsshCommand = touch {pwned};\n[remote "origin"]\n\turl = ssh://x/y\n'


def _ext(pwned: Path) -> str:
    return f'[protocol "ext"]\n\tallow = always\n[remote "origin"]\n\turl = ext::touch {pwned}\n'


def _upload_pack(pwned: Path) -> str:
    return f'[remote "origin"]\n\turl = file://{pwned.parent}\n\tuploadpack = touch {pwned};\n'


CONFIGS: dict[str, Callable[[Path], str]] = {
    "ssh-command": _ssh,
    "ext-protocol": _ext,
    "upload-pack": _upload_pack,
    "fsmonitor": lambda pwned: f"[core]\n\tfsmonitor = touch {pwned};\n",
    "pager-and-alias": lambda pwned: f'[core]\n\tpager = touch {pwned};\n[alias]\n\tcat-file = "!touch {pwned}"\n',
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_trees_own_git_configuration_runs_nothing(
    specimen: Path, tmp_path: Path, config: Callable[[Path], str]
) -> None:
    pwned = tmp_path / "pwned"
    git(specimen, "init", "-q")
    promise = '[remote "origin"]\n\tpromisor = true\n\tpartialclonefilter = blob:none\n'
    settings = "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n" + promise
    (specimen / ".git" / "config").write_text(settings + config(pwned))
    (specimen / LAZY_INIT).write_bytes(b"x = 1\n")
    env = {"GIT_DIR": str(tmp_path), "GIT_SSH_COMMAND": f"touch {pwned};", "GIT_EXTERNAL_DIFF": f"touch {pwned};"}
    # What an old git does not know closes nothing there: the protection must hold without it.
    with pytest.MonkeyPatch.context() as monkeypatch:
        real = subprocess.run
        for name, value in env.items():
            monkeypatch.setenv(name, value)

        def old_git(argv: list[str], **more: object) -> object:
            more["env"] = {key: value for key, value in more["env"].items() if key != "GIT_NO_LAZY_FETCH"}  # type: ignore[attr-defined]
            return real(argv, **more)  # type: ignore[call-overload]

        monkeypatch.setattr(subprocess, "run", old_git)
        with pytest.raises(StackError, match="no git history here has the pinned file"):
            commands.apply(str(specimen), Store(str(STACKS)), commands.How())
    assert not pwned.exists()


def test_a_git_that_lies_in_the_tree_is_not_run(specimen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (specimen / LAZY_INIT).write_bytes(b"x = 1\n")
    (specimen / "git").write_text("#!/bin/sh\ntouch pwned\n")
    (specimen / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")
    monkeypatch.chdir(specimen)
    with pytest.raises(StackError):
        commands.apply(".", Store(str(STACKS)), commands.How())
    assert not (specimen / "pwned").exists()


def test_what_replaces_a_blob_is_not_the_blob(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    names = []
    for data in (b"pinned\n", b"other\n"):
        (tmp_path / "x").write_bytes(data)
        names.append(git(tmp_path, "hash-object", "-w", "x").decode().strip())
    assert history.blob(str(tmp_path), names[0]) == b"pinned\n" and names[0] == git_blob(b"pinned\n")
    git(tmp_path, "replace", *names)
    assert history.blob(str(tmp_path), names[0]) is None


def test_nothing_that_a_tree_holds_reaches_the_terminal_as_a_command(
    specimen: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = (specimen / INIT).read_bytes()
    assert b"_initialized" in data
    evil = data.replace(b"_initialized,", b"_initialized, \x1b]0;owned\x07\x1b[2J\xc2\x9b\xe2\x80\xae", 1)
    (specimen / INIT).write_bytes(evil)
    (specimen / "version.txt").write_bytes(b"\x1b[31m1.0\n")
    for verb in ("status", "apply"):
        words = ["--tests=none"] if verb == "apply" else []
        command.main([verb, *words, "--stacks", str(STACKS), str(specimen)])
    said = capsys.readouterr()
    assert "x1b" in said.err
    assert all(one.isprintable() or one == "\n" for one in said.out + said.err)
    command.main(["status", "--json", "--stacks", str(STACKS), str(specimen)])
    assert json.loads(capsys.readouterr().out)["exit"] == 0


def test_a_second_name_of_a_file_keeps_its_bytes_there_and_back(place: Place, tmp_path: Path) -> None:
    os.link(place.song, tmp_path / "partner")
    data = place.song.read_bytes()
    VERBS["apply"](str(place.tree), Store(str(place.stacks)))
    assert (tmp_path / "partner").read_bytes() == data != place.song.read_bytes()
    VERBS["unapply"](str(place.tree), Store(str(place.stacks)))
    assert (tmp_path / "partner").read_bytes() == data == place.song.read_bytes()


SLOW = {
    "blanks-before-a-name": (
        b"import x\ndef f():\n    global _initialized\n#from" + b" " * 4000 + b"_initialized x\n",
        "scan",
    ),
    "brackets-never-closed": (b"#_initialized\n#" + b"sys.modules[" * 100_000 + b"\n", "verify"),
    "annotations": (b"#_initialized\n#" + b"torch_musa._initialized:" * 50_000 + b"\n", "verify"),
    "clauses-never-closed": (
        b"def f():\n    global _initialized\n" + b"#from x import (_initialized,\n" * 50_000,
        "scan",
    ),
}


def _hurry() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (8, 8))


@pytest.mark.parametrize("source, verb", SLOW.values(), ids=SLOW)
def test_a_source_that_is_written_to_be_slow_is_not(specimen: Path, source: bytes, verb: str) -> None:
    """Each took more than ten seconds, and twice the length more than twice that."""
    (specimen / "torch_musa" / "slow.py").write_bytes(source)
    words = [sys.executable, str(ROOT / "apply.py"), verb, *(["--level", "static"] if verb == "verify" else [])]
    done = subprocess.run([*words, "--stacks", str(STACKS), str(specimen)], capture_output=True, preexec_fn=_hurry)
    assert done.returncode == 5 and b"Traceback" not in done.stderr


def test_a_changelog_that_is_written_to_be_slow_is_not(tmp_path: Path) -> None:
    (tmp_path / "debian" / "source").mkdir(parents=True)
    (tmp_path / "debian" / "source" / "format").write_text("3.0 (quilt)\n")
    (tmp_path / "debian" / "changelog").write_text("x (1) y; urgency=low\n\n --" + " <>" * 100_000 + "\n")
    words = [sys.executable, str(ROOT / "apply.py"), "export", "debian", "--release", "2.7.1+specimen"]
    done = subprocess.run([*words, "--stacks", str(STACKS), str(tmp_path)], capture_output=True, preexec_fn=_hurry)
    assert done.returncode == 0 and b"placeholders" in done.stdout
