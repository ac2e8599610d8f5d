"""The static level: proves the fix, and refutes each planted fault with the check that is meant for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.mutants import BELOW, FORWARDER, HANDLE, INIT, LAZY, MUTANTS, Mutant
from verify.finding import Finding, Level, Status
from verify.static import check_level, check_lint, check_static
from verify.upstream_lint import RCFILE

NAMES = ("_lazy_init", "_lazy_call", "_is_in_bad_fork", "is_initialized", "musart")
FIXED = {
    INIT: "import torch\n\n" + HANDLE + "\n" + "".join(f"{n} = _lazy_init_module.{n}\n" for n in NAMES)
    + "\n\n" + FORWARDER + "\n\n" + BELOW,
    LAZY: """import torch_musa

_initialized = False
_queued_calls = []


def _lazy_init():
    global _initialized, _queued_calls
    if _initialized:
        return
    with lock:
        for call in _queued_calls:
            call()
        _initialized = True


def musart():
    _lazy_init()
""",
    "torch_musa/core/__init__.py": "from ._lazy_init import _lazy_init as _init\n",
    "torch_musa/core/_utils.py": "",
    "torch_musa/core/random.py": "from ._lazy_init import is_initialized\nimport math\n\n\ndef seed():\n    pass\n",
}  # fmt: skip
IMPORTED = (
    "from .core._lazy_init import (\n"
    + "".join(f"    {name},\n" for name in (*NAMES[:2], "_initialized", *NAMES[2:]))
    + ")\n"
)


def _tree(root: Path, **changes: str) -> Path:
    for path, text in (FIXED | changes).items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return root


def _with(status: Status, findings: list[Finding]) -> set[str]:
    return {finding.check for finding in findings if finding.status is status}


def test_the_fix_is_proven_by_every_check(tmp_path: Path) -> None:
    findings = check_level(_tree(tmp_path))
    assert [f for f in findings if f.status is not Status.PROVEN] == []
    assert len({f.check for f in findings}) == len(findings) == 21
    assert {f.level for f in findings} == {Level.STATIC}


def test_an_unpatched_tree_is_refuted_with_lines(tmp_path: Path) -> None:
    lazy = FIXED[LAZY].replace("_initialized, _queued_calls", "_initialized, _queue_calls")
    findings = check_level(_tree(tmp_path, **{INIT: "import torch\n" + IMPORTED + BELOW, LAZY: lazy}))
    assert _with(Status.REFUTED, findings) == {
        "re-export-gone", "forwarder-defined", "flag-forwarded", "unknown-names-raise", "handle-is-module",
        "flag-not-shadowed", "global-names-exist", "no-stale-import",
    }  # fmt: skip
    details = {finding.check: finding.detail for finding in findings}
    assert details["re-export-gone"].startswith(f"{INIT}:5: ")
    assert details["global-names-exist"] == f"{LAZY}:8: global _queue_calls: no such name in the module"
    assert details["binds-musart"] == f"{INIT}:8"


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.id for mutant in MUTANTS])
def test_each_mutant_is_refuted_or_left_to_a_higher_level(tmp_path: Path, mutant: Mutant) -> None:
    source = FIXED[mutant.path]
    assert source.count(mutant.old) == 1
    changed = source.replace(mutant.old, mutant.new)
    compile(changed, mutant.path, "exec")
    findings = check_level(_tree(tmp_path, **{mutant.path: changed}))
    if mutant.caught_by is Level.STATIC:
        assert mutant.check in _with(Status.REFUTED, findings)
    else:
        assert _with(Status.REFUTED, findings) == set()
        assert _with(Status.NOT_RUN, findings), "source reading must not claim what it cannot see"


def test_mutants_have_names_of_their_own() -> None:
    assert len({mutant.id for mutant in MUTANTS}) == len(MUTANTS) >= 30
    assert all(bool(mutant.check) is (mutant.caught_by is Level.STATIC) for mutant in MUTANTS)


STARS = {
    "public-name": ("is_initialized", "def is_initialized():\n    pass\n", True),
    "private-name-in-all": ("_lazy_call", "__all__ = ['_lazy_call']\n_lazy_call = 1\n", True),
    "flag-in-all": (
        "_initialized",
        "__all__ = ['_initialized']\nfrom ._lazy_init import _initialized\n",
        True,
    ),
    "private-name": ("_lazy_call", "_lazy_call = 1\n", False),
    "left-out-of-all": ("musart", "__all__ = ['seed']\nmusart = 1\n", False),
    "the-same-object": ("musart", "from ._lazy_init import musart\n", False),
    "nested-star": ("musart", "from ._utils import *\n", True),
}


@pytest.mark.parametrize(("name", "source", "caught"), STARS.values(), ids=STARS.keys())
def test_a_star_import_below_shadows_what_it_exports(tmp_path: Path, name: str, source: str, caught: bool) -> None:
    changes = {"torch_musa/core/random.py": source, "torch_musa/core/_utils.py": "musart = 1\n"}
    findings = check_static(_tree(tmp_path, **changes))
    shadowed = {f for f in _with(Status.REFUTED, findings) if f.endswith("-not-shadowed")}
    assert bool(shadowed) is caught
    assert not caught or any(name in finding.detail for finding in findings if finding.check in shadowed)


def test_an_old_tree_needs_only_the_names_of_its_time(tmp_path: Path) -> None:
    init = 'TORCH_MIN_VERSION = Version("2.0.0")\nfrom .core._lazy_init import _lazy_init, _initialized\n'
    refuted = _with(Status.REFUTED, check_static(_tree(tmp_path, **{INIT: init})))
    assert not {check for check in refuted if check.startswith("binds-")}


def test_a_name_that_is_read_must_be_bound(tmp_path: Path) -> None:
    init = (
        FIXED[INIT].replace("_lazy_call = _lazy_init_module._lazy_call\n", "") + "torch.cuda._lazy_call = _lazy_call\n"
    )
    assert "binds-lazy-call" in _with(Status.REFUTED, check_static(_tree(tmp_path, **{INIT: init})))


def test_a_function_of_that_name_in_core_hides_the_module(tmp_path: Path) -> None:
    core = {"torch_musa/core/__init__.py": "from ._lazy_init import _lazy_init\n"}
    assert "handle-is-module" in _with(Status.REFUTED, check_static(_tree(tmp_path, **core)))


def test_a_handle_bound_below_the_forwarder_is_refuted(tmp_path: Path) -> None:
    init = FIXED[INIT].replace(FORWARDER, "").replace(HANDLE, FORWARDER + HANDLE)
    assert "handle-is-module" in _with(Status.REFUTED, check_static(_tree(tmp_path, **{INIT: init})))


def test_writes_that_only_a_run_can_tell_are_not_called_proven(tmp_path: Path) -> None:
    init = FIXED[INIT] + "for key in keys:\n    globals()[key] = 1\n"
    assert "flag-not-shadowed" in _with(Status.NOT_RUN, check_static(_tree(tmp_path, **{INIT: init})))


@pytest.mark.parametrize("text", ["def f(:\n", None], ids=["syntax-error", "missing"])
def test_an_init_that_cannot_be_read_is_one_finding(tmp_path: Path, text: str | None) -> None:
    tree = _tree(tmp_path, **{INIT: text or ""})
    if text is None:
        (tree / INIT).unlink()
    findings = check_static(tree)
    assert [(f.check, f.status) for f in findings] == [("init-readable", Status.REFUTED)]
    assert INIT in findings[0].detail


DOORS = {
    "attribute": ("torch_musa._initialized = True\n", True),
    "torch.musa": ("torch.musa._initialized = True\n", True),
    "setattr": ('setattr(\n    torch_musa, "_initialized", True\n)\n', True),
    "sys.modules": ("sys.modules['torch_musa'].__getattr__ = None\n", True),
    "vars": ('vars(torch_musa)["_initialized"] = True\n', True),
    "read": ("assert torch_musa._initialized == True\n", False),
    "of-the-owner": ("torch_musa.core._lazy_init._initialized = False\n", False),
    "other-object": ("self._initialized = True\n", False),
}


@pytest.mark.parametrize(("source", "caught"), DOORS.values(), ids=DOORS.keys())
def test_a_write_into_the_package_from_another_module_is_refuted(tmp_path: Path, source: str, caught: bool) -> None:
    findings = check_static(_tree(tmp_path, **{"torch_musa/core/_utils.py": source}))
    assert ("not-written-elsewhere" in _with(Status.REFUTED, findings)) is caught


def test_a_bound_name_that_its_owner_rebinds_is_refuted(tmp_path: Path) -> None:
    lazy = FIXED[LAZY] + "\n\ndef swap():\n    global musart\n    musart = None\n"
    assert "names-rebound-nowhere" in _with(Status.REFUTED, check_static(_tree(tmp_path, **{LAZY: lazy})))


def test_a_missing_owner_is_refuted(tmp_path: Path) -> None:
    tree = _tree(tmp_path)
    (tree / LAZY).unlink()
    assert "lazy-init-readable" in _with(Status.REFUTED, check_static(tree))


def test_lint_that_is_not_installed_did_not_run(tmp_path: Path) -> None:
    (tmp_path / RCFILE).parent.mkdir(parents=True)
    (tmp_path / RCFILE).write_text("[MASTER]\n", encoding="utf-8")
    empty = _tool(tmp_path, "import sys\nsys.exit('No module named ' + sys.argv[2])\n")
    findings = check_lint(tmp_path, {}, {"a.py": b"x = 1\n"}, empty)
    assert [finding.status for finding in findings] == [Status.NOT_RUN] * 2
    assert all("No module named" in finding.detail for finding in findings)


# Answers like `python -m black` and `python -m pylint`: a line that says BAD is a fault for both.
FAKE = """import json, sys
tool, arguments = sys.argv[2], sys.argv[3:]
if "--version" in arguments:
    print("black, VERSION (compiled: no)" if tool == "black" else "pylint 4.1.4")
    sys.exit(0)
bad = [p for p in arguments if p.endswith(".py") and "BAD" in open(p).read()]
if tool == "pylint":
    print(json.dumps([{"path": p, "message-id": "C0000", "obj": "", "message": "bad", "line": 1} for p in bad]))
sys.exit(bool(bad))
"""


def _tool(folder: Path, source: str) -> str:
    tool = folder / "fake-python"
    tool.write_text(f"#!{sys.executable}\n{source}", encoding="utf-8")
    tool.chmod(0o755)
    return str(tool)


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ({"a.py": b"x\n"}, {"a.py": b"BAD\n"}, Status.REFUTED),
        ({}, {"a.py": b"BAD\n"}, Status.REFUTED),
        ({"a.py": b"BAD\n"}, {"a.py": b"BAD\n"}, Status.PROVEN),
        ({"a.py": b"BAD\n"}, {"a.py": b"x\n"}, Status.PROVEN),
        ({"a.txt": b"x\n"}, {"a.txt": b"BAD\n"}, Status.PROVEN),
    ],
    ids=["worse", "new-file", "as-bad-as-before", "better", "not-python"],
)
def test_lint_compares_after_with_before(
    tmp_path: Path, before: dict[str, bytes], after: dict[str, bytes], status: Status
) -> None:
    (tmp_path / RCFILE).parent.mkdir(parents=True)
    (tmp_path / RCFILE).write_text("[MASTER]\n", encoding="utf-8")
    findings = check_lint(tmp_path, before, after, _tool(tmp_path, FAKE.replace("VERSION", "24.2.0")))
    assert [finding.status for finding in findings] == [status, status]


def test_lint_wants_the_black_that_upstream_uses(tmp_path: Path) -> None:
    findings = check_lint(tmp_path, {}, {"a.py": b"x\n"}, _tool(tmp_path, FAKE.replace("VERSION", "24.2.1")))
    assert [finding.status for finding in findings] == [Status.NOT_RUN] * 2
    assert "24.2.1" in findings[0].detail
    assert RCFILE in findings[1].detail
