"""The errors that a user can act on, and the exit code of each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any


class Exit(IntEnum):
    """Exit codes of every command; the README's table is checked against this one."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    MALFORMED = 3
    ENVIRONMENT = 4
    UNPROVEN = 5
    BUG = 70
    INTERRUPTED = 130


MEANING = {
    Exit.DONE: "done, or already so (the message differs)",
    Exit.REFUSED: "refused, tree untouched",
    Exit.USAGE: "usage",
    Exit.MALFORMED: "malformed patch, series or pin",
    Exit.ENVIRONMENT: "environment: lock held, tool missing, unwritable, quilt in charge",
    Exit.UNPROVEN: "verification failed; what apply wrote is restored",
    Exit.BUG: "a bug of ours",
    Exit.INTERRUPTED: "interrupted: the tree is as before, or wholly changed where all was in place already",
}


class StackError(Exception):
    """A problem that the user can act on: what, where, and in `tip` what to do next.

    data: what --json prints besides, such as a drift report.
    """

    exit = Exit.REFUSED

    def __init__(self, message: str, tip: str = "", data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.tip = tip
        self.data = data or {}


class Refused(StackError):
    """The bytes are not those that the fix was reasoned about."""


class Usage(StackError):
    """The command line names something that is not there."""

    exit = Exit.USAGE


class Malformed(StackError):
    """A patch, series or pin breaks its grammar; the message names file and line."""

    exit = Exit.MALFORMED


class Environment(StackError):
    """The surroundings prevent the work: a lock, a missing tool, permissions, quilt in charge."""

    exit = Exit.ENVIRONMENT
