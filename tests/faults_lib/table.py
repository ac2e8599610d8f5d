"""The commands that tests/faults.py runs, one row each: how their world is made, and what is asked of it afterwards.

A world is a folder with all that a command may touch: `tree`, `stacks`, `out`, and its own $HOME and $TMPDIR.
A row for another command needs a line in ROWS, and a way to prepare its world.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from stack import commands
from stack.digest import sha256
from stack.installed.record import digest_of
from stack.pins import parse_pins
from stack.store import Store
from tests import exports, installs
from tests.conftest import INIT, STACKS, copy_specimen
from tests.faults_lib import calls
from tests.faults_lib.picture import Picture
from tests.repositories import WHO, am, patches, specimen_repository
from tests.stacks import git
from tests.test_commits import commit as git_commit

RELEASE = "2.7.1+specimen"


class Row(NamedTuple):
    """One command.

    argv: its arguments; `W` at the start of a word is the world. prepare: makes the world. place: of what in the
    world `status` is asked after a kill. unproven: run it without its proof, which writes outside the tree only and
    takes a second each time, and without its look at other processes. gits: inject into the gits that it starts, too.
    also: names another whole state, if the world is in one.
    """

    name: str
    argv: tuple[str, ...]
    prepare: Callable[[Path], object]
    place: str = "tree"
    unproven: bool = False
    gits: bool = False
    also: Callable[[Picture], str] = lambda picture: ""


def command(row: Row, world: Path) -> list[str]:
    """Return the row's arguments of apply.py for a world."""
    return [_placed(word, world) for word in row.argv]


def _placed(word: str, world: Path) -> str:
    return f"{world}{word[1:]}" if word == "W" or word.startswith("W/") else word


def environment(world: Path, path: str = os.environ["PATH"]) -> dict[str, str]:
    """Return the environment of every command in a world: nothing of the machine's or the user's own."""
    mine = {"HOME": str(world / "home"), "TMPDIR": str(world / "tmp"), "PYTHONHASHSEED": "0", "LC_ALL": "C"}
    fixed = {"GIT_CONFIG_NOSYSTEM": "1", "SOURCE_DATE_EPOCH": "1700000000"}
    return {"PATH": path, **mine, **fixed, **WHO}


def make(row: Row, world: Path) -> None:
    """Make the world of a row in an empty or absent folder."""
    for folder in ("home", "tmp", "outside"):
        (world / folder).mkdir(parents=True)
    (world / "outside" / "file").write_text("not ours\n")
    row.prepare(world)


def _tree(world: Path) -> None:
    tree = copy_specimen(world / "tree")
    (tree / INIT).chmod(0o664)
    if os.geteuid() == 0:
        os.chown(tree / INIT, 12345, 23456)


def _applied(world: Path) -> None:
    _tree(world)
    assert commands.apply(str(world / "tree"), Store(str(STACKS)), commands.How()).outcome == "applied"


def _partly(world: Path) -> None:
    _tree(world)
    subprocess.run(["patch", "-p1", "-s", "-F0", "-i", patches(RELEASE)[0]], cwd=world / "tree", check=True)


def _fork(world: Path) -> None:
    _tree(world)
    with (world / "tree" / INIT).open("ab") as file:
        file.write(b"# a fork\n")


def _applied_to_fork(world: Path) -> None:
    _fork(world)
    how = commands.How(fork=True, prove=lambda *_: commands.Proof(True, ""))
    assert commands.apply(str(world / "tree"), Store(str(STACKS)), how).outcome == "applied to a fork"


def _repository(world: Path) -> None:
    specimen_repository(world / "tree")


def _upstream(world: Path) -> None:
    git(specimen_repository(world / "upstream"), "tag", "v1")


def _desk(world: Path) -> None:
    shutil.copytree(STACKS, world / "stacks")
    tree = specimen_repository(world / "tree")
    am(tree, *patches(RELEASE))
    (tree / INIT).write_bytes((tree / INIT).read_bytes() + b"# one more line\n")
    git_commit(tree, "one more change", BODY)


BODY = """Why: the long run needs a patch more.

Drop this patch when the run goes.

Origin: vendor
Bug: https://example.org/1
Forwarded: no
Applied-Upstream: no
Last-Update: 2026-11-02
"""


def _out(form: str, older: bool) -> Callable[[Path], None]:
    """Make a place to export into, which may have the stack of an older release."""

    def prepare(world: Path) -> None:
        out = exports.place(form, world / "out")
        if older:
            exports.run(form, out)

    return prepare


def _new_base(world: Path) -> None:
    shutil.copytree(STACKS, world / "stacks")
    _fork(world)


def _killed(name: str, where: Callable[[calls.Call], bool]) -> Callable[[Path], None]:
    """Make the world of another row after its command was killed at the first call for which `where` holds."""

    def prepare(world: Path) -> None:
        row = next(one for one in ROWS if one.name == name)
        row.prepare(world)
        spare, log = world.with_name(f"{world.name}-spare"), world.with_name(f"{world.name}-log")
        subprocess.run(["cp", "-a", str(world), str(spare)], check=True)
        with calls.Server() as server:
            server.run(command(row, spare), environment(spare), log=log)
            at = next(filter(where, calls.parse(log.read_text(errors="replace"), 0, spare)))
            ran = server.run(command(row, world), environment(world), log=log, at=at, fault=calls.KILL)
        assert ran.code == -9, ran
        shutil.rmtree(spare)
        log.unlink()
        shutil.rmtree(world / "tmp")
        (world / "tmp").mkdir()

    return prepare


def _record_goes(call: calls.Call) -> bool:
    return call.name == "unlinkat" and '"record"' in call.text


def _index_moves(call: calls.Call) -> bool:
    return call.name == "rename" and call.text.endswith("= 0") and '/index.lock", ' in call.text


def _cloned_or_empty(picture: Picture) -> str:
    """Whether the clone is as it came, or an empty directory: `apply`, or the same command, goes on from there."""
    journal = any(path.startswith("dest/.torch-musa-patches") for path in picture)
    if journal or "dest/.git/HEAD" not in picture and any(path.startswith("dest/") for path in picture):
        return ""
    return "between"


def _installed(world: Path) -> None:
    python = installs.environment(world / "venv", sys.executable, "--without-pip")
    installs.unpack(installs.specimen_wheel(world / "made"), installs.site_of(python))
    shutil.rmtree(world / "made")
    subprocess.run([python, "-m", "compileall", "-q", installs.site_of(python)], check=True)


def _patched(world: Path) -> None:
    _installed(world)
    ran = installs.run("apply", "--installed", "--tests=none", "--python", world / "venv/bin/python")
    assert ran.code == 0, ran


_CACHE = re.compile(r"torch_musa/(core/__pycache__/_lazy_init|__pycache__/__init__)\.")


def _without_bytecode(pins: str) -> Callable[[Picture], str]:
    """Name the state in which an installed package has these pins' bytes, the rows for them, and no bytecode.

    So it is, and the command says so, where the child that makes the bytecode fails: the next import makes it.
    """
    text = (STACKS / "patches" / RELEASE / f"{pins}.sha256").read_bytes()
    wanted = {path: pin for path, pin in parse_pins(text, pins).items() if path.startswith("torch_musa/")}

    def also(picture: Picture) -> str:
        found = {path: picture[f"{SITE}/{path}"].data for path in wanted}
        record = picture[f"{SITE}/torch_musa-2.7.1.dist-info/RECORD"].data.decode()
        caches = [path for path in picture if _CACHE.search(path)]
        rows = [f"{path},{digest_of(data)},{len(data)}\n" for path, data in found.items()]
        settled = not caches and not any(".torch-musa-patches" in path for path in picture)
        right = {path: sha256(data) for path, data in found.items()} == wanted and all(row in record for row in rows)
        return "after, without bytecode" if settled and right else ""

    return also


def _wheel(world: Path) -> None:
    shutil.move(installs.specimen_wheel(world / "made"), world / WHEEL)
    shutil.rmtree(world / "made")
    (world / "out").mkdir()


WHEEL = "torch_musa-2.7.1-py3-none-any.whl"
SITE = f"venv/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
GIVEN = ("--stacks", str(STACKS))
APPLY = ("apply", "--tests", "none", *GIVEN, "W/tree")
FORK = ("apply", "--fork", "--tests", "import", *GIVEN, "W/tree")
COMMIT = ("apply", "--tests", "none", "--commit", *GIVEN)
EXPORT = ("export", "--release", exports.LATER, *GIVEN)
REFRESH = ("refresh", RELEASE, "--stacks", "W/stacks", "W/tree")
CLONE = ("apply", "--tests", "none", "--clone", "W/upstream", "--ref", "v1", *GIVEN, "W/dest")
UNAPPLY = ("unapply", *GIVEN, "W/tree")
RECOVER = ("recover", "W/tree")
INSTALLED = ("--installed", "--python", "W/venv/bin/python", *GIVEN)
PATCH = ("apply", "--tests", "none", *INSTALLED)

ROWS = (
    Row("apply", APPLY, _tree),
    Row("apply-the-rest", APPLY, _partly),
    Row("unapply", UNAPPLY, _applied),
    Row("unapply-a-part", UNAPPLY, _partly),
    Row("apply-fork", FORK, _fork, unproven=True),
    Row("unapply-fork", UNAPPLY, _applied_to_fork),
    Row("refresh", REFRESH, _desk, "stacks"),
    Row("port", ("port", "--to", "2.7.1+ours", "--stacks", "W/stacks", "W/tree"), _new_base, "stacks", unproven=True),
    Row("export-debian", (*EXPORT, "debian", "W/out"), _out("debian", True), "out"),
    Row("export-rpm", (*EXPORT, "rpm", "W/out"), _out("rpm", False), "out"),
    Row("export-mbox", (*EXPORT, "mbox", "W/out/stack.mbox"), _out("mbox", False), "out"),
    Row("export-quilt", (*EXPORT, "quilt", "W/out"), _out("quilt", True), "out"),
    Row("apply-installed", PATCH, _installed, SITE, True, also=_without_bytecode("result")),
    Row("unapply-installed", ("unapply", *INSTALLED), _patched, SITE, True, also=_without_bytecode("base")),
    Row("wheel", ("wheel", *GIVEN, f"W/{WHEEL}", "W/out"), _wheel, "out"),
    Row("commit", (*COMMIT, "W/tree"), _repository, gits=True),
    Row("commit-branch", (*COMMIT, "--branch", "topic", "W/tree"), _repository, gits=True),
    Row("clone", CLONE, _upstream, "dest", also=_cloned_or_empty),
    Row("recover-apply", RECOVER, _killed("apply", _record_goes)),
    Row("recover-unapply", RECOVER, _killed("unapply", _record_goes)),
    Row("recover-refresh", ("recover", "W/stacks"), _killed("refresh", _record_goes), "stacks"),
    Row("recover-commit", RECOVER, _killed("commit", _index_moves), gits=True),
)
