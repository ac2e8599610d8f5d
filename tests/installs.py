"""Stand-in distributions of torch_musa, made of the specimen: wheels, virtual environments, and installs in them."""

from __future__ import annotations

import csv
import glob
import hashlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipInfo

from wheel.wheelfile import WheelFile

from tests.conftest import ROOT, STACKS, Ran, copy_specimen

METADATA = (
    "Metadata-Version: 2.1\nName: torch_musa\nVersion: {}\nSummary: a stand-in\nRequires-Python: >=3.9\n\nVersion: x\n"
)
WHEEL = "Wheel-Version: 1.0\nGenerator: the tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
# The compiled modules, as files that nobody imports: _MUSAC is what the specimen needs of it, in Python.
LIBRARY = b"\x7fELF" + bytes(range(256)) * 64
EXTENSION = '''"""The stand-in for the compiled module: no card, and nothing initialized."""

def _nothing(*args):
    return 0

def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _nothing

_musa_version = "4.3.0"
'''
# What the specimen asks of torch at import time, and no more: the real one is not there for every Python.
TORCH = '''"""A stand-in for torch, as far as importing the specimen takes it."""

import sys
import types

class _Any(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Any(name)

    def __call__(self, *args, **kwargs):
        return self

    def __mro_entries__(self, bases):
        return (object,)

__version__ = "0.0+standin"

def __getattr__(name):
    if name.startswith("__") or name == "musa":
        raise AttributeError(name)
    return _Any(name)
'''


def interpreter(version: str) -> str:
    """Return a Python of this version that really runs, on the path or one of pyenv's; fails where there is none."""
    root = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    script = 'import sys; print("%d.%d" % sys.version_info[:2])'
    for candidate in (f"python{version}", *sorted(glob.glob(f"{root}/versions/{version}.*/bin/python"))):
        found = shutil.which(candidate)
        done = subprocess.run([found, "-c", script], capture_output=True, text=True) if found else None
        if done and done.stdout.strip() == version:
            return str(found)
    raise AssertionError(f"no Python {version} runs here: neither python{version} nor one of pyenv's")


def build_wheel(folder: Path, tree: Path, version: str = "2.7.1", more: Mapping[str, bytes] | None = None) -> Path:
    """Write a wheel of a tree's package with the wheel library; more: further members by name."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"torch_musa-{version}-py3-none-any.whl"
    files = {str(one.relative_to(tree)): one.read_bytes() for one in sorted((tree / "torch_musa").rglob("*.py"))}
    files |= {"torch_musa/_MUSAC.py": EXTENSION.encode(), "torch_musa/lib/libmusa_python.so": LIBRARY, **(more or {})}
    about = f"torch_musa-{version}.dist-info"
    files |= {f"{about}/METADATA": METADATA.format(version).encode(), f"{about}/WHEEL": WHEEL.encode()}
    with WheelFile(path, "w") as wheel:
        for name, data in files.items():
            member = ZipInfo(name, (2026, 3, 4, 5, 6, 8))
            member.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            member.compress_type = ZIP_DEFLATED if len(data) < 1_000_000 else ZIP_STORED
            wheel.writestr(member, data)
    return path


def specimen_wheel(folder: Path, release: str = "2.7.1") -> Path:
    """Write the wheel of a pristine specimen."""
    return build_wheel(folder, copy_specimen(folder / f"tree-{release}", release), release)


def environment(folder: Path, python: str = sys.executable, *options: str) -> Path:
    """Make a virtual environment; return its interpreter."""
    subprocess.run([python, "-m", "venv", *options, str(folder)], check=True)
    return folder / "bin" / "python"


def add_pip(python: Path) -> None:
    """Put the pip there that came with this Python: what ensurepip does, in a tenth of its time."""
    script = "import ensurepip, os; print(os.path.dirname(ensurepip.__file__))"
    folder = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    (wheel,) = Path(folder, "_bundled").glob("pip-*.whl")
    unpack(wheel, site_of(python))


def site_of(python: Path) -> Path:
    """Return the site-packages of a virtual environment's interpreter."""
    return next((python.parents[1] / "lib").glob("python3.*/site-packages"))


def unpack(wheel: Path, site: Path) -> Path:
    """Install a pure wheel as its specification says: unpack it. Returns the package's folder."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site / "torch_musa"


def clean(site: Path) -> None:
    """Take every trace of torch_musa out of a site-packages."""
    for path in [*site.glob("*torch[_-]musa*"), *site.glob("sitecustomize.py"), *site.glob("easy-install.pth")]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def add_torch(site: Path) -> None:
    """Put the stand-in for torch there."""
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text(TORCH)


def plain_environment() -> dict[str, str]:
    """Return the environment without what steers Python and pip: as a user has it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}


def pip(python: Path, *words: object) -> str:
    """Run that environment's pip; return what it prints, or fail."""
    command = [python, "-m", "pip", "--disable-pip-version-check", *map(str, words)]
    done = subprocess.run(command, env=plain_environment(), capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run(*args: object, env: Mapping[str, str] | None = None) -> Ran:
    """Run apply.py with the specimen's stacks, in this process: most of a run is else the start of a Python.

    dpkg gets an empty database, which takes a tenth of the time of a real one.
    """
    import apply

    words = [str(arg) for arg in args]
    streams = [io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2)]
    settings = {**plain_environment(), "DPKG_ADMINDIR": "/nonexistent", **(env or {})}
    with patch.dict(os.environ, settings, clear=True), redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        code = apply.main([words[0], f"--stacks={STACKS}", *words[1:]])
    return Ran(code, *(stream.buffer.getvalue().decode() for stream in streams))  # type: ignore[attr-defined]


def run_apart(*args: object, env: Mapping[str, str] | None = None, **more: object) -> Ran:
    """Run apply.py with the specimen's stacks as a user does; more: for subprocess.run."""
    words = [str(arg) for arg in args]
    command = [sys.executable, str(ROOT / "apply.py"), words[0], f"--stacks={STACKS}", *words[1:]]
    done = subprocess.run(command, env={**plain_environment(), **(env or {})}, capture_output=True, timeout=120, **more)  # type: ignore[call-overload]
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def record_faults(site: Path) -> list[str]:
    """Verify RECORD file by file, by its specification: all that it lists is there as it says, and nothing else is."""
    (record,) = site.glob("torch_musa-*.dist-info/RECORD")
    faults, listed = [], set()
    for path, digest, size in csv.reader(io.StringIO(record.read_text())):
        listed.add(path)
        if not (site / path).is_file():
            faults.append(f"{path}: missing")
            continue
        data = (site / path).read_bytes()
        algorithm, _, value = digest.partition("=")
        if digest and urlsafe_b64encode(hashlib.new(algorithm, data).digest()).rstrip(b"=").decode() != value:
            faults.append(f"{path}: digest")
        if size and int(size) != len(data):
            faults.append(f"{path}: size")
    there = {str(one.relative_to(site)) for one in (site / "torch_musa").rglob("*") if one.is_file()}
    return faults + [f"{path}: not listed" for path in sorted(there - listed) if ".pyc" not in path]
