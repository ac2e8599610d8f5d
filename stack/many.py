"""One system call on each of many files, several at a time.

A file system commits those that wait together in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

MANY = 16
"""Files from which on threads, which cost a millisecond to import and start, bring in more than that."""
_THREADS = 8


def for_each(call: Callable[[str], None], names: Sequence[str]) -> None:
    """Call for every name, in order when they are few; raises the first OSError when all calls have ended."""
    if len(names) <= MANY:
        for name in names:
            call(name)
        return
    from threading import Thread

    failures: list[OSError] = []

    def work(part: Sequence[str]) -> None:
        try:
            for name in part:
                call(name)
        except OSError as error:
            failures.append(error)

    threads = [Thread(target=work, args=(names[number::_THREADS],)) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
