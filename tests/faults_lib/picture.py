"""What a world looks like, to the byte, the mode, the owner and the time; and how two such pictures differ."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

LEFT_OUT = (".git/objects", ".git/logs")
"""Objects that nothing refers to, and the reflog, which tells of a branch that was moved and moved back."""

PLACE = re.compile(rb"(?m)^place \d+$")
"""The line in which a journal names the inode of its directory."""


class Shot(NamedTuple):
    """One path: kind and mode, owner, bytes (a link's target), and the time of a file."""

    mode: int
    owner: tuple[int, int]
    data: bytes
    time: int


Picture = Mapping[str, Shot]


def take(world: Path) -> dict[str, Shot]:
    """Return every path below world but what LEFT_OUT names; directories have no time: their entries change it.

    The name of the world itself, which a clone notes, is written @, and so is the inode that a journal notes.
    """
    shots: dict[str, Shot] = {}
    name = os.fsencode(world)
    _walk(name, "", shots)
    return {
        path: shot._replace(data=PLACE.sub(b"place @", shot.data.replace(name, b"@"))) for path, shot in shots.items()
    }


def _walk(folder: bytes, label: str, shots: dict[str, Shot]) -> None:
    for entry in os.scandir(folder):
        path = f"{label}{os.fsdecode(entry.name)}"
        if path.endswith(LEFT_OUT):
            continue
        found = entry.stat(follow_symlinks=False)
        data, time = b"", found.st_mtime_ns
        if stat.S_ISDIR(found.st_mode):
            time = 0
            _walk(entry.path, f"{path}/", shots)
        elif stat.S_ISLNK(found.st_mode):
            data = os.readlink(entry.path)
        elif stat.S_ISREG(found.st_mode):
            with open(entry.path, "rb") as file:
                data = file.read()
        shots[path] = Shot(found.st_mode, (found.st_uid, found.st_gid), data, time)


def differences(now: Picture, then: Picture, times: Callable[[str], bool]) -> list[str]:
    """Return the paths in which two pictures differ, with how; times: whose times count."""
    lines = [f"{path}: is missing" for path in then if path not in now]
    lines += [f"{path}: is new" for path in now if path not in then]
    for path, shot in now.items():
        other = then.get(path, shot)
        found = [
            name
            for name in Shot._fields
            if getattr(shot, name) != getattr(other, name) and (name != "time" or times(path))
        ]
        lines += [f"{path}: other {' and '.join(found)}"] if found else []
    return lines


def with_indexes_as_text(world: Path, picture: Picture) -> dict[str, Shot]:
    """Return the picture with each index of git as what it says: its bytes hold the times of files."""
    found = dict(picture)
    for path in picture:
        if path.endswith(".git/index"):
            tree = world / path.removesuffix(".git/index")
            env = {"PATH": os.defpath, "GIT_CONFIG_NOSYSTEM": "1", "HOME": os.devnull, "GIT_OPTIONAL_LOCKS": "0"}
            said = [
                subprocess.run(["git", *args], cwd=tree, env=env, capture_output=True, check=True).stdout
                for args in (["ls-files", "--stage", "-v"], ["status", "--porcelain", "--untracked-files=no"])
            ]
            found[path] = picture[path]._replace(data=b"\0".join(said), time=0)
    return found
