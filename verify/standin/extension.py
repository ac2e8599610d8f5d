"""The stand-in for torch_musa._MUSAC: what the real Python files ask of the compiled module."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping

CARDS = 2
RUNTIME_VERSION = "4.3.0"


class Extension:
    """The state behind the stand-in: each thread's current card, and what became of initialization.

    make_generator: called with a card's number at initialization; gives its random generator.
    failure: when set, the next initialization raises it, once.
    initializations: how often initialization succeeded.
    """

    def __init__(self, make_generator: Callable[[int], object]) -> None:
        self.failure: Exception | None = None
        self.initializations = 0
        self._make_generator = make_generator
        self._thread = threading.local()
        self._bad_fork = False
        os.register_at_fork(after_in_child=self._after_fork)

    def answers(self) -> Mapping[str, object]:
        """Return the names that the stand-in module must have.

        It answers any other name with nothing behind it.
        """
        return {
            "_musa_init": self.initialize,
            "_musa_getDeviceCount": lambda: CARDS,
            "_musa_getDevice": self.current,
            "_musa_setDevice": self.exchange,
            "_musa_exchangeDevice": self.exchange,
            "_musa_maybeExchangeDevice": self.exchange,
            "_musa_isInBadFork": lambda: self._bad_fork,
            "_musa_synchronize": lambda: None,
            "_musa_register_device_hook": lambda: None,
            "_musa_version": RUNTIME_VERSION,
        }

    def initialize(self) -> None:
        """Do what the compiled module does: give the package one generator per card.

        Raises the prepared failure, if there is one.
        """
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        generators = tuple(self._make_generator(card) for card in range(CARDS))
        sys.modules["torch_musa"].default_generators = generators  # type: ignore[attr-defined]
        self.initializations += 1

    def current(self) -> int:
        """Return the calling thread's current card, as the runtime keeps it."""
        return int(getattr(self._thread, "card", 0))

    def exchange(self, card: int) -> int:
        """Make a card current and return the one before; a negative number changes nothing.

        Raises RuntimeError for a card that does not exist.
        """
        before = self.current()
        if card >= CARDS:
            raise RuntimeError(f"MUSA error: invalid device ordinal {card}")
        if card >= 0:
            self._thread.card = card
        return before

    def _after_fork(self) -> None:
        """A runtime that was initialized does not survive a fork."""
        self._bad_fork = self._bad_fork or self.initializations > 0
