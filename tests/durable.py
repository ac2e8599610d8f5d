"""What a power cut may take: the calls of a transaction in their order, and whether each was durable in time.

Until a directory is synced, names in it can be lost; until a file is synced, its bytes can (fsync(2), rename(2)).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stack.paths import JOURNAL

WRITERS = ("rename", "unlink", "mkdir", "rmdir", "link")


class Event(NamedTuple):
    """One call: its name, and the paths below the tree that it is about."""

    name: str
    path: str
    target: str = ""


@contextmanager
def recorded(tree: Path) -> Iterator[list[Event]]:
    """Record what this process does to names and to disks below a tree."""
    events: list[Event] = []

    def path_of(name: str | int, handle: int | None) -> str:
        if isinstance(name, int):
            return os.path.relpath(os.readlink(f"/proc/self/fd/{name}"), tree)
        folder = os.readlink(f"/proc/self/fd/{handle}") if handle is not None else os.getcwd()
        return os.path.relpath(os.path.join(folder, name), tree)

    def one(call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(name: Any, *args: Any, dir_fd: int | None = None, **options: Any) -> Any:
            events.append(Event(call, path_of(name, dir_fd)))
            return real(name, *args, **({"dir_fd": dir_fd} if dir_fd is not None else {}), **options)

        return wrapped

    def two(call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(name: Any, other: Any, *, src_dir_fd: int, dst_dir_fd: int, **options: Any) -> Any:
            events.append(Event(call, path_of(name, src_dir_fd), path_of(other, dst_dir_fd)))
            return real(name, other, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, **options)

        return wrapped

    with pytest.MonkeyPatch.context() as patch:
        for call in ("unlink", "mkdir", "rmdir", "fsync", "open"):
            patch.setattr(os, call, one(call, getattr(os, call)))
        for call in ("rename", "link"):
            patch.setattr(os, call, two(call, getattr(os, call)))
        yield events


def weaknesses(events: Sequence[Event]) -> list[str]:
    """Return what a power cut between two calls could lose for good; nothing for a sound order."""
    gone = events.index(Event("unlink", f"{JOURNAL}/record"))
    changes = [number for number, event in enumerate(events[:gone]) if _changes_tree(event)]
    found = list(_unsynced_before(events[: changes[0]]))
    for number in changes:
        path = events[number].target or events[number].path
        folder = os.path.dirname(path) or "."
        removed = Event("rmdir", folder) in events[number:gone]
        if not removed and Event("fsync", folder) not in events[number:gone]:
            found.append(f"{folder} is not synced between the change of {path} and the end")
    if Event("fsync", JOURNAL) not in events[gone:]:
        found.append("that the record is gone is not synced: a change that was reported could be taken back")
    return found


def _changes_tree(event: Event) -> bool:
    return event.name in WRITERS and not (event.target or event.path).startswith(JOURNAL)


def _unsynced_before(events: Sequence[Event]) -> Iterator[str]:
    """Yield what of the journal is not on the disk when the first file of the tree changes."""
    made = [number for number, event in enumerate(events) if event.path.startswith(JOURNAL) and event.name != "fsync"]
    written = [event.path for event in events if event.name == "open" and event.path.endswith((".new", "/record"))]
    for path in written:
        if Event("fsync", path) not in events:
            yield f"{path} is not synced before the first file of the tree changes"
    for path in (JOURNAL, "."):
        if Event("fsync", path) not in events[made[-1] :]:
            yield f"{path}, with the names in it, is not synced before the first file of the tree changes"
