"""Initialization of the cards, put off until somebody needs one.

Importing torch_musa must be cheap and must leave the driver alone: a process
that forks later, as a data loader does, cannot use a driver that was opened
before the fork. So the first call that needs a card runs _lazy_init(), and
calls that can wait until then, such as seeding, go through _lazy_call().

Who runs when:

* _lazy_init() initializes once in a process. A thread that comes while another
  one initializes waits for it, and then finds the work done.
* A queued call runs in the thread that initializes, before the flag is set. It
  may use cards: _lazy_init() returns at once while it runs.
* If the driver or a queued call fails, the flag stays False and the error goes
  to the caller. The next _lazy_init() tries again; calls that have run are not
  run a second time.
* A child that was forked after initialization must not use the driver: there
  is_initialized() says False, whatever the flag says, and _lazy_init() refuses.

Nothing here knows torch. It needs the compiled module only.
"""

import threading
import traceback

import torch_musa

# True once every step of _lazy_init() is through. Only that function binds it:
# whoever wants the present value has to read it off this module.
_initialized = False

# Pairs of a call and the stack that queued it, in the order of queueing.
_queued_calls = []

# Guards the two above. A queued call may queue another one: hence the RLock.
_initialization_lock = threading.RLock()

# Has the attribute is_initializing in the thread that runs the queued calls.
_tls = threading.local()

# True in a child that was forked after the driver had been opened.
_is_in_bad_fork = torch_musa._MUSAC._musa_isInBadFork


class DeferredCallError(Exception):
    """A queued call failed; the text names the place that queued it."""


def is_initialized():
    """whether the cards are ready in this process, forked children included"""
    return _initialized and not _is_in_bad_fork()


def _lazy_call(call):
    """run a call without arguments now if the cards are ready, or else later

    call: runs after the driver is open and before the first use of a card that
    was waiting for it. Its result is dropped. What it raises comes as it is if
    it runs now, and as DeferredCallError out of _lazy_init() if it runs later.
    """
    with _initialization_lock:
        if not is_initialized():
            _queued_calls.append((call, traceback.format_stack()))
            return
    call()


def _run_queued_calls():
    """run what was queued, first come first served, each call once

    A call leaves the queue when it has succeeded, so that a later attempt takes
    up where this one failed. Raises DeferredCallError.
    """
    while _queued_calls:
        call, stack = _queued_calls[0]
        try:
            call()
        except Exception as error:
            raise DeferredCallError(
                f"a call put off until the cards are ready failed: {error}\n\n"
                "It was queued here:\n" + "".join(stack)
            ) from error
        del _queued_calls[0]


def _refuse_bad_fork():
    """raise RuntimeError in a child that cannot use the driver of its parent"""
    if _is_in_bad_fork():
        raise RuntimeError(
            "The cards were initialized before this process was forked. "
            "Start workers with the method 'spawn' instead."
        )


def _lazy_init():
    """Open the driver and run the calls that wait for it.

    Does nothing if the Torch MUSA state is already initialized.
    """
    global _initialized, _queue_calls
    if is_initialized() or hasattr(_tls, "is_initializing"):
        return
    with _initialization_lock:
        # Another thread may have done it while this one waited.
        if is_initialized():
            return
        _refuse_bad_fork()
        # A driver that is open already, because a queued call failed the last
        # time, stays open: new generators would lose the seeds that are in.
        if not torch_musa.default_generators:
            torch_musa._MUSAC._musa_init()
        _tls.is_initializing = True
        try:
            _run_queued_calls()
        finally:
            del _tls.is_initializing
        _initialized = True


def musart():
    """the runtime of the driver, initialized: the module _MUSAC._musart"""
    _lazy_init()
    return torch_musa._MUSAC._musart
