"""The import level: the tree's real `__init__` and `_lazy_init` run, with no torch and no card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from verify import child
from verify.finding import Finding, Level, Status

_SCRIPT = Path(__file__).parent / "standin" / "import_checks.py"
_SECONDS = 60.0
_HOW = "by importing the real modules, with stand-ins for torch and the card"
# Isolated from the user's settings, and no site-packages: nothing that is installed can take part.
_OPTIONS = ("-I", "-S", "-W", "ignore")

NAMES = ("_lazy_init", "_lazy_call", "_is_in_bad_fork", "is_initialized", "musart")
# The releases before 2.7.1 do not bind _lazy_call: only where the unpatched side is known can it be asked for.
ALWAYS = tuple(name for name in NAMES if name != "_lazy_call")
"""What the releases that have a stack bind off core/_lazy_init; those before 2.7.1 bind only some of it."""

IMPORTS = "package-imports"
CLAIMS = {
    IMPORTS: "torch_musa can be imported",
    "flag-false-before-initialization": "the flag is False before initialization, under both names of the module",
    "flag-true-after-initialization": "the flag is True after _lazy_init(), under both names of the module",
    "one-module-two-names": "torch.musa is the module torch_musa itself",
    "flag-is-no-entry-of-the-module": "the flag is no entry of the module's own dict",
    "flag-is-read-anew": "the flag is read anew on every access",
    "unknown-attribute": "an unknown name raises AttributeError with the interpreter's own text",
    "hasattr-and-default": "hasattr and getattr with a default work for the flag and for an unknown name",
    "star-import": "from torch_musa import * works",
    "dir": "dir(torch_musa) works",
    "names-are-the-functions": "_lazy_init, _lazy_call, _is_in_bad_fork, is_initialized and musart "
    "are the objects of core._lazy_init, as far as the release has them",
    "submodule-stays": "torch_musa.core._lazy_init stays the submodule",
    "asked-during-import": "the flag and an unknown name can be asked for while the package is imported",
    "initialized-in-a-thread": "an initialization in one thread is seen by the others",
    "forked-child": "in a child forked after initialization the flag is True and is_initialized() is False",
    "failed-initialization": "a failed initialization leaves the flag False, and a later one sets it",
    "failed-queued-call": "a queued call that fails leaves the flag False, and a later initialization sets it",
    "queued-calls-once-in-order": "calls queued before initialization run once, in order",
}


def check_import(tree_root: Path, python: str, names: Sequence[str] = ALWAYS) -> list[Finding]:
    """Run the checks of the import level in one child interpreter.

    tree_root: the folder that holds torch_musa; nothing is written there.
    python: the interpreter; it needs no torch. names: those that the package must bind off core/_lazy_init.
    Returns one finding for each check, in the order of CLAIMS. When the package cannot be imported,
    the first finding is refuted with the reason and the others did not run; when the interpreter
    does not get as far as the tree, none did.
    """
    ready: list[str] = []
    result = child.run(
        python,
        _SCRIPT,
        [str(tree_root.absolute()), *names],
        seconds=_SECONDS,
        options=_OPTIONS,
        progress=ready.append,
    )
    if result.problem:
        status = Status.REFUTED if ready else Status.NOT_RUN
        return _stopped(status, f"the child that imports it {result.reason()}")
    if result.value["import"]:
        return _stopped(Status.REFUTED, result.value["import"])
    seen = {IMPORTS: "", **result.value["checks"]}
    return [_finding(check, Status.REFUTED if seen[check] else Status.PROVEN, seen[check]) for check in CLAIMS]


def _stopped(status: Status, reason: str) -> list[Finding]:
    others = [check for check in CLAIMS if check != IMPORTS]
    return [
        _finding(IMPORTS, status, reason),
        *(_finding(check, Status.NOT_RUN, "the package cannot be imported") for check in others),
    ]


def _finding(check: str, status: Status, detail: str) -> Finding:
    return Finding(Level.IMPORT, check, CLAIMS[check], status, _HOW, detail)
