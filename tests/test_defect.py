"""`read_init`: every honest form of the fix is told from the defect, by source alone."""

from __future__ import annotations

import pytest

from stack.defect import read_init

HANDLE = "from .core import _lazy_init as _x\n"
ASKED = '    if name == "_initialized":\n'
RAISE = "    raise AttributeError(name)\n"
FIXED = HANDLE + "def __getattr__(name):\n" + ASKED + "        return _x._initialized\n" + RAISE


def _forward(handle: str, body: str) -> str:
    return f"{handle}\ndef __getattr__(name):\n{body}{RAISE}"


FORMS = {
    "handle": FIXED,
    "absolute-import": _forward("import torch_musa.core._lazy_init as _x", ASKED + "        return _x._initialized\n"),
    "from-absolute": _forward("from torch_musa.core import _lazy_init as h", ASKED + "        return h._initialized\n"),
    "package-path": _forward(
        "import torch_musa._C", ASKED + "        return torch_musa.core._lazy_init._initialized\n"
    ),
    "submodule-left-by-import": _forward(
        "from .core.memory import *", ASKED + "        return core._lazy_init._initialized\n"
    ),
    "sys-modules": _forward(
        "import sys",
        ASKED + '        return sys.modules[__name__ + ".core._lazy_init"]._initialized\n',
    ),
    "sys-modules-f-string": _forward(
        "import sys",
        ASKED + '        return sys.modules[f"{__name__}.core._lazy_init"]._initialized\n',
    ),
    "import-module": _forward(
        "import importlib\n_x = importlib.import_module('.core._lazy_init', __name__)",
        ASKED + "        return _x._initialized\n",
    ),
    "import-at-access": _forward(
        "", ASKED + "        from .core import _lazy_init\n        return _lazy_init._initialized\n"
    ),
    "from-import-at-access": _forward(
        "",
        ASKED + "        from .core._lazy_init import _initialized\n        return _initialized\n",
    ),
    "in-tuple": _forward(HANDLE, '    if name in ("_initialized",):\n        return getattr(_x, name)\n'),
    "in-module-set": _forward(
        HANDLE + "_LIVE = {'_initialized'}",
        "    if name in _LIVE:\n        return getattr(_x, name)\n",
    ),
    "table-of-handles": _forward(
        HANDLE + "_LIVE = {'_initialized': _x}",
        "    if name in _LIVE:\n        return getattr(_LIVE[name], name)\n",
    ),
    "vars": _forward(HANDLE, ASKED + "        return vars(_x)[name]\n"),
    "not-equal-first": _forward(
        HANDLE, '    if name != "_initialized":\n    ' + RAISE + "    return _x._initialized\n"
    ),
    "match": _forward(
        HANDLE,
        '    match name:\n        case "_initialized":\n            return _x._initialized\n',
    ),
    "try": _forward(
        HANDLE,
        ASKED + "        try:\n            return _x._initialized\n        except AttributeError:\n            raise\n",
    ),
    "alias-of-a-function": HANDLE
    + "def _f(name):\n"
    + ASKED
    + "        return _x._initialized\n"
    + RAISE
    + "__getattr__ = _f\n",
    "re-export-deleted": "from .core._lazy_init import _initialized\ndel _initialized\n" + FIXED,
}
BROKEN = {
    "re-export": "from .core._lazy_init import _lazy_init, _initialized\n",
    "re-export-under-the-forwarder": FIXED + "from .core._lazy_init import (\n    _lazy_call,\n    _initialized,\n)\n",
    "re-export-absolute": FIXED + "from torch_musa.core._lazy_init import _initialized\n",
    "re-export-aliased": FIXED + "from .core._lazy_init import _initialized as _flag\n",
    "assigned": FIXED + "_initialized = _x._initialized\n",
    "constant": _forward(HANDLE, ASKED + "        return False\n"),
    "snapshot": _forward(HANDLE + "_flag = _x._initialized", ASKED + "        return _flag\n"),
    "snapshot-in-a-table": _forward(
        HANDLE + "_T = {'_initialized': _x._initialized}",
        "    if name in _T:\n        return _T[name]\n",
    ),
    "other-attribute": _forward(HANDLE, ASKED + "        return _x._queued_calls\n"),
    "other-module": _forward("from .core import device as _x", ASKED + "        return _x._initialized\n"),
    "other-name": _forward(HANDLE, '    if name == "initialized":\n        return _x._initialized\n'),
    "cached": _forward(
        HANDLE,
        ASKED + "        globals()[name] = _x._initialized\n        return _x._initialized\n",
    ),
    "decorated": HANDLE + "@cache\n" + FIXED.removeprefix(HANDLE),
    "never-defined": HANDLE + "if False:\n    def __getattr__(name):\n        return _x._initialized\n",
    "in-a-class": HANDLE + "class C:\n    def __getattr__(name):\n        return _x._initialized\n",
    "undecided": _forward(HANDLE, "    if ask(name):\n        return _x._initialized\n"),
    "neither": "from .core._lazy_init import _lazy_init\n",
}


@pytest.mark.parametrize("source", FORMS.values(), ids=FORMS.keys())
def test_recognises_an_honest_form_of_the_fix(source: str) -> None:
    reading = read_init(source.encode())
    assert reading.fixed, reading


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN.keys())
def test_does_not_call_a_broken_form_fixed(source: str) -> None:
    reading = read_init(source.encode())
    assert not reading.fixed, reading
    assert not reading.error


def test_names_the_line_of_the_name_inside_a_parenthesised_import() -> None:
    reading = read_init(b"from .core._lazy_init import (\n    _lazy_init,\n    _initialized,\n    musart,\n)\n")
    assert reading == (3, None, ("_lazy_init", "musart"), "")


def test_lists_the_names_bound_off_the_handle() -> None:
    reading = read_init((FIXED + "musart = _x.musart\n_lazy_call = _x._lazy_call\n").encode())
    assert reading == (None, 2, ("_lazy_call", "musart"), "")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b"x = 1\ndef f(:\n", "line 2:"),
        (b"x = '\xff'\n", "line 1:"),
        (b"x = 1\0\n", "null bytes"),
        (b"# coding: no-such-codec\n", "unknown encoding"),
        (b"(" * 5000, ""),
    ],
    ids=["syntax", "not-utf8", "null", "codec", "nesting"],
)
def test_tells_why_a_source_cannot_be_read(source: bytes, expected: str) -> None:
    reading = read_init(source)
    assert reading.error
    assert expected in reading.error
    assert not reading.fixed


def test_importing_the_reader_does_not_import_ast() -> None:
    import subprocess
    import sys
    from pathlib import Path

    code = "import sys, stack.defect; print('ast' in sys.modules)"
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
