"""Who else has a say in the installed files: their owner, a package manager, a process that has them in memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from shutil import which
from typing import NamedTuple

from stack.errors import Environment, Refused, Usage
from stack.installed.find import Installed
from stack.tree import stands

_MANAGERS = {
    "dpkg-query": ("-S",),
    "rpm": ("-qf", "--queryformat", "%{NAME}\\n"),
    "pacman": ("-Qoq",),
}
_SECONDS = 60
_MOST = 5


class Owner(NamedTuple):
    """A package of a package manager that owns the installed file."""

    manager: str
    package: str


def check_writable(installed: Installed, paths: Iterable[str], command: str) -> None:
    """Raise Environment for files that are not ours to change; paths are relative to the install.

    The folders must be writable and the files ours: a replaced file keeps its owner.
    """
    for path in paths:
        full = f"{installed.site}/{path}"
        for name in (full, os.path.dirname(full)):
            if stands(name) and (why := _not_ours(name, folder=name != full)):
                raise Environment(f"{name}: {why}", _who_may(name, command))


def _not_ours(path: str, folder: bool) -> str:
    owner, we = os.stat(path).st_uid, os.geteuid()
    if we and owner != we and not folder:
        return f"belongs to {_user(owner)}, and you are {_user(we)}"
    if folder and not os.access(path, os.W_OK, effective_ids=True):
        return f"cannot be written by {_user(we)}; it belongs to {_user(owner)}"
    return ""


def _user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _who_may(path: str, command: str) -> str:
    owner = os.stat(path).st_uid
    if os.geteuid() == owner or not os.geteuid():
        return "The file system is read-only, or the mode of that folder forbids it."
    if owner == 0:
        return f"As root: sudo {command}"
    return f"Let {_user(owner)} run it: {command}"


def check_owner(installed: Installed, path: str, stated: str | None) -> str:
    """Return what is to be said of the package that owns the file at path; refuse one that `stated` does not name.

    Raises Refused for a file of a package manager, Usage when `stated` names a package that does not own it.
    """
    owners, notes = _owners(installed, f"{installed.site}/{path}")
    if not owners and stated is not None:
        raise Usage(
            f"--owner {stated}: no package manager here says that it owns {installed.package}", "Leave --owner out."
        )
    for owner in owners:
        if stated is None:
            raise Refused(
                f"{installed.package}: is a part of the package {owner.package} ({owner.manager})",
                "Put the stack into that package: see the README. To change the installed files all the same, which "
                f"lasts until the package is upgraded: --owner {owner.package}",
            )
        if stated != owner.package:
            raise Usage(
                f"--owner {stated}: {installed.package} is a part of {owner.package} ({owner.manager})",
                f"If you mean that one: --owner {owner.package}",
            )
        notes.append(f"the next upgrade of the package {owner.package} ({owner.manager}) takes the fix away")
    return "\n".join(f"  {note}" for note in notes)


def _owners(installed: Installed, path: str) -> tuple[list[Owner], list[str]]:
    owners, notes = list(_conda(installed.prefix, path)), []
    for manager, words in _MANAGERS.items():
        if which(manager) is None:
            continue
        try:
            if manager == "rpm" and not _has_rpm_database():
                continue
            owners += [Owner(manager, name) for name in _asked(manager, words, path)]
        except (OSError, subprocess.TimeoutExpired) as error:
            notes.append(f"{manager} could not be asked whether it owns the package: {error}")
    return owners, notes


def _has_rpm_database() -> bool:
    """Return whether rpm has a database to ask; where it has none (on Debian, say) a mere query makes one in $HOME."""
    return stands(os.fsdecode(_run("rpm", "--eval", "%{_dbpath}").stdout.strip()))


def _run(*words: str) -> subprocess.CompletedProcess[bytes]:
    """Run a package manager; raise OSError where it fails (1: its answer is no)."""
    done = subprocess.run(
        words,
        cwd="/",
        env={**os.environ, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_SECONDS,
    )
    if done.returncode > 1:
        raise OSError(done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}")
    return done


def _asked(manager: str, words: Iterable[str], path: str) -> list[str]:
    """Return the packages that own path."""
    pattern = re.sub(r"([\\*?[])", r"\\\1", path) if manager == "dpkg-query" else path
    done = _run(manager, *words, pattern)
    if done.returncode:
        return []
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    if manager == "dpkg-query":  # "python3-x:amd64, python3-y: /path"
        lines = [name for line in lines if not line.startswith("diversion by ") for name in _dpkg_names(line, path)]
    return list(dict.fromkeys(line.strip() for line in lines if line.strip()))


def _dpkg_names(line: str, path: str) -> list[str]:
    names, found, _ = line.partition(f": {path}")
    return [name.strip().partition(":")[0] for name in names.split(",")] if found else []


def _conda(prefix: str, path: str) -> Iterator[Owner]:
    """Yield the conda package whose list has the file (conda-meta/NAME.json, `files`)."""
    folder = f"{prefix}/conda-meta"
    inner = os.path.relpath(path, os.path.realpath(prefix))
    names = os.listdir(folder) if stands(folder) else []
    for name in sorted(name for name in names if name.endswith(".json")):
        with open(f"{folder}/{name}", "rb") as file:
            data = file.read()
        if b"torch_musa" not in data:
            continue
        try:
            about = json.loads(data)
            if inner in about["files"]:
                yield Owner("conda", str(about["name"]))
        except (ValueError, KeyError, TypeError):
            continue


class Holders(NamedTuple):
    """The processes that have a file of the package in memory, and how many could not be looked into."""

    held: tuple[str, ...]
    hidden: int


def holders(installed: Installed) -> Holders:
    """Return who has files below the package mapped, by /proc/PID/maps (proc(5)): its .so files, once imported."""
    inside = os.fsencode(f"{os.path.realpath(installed.package)}/")
    held, hidden = [], 0
    for pid in sorted((name for name in os.listdir("/proc") if name.isdigit()), key=int):
        try:
            with open(f"/proc/{pid}/maps", "rb") as file:
                found = any(line.split(None, 5)[-1].startswith(inside) for line in file)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        except OSError:
            hidden += 1
            continue
        if found and int(pid) != os.getpid():
            held.append(f"{pid} ({_command(pid)})")
    return Holders(tuple(held), hidden)


def _command(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return file.read().decode("utf-8", "backslashreplace").strip()
    except OSError:
        return "ended meanwhile"


def check_processes(installed: Installed) -> str:
    """Return what could not be seen of other users' processes; refuse while one has the package in memory."""
    if not os.path.exists("/proc/self/maps"):
        return "  not looked: whether a process has the package in memory (there is no /proc here)"
    found = holders(installed)
    if found.held:
        more = f" and {len(found.held) - _MOST} more" if len(found.held) > _MOST else ""
        raise Refused(
            f"{installed.package}: is in the memory of process {', '.join(found.held[:_MOST])}{more}",
            "A running process keeps the old code, and importlib.reload does not heal it. Stop it, run this command, "
            "and start it again.",
        )
    if found.hidden:
        return f"  not seen: whether others have it in memory ({found.hidden} whose /proc/PID/maps may not be read)"
    return ""
