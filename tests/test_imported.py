"""The import level: proves the fix on a patched tree, and catches each way of getting it wrong."""

from __future__ import annotations

import os
import py_compile
import sys
from pathlib import Path

import pytest

from tests.runtime_helpers import INIT, LAZY, edit, patched, snapshot, unpatched
from verify.finding import Level, Status
from verify.imported import CLAIMS, IMPORTS, check_import

FORWARD = "        return _lazy_init_module._initialized\n"
RAISE = "    raise AttributeError(f\"module '{__name__}' has no attribute '{name}'\")\n"
FUNCTION = 'def __getattr__(name):\n    if name == "_initialized":\n' + FORWARD + RAISE
STALE = {
    "flag-true-after-initialization",
    "flag-is-no-entry-of-the-module",
    "flag-is-read-anew",
    "initialized-in-a-thread",
    "forked-child",
    "failed-initialization",
    "failed-queued-call",
}


def refuted(tree: Path) -> dict[str, str]:
    """Return the refuted checks of a tree with their details."""
    findings = check_import(tree, sys.executable)
    assert [finding.check for finding in findings] == list(CLAIMS)
    assert {finding.level for finding in findings} == {Level.IMPORT}
    return {finding.check: finding.detail for finding in findings if finding.status is Status.REFUTED}


def test_proves_every_claim_on_the_patched_tree_and_leaves_it_alone(tmp_path: Path) -> None:
    tree = patched(tmp_path / "a träe")
    before = snapshot(tree)
    findings = check_import(tree, sys.executable)
    assert {finding.status for finding in findings} == {Status.PROVEN}
    assert snapshot(tree) == before


def test_refutes_the_unpatched_tree_where_the_flag_is_stale(tmp_path: Path) -> None:
    found = refuted(unpatched(tmp_path / "tree"))
    assert set(found) == STALE
    assert found["flag-true-after-initialization"] == "torch_musa._initialized after _lazy_init() is False, not True"


def test_stale_bytecode_in_the_tree_is_not_run(tmp_path: Path) -> None:
    tree = patched(tmp_path / "tree")
    source = tree / INIT
    good, times = source.read_bytes(), source.stat()
    source.write_bytes(b"raise ImportError('stale')".ljust(len(good), b"#"))
    cache = tree / "torch_musa" / "__pycache__" / f"__init__.{sys.implementation.cache_tag}.pyc"
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    py_compile.compile(str(source), cfile=str(cache), doraise=True)
    source.write_bytes(good)
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert refuted(tree) == {}


MUTANTS = {
    "constant-true": (INIT, FORWARD, "        return True\n", {"flag-false-before-initialization"}),
    "constant-false": (INIT, FORWARD, "        return False\n", {"flag-true-after-initialization"}),
    "cached-at-first-access": (
        INIT,
        FORWARD,
        '        return globals().setdefault("_initialized", _lazy_init_module._initialized)\n',
        {"flag-is-read-anew", "flag-is-no-entry-of-the-module"},
    ),
    "forwards-the-function": (
        INIT,
        FORWARD,
        "        return _lazy_init_module.is_initialized()\n",
        {"forked-child"},
    ),
    "swallows-unknown-names": (
        INIT,
        RAISE,
        "    return None\n",
        {"unknown-attribute", "hasattr-and-default"},
    ),
    "wrong-exception": (
        INIT,
        RAISE,
        "    raise KeyError(name)\n",
        {"unknown-attribute", "hasattr-and-default"},
    ),
    "other-text": (INIT, RAISE, "    raise AttributeError(name)\n", {"unknown-attribute"}),
    "name-dropped": (
        INIT,
        "_is_in_bad_fork = _lazy_init_module._is_in_bad_fork\n",
        "",
        {"names-are-the-functions"},
    ),
    "name-wrapped": (
        INIT,
        "_lazy_call = _lazy_init_module._lazy_call\n",
        "_lazy_call = lambda call: _lazy_init_module._lazy_call(call)\n",
        {"names-are-the-functions"},
    ),
    "false-condition": (
        INIT,
        FUNCTION,
        "if False:\n    def __getattr__(name):\n        return None\n",
        STALE - {"flag-is-no-entry-of-the-module"},
    ),
    "re-added-below": (
        INIT,
        "from .core.random import *\n",
        "from .core.random import *\nfrom .core._lazy_init import _initialized\n",
        STALE,
    ),
    "shadowed-later": (
        INIT,
        "from .core.random import *\n",
        "from .core.random import *\ndef __getattr__(name): raise AttributeError(name)\n",
        {"flag-true-after-initialization", "unknown-attribute", "asked-during-import"},
    ),
    "handle-to-a-copy": (
        INIT,
        "from .core import _lazy_init as _lazy_init_module\n",
        "from .core import _lazy_init as _original\nfrom types import SimpleNamespace\n"
        "_lazy_init_module = SimpleNamespace(**vars(_original))\n",
        {"flag-true-after-initialization", "flag-is-read-anew"},
    ),
    "global-lost": (
        LAZY,
        "    global _initialized, _queued_calls\n",
        "",
        {"flag-true-after-initialization"},
    ),
    "submodule-hidden": (
        INIT,
        "from .core.random import *\n",
        "from .core.random import *\ncore._lazy_init = _lazy_init\n",
        {"submodule-stays"},
    ),
    "other-module-under-torch": (
        INIT,
        "torch.musa = sys.modules[__name__]\n",
        "import types\ntorch.musa = types.SimpleNamespace(_initialized=False)\n",
        {"one-module-two-names", "flag-true-after-initialization"},
    ),
}


@pytest.mark.parametrize(("path", "old", "new", "caught"), MUTANTS.values(), ids=MUTANTS.keys())
def test_catches_a_mutant(tmp_path: Path, path: str, old: str, new: str, caught: set[str]) -> None:
    found = refuted(edit(patched(tmp_path / "tree"), path, [(old, new)]))
    assert set(found) >= caught, found


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('broken')\n", "RuntimeError: broken"),
        ("def (:\n", "SyntaxError: "),
        ("import os\nos._exit(0)\n", "ended without a result"),
        ("import os\nos.kill(os.getpid(), 11)\n", "killed by SIGSEGV"),
        (
            "import torch_musa._MUSAC\nfrom .core import _lazy_inti\n",
            "ImportError: cannot import name '_lazy_inti'",
        ),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
    ],
    ids=["raises", "syntax", "exits", "crashes", "misspelt", "system-exit"],
)
def test_a_package_that_cannot_be_imported_is_one_refuted_finding(tmp_path: Path, source: str, reason: str) -> None:
    tree = unpatched(tmp_path / "tree")
    (tree / INIT).write_text(source)
    first, *others = check_import(tree, sys.executable)
    assert (first.check, first.status) == (IMPORTS, Status.REFUTED)
    assert reason in first.detail
    assert {finding.status for finding in others} == {Status.NOT_RUN}
    assert len(others) == len(CLAIMS) - 1


def test_one_crashing_check_does_not_hide_the_others(tmp_path: Path) -> None:
    tree = edit(
        patched(tmp_path / "tree"),
        LAZY,
        [("    global _initialized, _queued_calls\n", "    import os; os.abort()\n")],
    )
    found = refuted(tree)
    assert "killed by signal 6" in found["flag-true-after-initialization"]
    assert "unknown-attribute" not in found and "star-import" not in found


def test_an_absent_package_is_refuted(tmp_path: Path) -> None:
    found = refuted(tmp_path)
    assert set(found) == {IMPORTS}


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 1\n", ""], ids=["fails", "absent"])
def test_a_broken_interpreter_says_nothing_about_the_tree(tmp_path: Path, script: str) -> None:
    python = tmp_path / "python"
    if script:
        python.write_text(script)
        python.chmod(0o755)
    findings = check_import(patched(tmp_path / "tree"), str(python))
    assert {finding.status for finding in findings} == {Status.NOT_RUN}
    assert "exit code 1" in findings[0].detail or "cannot start" in findings[0].detail


def test_a_release_that_never_had_lazy_call_needs_none(tmp_path: Path) -> None:
    tree = edit(patched(tmp_path / "tree"), INIT, [("_lazy_call = _lazy_init_module._lazy_call\n", "")])
    assert refuted(tree) == {}
