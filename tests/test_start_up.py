"""What a run may import, and which way the arrows point: tests -> apply.py -> verify -> stack."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import INIT, ROOT, STACKS

FORBIDDEN = (
    *("torch", "pytest", "git", "argparse", "dataclasses", "pathlib", "json", "ast"),
    *("subprocess", "inspect", "ctypes", "shlex", "email", "tempfile", "shutil", "hashlib"),
)
BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name in {names!r}:
            raise SystemExit("imports " + name)
sys.meta_path.insert(0, Block())
for name in {names!r}:
    sys.modules.pop(name, None)
sys.path.insert(0, {root!r})
import apply
sys.exit(apply.main(sys.argv[1:]))
"""


def blocked(*args: object, names: tuple[str, ...] = FORBIDDEN) -> subprocess.CompletedProcess[bytes]:
    script = BLOCK.format(names=names, root=str(ROOT))
    argv = [sys.executable, "-c", script, *map(str, args)]
    return subprocess.run(argv, capture_output=True)


@pytest.mark.parametrize("verb", ["status", "apply", "unapply"])
def test_a_run_on_a_known_tree_imports_nothing_heavy(specimen: Path, verb: str) -> None:
    proof = ["--tests=none"] if verb == "apply" else []
    done = blocked(verb, *proof, "--stacks", STACKS, specimen)
    assert done.returncode == 0, done.stderr.decode()
    # release.json, which says what directories to keep, is read only where a file goes.
    names = tuple(name for name in FORBIDDEN if name != "json")
    assert blocked("unapply", "--stacks", STACKS, specimen, names=names).returncode == 0


def test_the_block_catches_an_import(specimen: Path) -> None:
    assert b"imports json" in blocked("status", "--json", "--stacks", STACKS, specimen).stderr
    (specimen / INIT).write_bytes(b"x = 1\n")
    assert b"imports " in blocked("status", "--stacks", STACKS, specimen).stderr


def test_no_field_of_a_record_is_a_string() -> None:
    """A NamedTuple compiles those that are: the first one makes every type of the syntax tree, for 2 ms."""
    raising = "import typing; typing.ForwardRef.__init__ = lambda *_, **__: sys.exit('a string: ' + repr(_[1]))"
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {raising}; import %s"
    argv = [sys.executable, "-c"]
    assert subprocess.run([*argv, script % "apply"], capture_output=True).stderr == b""
    caught = subprocess.run([*argv, script % "apply, stack.defect"], capture_output=True)
    assert caught.stderr.startswith(b"a string: "), "a module off this path has such a record"


def test_a_python_without_the_lean_digests_has_the_same_ones() -> None:
    script = BLOCK[: BLOCK.index("import apply")] + "from stack.digest import *\nprint(sha256(b'x'), git_blob(b'x'))\n"
    said = []
    for names in (("hashlib",), ("_sha1",), ("_sha2", "_sha256")):
        refusing = script.replace("raise SystemExit", "raise ImportError").format(names=names, root=str(ROOT))
        said.append(subprocess.run([sys.executable, "-c", refusing], capture_output=True, text=True).stdout)
    known = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881 c1b0730e0133447badcfd47fd144e254807b06e1"
    assert said == [f"{known}\n"] * 3


ALLOWED = {"stack": ("stack", "unidiff"), "verify": ("stack", "verify")}


def imported(path: Path) -> set[str]:
    """Return the top-level names of all that a file imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("floor", ["stack", "verify"])
def test_dependencies_point_one_way(floor: str) -> None:
    floors = {"stack", "verify", "apply", "tests"}
    files = sorted((ROOT / floor).rglob("*.py"))
    assert files
    wrong = {str(path): sorted(imported(path) & (floors - set(ALLOWED[floor]))) for path in files}
    assert {path: names for path, names in wrong.items() if names} == {}


OTHERS = {
    **{"gitrun.py": {"git"}, "edit.py": {"libcst"}, "names.py": {"packaging"}},
    **{"read.py": {"packaging", "wheel"}, "write.py": {"wheel"}},
}


def test_the_ground_floor_needs_the_standard_library_and_unidiff_alone() -> None:
    lean = {"_sha1", "_sha2", "_sha256"}  # the middle one since Python 3.12, the last one until then
    known = set(sys.stdlib_module_names) | lean | {"__future__", "stack", "unidiff"}
    foreign = {path.name: imported(path) - known for path in (ROOT / "stack").rglob("*.py")}
    assert {name: names for name, names in foreign.items() if names} == OTHERS
    for path in (ROOT / "stack").rglob("*.py"):  # what only a few commands need is imported where they need it
        body = [node for node in ast.parse(path.read_bytes()).body if isinstance(node, (ast.Import, ast.ImportFrom))]
        top = {alias.name for node in body if isinstance(node, ast.Import) for alias in node.names}
        top |= {(node.module or "").split(".")[0] for node in body if isinstance(node, ast.ImportFrom)}
        assert top & set().union(*OTHERS.values()) == set(), path
