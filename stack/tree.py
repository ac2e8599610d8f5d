"""A source tree, read by directory handle: no symbolic link is followed below its root.

Only the paths that a stack touches are looked at, and each is read once.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from stack.errors import Environment, Usage

LARGEST = 64 * 1024 * 1024
"""A touched file has at most so many bytes; of a larger one only the fact is reported."""
MOST_LINES = 500_000
"""And so many lines: every line is an object of its own and a digest, where a file is compared with a release."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a FIFO swapped in between stat and open must not block the run.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOCTTY", 0)


class Kind(str, Enum):
    """What stands at a path."""

    FILE = "file"
    ABSENT = "absent"
    LINK = "symbolic link"
    DIRECTORY = "directory"
    SPECIAL = "special file"
    HUGE = "huge file"
    BELOW = "name below a file"


class Entry(NamedTuple):
    """What was found at a path. data is empty unless it is a FILE; mode is its permission bits."""

    kind: Kind
    data: bytes = b""
    mode: int = 0
    uid: int = -1
    gid: int = -1
    via: str = ""
    """The component of the path that is a link, or no directory, where that is why."""

    @property
    def executable(self) -> bool:
        """Whether git would record 100755: the owner's execute bit (git manual, core.fileMode)."""
        return bool(self.mode & 0o100)


class Tree:
    """An open tree. Use as a context manager; `root` is kept for messages only."""

    def __init__(self, root: str) -> None:
        self.root = root
        try:
            self.handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except PermissionError as error:
            raise Environment(f"{root}: cannot be opened: {error.strerror}") from error
        except OSError as error:
            raise Usage(f"{root}: is not a directory that can be opened: {error.strerror}") from error

    def __enter__(self) -> "Tree":
        return self

    def __exit__(self, *_: object) -> None:
        close(self.handle)

    def folder(self, path: str) -> int:
        """Open the directory that holds path, component by component; the caller closes it."""
        handle = os.dup(self.handle)
        try:
            for part in path.split("/")[:-1]:
                inner = os.open(part, _DIRECTORY, dir_fd=handle)
                close(handle)
                handle = inner
        except BaseException:
            close(handle)
            raise
        return handle

    def names(self, folder: str) -> list[str]:
        """Return the names in a directory of the tree, in no order."""
        handle = self.folder(f"{folder}/")
        try:
            return os.listdir(handle)
        finally:
            os.close(handle)

    def read(self, path: str) -> Entry:
        """Return what stands at path; raise Environment when it cannot be told."""
        try:
            handle = self.folder(path)
        except OSError as error:
            return self._blocked(path, error)
        try:
            return read_at(handle, path.rsplit("/", 1)[-1])
        except OSError as error:
            raise Environment(f"{self.root}/{path}: cannot be read: {error.strerror}") from error
        finally:
            close(handle)

    def read_all(self, paths: Iterable[str]) -> dict[str, Entry]:
        """Return what stands at each of the paths."""
        return {path: self.read(path) for path in paths}

    def _blocked(self, path: str, error: OSError) -> Entry:
        if error.errno == errno.ENOENT:
            return Entry(Kind.ABSENT)
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise Environment(f"{self.root}/{path}: cannot be reached: {error.strerror}") from error
        parts = path.split("/")
        for depth in range(1, len(parts)):
            via = "/".join(parts[:depth])
            if os.path.islink(f"{self.root}/{via}"):
                return Entry(Kind.LINK, via=via)
            if not os.path.isdir(f"{self.root}/{via}"):
                return Entry(Kind.BELOW, via=via)
        return Entry(Kind.ABSENT)


def kind_at(path: str) -> Kind:
    """Return what stands at a path, a link as such.

    Unlike os.path.isfile and its like, which take every error for no, raises Environment where that cannot be told.
    """
    try:
        return _kind(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return Kind.ABSENT
    except OSError as error:
        raise Environment(f"{path}: cannot be looked at: {error.strerror}") from error


def stands(path: str) -> bool:
    """Whether anything stands at a path, a dangling link included. Raises as kind_at does."""
    return kind_at(path) is not Kind.ABSENT


def close(handle: int) -> None:
    """Close a descriptor through which nothing was written: that it fails means nothing."""
    with contextlib.suppress(OSError):
        os.close(handle)


def read_at(handle: int, name: str) -> Entry:
    """Return what stands at name in the directory that handle is open on."""
    try:
        found = os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return Entry(Kind.ABSENT)
    if not stat.S_ISREG(found.st_mode):
        return Entry(_kind(found.st_mode))
    descriptor = os.open(name, _FILE, dir_fd=handle)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return Entry(_kind(found.st_mode))
        data = _read(descriptor, found.st_size)
    finally:
        close(descriptor)
    if data is None:
        return Entry(Kind.HUGE)
    return Entry(Kind.FILE, data, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return Kind.FILE
    if stat.S_ISLNK(mode):
        return Kind.LINK
    return Kind.DIRECTORY if stat.S_ISDIR(mode) else Kind.SPECIAL


def _read(descriptor: int, size: int) -> bytes | None:
    """Return the whole file, or None when it is larger than LARGEST or has more than MOST_LINES."""
    blocks: list[bytes] = []
    have = 0
    while have <= LARGEST and size <= LARGEST:
        block = os.read(descriptor, max(size - have, 0) + 65536)
        if not block:
            data = b"".join(blocks)
            return data if data.count(b"\n") <= MOST_LINES else None
        blocks.append(block)
        have += len(block)
    return None
