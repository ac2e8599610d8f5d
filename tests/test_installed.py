"""--installed, end to end: the stand-in wheel put there by pip, patched, verified, and put back to the byte."""

from __future__ import annotations

import importlib.util
import json
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from stack import commands, transaction
from stack.errors import Environment
from stack.installed.command import InstalledWriter
from stack.installed.find import Installed
from stack.installed.view import PackageStore
from stack.plan import Plan
from stack.tree import Tree
from tests import installs, standin_install
from tests.conftest import INIT, LAZY_INIT, ROOT, STACKS, contents, copy_specimen, snapshot
from tests.installs import clean, pip, record_faults, run, run_apart, site_of, unpack

RESULT = dict(
    reversed(line.split("  ")) for line in (STACKS / "patches/2.7.1+specimen/result.sha256").read_text().splitlines()
)
PYTHONS = ("3.10", "3.13")
NOBODY = 65534
NOTHING = ("2.7.1", "pip", False, False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a pristine specimen."""
    return installs.specimen_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=PYTHONS)
def with_pip(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of that Python, with its own pip."""
    base = installs.interpreter(request.param)
    python = installs.environment(tmp_path_factory.mktemp("pip") / "venv", base, "--without-pip")
    installs.add_pip(python)
    return python


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment without pip, with the stand-in for torch."""
    python = installs.environment(tmp_path_factory.mktemp("bare") / "venv", sys.executable, "--without-pip")
    installs.add_torch(site_of(python))
    return python


@pytest.fixture
def python(bare: Path, wheel: Path) -> Iterator[Path]:
    """The interpreter of the bare environment, with the wheel unpacked into it."""
    clean(site_of(bare))
    unpack(wheel, site_of(bare))
    yield bare
    clean(site_of(bare))


def digests(site: Path) -> dict[str, str]:
    from stack.digest import sha256

    return {path: sha256((site / path).read_bytes()) for path in (INIT, LAZY_INIT)}


def installed_files(site: Path) -> dict[str, tuple[bytes | None, int]]:
    """Return all but pip itself; of bytecode only that it is there."""
    return {
        path: (None, 0) if path.endswith(".pyc") else shot
        for path, shot in contents(site).items()
        if not path.startswith("pip")
    }


def test_what_pip_installed_is_patched_verified_and_put_back(with_pip: Path, wheel: Path) -> None:
    site = site_of(with_pip)
    pip(with_pip, "install", "--no-index", "--no-deps", wheel)
    before = installed_files(site)
    assert record_faults(site) == []
    ran = run_apart("apply", "--installed", "--python", with_pip)
    assert ran.code == 0, ran.stdout + ran.stderr
    assert digests(site) == {path: RESULT[path] for path in (INIT, LAZY_INIT)}
    for said in ("left out", "0003-test", "RECORD: rows changed: 2", "restart it", "by digest", "not proven here"):
        assert said in ran.stdout
    assert record_faults(site) == []
    assert "No broken requirements" in pip(with_pip, "check")
    again = run("apply", "--installed", "--tests=none", "--python", with_pip)
    assert again.code == 0 and "already so" in again.stdout
    back = run("unapply", "--installed", "--python", with_pip)
    assert back.code == 0, back.stdout + back.stderr
    assert installed_files(site) == before
    assert record_faults(site) == []


def test_pip_takes_the_patched_wheel(with_pip: Path, wheel: Path, tmp_path: Path) -> None:
    ran = run("wheel", wheel, tmp_path)
    assert ran.code == 0, ran.stderr
    pip(with_pip, "install", "--no-index", "--no-deps", "--force-reinstall", next(tmp_path.glob("*.whl")))
    assert "No broken requirements" in pip(with_pip, "check")
    site = site_of(with_pip)
    assert [path.name for path in site.glob("torch_musa-*")] == ["torch_musa-2.7.1+initfix1.dist-info"]
    assert digests(site) == {path: RESULT[path] for path in (INIT, LAZY_INIT)} and record_faults(site) == []
    ran = run("apply", "--installed", "--tests=none", "--python", with_pip)
    assert ran.code == 0 and "already so" in ran.stdout and "version 2.7.1+initfix1" in ran.stdout
    pip(with_pip, "uninstall", "-y", "torch_musa")
    assert not (site / "torch_musa").exists()


def test_a_dry_run_writes_nothing(python: Path) -> None:
    before = snapshot(site_of(python))
    ran = run("apply", "--installed", "--dry-run", "--tests=none", "--python", python)
    assert ran.code == 0 and "would apply 2 patches" in ran.stdout
    assert snapshot(site_of(python)) == before


def test_a_proof_that_fails_writes_nothing(python: Path) -> None:
    (site_of(python) / "torch_musa" / "core" / "__init__.py").write_text("raise ImportError('no driver')\n")
    before = snapshot(site_of(python))
    ran = run("apply", "--installed", "--python", python)
    assert ran.code == 5 and "no driver" in ran.stdout and "nothing was applied" in ran.stdout
    assert snapshot(site_of(python)) == before


def test_rows_keep_order_quoting_and_line_ends(python: Path) -> None:
    record = site_of(python) / "torch_musa-2.7.1.dist-info" / "RECORD"
    rows = record.read_bytes().splitlines()
    rows = [b'"' + INIT.encode() + b'"' + row[len(INIT) :] if row.startswith(INIT.encode()) else row for row in rows]
    rows.insert(3, b'"a, name",,')
    record.write_bytes(b"\r\n".join(reversed(rows)))
    before = record.read_bytes()
    assert run("apply", "--installed", "--tests=none", "--python", python).code == 0
    after = record.read_bytes()
    changed = [(old, new) for old, new in zip(before.split(b"\n"), after.split(b"\n"), strict=True) if old != new]
    assert [new.split(b",")[0] for _, new in changed] == [LAZY_INIT.encode(), b'"' + INIT.encode() + b'"']
    assert run("unapply", "--installed", "--python", python).code == 0
    assert record.read_bytes() == before


def test_files_patched_by_hand_get_their_rows(python: Path) -> None:
    site = site_of(python)
    record = site / "torch_musa-2.7.1.dist-info" / "RECORD"
    stale = record.read_bytes()
    assert run("apply", "--installed", "--tests=none", "--python", python).code == 0
    record.write_bytes(stale)  # what `patch -p1` leaves
    assert sorted(record_faults(site)) == [
        f"{path}: {what}" for path in (INIT, LAZY_INIT) for what in ("digest", "size")
    ]
    ran = run("apply", "--installed", "--tests=none", "--python", python)
    assert ran.code == 0 and f"did not agree with {INIT} as it was" in ran.stdout
    assert "already so, but not all that belongs to it" in ran.stdout and "nothing was changed" not in ran.stdout
    assert record_faults(site) == []
    again = run("apply", "--installed", "--tests=none", "--python", python)
    assert again.code == 0 and "already so, nothing was changed" in again.stdout


def told(*words: object) -> Any:
    return json.loads(run(*words, "--json").stdout)


def test_status_names_what_does_not_go_with_the_files(python: Path) -> None:
    """Where the module cannot be imported, as on a build host, nothing else would tell of it."""
    site = site_of(python)
    record = site / "torch_musa-2.7.1.dist-info" / "RECORD"
    stale = record.read_bytes()
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(site / INIT), invalidation_mode=unchecked)
    hiding = pyc(site, INIT).read_bytes()
    words = ("status", "--installed", "--python", python)
    assert told(*words)["data"]["amiss"] == []
    assert run("apply", "--installed", "--tests=none", "--python", python).code == 0
    record.write_bytes(stale)
    pyc(site, INIT).write_bytes(hiding)
    before = snapshot(site)
    seen = told(*words)
    assert [line.partition(": ")[2] for line in seen["data"]["amiss"] if ".pyc" in line] == [
        "is bytecode of another source, and is taken unchecked"
    ]
    assert sum("did not agree with" in line for line in seen["data"]["amiss"]) == 2
    assert all(line in seen["message"] for line in seen["data"]["amiss"])
    assert "apply --installed" in seen["tip"] and seen["exit"] == 0 and snapshot(site) == before
    record.write_text(f"{INIT},x\n")
    assert "RECORD:1: has 2 fields" in str(told(*words)["data"]["amiss"])


def test_an_interpreter_by_a_relative_path_is_the_callers(python: Path) -> None:
    env = {"PYTHONPATH": str(ROOT)}
    words = [sys.executable, ROOT / "apply.py", "status", "--stacks", STACKS, "--installed", "--python", "bin/python"]
    done = subprocess.run(words, cwd=python.parents[1], env={**os.environ, **env}, capture_output=True, text=True)
    assert done.returncode == 0 and "pristine" in done.stdout, done.stderr


def test_the_tip_of_status_leads_to_no_command_that_refuses(python: Path) -> None:
    words = ("status", "--installed", "--python", python)
    assert "To put the fix in: apply.py apply --installed" in told(*words)["tip"]
    with (site_of(python) / INIT).open("a") as file:
        file.write("# ours\n")
    tip = told(*words)["tip"]
    assert "a fork" in tip and "apply --installed" not in tip


def test_a_row_that_is_none_is_refused_with_its_line(python: Path) -> None:
    site = site_of(python)
    record = site / "torch_musa-2.7.1.dist-info" / "RECORD"
    lines = record.read_text().splitlines(keepends=True)
    lines[2] = f"{INIT},sha256=x\n"
    record.write_text("".join(lines))
    before = snapshot(site)
    ran = run("apply", "--installed", "--tests=none", "--python", python)
    assert ran.code == 1 and "RECORD:3: has 2 fields" in ran.stderr
    assert snapshot(site) == before


def test_without_record_or_row_the_files_are_patched_and_it_is_said(python: Path) -> None:
    site = site_of(python)
    record = site / "torch_musa-2.7.1.dist-info" / "RECORD"
    rows = [row for row in record.read_text().splitlines(keepends=True) if not row.startswith(LAZY_INIT)]
    record.write_text("".join(rows))
    ran = run("apply", "--installed", "--tests=none", "--python", python)
    assert ran.code == 0 and f"has no row for {LAZY_INIT}" in ran.stdout
    assert LAZY_INIT not in record.read_text()
    record.unlink()
    ran = run("unapply", "--installed", "--python", python)
    assert ran.code == 0 and "there is no RECORD" in ran.stdout and not record.exists()


def pyc(site: Path, path: str, tag: str = "", level: int | str = "") -> Path:
    source = site / path
    if not tag:
        return Path(importlib.util.cache_from_source(str(source), optimization=level))
    return source.parent / "__pycache__" / f"{source.stem}.{tag}.pyc"


def test_bytecode_of_every_level_is_replaced_and_of_other_pythons_removed(python: Path) -> None:
    site = site_of(python)
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for level in (0, 1, 2):
        py_compile.compile(str(site / INIT), optimize=level, invalidation_mode=unchecked)
    py_compile.compile(str(site / "torch_musa/core/ops.py"))
    other = pyc(site, INIT, "cpython-399")
    other.write_bytes(b"another")
    untouched = pyc(site, "torch_musa/core/ops.py").read_bytes()
    own = [pyc(site, INIT, level=level) for level in ("", 1, 2)]
    own[0].chmod(0o600)
    old = [path.read_bytes() for path in own]
    ran = run("apply", "--installed", "--tests=none", "--python", python)
    assert ran.code == 0 and "bytecode replaced: 4 files" in ran.stdout
    assert not other.exists() and "cpython-399.pyc" in ran.stdout
    assert pyc(site, "torch_musa/core/ops.py").read_bytes() == untouched
    source_hash = importlib.util.source_hash((site / INIT).read_bytes())
    for path, before in zip(own, old, strict=True):
        data = path.read_bytes()
        assert data[4:16] == b"\x03\0\0\0" + source_hash and data != before  # 3: by hash, checked (PEP 552)
    assert own[0].stat().st_mode & 0o777 == 0o600
    live = status(python)["data"]["live"]
    assert (live["live"], live["disagreement"]) == ("fixed", "")


def status(python: Path) -> dict[str, object]:
    ran = run("status", "--installed", "--json", "--python", python)
    assert ran.code == 0, ran.stderr
    return json.loads(ran.stdout)  # type: ignore[no-any-return]


def test_bytecode_that_cannot_be_made_again_is_removed_and_said(python: Path, tmp_path: Path) -> None:
    site = site_of(python)
    py_compile.compile(str(site / INIT))
    (site / "sitecustomize.py").write_text("import sys\nif sys.argv == ['-c']:\n    sys.modules['py_compile'] = None\n")
    ran = run("apply", "--installed", "--tests=none", "--python", python)
    assert ran.code == 0 and "bytecode could not be made again" in ran.stdout
    assert not pyc(site, INIT).exists()


@pytest.mark.parametrize("case", ["fixed", "broken", "by-hand", "hidden", "stale-bytecode", "not-importable"])
def test_status_answers_from_the_bytes_and_from_the_live_module(python: Path, case: str) -> None:
    site = site_of(python)
    if case in ("fixed", "hidden"):
        assert run("apply", "--installed", "--tests=none", "--python", python).code == 0
    if case == "stale-bytecode":  # unchecked bytecode of the old source beside the new one
        old = (site / INIT).read_bytes()
        assert run("apply", "--installed", "--tests=none", "--python", python).code == 0
        new = (site / INIT).read_bytes()
        (site / INIT).write_bytes(old)
        py_compile.compile(str(site / INIT), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        (site / INIT).write_bytes(new)
    if case in ("by-hand", "hidden"):
        (site / "torch_musa" / "core" / "ops.py").write_text(
            "import sys\nsys.modules['torch_musa']._initialized = True\n"
            if case == "hidden"
            else (site / "torch_musa/core/ops.py").read_text()
        )
    if case == "by-hand":
        lines = (site / INIT).read_text() + "\n_initialized = True\n"
        (site / INIT).write_text(lines)
    if case == "not-importable":
        (site / "torch_musa" / "_MUSAC.py").write_text("raise ImportError('libmusart.so: no such file')\n")
    outcome = status(python)
    live = outcome["data"]["live"]  # type: ignore[index]
    expected = {
        "fixed": ("fixed", "follows core._lazy_init", ""),
        "broken": ("broken", "a snapshot: False", ""),
        "by-hand": ("shadowed by a workaround", "set the flag to True by hand", ""),
        "hidden": ("shadowed by a workaround", "somebody has set it to True by hand", ""),
        "stale-bytecode": ("broken", "a snapshot: False", "what runs is not what these files say"),
        "not-importable": ("not known", "libmusart.so: no such file", ""),
    }[case]
    assert live["live"] == expected[0] and expected[1] in live["why"]
    assert live["disagreement"].startswith(expected[2]) and bool(live["disagreement"]) == bool(expected[2])
    claims = {claim["how"].split(",")[0] for claim in outcome["claims"]}  # type: ignore[attr-defined]
    assert claims & {"by digest", "by source reading"}
    assert claims & {"by import of the real module", "by an import that was tried"}
    if live["seen"]:
        assert live["seen"]["initialized"] == "False"  # no device was initialized
    if case == "stale-bytecode":
        assert "apply --installed" in outcome["tip"]  # type: ignore[operator]
        assert run("apply", "--installed", "--tests=none", "--python", python).code == 0
        assert status(python)["data"]["live"]["live"] == "fixed"  # type: ignore[index]


def edit(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


def test_a_file_that_somebody_changes_just_after_is_told(python: Path) -> None:
    def commit(tree: Tree, plan: Plan) -> None:
        transaction.commit(tree, plan)
        (site_of(python) / INIT).write_text("an installation at work\n")

    with patch("stack.installed.command.commit", commit):
        ran = run("apply", "--installed", "--tests=none", "--python", python)
    assert ran.code == 4 and f"{INIT}: was changed by somebody else just after it was written" in ran.stderr


def test_files_that_cannot_be_read_again_are_said_to_be_changed(python: Path) -> None:
    def commit(tree: Tree, plan: Plan) -> None:
        transaction.commit(tree, plan)
        broken.start()

    broken = patch("stack.installed.command.Tree.read", side_effect=Environment("cannot be read"))
    with patch("stack.installed.command.commit", commit):
        ran = run("apply", "--installed", "--tests=none", "--python", python)
    broken.stop()
    assert ran.code == 4 and "All files are changed as planned" in ran.stderr


@pytest.mark.torch
def test_the_live_module_on_real_torch(tmp_path: Path) -> None:
    python = standin_install.make_environment(tmp_path / "venv")
    standin_install.install(tmp_path / "venv", copy_specimen(tmp_path / "tree"))
    assert status(python)["data"]["live"]["live"] == "broken"  # type: ignore[index]
    ran = run("apply", "--installed", "--tests=none", "--python", python)
    assert ran.code == 0 and "there is no RECORD" in ran.stdout
    live = status(python)["data"]["live"]  # type: ignore[index]
    assert (live["live"], live["seen"]["initialized"], live["disagreement"]) == ("fixed", "False", "")


CACHE = "torch_musa/core/__pycache__"
REFUSED: dict[str, tuple[Callable[[Path], object], int, tuple[str, ...]]] = {
    "edited": (
        lambda site: edit(site / INIT, b"import sys\n", b"import  sys\n"),
        1,
        ("no known release; closest is 2.7.1+specimen", "from line 11 on", "says version '2.7.1'", "another release"),
    ),
    "another-release": (
        lambda site: (site / LAZY_INIT).write_bytes(b"_initialized = False\n"),
        1,
        (f"{LAZY_INIT} differs from line 1", "Another release, or a fork"),
    ),
    "line-ends": (
        lambda site: edit(site / INIT, b"\n", b"\r\n"),
        1,
        ("differs in line endings only", "Install the release anew"),
    ),
    "linked": (
        lambda site: [(site / LAZY_INIT).rename(site / "x.py"), (site / LAZY_INIT).symlink_to(site / "x.py")],
        1,
        ("symbolic link", "Install the release anew"),
    ),
    "extension-beside": (
        lambda site: (site / LAZY_INIT.replace(".py", ".abi3.so")).write_bytes(b""),
        1,
        ("_lazy_init.abi3.so: is imported in place of torch_musa/core/_lazy_init.py", "The fix would not be seen"),
    ),
    "package-beside": (
        lambda site: [
            (site / LAZY_INIT.removesuffix(".py")).mkdir(),
            (site / LAZY_INIT.replace(".py", "/__init__.py")).write_bytes(b""),
        ],
        1,
        ("_lazy_init/__init__.py: is imported in place of torch_musa/core/_lazy_init.py",),
    ),
    "metadata-with-a-blank": (
        lambda site: (site / "torch_musa-2.7.1.dist-info").rename(site / "torch_musa-2.7.1 .dist-info"),
        1,
        ("torch_musa-2.7.1 .dist-info/RECORD", "Install the release anew"),
    ),
    "linked-bytecode": (
        lambda site: [shutil.rmtree(site / CACHE, ignore_errors=True), (site / CACHE).symlink_to("/tmp")],
        4,
        ("__pycache__: cannot be looked into", "Bytecode there could hide the fix"),
    ),
    "a-file-for-bytecode": (
        lambda site: [shutil.rmtree(site / CACHE, ignore_errors=True), (site / CACHE).write_bytes(b"")],
        4,
        ("__pycache__: cannot be looked into", "Bytecode there could hide the fix"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage, code, said", REFUSED.values(), ids=REFUSED)
def test_other_bytes_are_refused_with_what_differs(
    python: Path, damage: Callable[[Path], object], code: int, said: tuple[str, ...]
) -> None:
    damage(site_of(python))
    before = snapshot(site_of(python))
    ran = run("apply", "--installed", "--tests=none", "--python", python)
    assert ran.code == code and "Traceback" not in ran.stderr
    assert [text for text in said if text.lower() not in ran.stderr.lower()] == []
    assert snapshot(site_of(python)) == before


def test_fixed_upstream_is_nothing_to_do(python: Path) -> None:
    path = site_of(python) / INIT
    assert run("apply", "--installed", "--tests=none", "--python", python).code == 0
    path.write_bytes(path.read_bytes() + b"\n# 2.11.0.post2\n")
    (site_of(python) / LAZY_INIT).write_bytes((site_of(python) / LAZY_INIT).read_bytes() + b"\n# later\n")
    before = snapshot(site_of(python))
    ran = run("apply", "--installed", "--tests=none", "--python", python)
    assert ran.code == 0 and "fixed upstream" in ran.stdout and "nothing to do" in ran.stdout
    ran = run("unapply", "--installed", "--python", python)
    assert ran.code == 1 and "fixed upstream" in ran.stderr
    assert snapshot(site_of(python)) == before


USAGE = {
    "python-alone": (("status", "--python", sys.executable, "."), "--python goes with --installed only"),
    "owner-alone": (("apply", "--owner", "x", "."), "--owner goes with --installed only"),
    "tree": (("status", "--installed", "."), "status: expected no argument, got 1"),
    "commit": (("apply", "--installed", "--commit"), "--commit does not go with --installed"),
    "clone": (("apply", "--installed", "--clone", "u"), "--clone does not go with --installed"),
    "fork": (("apply", "--installed", "--fork"), "--fork does not go with --installed"),
    "keep": (("apply", "--installed", "--keep"), "--keep does not go with --installed"),
}


@pytest.mark.parametrize("words, said", USAGE.values(), ids=USAGE)
def test_options_that_do_not_go_together_are_usage(words: tuple[str, ...], said: str) -> None:
    ran = run(*words)
    assert ran.code == 2 and said in ran.stderr


def test_a_level_without_tests_is_usage_and_no_interpreter_an_environment(python: Path, tmp_path: Path) -> None:
    ran = run("apply", "--installed", "--tests=simulated", "--python", python)
    assert ran.code == 2 and "has no tests for that level" in ran.stderr
    for name, said in (
        ("/nonexistent", "cannot be run"),
        ("/bin/true", "gave no answer"),
        ("/bin/false", "exit code 1"),
    ):
        ran = run("status", "--installed", "--python", name)
        assert ran.code == 4 and said in ran.stderr and "Traceback" not in ran.stderr


HOLD = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print(flush=True)
input()
"""


def test_a_process_that_has_the_package_in_memory_is_named(python: Path) -> None:
    library = site_of(python) / "torch_musa" / "lib" / "libmusa_python.so"
    words = [sys.executable, "-c", HOLD, str(library)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        before = snapshot(site_of(python))
        ran = run("apply", "--installed", "--tests=none", "--python", python)
        assert snapshot(site_of(python)) == before
        holder.communicate(b"\n")
    assert ran.code == 1 and f"in the memory of process {holder.pid} (python" in ran.stderr
    assert "reload does not heal it" in ran.stderr
    assert run("apply", "--installed", "--tests=none", "--python", python).code == 0


def test_files_of_another_user_are_an_environment(wheel: Path) -> None:
    assert os.geteuid() == 0, "the files must be root's, and the one who tries nobody"
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are root's alone
        site = Path(folder)
        unpack(wheel, site)
        for path in (site, *site.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        installed = Installed("py thon", folder, (3, 13), "cpython-313", folder, "torch_musa-2.7.1.dist-info", *NOTHING)
        writer = InstalledWriter(installed, None, "apply")
        before = snapshot(site)
        try:
            os.seteuid(NOBODY)
            with pytest.raises(Environment, match=f"{INIT}: belongs to root, and you are nobody") as raised:
                commands.apply(folder, PackageStore(str(STACKS)), commands.How(writer=writer))
        finally:
            os.seteuid(0)
        assert raised.value.exit == 4 and raised.value.tip.startswith("As root: sudo ")
        assert raised.value.tip.endswith(" apply.py apply --installed --python 'py thon'")
        site.joinpath("torch_musa").chmod(0o555)
        for path in site.rglob("*"):
            os.chown(path, NOBODY, -1)
        try:
            os.seteuid(NOBODY)
            with pytest.raises(Environment, match="torch_musa: cannot be written by nobody; it belongs to nobody"):
                commands.apply(folder, PackageStore(str(STACKS)), commands.How(writer=writer))
        finally:
            os.seteuid(0)
        assert {path: shot.data for path, shot in snapshot(site).items()} == {p: s.data for p, s in before.items()}
