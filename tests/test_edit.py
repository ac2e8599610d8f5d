"""The syntax-aware edit: every honest form of the import becomes the fix, other bytes stay, the rest is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stack.defect import read_init
from stack.edit import edit_init, edit_lazy_init, rebound_names
from stack.errors import Refused
from tests.conftest import INIT, LAZY_INIT, ROOT, SPECIMEN
from tests.stock_tools import RELEASES
from tests.test_commits import patched_specimen

REBOUND = {"_initialized": 116, "_state": 117}
HEAD = "import torch\n\nfrom .core.memory import *\n\n"
TAIL = "\nfrom .core.random import *\n"
NAMES = ("_lazy_init", "_lazy_call", "_is_in_bad_fork", "is_initialized", "musart")


def fix(
    bound: str, flag: str = "", package: str = ".core", beside: str = "", asked: str = 'name == "_initialized"'
) -> str:
    """Return the fix as the edit writes it: the handle, `bound`, comments about the flag, and the forwarder."""
    lines = "".join(f"{line}\n" for line in bound.split("\n")) if bound else ""
    return (
        f"from {package} import _lazy_init as _lazy_init_module{beside}\n"
        + (f"\n{lines}" if lines else "")
        + f"\n\n{flag}# _lazy_init() rebinds _initialized: a name bound here would keep the value from import time.\n"
        "def __getattr__(name):\n"
        f"    if {asked}:\n"
        "        return _lazy_init_module._initialized\n"
        "    raise AttributeError(f\"module '{__name__}' has no attribute '{name}'\")\n\n"
    )


def off(*names: str) -> str:
    return "\n".join(f"{name.split(' as ')[-1]} = _lazy_init_module.{name.split(' as ')[0]}" for name in names)


FORMS = {
    "one-line-2-names": ("from .core._lazy_init import _lazy_init, _initialized\n", fix(off("_lazy_init"))),
    "one-line-3-names": (
        "from .core._lazy_init import _lazy_init, _initialized, _is_in_bad_fork\n",
        fix(off("_lazy_init", "_is_in_bad_fork")),
    ),
    "one-line-4-names": (
        "from .core._lazy_init import _lazy_init, _initialized, _is_in_bad_fork, is_initialized\n",
        fix(off("_lazy_init", "_is_in_bad_fork", "is_initialized")),
    ),
    "flag-alone": ("from .core._lazy_init import _initialized\n", fix("")),
    "block": (
        "from .core._lazy_init import (\n    _lazy_init,\n    _lazy_call,\n    _initialized,\n    musart,\n)\n",
        fix(off("_lazy_init", "_lazy_call", "musart")),
    ),
    "block-in-one-line": (
        "from .core._lazy_init import (_lazy_init, _initialized)\n",
        fix(off("_lazy_init")),
    ),
    "block-narrow": (
        "from .core._lazy_init import (\n  _lazy_init, _initialized,\n  _lazy_call\n)\n",
        fix(off("_lazy_init", "_lazy_call")),
    ),
    "continued": (
        "from .core._lazy_init import _lazy_init, \\\n    _initialized, _lazy_call\n",
        fix(off("_lazy_init", "_lazy_call")),
    ),
    "reordered": (
        "from .core._lazy_init import musart, _initialized, _lazy_call, _lazy_init\n",
        fix(off("musart", "_lazy_call", "_lazy_init")),
    ),
    "extra-name": (
        "from .core._lazy_init import _lazy_init, _initialized, check_error\n",
        fix(off("_lazy_init", "check_error")),
    ),
    "alias-of-another": (
        "from .core._lazy_init import _lazy_init, _lazy_call as later, _initialized\n",
        fix(off("_lazy_init", "_lazy_call as later")),
    ),
    "alias-of-the-flag": (
        "from .core._lazy_init import _lazy_init, _initialized as _x\n",
        fix(off("_lazy_init"), asked='name in ("_initialized", "_x")'),
    ),
    "absolute": (
        "from torch_musa.core._lazy_init import _lazy_init, _initialized\n",
        fix(off("_lazy_init"), package="torch_musa.core"),
    ),
    "comment-beside": (
        "from .core._lazy_init import _lazy_init, _initialized  # noqa: F401\n",
        fix(off("_lazy_init"), beside="  # noqa: F401"),
    ),
    "comments-everywhere": (
        "from .core._lazy_init import (  # first\n    # one\n    _lazy_init,  # two\n    # three\n"
        "    _initialized,  # four\n    # five\n\n    # six\n    musart  # seven\n    # eight\n)  # nine\n",
        fix(
            "# one\n_lazy_init = _lazy_init_module._lazy_init  # two\n# five\n# six\n"
            "musart = _lazy_init_module.musart  # seven\n# eight\n# nine",
            flag="# three\n# four\n",
            beside="  # first",
        ),
    ),
    "comment-above-stays": (
        "# what initialization needs\nfrom .core._lazy_init import _lazy_init, _initialized\n",
        "# what initialization needs\n" + fix(off("_lazy_init")),
    ),
    "another-import-of-the-module": (
        "from .core._lazy_init import musart\nfrom .core._lazy_init import _lazy_init, _initialized\n",
        "from .core._lazy_init import musart\n" + fix(off("_lazy_init")),
    ),
}


@pytest.mark.parametrize(("block", "expected"), FORMS.values(), ids=FORMS)
def test_edits_each_form(block: str, expected: str) -> None:
    edited = edit_init((HEAD + block + TAIL).encode(), REBOUND)
    assert edited.data.decode() == HEAD + expected + TAIL
    reading = read_init(edited.data)
    assert reading.fixed


def test_binds_only_what_was_imported_in_its_order() -> None:
    edited = edit_init((HEAD + FORMS["reordered"][0] + TAIL).encode(), REBOUND)
    assert edited.names == ("musart", "_lazy_call", "_lazy_init")


SECOND = "from .core._lazy_init import (\n    # why\n    _initialized,\n    musart,\n)\n"


def test_two_blocks_share_one_forwarder() -> None:
    first = "from .core._lazy_init import _lazy_init, _initialized\n"
    edited = edit_init((HEAD + first + TAIL + "\n" + SECOND + "x = 1\n").encode(), REBOUND)
    second = "musart = _lazy_init_module.musart\n# why\nx = 1\n"
    assert edited.data.decode() == HEAD + fix(off("_lazy_init")) + TAIL + "\n" + second


def test_a_second_block_of_the_flag_alone_goes_and_its_comment_stays() -> None:
    first = "from .core._lazy_init import _lazy_init, _initialized\n"
    second = "# again\nfrom .core._lazy_init import _initialized\n"
    edited = edit_init((HEAD + first + TAIL + second + "x = 1\n").encode(), REBOUND)
    assert edited.data.decode() == HEAD + fix(off("_lazy_init")) + TAIL + "# again\nx = 1\n"


BLOCK = "from .core._lazy_init import _lazy_init, _initialized\n"
BLANKS = {
    "none": ("from .core.ops import *\n", "\n\nfrom .core.ops import *\n"),
    "one": ("\nfrom .core.ops import *\n", "\n\nfrom .core.ops import *\n"),
    "two": ("\n\ndef f(): ...\n", "\n\ndef f(): ...\n"),
    "three": ("\n\n\ndef f(): ...\n", "\n\n\ndef f(): ...\n"),
    "comment": ("# next\nx = 1\n", "\n\n# next\nx = 1\n"),
    "end": ("", ""),
    "comment-at-the-end": ("# end\n", "\n\n# end\n"),
}


@pytest.mark.parametrize(("after", "expected"), BLANKS.values(), ids=BLANKS)
def test_two_blank_lines_follow_the_forwarder(after: str, expected: str) -> None:
    edited = edit_init((HEAD + BLOCK + after).encode(), REBOUND)
    assert edited.data.decode() == HEAD + fix(off("_lazy_init")).removesuffix("\n") + expected


KEPT = {
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "crlf-in-that-line-alone": lambda text: text.replace(BLOCK, BLOCK[:-1] + "\r\n").replace("FIX\n", "FIX\r\n"),
    "no-final-newline": lambda text: text.removesuffix("\n"),
    "tabs": lambda text: text.replace("    pass", "\tpass"),
    "form-feed": lambda text: text.replace("import torch\n", "import torch\n\x0c\n"),
    "bom": lambda text: "\ufeff" + text,
    "trailing-blanks": lambda text: text.replace("import torch\n", "import torch   \n"),
    "separators-in-a-text": lambda text: text.replace("'x'", "'\u2028\x85\x0b'"),
}


@pytest.mark.parametrize("change", KEPT.values(), ids=KEPT)
def test_keeps_every_other_byte(change) -> None:  # type: ignore[no-untyped-def]
    head = HEAD + "def f():\n    pass\n\n\nname = 'x'\n\n"
    tail = TAIL + "\nif True:\n    pass\n"
    edited = edit_init(change(head + BLOCK + tail).encode(), REBOUND)
    expected = change(head + "FIX\n" + tail).encode()
    end = b"\r\n" if b"\r\n" in expected else b"\n"
    assert edited.data == expected.replace(b"FIX" + end, fix(off("_lazy_init")).encode().replace(b"\n", end))


def test_keeps_another_encoding() -> None:
    source = "# -*- coding: latin-1 -*-\n" + HEAD + "name = 'é'\n" + BLOCK + TAIL
    edited = edit_init(source.encode("latin-1"), REBOUND)
    assert edited.data.startswith(("# -*- coding: latin-1 -*-\n" + HEAD + "name = 'é'\n").encode("latin-1"))
    assert read_init(edited.data).fixed


def _with(text: str) -> str:
    return HEAD + BLOCK + TAIL + text


REFUSED = {
    "semicolon": (HEAD + BLOCK.strip() + "; x = 1\n", "semicolon", 5),
    "in-a-try": (HEAD + "try:\n    " + BLOCK + "except ImportError:\n    pass\n", "another way", 6),
    "under-a-condition": (HEAD + "if torch:\n    " + BLOCK, "another way", 6),
    "by-assignment": (HEAD + "from .core import _lazy_init as m\n_initialized = m._initialized\n", "another way", 6),
    "assigned-later": (_with("_initialized = False\n"), "at module level: assignment", 8),
    "read-at-module-level": (_with("print(_initialized)\n"), "bare name", 8),
    "read-in-a-function": (_with("def f():\n    return _initialized\n"), "bare name", 9),
    "alias-read": (HEAD + BLOCK.replace("_initialized", "_initialized as _x") + "y = _x\n", "bare name", 6),
    "read-through-globals": (_with('x = globals()["_initialized"]\n'), "bare name", 8),
    "rebound-by-a-function": (_with("def f():\n    global _initialized\n    _initialized = 1\n"), "global in f", 10),
    "getattr-of-its-own": (_with("def __getattr__(name):\n    raise AttributeError(name)\n"), "binds __getattr__", 8),
    "handle-name-taken": (_with("_lazy_init_module = 1\n"), "binds _lazy_init_module", 8),
    "another-snapshot": (HEAD + "from .core._lazy_init import _initialized, _state\n", "takes _state too", 5),
}


@pytest.mark.parametrize(("source", "reason", "line"), REFUSED.values(), ids=REFUSED)
def test_refuses_what_it_cannot_carry_over(source: str, reason: str, line: int) -> None:
    with pytest.raises(Refused, match=reason) as caught:
        edit_init(source.encode(), REBOUND)
    assert str(caught.value).startswith(f"{INIT}:{line}: ")


PASSED_OVER = {
    "parameter": "def f(_initialized):\n    return _initialized\n",
    "local": "def f():\n    _initialized = 1\n    return _initialized\n",
    "attribute": "x = torch.cuda._initialized\n",
    "type-checking": "if TYPE_CHECKING:\n    from .core._lazy_init import _initialized\n",
    "method": "class C:\n    def __getattr__(self, name):\n        raise AttributeError(name)\n",
}


@pytest.mark.parametrize("text", PASSED_OVER.values(), ids=PASSED_OVER)
def test_another_thing_of_the_same_name_is_no_reason_to_refuse(text: str) -> None:
    assert edit_init(_with(text).encode(), REBOUND).data.decode().endswith(text)


def test_refuses_a_source_without_the_defect() -> None:
    with pytest.raises(Refused, match="has not the defect"):
        edit_init(HEAD.encode(), REBOUND)
    with pytest.raises(Refused, match="has not the defect"):
        edit_init(_with("del _initialized\n").encode(), REBOUND)
    with pytest.raises(Refused, match="cannot be read as Python: line 1"):
        edit_init(b"from .core._lazy_init import (\n", REBOUND)


def test_notes_a_text_that_names_the_flag() -> None:
    assert edit_init(_with("x = vars().get('_initialized')\n").encode(), REBOUND).notes[0].startswith(f"{INIT}:8: ")
    assert edit_init(_with("").encode(), REBOUND).notes == ()


LAZY = "_initialized = False\n_queued_calls = []\n\n\ndef _lazy_init():\n    global {0}\n    _initialized = True\n"
TYPOS = {
    "typo": (LAZY.format("_initialized, _queue_calls"), LAZY.format("_initialized, _queued_calls")),
    "crlf": (
        LAZY.format("_initialized, _queue_calls  # both").replace("\n", "\r\n"),
        LAZY.format("_initialized, _queued_calls  # both").replace("\n", "\r\n"),
    ),
    "right-already": (LAZY.format("_initialized, _queued_calls"),) * 2,
    "both-named": (LAZY.format("_queued_calls, _queue_calls"),) * 2,
    "the-name-exists": (LAZY.format("_initialized, _queue_calls") + "_queue_calls = 1\n",) * 2,
    "no-such-list": (LAZY.format("_initialized, _queue_calls").replace("_queued_calls = []\n", ""),) * 2,
    "only-in-a-comment": (LAZY.format("_initialized  # _queue_calls"),) * 2,
}


@pytest.mark.parametrize(("source", "expected"), TYPOS.values(), ids=TYPOS)
def test_mends_the_wrong_name_only_where_it_is(source: str, expected: str) -> None:
    assert edit_lazy_init(source.encode()).decode() == expected


def test_rebound_names_are_those_of_global_statements() -> None:
    source = "a = b = 1\ndef f():\n    global a, c\n    a = 2\n    b = 3\n"
    assert rebound_names(source.encode()) == {"a": 4}


@pytest.mark.parametrize("release", RELEASES)
def test_two_derivations_agree_on_the_specimen(release: str) -> None:
    """The hunks of the stack and the edit come to the same bytes, neither knowing of the other."""
    base = SPECIMEN / release if release != RELEASES[0] else SPECIMEN / RELEASES[0]
    lazy = (SPECIMEN / RELEASES[0] / LAZY_INIT).read_bytes()
    after = patched_specimen(f"{release}+specimen")
    assert edit_init((base / INIT).read_bytes(), rebound_names(lazy)).data == after[INIT]
    assert edit_lazy_init(lazy) == after[LAZY_INIT]


def test_says_what_to_install_when_libcst_is_missing() -> None:
    code = (
        "import sys; sys.modules['libcst'] = None\n"
        "from stack.edit import edit_init\nfrom stack.errors import Environment\n"
        "try: edit_init(b'from .core._lazy_init import _initialized\\n', {})\n"
        "except Environment as error: print(error.exit.value, error, error.tip)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("4 libcst cannot be imported")
    assert "requirements/port.txt" in done.stdout


def test_libcst_is_loaded_only_for_an_edit() -> None:
    code = "import sys, stack.edit, stack.port, verify.port_command; print('libcst' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
