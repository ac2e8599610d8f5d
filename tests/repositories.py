"""Git repositories for the tests of commits and clones: a specimen, what real git am makes of it, hostile set-ups."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from conftest import STACKS, contents, copy_specimen
from stacks import git

WHO = {"GIT_COMMITTER_NAME": "A Packager", "GIT_COMMITTER_EMAIL": "p@example.org"}
WHO["GIT_COMMITTER_DATE"] = "1700000000 +0200"
NOBODY = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def patches(release: str, stacks: Path = STACKS) -> list[Path]:
    """Return the patch files of a release in order."""
    names = (stacks / "series" / release).read_text(encoding="ascii").split()
    return [stacks / "patches" / release / name for name in names]


def commit_all(tree: Path) -> Path:
    """Make the tree a repository with one commit on the branch main."""
    git(tree, "init", "-q", "-b", "main")
    git(tree, "add", "-A", "-f")
    git(tree, "commit", "-q", "-m", "import")
    git(tree, "config", "user.name", WHO["GIT_COMMITTER_NAME"])
    git(tree, "config", "user.email", WHO["GIT_COMMITTER_EMAIL"])
    return tree


def specimen_repository(target: Path, release: str = "2.7.1") -> Path:
    """Return a specimen tree of a release as a repository."""
    return commit_all(copy_specimen(target, release))


def am(tree: Path, *files: Path) -> None:
    """Apply patches with the real git am, isolated, as the committer of WHO."""
    named = [f"user.name={WHO['GIT_COMMITTER_NAME']}", f"user.email={WHO['GIT_COMMITTER_EMAIL']}"]
    config = [word for setting in named for word in ("-c", setting)]
    git(tree, *config, "am", "-q", "--keep-cr", "--committer-date-is-author-date", *map(str, files))


def commits(tree: Path, since: str) -> list[str]:
    """Return each commit after `since`, oldest first: tree, author with date, message; not who committed when."""
    ids = git(tree, "rev-list", "--reverse", f"{since}..HEAD").decode().split()
    raw = [git(tree, "cat-file", "commit", one).decode() for one in ids]
    return ["\n".join(line for line in text.split("\n") if not line.startswith(_OWN)) for text in raw]


_OWN = ("parent ", "committer ")


def picture(tree: Path) -> dict[str, tuple[bytes | None, int]]:
    """Return every file of tree and repository but for objects, which nothing refers to before a commit is in."""
    return {path: shot for path, shot in contents(tree).items() if not path.startswith(".git/objects/")}


def head(tree: Path) -> str:
    return git(tree, "rev-parse", "HEAD").decode().strip()


def program(path: Path, text: str) -> Path:
    """Write an executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


HOOKS = ("pre-commit", "commit-msg", "applypatch-msg", "pre-applypatch", "post-index-change", "post-checkout")
HOOKS += ("reference-transaction", "prepare-commit-msg", "post-commit", "post-applypatch", "post-rewrite")


def hostile_home(home: Path, marker: Path) -> dict[str, str]:
    """Return an environment in which every lever of the user's set-up changes or prevents what git does.

    A hook, filter or fsmonitor that runs leaves `marker`.
    """
    shout = f'echo "$0 $*" >> "{marker}"; cat'
    for name in HOOKS:
        program(home / "hooks" / name, f'echo "{name}" >> "{marker}"; exit 1')
        program(home / "template" / "hooks" / name, f'echo "template {name}" >> "{marker}"; exit 1')
    (home / "attributes").write_text("* text eol=crlf filter=evil ident\n")
    config = hostile_config(home, shout)
    (home / ".gitconfig").write_text(f"[user]\n name = A Packager\n email = p@example.org\n{config}")
    astray = {
        "GIT_DIR": "/nonexistent",
        "GIT_INDEX_FILE": f"{home}/index",
        "GIT_WORK_TREE": f"{home}",
        "GIT_PREFIX": "x/",
    }
    author = {"GIT_AUTHOR_NAME": "Mallory", "GIT_AUTHOR_EMAIL": "m@example.org", "GIT_AUTHOR_DATE": "1 +0000"}
    objects = {"GIT_OBJECT_DIRECTORY": f"{home}/objects", "GIT_NAMESPACE": "n", "GIT_TEMPLATE_DIR": f"{home}/template"}
    more = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.autocrlf", "GIT_CONFIG_VALUE_0": "true"}
    return {"HOME": str(home), **astray, **author, **objects, **more}


def hostile_config(home: Path, shout: str) -> str:
    evil = program(home / "evil", shout)
    failing = program(home / "failing", "exit 1")
    return (
        f"[core]\n autocrlf = true\n eol = crlf\n safecrlf = true\n hooksPath = {home}/hooks\n fsmonitor = {evil}\n"
        f" attributesFile = {home}/attributes\n[commit]\n gpgSign = true\n[gpg]\n program = {failing}\n"
        f'[filter "evil"]\n clean = {evil}\n smudge = {evil}\n required = true\n[i18n]\n commitEncoding = UTF-16\n'
        f"[mailinfo]\n scissors = true\n[init]\n templateDir = {home}/template\n[index]\n version = 4\n"
        f"[am]\n threeWay = true\n[apply]\n whitespace = fix\n[tag]\n gpgSign = true\n"
    )


def copy(tree: Path, target: Path) -> Path:
    """Copy a repository with its times, so that the index of the copy needs no refresh."""
    return Path(shutil.copytree(tree, target, symlinks=True))
