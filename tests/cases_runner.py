"""Run a case of tests/cases: a folder that a person can read, through our engine and through patch and git apply.

A case has before/ (the tree), patches/ and series, and either after/ or error.txt (the exit code and the message, TREE
in place of the tree's own path). Where they say something: released/ (the tree that the stack was made for, if before/
is another), tools.txt (what patch and git apply do), why.txt (what the case shows, and why we differ from them), and
special.txt (what git cannot store: see `_special`). Pins and data files are computed, unless patches/ holds them.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from stacks import fingerprint

from stack import commands
from stack.digest import sha256
from stack.errors import StackError
from stack.patch import FileChange, parse_patch
from stack.paths import check_path
from stack.pins import format_pins
from stack.store import Store

CASES = Path(__file__).resolve().parent / "cases"
RELEASE = "1"
WORDS = {
    "same": "the tree is then that of after/",
    "refuses": "exit code other than 0, the tree as it was",
    "half": "exit code other than 0, and the tree is changed all the same",
    "differs": "exit code 0, and the tree is not that of after/; where we refuse: it is accepted",
    "escapes": "a file outside the tree is changed",
}
TOOLS: Mapping[str, list[str]] = {
    # No question, no backup, no reject file: what is compared is the tree.
    "patch -F0": ["patch", "-p1", "-F0", "--force", "--no-backup-if-mismatch", "--reject-file=-"],
    "git apply": ["git", "apply"],
}
Shot = Mapping[str, tuple[str, bytes, bool]]
"""A tree: for each path its kind, its bytes (a link's target), and whether it is executable."""


class Came(NamedTuple):
    """What the engine came to: the error as error.txt has it, or what is wrong with the tree; both empty if right."""

    error: str
    wrong: str = ""


class Case(NamedTuple):
    """One folder of tests/cases, or one like it."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def base(self) -> Path:
        """The tree that the stack was made for."""
        released = self.folder / "released"
        return released if released.is_dir() else self.folder / "before"

    def text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    @property
    def statements(self) -> dict[str, str]:
        """What tools.txt says of each tool."""
        return dict(line.split(": ") for line in self.text("tools.txt").splitlines())


def all_cases() -> list[Case]:
    return [Case(folder) for folder in sorted(CASES.iterdir()) if folder.is_dir()]


def shot(tree: Path) -> Shot:
    """Return the exact picture of a tree, nothing followed."""
    return dict(_shots(os.fsencode(tree), b""))


def _shots(root: bytes, below: bytes) -> Iterator[tuple[str, tuple[str, bytes, bool]]]:
    for entry in os.scandir(os.path.join(root, below)):
        path = os.path.join(below, entry.name)
        mode = entry.stat(follow_symlinks=False).st_mode
        data, kind = b"", stat.filemode(mode)[0]
        if kind == "l":
            data = os.readlink(entry.path)
        elif kind == "-":
            data = Path(os.fsdecode(entry.path)).read_bytes()
        elif kind == "d":
            yield from _shots(root, path)
        yield os.fsdecode(path), (kind, data, kind == "-" and bool(mode & 0o100))


def lay_out(case: Case, scratch: Path, source: str = "before") -> Path:
    """Make scratch/tree of a case, with the folder `outside` beside it and what special.txt adds; return the tree.

    source: which of the case's trees; special.txt adds to it what it says of tree/, but no second names of files.
    """
    tree = scratch / "tree"
    shutil.copytree(case.folder / source, tree, symlinks=True)
    (scratch / "outside").mkdir(exist_ok=True)
    (scratch / "outside" / "file").write_bytes(b"outside\n")
    _special(case, scratch, source == "before")
    return tree


def _special(case: Case, scratch: Path, links: bool = True) -> None:
    """Do what special.txt says, a line each: what to make, its path from the scratch folder on, and what it needs.

    `folder P`, `fifo P`, `socket P`, `file P LINE`, `link P TARGET`, `hardlink P OF`, where P begins with tree/ or
    stacks/. Words are quoted as for a shell.
    """
    for line in case.text("special.txt").splitlines():
        kind, name, *rest = shlex.split(line)
        path = scratch / name
        if kind == "hardlink" and not links:
            continue
        if not name.startswith("tree/") and not (scratch / "stacks").is_dir():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind != "folder":
            path.unlink(missing_ok=True)
        if kind == "folder":
            path.mkdir(exist_ok=True)
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "socket":
            os.mknod(path, stat.S_IFSOCK | 0o644)
        elif kind == "link":
            path.symlink_to(rest[0])
        elif kind == "hardlink":
            os.link(scratch / rest[0], path)
        elif kind == "file":
            path.write_text(f"{rest[0]}\n")
        else:
            raise ValueError(f"{case.name}: special.txt: {kind}")


def make_stacks(case: Case, stacks: Path) -> Store:
    """Write the stacks folder of a case: its own files, and the data files that it does not have."""
    folder = stacks / "patches" / RELEASE
    shutil.copytree(case.folder / "patches", folder, symlinks=True)
    (stacks / "series").mkdir()
    shutil.copy(case.folder / "series", stacks / "series" / RELEASE)
    for name, data in _data_files(case).items():
        if not (folder / name).exists():
            (folder / name).write_bytes(data)
    _special(case, stacks.parent)  # again, now that stacks/ is there
    return Store(str(stacks))


def _data_files(case: Case) -> dict[str, bytes]:
    base, result = _images(case)
    above = {str(above) for path in set(result) - set(base) for above in Path(path).parents} - {"."}
    about = {"upstream_commit": "0" * 40, "torch": "2.7.1", "fixed_in": "9"}
    kept = {"directories": sorted(path for path in above if (case.base / path).is_dir())}
    return {
        "base.sha256": format_pins({path: sha256(data) for path, data in base.items()}),
        "result.sha256": format_pins({path: sha256(data) for path, data in result.items()}),
        "fingerprint.json": json.dumps({path: fingerprint(base[path], result.get(path)) for path in base}).encode(),
        "release.json": json.dumps({**about, **kept}).encode(),
    }


def _images(case: Case) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the touched files before and after; where there is no after/, what is pinned leads nowhere."""
    base = {path: data for path, (kind, data, _) in shot(case.base).items() if kind == "-" and _plain(path)}
    last = _last_changes(case)
    if not last:
        return base, base
    after = case.folder / "after"
    right = shot(after) if after.is_dir() else {}
    made = {path for path, change in last.items() if change.new_mode is not None}
    result = {path: right[path][1] if path in right else b"nowhere" for path in made}
    return {path: data for path, data in base.items() if path in last}, result


def _last_changes(case: Case) -> dict[str, FileChange] | None:
    """Return the last change of each touched file, or None where the patches cannot be read."""
    try:
        patches = [parse_patch(path.read_bytes(), path.name) for path in patch_files(case)]
    except (StackError, OSError):
        return None
    return {change.path: change for patch in patches for change in patch.files}


def _plain(path: str) -> bool:
    try:
        return bool(check_path(path, ""))
    except StackError:
        return False


def patch_files(case: Case) -> list[Path]:
    """Return the patches that the series names and that are there, in its order."""
    names = (case.folder / "series").read_bytes().decode("utf-8", "replace").split("\n")
    files = (case.folder / "patches" / name.strip() for name in names if name.strip() and not name.startswith("#"))
    return [path for path in files if path.is_file()]


def run_engine(case: Case, scratch: Path) -> Came:
    """Apply the case's stack, and take it out again where it went in; say what is wrong with either tree."""
    tree = lay_out(case, scratch)
    store = make_stacks(case, scratch / "stacks")
    before, outside = shot(tree), shot(scratch / "outside")
    try:
        commands.apply(str(tree), store, commands.How())
    except StackError as error:
        message = f"exit code {int(error.exit)}\n{error}\n".replace(str(tree), "TREE")
        return Came(message, _unlike(before, shot(tree)) or _unlike(outside, shot(scratch / "outside")))
    if not (case.folder / "after").is_dir():
        return Came("", "was applied")
    after = _expected(case, scratch, "after")
    wrong = _unlike(after, shot(tree)) or _unlike(outside, shot(scratch / "outside"))
    if not wrong:
        again = commands.apply(str(tree), store, commands.How())
        wrong = _unlike(after, shot(tree)) or ("" if again.outcome == "already applied" else f"twice: {again.outcome}")
    if not wrong:
        commands.unapply(str(tree), store)
        base = "released" if (case.folder / "released").is_dir() else "before"
        wrong = _unlike(_expected(case, scratch, base), shot(tree))
    return Came("", wrong or _unlike(outside, shot(scratch / "outside")))


def says(expected: str, error: str) -> bool:
    """Whether an error is what error.txt says, where a line that ends in `...` may go on."""
    lines, found = expected.splitlines(), error.splitlines()
    return len(lines) == len(found) and all(
        have.startswith(line[:-3]) if line.endswith("...") else have == line
        for line, have in zip(lines, found, strict=True)
    )


def _expected(case: Case, scratch: Path, source: str) -> Shot:
    place = scratch / f"expected-{source}"
    place.mkdir()
    return shot(lay_out(case, place, source))


def _unlike(expected: Shot, found: Shot) -> str:
    """Return what differs between two trees, a line for each path, or nothing."""
    paths = sorted(path for path in {*expected, *found} if expected.get(path) != found.get(path))
    return "\n".join(f"{path}: expected {expected.get(path)}, found {found.get(path)}" for path in paths)


def run_tool(case: Case, argv: list[str], scratch: Path) -> str:
    """Apply the patches of a case, one after the other, with a stock tool; return the word for what it did."""
    tree = lay_out(case, scratch)
    before, outside = shot(tree), shot(scratch / "outside")
    code = 0
    for path in patch_files(case):
        code = code or _run(argv, tree, path.read_bytes())
    now = shot(tree)
    if shot(scratch / "outside") != outside:
        return "escapes"
    if code:
        return "refuses" if now == before else "half"
    after = case.folder / "after"
    return "same" if after.is_dir() and now == _expected(case, scratch, "after") else "differs"


def _run(argv: list[str], tree: Path, patch: bytes) -> int:
    # No setting of the user, no repository around the tree, no terminal to ask on.
    alone = {"HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}
    env = {"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": str(tree.parent), **alone}
    done = subprocess.run(
        argv, cwd=tree, env=env, input=patch, capture_output=True, timeout=20, start_new_session=True, check=False
    )
    return done.returncode
