"""The ladder and its verbs through the command line: what is broken, what is proven, and what is left behind."""

from __future__ import annotations

import os
import pty
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests import broken_stack, standin_install
from tests.runtime_helpers import INIT, LAZY, edit, patched, snapshot, unpatched
from tests.verify_command import ROOT, Command, environment, living, picture

RELEASES = ("2.7.1", "2.9.1.post1")
each_release = pytest.mark.parametrize("release", RELEASES)
REEXPORT = "from .core._lazy_init import (\n"
# A fix with a text of its own: another handle, asked for at each access, and the names imported where they are.
OWN_FIX = (
    "def __getattr__(attribute):\n"
    '    if attribute in ("_initialized",):\n'
    '        return vars(sys.modules["torch_musa.core._lazy_init"])[attribute]\n'
    '    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")\n\n\n'
)


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """The command's folder for temporary files, which must be empty in the end."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def command(scratch: Path) -> Command:
    return Command(scratch)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return patched(tmp_path / "pätched tree")


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that has unidiff and neither torch nor pytest."""
    import unidiff

    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next((folder / "lib").glob("python3.*/site-packages"))
    (site / "unidiff").symlink_to(Path(unidiff.__file__).parent)
    return str(folder / "bin" / "python")


# What is broken and what is proven


@each_release
def test_an_unpatched_tree_is_broken_with_reasons_and_a_tip(command: Command, tmp_path: Path, release: str) -> None:
    tree = unpatched(tmp_path / "tree", release)
    done = command.judge(tree, "--level", "import")
    refuted = done.findings("refuted")
    assert done.code == 5
    assert done.outcome["outcome"] == "not proven"
    assert done.standing() == {"static": "refuted", "import": "refuted"}
    assert re.match(rf"{INIT}:\d+: the flag is bound here: a snapshot", refuted["re-export-gone"])
    assert "_initialized after _lazy_init() is False, not True" in refuted["flag-true-after-initialization"]
    assert done.outcome["tip"] == f"To put the fix in: apply.py apply {tree}"


@each_release
def test_a_patched_tree_is_proven(command: Command, tmp_path: Path, release: str) -> None:
    done = command.judge(patched(tmp_path / "tree", release), "--level", "import")
    assert (done.code, done.outcome["outcome"], done.outcome["tip"]) == (0, "proven", "")
    assert done.standing() == {"static": "proven", "import": "proven"}
    assert done.report["identity"] == f"{release}+specimen, applied: all 3 patches are in"


def test_a_static_run_says_that_it_is_no_more(command: Command, tree: Path) -> None:
    done = command.judge(tree, "--level", "static")
    assert (done.code, done.standing()) == (0, {"static": "proven"})
    assert "by importing the real module: not asked for" in done.report["not_established"]


def test_a_partly_applied_tree_is_proven_by_import_and_its_typo_is_named(command: Command, tmp_path: Path) -> None:
    tree = patched(tmp_path / "tree", count=1)
    done = command.judge(tree, "--level", "import")
    assert done.report["identity"].endswith("partly applied: patches 1..1 of 3 are in")
    assert done.standing() == {"static": "refuted", "import": "proven"}
    assert list(done.findings("refuted")) == ["global-names-exist"]
    assert (done.code, done.outcome["tip"]) == (5, f"To put the fix in: apply.py apply {tree}")


def fixed_otherwise(dest: Path) -> Path:
    """A tree that no digest knows, with the fix in words of its own."""
    tree = unpatched(dest)
    edit(
        tree,
        INIT,
        [("    _initialized,\n", ""), ("from .core.random import *\n", OWN_FIX + "from .core.random import *\n")],
    )
    return edit(tree, LAZY, [("_queue_calls\n", "_queued_calls\n")])


@pytest.mark.torch
def test_another_fix_is_proven_with_the_defect_recreated_as_the_red_side(command: Command, tmp_path: Path) -> None:
    done = command.judge(fixed_otherwise(tmp_path / "tree"), "--level", "simulated")
    assert done.findings("refuted") == {}
    assert done.code == 0
    assert done.report["identity"].startswith("not a pinned tree")
    assert "draws-reentrant[unpatched]" in done.findings("proven")


def drifted(tree: Path) -> Path:
    """Lines of a fork's own above the block, in a file that the stack touches."""
    return edit(tree, INIT, [("import torch\n\n", "import torch\n\n# ours\nFORK = True\n\n")])


def test_a_drifted_fork_is_judged_by_what_it_does(command: Command, tmp_path: Path) -> None:
    broken = command.judge(drifted(unpatched(tmp_path / "unpatched")), "--level", "import")
    healed = command.judge(drifted(patched(tmp_path / "patched")), "--level", "import")
    assert (broken.code, healed.code) == (5, 0)
    assert broken.standing() == {"static": "refuted", "import": "refuted"}
    assert broken.outcome["tip"] == 'No stack is made for these bytes: see "Forks" in the README.'
    assert healed.standing() == {"static": "proven", "import": "proven"}
    assert all(done.report["identity"].startswith("not a pinned tree: ") for done in (broken, healed))


def test_scan_lists_the_class_of_the_defect(command: Command, tree: Path, tmp_path: Path) -> None:
    broken, healed = command.run("scan", unpatched(tmp_path / "unpatched")), command.run("scan", tree)
    assert (broken.code, healed.code) == (5, 0)
    assert [hit["name"] for hit in broken.outcome["data"]["hits"] if hit["harmful"]] == ["_initialized"]
    assert not any(hit["harmful"] for hit in healed.outcome["data"]["hits"])


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: None], ids=["no-torch_musa", "nothing-there"])
def test_what_is_no_tree_is_a_usage_error(command: Command, tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "other")
    done = command.run("verify", tmp_path / "other")
    assert (done.code, done.outcome["outcome"]) == (2, "error")


@pytest.mark.parametrize("change", ["byte", "mode", "time", "folder"])
def test_the_picture_of_a_tree_shows_every_change(tree: Path, change: str) -> None:
    before, file = picture(tree), tree / INIT
    status = file.stat()
    if change == "folder":
        (tree / "torch_musa" / "__pycache__").mkdir()
    elif change == "mode":
        file.chmod(0o600)
    elif change == "byte":
        file.write_bytes(file.read_bytes().replace(b"import", b"imporT", 1))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + (change == "time")))
    assert picture(tree) != before


# The reports


def test_reports_are_written_whole_over_what_was_there(command: Command, tree: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    junit, html = folder / "junit.xml", folder / "page.html"
    html.write_text("old")
    done = command.judge(tree, "--level", "static", "--junit", junit, "--html", html)
    assert done.code == 0
    assert ElementTree.parse(junit).getroot().attrib["failures"] == "0"
    assert html.read_text().startswith("<!DOCTYPE html>\n") and html.read_text().endswith("</html>\n")
    assert sorted(path.name for path in folder.iterdir()) == ["junit.xml", "page.html"]


def test_a_report_into_a_device_or_a_link_leaves_it_what_it_is(command: Command, tree: Path, tmp_path: Path) -> None:
    device, link = tmp_path / "full", tmp_path / "link"
    os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 7))
    link.symlink_to(tmp_path / "report.xml")
    done = command.judge(tree, "--level", "static", "--junit", device)
    assert done.code == 4 and "No space left" in done.outcome["message"]
    assert stat.S_ISCHR(device.lstat().st_mode)
    assert command.judge(tree, "--level", "static", "--junit", link).code == 0
    assert link.is_symlink() and ElementTree.parse(tmp_path / "report.xml").getroot().tag == "testsuites"


@pytest.mark.parametrize("option", ["--junit", "--html"])
@pytest.mark.parametrize("target", ["no-such-folder/report", "folder"])
def test_a_report_that_cannot_be_written_is_4_and_leaves_nothing(
    command: Command, tree: Path, tmp_path: Path, option: str, target: str
) -> None:
    reports = tmp_path / "reports"
    (reports / "folder").mkdir(parents=True)
    done = command.judge(tree, "--level", "static", option, reports / target)
    assert done.code == 4
    assert f"{reports / target}: cannot be written" in done.outcome["message"]
    assert [path.name for path in reports.iterdir()] == ["folder"]


def test_the_outcome_is_the_documented_record(command: Command, tree: Path) -> None:
    done = command.judge(tree, "--level", "static")
    keys = ["schema", "command", "exit", "outcome", "message", "tip", "tree", "state", "claims", "data"]
    assert list(done.outcome) == keys
    assert (done.outcome["schema"], done.outcome["command"], done.outcome["tree"]) == (1, "verify", str(tree))
    assert (done.report["schema"], done.report["asked"], done.report["proven"]) == (1, "static", True)
    assert done.outcome["message"].endswith("verdict: proven at the static level")


# What this machine cannot do


def test_a_level_that_cannot_run_here_is_4_with_a_tip(command: Command, tree: Path, bare_python: str) -> None:
    command.python = bare_python
    done = command.judge(tree, "--level", "simulated")
    assert done.code == 4
    assert "torch and pytest cannot be imported by" in done.outcome["message"]
    assert "ask for the import level" in done.outcome["tip"]
    assert command.judge(tree, "--level", "hardware").code == 4


def test_auto_falls_to_what_can_run_and_says_so(command: Command, tree: Path, bare_python: str) -> None:
    command.python = bare_python
    done = command.judge(tree)
    gaps = "\n".join(done.report["not_established"])
    assert (done.code, done.report["asked"]) == (0, "import")
    assert "simulated: the fix works at the simulated level: not run: torch and pytest cannot be imported" in gaps
    assert "hardware: the fix works at the hardware level: not run: torch_musa is not installed" in gaps


UNGATED = '''"""A torch whose checkpoint no longer asks for the flag."""

import sys
from importlib.machinery import PathFinder, SourceFileLoader


class Loader(SourceFileLoader):
    def get_code(self, name):
        text = self.get_source(name)
        assert text.count(ASKED) == 3, text.count(ASKED)
        return compile(text.replace(ASKED, "True"), self.path, "exec")


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "torch.utils.checkpoint":
            return None
        spec = PathFinder.find_spec(name, path)
        spec.loader = Loader(name, spec.origin)
        return spec


ASKED = 'getattr(device_module, "_initialized", False)'
sys.meta_path.insert(0, Finder)
'''


@pytest.mark.torch
def test_a_torch_that_does_not_ask_for_the_flag_proves_nothing(command: Command, tree: Path, tmp_path: Path) -> None:
    command.python = str(standin_install.make_environment(tmp_path / "venv"))
    site = next((tmp_path / "venv" / "lib").glob("python3.*/site-packages"))
    (site / "ungated.py").write_text(UNGATED)
    with (site / "outer.pth").open("a") as paths:
        paths.write("import ungated\n")
    done = command.judge(tree, "--level", "simulated")
    assert (done.code, done.standing()["simulated"]) == (5, "not run")
    assert "cannot show the defect and proves nothing here" in done.findings("not run")["torch-asks-for-the-flag"]


# apply asks for the proof


def test_apply_proves_before_it_writes(command: Command, tmp_path: Path) -> None:
    tree = unpatched(tmp_path / "tree")
    done = command.run("apply", "--tests", "import", tree)
    assert (done.code, done.outcome["outcome"]) == (0, "applied")
    assert done.standing() == {"static": "proven", "import": "proven"}
    assert "the fix is proven at the import level" in done.outcome["message"]
    assert command.judge(tree, "--level", "import").code == 0


@pytest.fixture
def no_fix(tmp_path: Path) -> Path:
    """A stack whose digests are all right, and whose first patch fixes nothing."""
    return broken_stack.make_stacks(tmp_path / "stacks", 1, broken_stack.harmless_comment)


def test_apply_writes_nothing_that_is_not_proven(command: Command, no_fix: Path, tmp_path: Path) -> None:
    tree = unpatched(tmp_path / "tree")
    before = picture(tree)
    done = command.run("apply", "--tests", "import", tree, stacks=no_fix)
    assert (done.code, done.outcome["outcome"]) == (5, "not proven")
    assert "flag-true-after-initialization" in done.findings("refuted")
    assert "nothing was applied" in done.outcome["message"]
    assert picture(tree) == before


def test_keep_leaves_what_is_not_proven_and_says_so(command: Command, no_fix: Path, tmp_path: Path) -> None:
    tree = unpatched(tmp_path / "tree")
    done = command.run("apply", "--tests", "import", "--keep", tree, stacks=no_fix)
    assert (done.code, done.outcome["outcome"]) == (5, "applied, not proven")
    assert "kept although it is not proven" in done.outcome["message"]
    wanted = {path: data for path, data in snapshot(no_fix / "work").items() if not path.startswith(".git/")}
    assert snapshot(tree) == wanted


@pytest.mark.torch
def test_a_vacuous_carried_test_fails_the_verification(command: Command, tmp_path: Path) -> None:
    stacks = broken_stack.make_stacks(tmp_path / "stacks", 3, broken_stack.vacuous_test)
    tree = unpatched(tmp_path / "tree")
    before = picture(tree)
    done = command.run("apply", "--tests", "simulated", tree, stacks=stacks)
    assert done.code == 5
    assert {re.sub(r".*::|\[.*?\]", "", check) for check in done.findings("refuted")} == {
        "test_checkpoint_preserves_device_rng"
    }
    assert set(done.findings("refuted").values()) == {"passes without the fix: the test is vacuous"}
    assert picture(tree) == before


# Interruption and progress


def test_sigint_leaves_no_process_no_file_and_the_tree_as_it_was(command: Command, tmp_path: Path) -> None:
    tree = edit(
        unpatched(tmp_path / "tree"), INIT, [("import torch\n\n", "import torch\nimport time; time.sleep(600)\n\n")]
    )
    before = picture(tree)
    line = command.line("verify", "--level", "import", tree)
    process = subprocess.Popen(line, cwd=ROOT, env=environment(command.scratch), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not any("import_checks.py" in one for one in living(str(command.scratch))):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert errors.startswith("interrupted") and "Traceback" not in errors
    assert living(str(command.scratch)) == []
    assert picture(tree) == before


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_progress_goes_to_stderr_and_only_to_a_terminal(command: Command, tree: Path, terminal: bool) -> None:
    ours, theirs = pty.openpty() if terminal else os.pipe()
    line = command.line("verify", "--level", "import", tree)
    done = subprocess.run(
        line, cwd=ROOT, env=environment(command.scratch), stdout=subprocess.PIPE, stderr=theirs, check=False
    )
    os.set_blocking(ours, False)
    shown = os.read(ours, 1 << 16).decode() if terminal else ""
    os.close(theirs)
    rest = b"" if terminal else os.read(ours, 1 << 16)
    os.close(ours)
    assert done.returncode == 0
    assert ("import level" in shown) is terminal
    assert rest == b"" and b"\x1b" not in done.stdout
    assert shown == "" or shown.endswith("\r\x1b[K")
