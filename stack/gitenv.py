"""What holds for every git that is run here, whoever asks it: which program it is, and that it fetches nothing."""

from __future__ import annotations

import os

from stack.errors import Refused
from stack.tree import Kind, kind_at

SECONDS = 900
"""No command on a repository that is here takes so long; one that waits for ever (a FIFO in .git) is ended then."""

# No transport at all. A repository that claims to be a partial clone has a missing object fetched, by a command of its
# own choice (core.sshCommand, remote.NAME.uploadpack); git before 2.44 does not know GIT_NO_LAZY_FETCH.
OFFLINE = {"GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1"}


def search_path() -> str:
    """Return PATH without its relative folders: with "." a tree's own file named git would be the git."""
    return os.pathsep.join(folder for folder in os.get_exec_path() if os.path.isabs(folder))


def check_index(path: str) -> None:
    """Raise Refused where a repository's index would be waited for, or leads elsewhere: a FIFO, a device, a link."""
    if kind_at(path) not in (Kind.FILE, Kind.ABSENT):
        raise Refused(f"{path}: is no regular file", "Remove it; git reset then makes it anew.")
