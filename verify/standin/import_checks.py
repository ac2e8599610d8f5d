"""The checks of the import level, on the real modules of one tree and stand-ins for all else.

Run as a script by verify.imported: `import_checks.py FD ROOT NAME...`, with the names that the package must bind off
core/_lazy_init. Sends one list: for each check its
name and either an empty text (it holds) or what was seen instead; first of all the check that the
package can be imported.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

if __name__ == "__main__":
    # Run as a script: only its own folder is on the path.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from verify.standin import forked, report
from verify.standin.scene import MISSING, UNKNOWN, Scene, expect, expect_equal

NAMES = ("_lazy_init", "_lazy_call", "_is_in_bad_fork", "is_initialized", "musart")
_SECONDS_EACH = 10.0


def flag_false_before(scene: Scene) -> None:
    for name, flag in zip(("torch_musa", "torch.musa"), scene.flags(), strict=True):
        expect(flag, False, f"{name}._initialized before initialization")
    expect(scene.flag_module.is_initialized(), False, "is_initialized() before initialization")


def flag_true_after(scene: Scene) -> None:
    scene.package._lazy_init()
    for name, flag in zip(("torch_musa", "torch.musa"), scene.flags(), strict=True):
        expect(flag, True, f"{name}._initialized after _lazy_init()")
    expect(scene.flag_module.is_initialized(), True, "is_initialized() after _lazy_init()")


def same_module(scene: Scene) -> None:
    expect(sys.modules["torch"].musa, scene.package, "torch.musa")


def flag_not_stored(scene: Scene) -> None:
    for moment in ("after the import", "after it was read"):
        if "_initialized" in vars(scene.package):
            raise AssertionError(f"vars(torch_musa) holds _initialized {moment}: {scene.package._initialized!r}")
        scene.flags()


def flag_read_anew(scene: Scene) -> None:
    for value in (True, False, True, False):
        scene.flag_module._initialized = value
        for name, flag in zip(("torch_musa", "torch.musa"), scene.flags(), strict=True):
            expect(
                flag,
                value,
                f"{name}._initialized, when core._lazy_init._initialized was set to {value},",
            )


def unknown_attribute(scene: Scene) -> None:
    for name in (UNKNOWN, "_initialised", "__wrapped__"):
        try:
            value = getattr(scene.package, name)
        except AttributeError as error:
            wanted = f"module 'torch_musa' has no attribute '{name}'"
            if str(error) != wanted:
                raise AssertionError(f"torch_musa.{name} raises AttributeError({error}), not ({wanted})") from error
        else:
            raise AssertionError(f"torch_musa.{name} is {value!r}, not an AttributeError")


def hasattr_and_default(scene: Scene) -> None:
    expect(hasattr(scene.package, "_initialized"), True, 'hasattr(torch_musa, "_initialized")')
    expect(hasattr(scene.package, UNKNOWN), False, f'hasattr(torch_musa, "{UNKNOWN}")')
    expect(getattr(scene.package, UNKNOWN, None), None, f'getattr(torch_musa, "{UNKNOWN}", None)')
    expect(
        getattr(scene.package, "_initialized", None),
        False,
        'getattr(torch_musa, "_initialized", None)',
    )


def star_import(scene: Scene) -> None:
    space: dict[str, Any] = {}
    exec("from torch_musa import *", space)  # the only way to a star import in a namespace of its own
    for name in ("manual_seed_all", "is_initialized"):
        if name in scene.names or name not in NAMES:
            expect(space.get(name), vars(scene.package).get(name, MISSING), f"{name} of a star import")


def dir_works(scene: Scene) -> None:
    names = dir(scene.package)
    if "_lazy_init" not in names or UNKNOWN in names:
        raise AssertionError(f"dir(torch_musa) gives {len(names)} names, and not the right ones")


def names_are_the_functions(scene: Scene) -> None:
    ours, theirs = vars(scene.package), vars(scene.flag_module)
    absent = [name for name in scene.names if name not in ours]
    others = [name for name in NAMES if name in ours and ours[name] is not theirs.get(name)]
    if absent or others:
        raise AssertionError(f"absent: {', '.join(absent) or 'none'}; other objects: {', '.join(others) or 'none'}")


def submodule_stays(scene: Scene) -> None:
    expect(scene.package.core._lazy_init, scene.flag_module, "torch_musa.core._lazy_init")
    expect(type(scene.flag_module), ModuleType, "the class of torch_musa.core._lazy_init")
    expect(callable(scene.package._lazy_init), True, "callable(torch_musa._lazy_init)")


def during_import(scene: Scene) -> None:
    after = [glimpse for glimpse in scene.glimpses if glimpse.after_block]
    if not after:
        raise AssertionError("no module is imported after the names of core._lazy_init are bound")
    for glimpse in scene.glimpses:
        expect(
            glimpse.unknown,
            MISSING,
            f"torch_musa.{UNKNOWN}, asked by {glimpse.module} during the import,",
        )
        if glimpse.after_block or glimpse.flag is not MISSING:
            expect(
                glimpse.flag,
                False,
                f"torch_musa._initialized, asked by {glimpse.module} during the import,",
            )


def seen_across_threads(scene: Scene) -> None:
    thread = threading.Thread(target=scene.package._lazy_init)
    thread.start()
    thread.join()
    expect(scene.flags()[0], True, "torch_musa._initialized after initialization in another thread")
    seen: list[Any] = []
    reader = threading.Thread(target=lambda: seen.append(scene.flags()[1]))
    reader.start()
    reader.join()
    expect(seen[0], True, "torch.musa._initialized, read in another thread,")


def forked_child(scene: Scene) -> None:
    scene.package._lazy_init()
    work = forked.Work(
        "child",
        lambda: [scene.flags()[0], scene.flag_module._is_in_bad_fork(), scene.flag_module.is_initialized()],
    )
    (outcome,) = forked.run([work], at_once=1, seconds=_SECONDS_EACH)
    if outcome.problem:
        raise AssertionError(f"the forked child failed: {outcome.problem}")
    flag, bad_fork, initialized = outcome.value
    expect(bad_fork, True, "_is_in_bad_fork() in a child forked after initialization")
    expect(flag, True, "torch_musa._initialized in a child forked after initialization")
    expect(initialized, False, "is_initialized() in a child forked after initialization")
    expect(scene.flags()[0], True, "torch_musa._initialized in the parent")


def failed_initialization(scene: Scene) -> None:
    scene.extension.failure = RuntimeError("no card answers")
    try:
        scene.package._lazy_init()
    except RuntimeError as error:
        expect_equal(str(error), "no card answers", "the error of a failed initialization")
    else:
        raise AssertionError("_lazy_init() hides that the initialization failed")
    expect(scene.flags()[0], False, "torch_musa._initialized after a failed initialization")
    scene.package._lazy_init()
    expect(scene.flags()[0], True, "torch_musa._initialized after a later, successful initialization")


def failed_queued_call(scene: Scene) -> None:
    failures = [ValueError("queued call failed")]

    def queued() -> None:
        if failures:
            raise failures.pop()

    scene.flag_module._lazy_call(queued)
    try:
        scene.package._lazy_init()
    except Exception as error:
        if "queued call failed" not in str(error):
            raise AssertionError(f"a failed queued call is told as {error!r}") from error
    else:
        raise AssertionError("_lazy_init() hides that a queued call failed")
    expect(scene.flags()[0], False, "torch_musa._initialized after a queued call failed")
    scene.package._lazy_init()
    expect(scene.flags()[0], True, "torch_musa._initialized after a later, successful initialization")


def queued_calls(scene: Scene) -> None:
    order: list[str] = []
    for name in ("first", "second", "third"):
        scene.flag_module._lazy_call(lambda name=name: order.append(name))
    expect_equal(order, [], "the list of queued calls that ran before initialization")
    scene.package._lazy_init()
    scene.package._lazy_init()
    expect_equal(order, ["first", "second", "third"], "the list of queued calls that ran")
    scene.flag_module._lazy_call(lambda: order.append("at once"))
    expect_equal(order[3:], ["at once"], "the list of calls that ran later")


CHECKS: dict[str, Callable[[Scene], None]] = {
    "flag-false-before-initialization": flag_false_before,
    "flag-true-after-initialization": flag_true_after,
    "one-module-two-names": same_module,
    "flag-is-no-entry-of-the-module": flag_not_stored,
    "flag-is-read-anew": flag_read_anew,
    "unknown-attribute": unknown_attribute,
    "hasattr-and-default": hasattr_and_default,
    "star-import": star_import,
    "dir": dir_works,
    "names-are-the-functions": names_are_the_functions,
    "submodule-stays": submodule_stays,
    "asked-during-import": during_import,
    "initialized-in-a-thread": seen_across_threads,
    "forked-child": forked_child,
    "failed-initialization": failed_initialization,
    "failed-queued-call": failed_queued_call,
    "queued-calls-once-in-order": queued_calls,
}


def _tried(check: Callable[[Scene], None], scene: Scene) -> str:
    """Return what a check saw instead of what it claims, or an empty text."""
    try:
        check(scene)
    except AssertionError as error:
        return str(error)
    except Exception as error:  # a tree may raise anything; it becomes the finding
        return f"{type(error).__name__}: {error}"
    return ""


def main(descriptor: int, root: Path, names: list[str]) -> None:
    """Import the package of this tree, run each check in a copy, and send what they saw."""
    # From here on it is the tree's doing if this process fails.
    report.send(descriptor, "progress", "ready")
    try:
        scene = Scene(root, names)
    except BaseException as error:  # SystemExit too
        report.send(descriptor, "value", {"import": f"{type(error).__name__}: {error}", "checks": {}})
        return
    works = [forked.Work(name, functools.partial(_tried, check, scene)) for name, check in CHECKS.items()]
    seen = {
        outcome.name: outcome.value if not outcome.problem else outcome.problem
        for outcome in forked.run(works, at_once=2, seconds=_SECONDS_EACH)
    }
    report.send(descriptor, "value", {"import": "", "checks": seen})


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
