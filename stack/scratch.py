"""Folders in $TMPDIR for the time of one run, and what a killed run has left of them.

Each is locked (flock) by the run that made it. A lock that can be taken tells that its run is dead; the next
run that needs such a folder, and `recover`, remove what is left then.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from stack.errors import Environment

PREFIX = "torch-musa-patches-run-"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def scratch_folder() -> Iterator[str]:
    """Yield an empty folder of our own, which goes at the end. Raises Environment when there is no room for one."""
    import tempfile

    with contextlib.suppress(OSError):
        sweep()
    try:
        folder, handle = _make()
    except OSError as error:
        raise Environment(f"{tempfile.gettempdir()}: no scratch folder can be made: {error.strerror}") from error
    try:
        yield folder
    finally:
        _remove(folder)
        with contextlib.suppress(OSError):
            os.close(handle)


def _make() -> tuple[str, int]:
    """Make a folder and lock it; make another when a sweep came in between."""
    import tempfile

    while True:
        folder = tempfile.mkdtemp(prefix=PREFIX)
        try:
            handle = os.open(folder, _DIRECTORY)
            # Without locks here nobody can take one either, so nothing is swept.
            if _lock(handle) is not None and os.fstat(handle).st_nlink:
                return folder, handle
            os.close(handle)
        except FileNotFoundError:
            continue
        except OSError:
            _remove(folder)
            raise


def _lock(handle: int) -> bool | None:
    """Take the lock: True when taken, None when another has it, False without locks here."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    except OSError:
        return False
    return True


def _remove(folder: str) -> None:
    """Remove a folder; what cannot be removed now is swept by a later run."""
    for _ in range(2):
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
            return


def sweep() -> int:
    """Remove the folders of dead runs; return how many. Only this user's, into which no other can write."""
    import tempfile

    top, count = tempfile.gettempdir(), 0
    for name in os.listdir(top):
        path = os.path.join(top, name)
        if name.startswith(PREFIX) and _is_ours(path):
            with contextlib.suppress(OSError):
                count += _sweep(path)
    return count


def _is_ours(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _sweep(path: str) -> int:
    handle = os.open(path, _DIRECTORY)
    try:
        if not _lock(handle):
            return 0
        shutil.rmtree(path)
        return 1
    finally:
        os.close(handle)
