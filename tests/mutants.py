"""Faults planted into the fix, as text edits of the patched specimen (`tests/specimen/2.7.1` with the stack applied).

Each names the lowest level that must catch it, and for the static level the check that must refute it. `old` is found
once in the file. Where source reading cannot say, the level is a higher one, and a static finding says "not run".
"""

from __future__ import annotations

from typing import NamedTuple

from verify.finding import Level


class Mutant(NamedTuple):
    """One planted fault."""

    id: str
    path: str
    old: str
    new: str
    caught_by: Level
    check: str = ""


INIT = "torch_musa/__init__.py"
LAZY = "torch_musa/core/_lazy_init.py"
HANDLE = "from .core import _lazy_init as _lazy_init_module\n"
DEF = "def __getattr__(name):\n"
TEST = '    if name == "_initialized":\n'
RETURN = "        return _lazy_init_module._initialized\n"
RAISE = "    raise AttributeError(f\"module '{__name__}' has no attribute '{name}'\")\n"
FORWARDER = DEF + TEST + RETURN + RAISE
BELOW = "from .core.random import *\n"
GLOBAL = "    global _initialized, _queued_calls\n"
SET = "        _initialized = True\n"
START = "\n_initialized = False\n"
SYS = '__import__("sys")'


def _indented(text: str) -> str:
    return "".join(f"    {line}" for line in text.splitlines(keepends=True))


def _static(name: str, check: str, old: str, new: str, path: str = INIT) -> Mutant:
    return Mutant(name, path, old, new, Level.STATIC, check)


def _returns(name: str, expression: str) -> Mutant:
    return _static(name, "flag-forwarded", RETURN, f"        return {expression}\n")


def _below(name: str, check: str, text: str) -> Mutant:
    return _static(name, check, BELOW, BELOW + text)


def _handle(name: str, text: str) -> Mutant:
    return _static(name, "handle-is-module", HANDLE, text)


_ANSWERS = [
    _returns("constant-false", "False"),
    _returns("constant-true", "True"),
    _returns("inverted", "not _lazy_init_module._initialized"),
    _returns("forwards-is-initialized", "_lazy_init_module.is_initialized()"),
    _returns("forwards-the-queue", "_lazy_init_module._queued_calls"),
    _returns("has-a-default", 'getattr(_lazy_init_module, "_initialized", False)'),
    _returns("kept-in-the-dict", 'globals().setdefault("_initialized", _lazy_init_module._initialized)'),
    _static("kept-by-global", "flag-forwarded", TEST + RETURN,
            "    global _initialized\n" + TEST
            + "        _initialized = _lazy_init_module._initialized\n        return _initialized\n"),
    _static("kept-in-a-table", "flag-forwarded", DEF + TEST + RETURN,
            "_seen = {}\n\n\n" + DEF + TEST
            + "        if name not in _seen:\n            _seen[name] = _lazy_init_module._initialized\n"
            + "        return _seen[name]\n"),
    _static("snapshot-beside-it", "flag-forwarded", DEF + TEST + RETURN,
            "_flag = _lazy_init_module._initialized\n\n\n" + DEF + TEST + "        return _flag\n"),
    _static("misspelt-name", "flag-forwarded", TEST, '    if name == "_initialised":\n'),
    _static("unknown-name-is-none", "unknown-names-raise", RAISE, "    return None\n"),
    _static("unknown-name-falls-through", "unknown-names-raise", RAISE, ""),
    _static("wrong-exception", "unknown-names-raise", RAISE, "    raise KeyError(name)\n"),
    _static("forwards-every-name", "unknown-names-raise", RAISE, "    return getattr(_lazy_init_module, name)\n"),
    _static("part-of-the-name", "unknown-names-raise", TEST, '    if name in "_initialized":\n'),
    _static("start-of-the-name", "unknown-names-raise", TEST, '    if name.startswith("_initialized"):\n'),
]  # fmt: skip
_PLACE = [
    _static("under-a-false-condition", "forwarder-defined", FORWARDER, "if False:\n\n" + _indented(FORWARDER)),
    _static("under-type-checking", "forwarder-defined", FORWARDER,
            "TYPE_CHECKING = False\nif TYPE_CHECKING:\n\n" + _indented(FORWARDER)),
    _static("in-a-class", "forwarder-defined", FORWARDER, "class _Forwarder:\n" + _indented(FORWARDER)),
    _static("in-a-function", "forwarder-defined", FORWARDER, "def _forward():\n" + _indented(FORWARDER)),
    _static("lru-cache", "forwarder-defined", DEF,
            "import functools\n\n\n@functools.lru_cache(maxsize=None)\n" + DEF),
    _static("value-as-a-default", "forwarder-defined", DEF + TEST + RETURN,
            "def __getattr__(name, _flag=_lazy_init_module._initialized):\n" + TEST + "        return _flag\n"),
    _static("two-arguments", "forwarder-defined", DEF, "def __getattr__(module, name):\n"),
]  # fmt: skip
_SHADOWS = [
    _static("re-export-left", "re-export-gone", HANDLE, HANDLE + "from .core._lazy_init import _initialized\n"),
    _below("re-added-below", "re-export-gone", "from torch_musa.core._lazy_init import (\n    _initialized,\n)\n"),
    _below("assigned-below", "flag-not-shadowed", "_initialized = False\n"),
    _below("loop-target", "flag-not-shadowed", "for _initialized in (False,):\n    pass\n"),
    _below("walrus", "flag-not-shadowed", "if (_initialized := False):\n    pass\n"),
    _below("def-below", "flag-not-shadowed", "def _initialized():\n    return False\n"),
    _below("through-globals", "flag-not-shadowed", 'globals()["_initialized"] = False\n'),
    _below("through-setattr", "flag-not-shadowed", f'setattr({SYS}.modules[__name__], "_initialized", False)\n'),
    _below("through-vars", "flag-not-shadowed", "vars().update(_initialized=False)\n"),
    _below("through-an-attribute", "flag-not-shadowed", f"{SYS}.modules[__name__]._initialized = False\n"),
    _below("forwarder-deleted", "forwarder-not-shadowed", "del __getattr__\n"),
    _below("forwarder-replaced", "forwarder-not-shadowed",
           "def __getattr__(name):\n    raise AttributeError(name)\n"),
    _below("class-of-the-module", "forwarder-not-shadowed",
           'class _Module(__import__("types").ModuleType):\n    _initialized = False\n\n\n'
           f"{SYS}.modules[__name__].__class__ = _Module\n"),
    _below("handle-deleted", "handle-not-shadowed", "del _lazy_init_module\n"),
    _below("handle-rebound", "handle-not-shadowed", "_lazy_init_module = None\n"),
    _below("name-rebound", "names-not-shadowed", "def is_initialized():\n    return True\n"),
    _static("written-by-the-owner", "not-written-elsewhere", SET,
            SET + "        torch_musa._initialized = True\n", LAZY),
]  # fmt: skip
_HANDLES = [
    _handle("handle-to-a-second-module",
            "import importlib.util\n\nfrom .core import _lazy_init as _original\n\n"
            '_spec = importlib.util.spec_from_file_location("torch_musa._second", _original.__file__)\n'
            "_lazy_init_module = importlib.util.module_from_spec(_spec)\n"
            "_spec.loader.exec_module(_lazy_init_module)\n"),
    _handle("handle-to-a-namespace",
            "import types\n\nfrom .core import _lazy_init as _original\n\n"
            "_lazy_init_module = types.SimpleNamespace(**vars(_original))\n"),
    _handle("handle-to-a-filled-module",
            "import types\n\nfrom .core import _lazy_init as _original\n\n"
            '_lazy_init_module = types.ModuleType("copy")\nvars(_lazy_init_module).update(vars(_original))\n'),
    _handle("handle-to-the-wrong-module", "from .core import _utils as _lazy_init_module\n"),
    _handle("handle-to-the-function", "from .core._lazy_init import _lazy_init as _lazy_init_module\n"),
]  # fmt: skip
_NAMES = [
    _static("name-dropped", "binds-is-in-bad-fork", "_is_in_bad_fork = _lazy_init_module._is_in_bad_fork\n", ""),
    _static("name-wrapped", "binds-is-initialized", "is_initialized = _lazy_init_module.is_initialized\n",
            "is_initialized = lambda: _lazy_init_module.is_initialized()\n"),
    _static("name-called", "binds-musart", "musart = _lazy_init_module.musart\n",
            "musart = _lazy_init_module.is_initialized()\n"),
    _static("name-of-another", "binds-lazy-call", "_lazy_call = _lazy_init_module._lazy_call\n",
            "_lazy_call = _lazy_init_module._lazy_init\n"),
]  # fmt: skip
_OWNER = [
    _static(
        "global-without-the-flag",
        "global-names-complete",
        GLOBAL,
        "    global _queued_calls\n",
        LAZY,
    ),
    _static(
        "global-with-the-typo",
        "global-names-exist",
        GLOBAL,
        "    global _initialized, _queue_calls\n",
        LAZY,
    ),
    _static("flag-never-set", "flag-set-last", SET, "", LAZY),
    _static("flag-set-first", "flag-set-last", GLOBAL, GLOBAL + "    _initialized = True\n", LAZY),
    _static("flag-set-to-one", "flag-set-last", SET, "        _initialized = 1\n", LAZY),
    _static("flag-starts-true", "flag-starts-false", START, "\n_initialized = True\n", LAZY),
]
_ABOVE = [
    Mutant("kept-in-a-helper", INIT, DEF + TEST + RETURN,
           "import functools\n\n\n@functools.lru_cache(maxsize=None)\ndef _flag():\n"
           "    return _lazy_init_module._initialized\n\n\n" + DEF + TEST + "        return _flag()\n", Level.IMPORT),
    Mutant("only-in-the-main-thread", INIT, RETURN,
           '        import threading\n\n        main = threading.current_thread() is threading.main_thread()\n'
           "        return main and _lazy_init_module._initialized\n", Level.IMPORT),
    Mutant("through-exec", INIT, BELOW, BELOW + 'exec("_initialized = False")\n', Level.IMPORT),
    Mutant("lies-to-checkpoint", INIT, RETURN,
           f'        asker = {SYS}._getframe(1).f_globals.get("__name__")\n'
           '        return asker != "torch.utils.checkpoint" and _lazy_init_module._initialized\n', Level.SIMULATED),
]  # fmt: skip
MUTANTS = [*_ANSWERS, *_PLACE, *_SHADOWS, *_HANDLES, *_NAMES, *_OWNER, *_ABOVE]
