"""One run at a time on one tree: flock(2) on the tree's own directory.

The lock leaves no file and dies with its process, so there is no stale lock to recover. Where the
file system has no flock for directories (NFS), the journal's exclusive mkdir stands in for it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from stack.errors import Environment
from stack.tree import Tree


@contextmanager
def locked(tree: Tree) -> Iterator[bool]:
    """Hold the tree's lock; yields whether the file system really has one.

    Raises Environment when another run holds it: never waits.
    """
    have = try_lock(tree)
    if have is None:
        raise Environment(f"{tree.root}: another run of this tool is at work here", "Wait for it, then try again.")
    try:
        yield have
    finally:
        if have:
            with suppress(OSError):  # it goes with the process in any case
                fcntl.flock(tree.handle, fcntl.LOCK_UN)


def try_lock(tree: Tree) -> bool | None:
    """Take the lock: True when taken, None when another run has it, False without flock here."""
    try:
        fcntl.flock(tree.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return None if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN) else False
    return True


def this_host() -> str:
    """Name this machine so that another one, or the same one after a reboot, is told apart."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            boot = file.read(64).strip().decode("ascii", "replace")
    except OSError:
        boot = "-"
    return f"{os.uname().nodename or '-'} {boot}"
