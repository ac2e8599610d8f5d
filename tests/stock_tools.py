"""The stock tools that apply a stack without any code of ours, each run for real on a tree of its own.

A tool takes a Stack, a tree and a scratch folder; it returns the tree that it left and what it said.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

SPECIMEN = Path(__file__).resolve().parent / "specimen"
STACKS = SPECIMEN / "stacks"
RELEASES = ("2.7.1", "2.9.1.post1")
TOUCHED = [
    "tests/unittest/core/test_checkpoint.py",
    "tests/unittest/standalone/test_lazy_init.py",
    "torch_musa/__init__.py",
    "torch_musa/core/_lazy_init.py",
]


class Stack(NamedTuple):
    """The stack of one release, as files."""

    release: str

    @property
    def folder(self) -> Path:
        return STACKS / "patches" / f"{self.release}+specimen"

    @property
    def series(self) -> Path:
        return STACKS / "series" / f"{self.release}+specimen"

    @property
    def patches(self) -> list[Path]:
        return [self.folder / name for name in self.series.read_text(encoding="ascii").split()]


class Left(NamedTuple):
    """What a tool left: the tree, its exit code, and all that it said."""

    tree: Path
    code: int
    said: str


Tool = Callable[[Stack, Path, Path], Left]


def specimen(release: str, tree: Path) -> Path:
    """Lay a copy of the specimen of a release out at `tree`: a later one differs from the first in a few files."""
    shutil.copytree(SPECIMEN / RELEASES[0], tree)
    if release != RELEASES[0]:
        shutil.copytree(SPECIMEN / release, tree, dirs_exist_ok=True)
    return tree


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which no configuration of the user or of the machine counts."""
    who = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in _WHO.items()}
    # HOME is a place without files: no .gitconfig, .quiltrc, .gbp.conf or .rpmmacros.
    alone = {"HOME": "/nonexistent", "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    return {"PATH": os.environ["PATH"], **alone, **who, **more}


_WHO = {"NAME": "A Packager", "EMAIL": "packager@example.org"}


def run(argv: list[str], cwd: Path, data: bytes = b"", env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run one tool, which must be there; return its exit code and all that it said."""
    assert shutil.which(argv[0]), f"{argv[0]} is not installed"
    done = subprocess.run(
        argv, cwd=cwd, env=env or environment(), input=data, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, f"$ {' '.join(argv)}\n{done.stdout.decode('utf-8', 'replace')}"


def sound(argv: list[str], cwd: Path) -> str:
    """Run a command of the preparation, which must not fail; return what it said."""
    code, said = run(argv, cwd)
    assert code == 0, f"exit code {code}: {said}"
    return said


def repository(tree: Path) -> Path:
    """Make the tree a git repository with one commit on the branch main."""
    sound(["git", "init", "-q", "-b", "main"], tree)
    sound(["git", "add", "-A"], tree)
    sound(["git", "commit", "-q", "-m", "import"], tree)
    return tree


def joined(stack: Stack) -> bytes:
    """Return all patches of the series in one, as `cat` would: git apply is atomic over one input."""
    return b"".join(patch.read_bytes() for patch in stack.patches)


def quilt(stack: Stack, tree: Path, *arguments: str) -> Left:
    """Run quilt with the stack's own folder and series."""
    env = environment(QUILT_PATCHES=str(stack.folder), QUILT_SERIES=str(stack.series))
    return Left(tree, *run(["quilt", *arguments], tree, env=env))


def quilt_push(stack: Stack, tree: Path, scratch: Path) -> Left:
    return quilt(stack, tree, "push", "-a", "--fuzz=0")


def git_am(stack: Stack, tree: Path, scratch: Path) -> Left:
    return Left(tree, *run(["git", "am", *map(str, stack.patches)], repository(tree)))


def git_am_3(stack: Stack, tree: Path, scratch: Path) -> Left:
    return Left(tree, *run(["git", "am", "-3", *map(str, stack.patches)], repository(tree)))


def git_apply(stack: Stack, tree: Path, scratch: Path) -> Left:
    return Left(tree, *run(["git", "apply", "--verbose"], tree, joined(stack)))


def git_apply_inside(stack: Stack, tree: Path, scratch: Path) -> Left:
    """The tree stands in somebody's packaging repository: git must not look above it."""
    repository(tree.parent)
    env = environment(GIT_CEILING_DIRECTORIES=str(tree.parent))
    return Left(tree, *run(["git", "apply", "--verbose"], tree, joined(stack), env))


def git_apply_directory(stack: Stack, tree: Path, scratch: Path) -> Left:
    """The same, from the top of that repository."""
    repository(tree.parent)
    return Left(tree, *run(["git", "apply", "--verbose", f"--directory={tree.name}"], tree.parent, joined(stack)))


def patch(stack: Stack, tree: Path, scratch: Path) -> Left:
    said = ""
    for file in stack.patches:
        code, words = run(["patch", "-p1", "-F0"], tree, file.read_bytes())
        said += words
        if code:
            return Left(tree, code, said)
    return Left(tree, 0, said)


def _debian(stack: Stack, tree: Path) -> None:
    """Write a debian/ folder with the stack as debian/patches."""
    version = f"{stack.release}-1"
    files = {
        "source/format": "3.0 (quilt)\n",
        "changelog": f"torch-musa ({version}) unstable; urgency=medium\n\n  * Carry the stack.\n\n"
        " -- A Packager <packager@example.org>  Mon, 30 Nov 2026 12:00:00 +0000\n",
        "control": "Source: torch-musa\nMaintainer: A Packager <packager@example.org>\nStandards-Version: 4.6.2\n\n"
        "Package: torch-musa\nArchitecture: all\nDescription: specimen\n A specimen.\n",
        "rules": "#!/usr/bin/make -f\n%:\n\t:\n",
        "patches/series": stack.series.read_text(encoding="ascii"),
    }
    for name, text in files.items():
        path = tree / "debian" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for file in stack.patches:
        shutil.copy(file, tree / "debian/patches")


def _named(stack: Stack, tree: Path, scratch: Path, tarball: str) -> Path:
    """Move the tree to the name that packaging wants, with its original tarball beside it."""
    source = scratch / f"torch-musa-{stack.release}"
    shutil.move(tree, source)
    sound(["tar", "-czf", tarball, source.name], scratch)
    return source


def dpkg_source(stack: Stack, tree: Path, scratch: Path) -> Left:
    """Build a 3.0 (quilt) source package and extract it again: both apply the stack."""
    source = _named(stack, tree, scratch, f"torch-musa_{stack.release}.orig.tar.gz")
    _debian(stack, source)
    code, said = run(["dpkg-source", "--build", source.name], scratch)
    if code:
        return Left(source, code, said)
    dsc = f"torch-musa_{stack.release}-1.dsc"
    code, more = run(["dpkg-source", "--extract", dsc, "extracted"], scratch)
    return Left(scratch / "extracted", code, said + more)


def gbp_pq(stack: Stack, tree: Path, scratch: Path) -> Left:
    _debian(stack, tree)
    repository(tree)
    return Left(tree, *run(["gbp", "pq", "import"], tree))


def rpmbuild(stack: Stack, tree: Path, scratch: Path) -> Left:
    source = _named(stack, tree, scratch, "source.tar.gz")
    numbered = "".join(f"Patch{number}: {file.name}\n" for number, file in enumerate(stack.patches, 1))
    spec = scratch / "torch-musa.spec"
    spec.write_text(
        f"Name: torch-musa\nVersion: {stack.release}\nRelease: 1\nSummary: specimen\nLicense: BSD\nBuildArch: noarch\n"
        f"Source0: source.tar.gz\n{numbered}\n%description\nA specimen.\n\n%prep\n%autosetup -p1\n",
        encoding="utf-8",
    )
    folders = [f"--define=_sourcedir {scratch}/sources", f"--define=_topdir {scratch}/rpm"]
    shutil.copytree(stack.folder, scratch / "sources")
    shutil.move(scratch / "source.tar.gz", scratch / "sources")
    code, said = run(["rpmbuild", "-bp", "--nodeps", *folders, spec.name], scratch)
    built = list((scratch / "rpm").rglob(f"{source.name}/version.txt"))
    return Left(built[0].parent if built else source, code, said)


TOOLS: dict[str, Tool] = {
    "quilt": quilt_push,
    "git-am": git_am,
    "git-am-3": git_am_3,
    "git-apply": git_apply,
    "git-apply-inside": git_apply_inside,
    "git-apply-directory": git_apply_directory,
    "patch": patch,
    "dpkg-source": dpkg_source,
    "gbp-pq": gbp_pq,
    "rpmbuild": rpmbuild,
}


def check_sums(tree: Path, pins: Path) -> tuple[int, str]:
    """Run the real `sha256sum -c` in a tree."""
    return run(["sha256sum", "-c", "--strict", str(pins)], tree)


def files(tree: Path) -> dict[str, tuple[int, str]]:
    """Return mode and digest of every file of a tree, the tools' own folders left out."""
    return {
        str(path.relative_to(tree)): (path.stat().st_mode, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in tree.rglob("*")
        if path.is_file() and path.relative_to(tree).parts[0] not in (".git", ".pc")
    }
