"""Where torch_musa is, by an environment's own metadata: what can be patched is found, all else gets its message."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import installs
from tests.conftest import INIT, NEW_TEST, contents, copy_specimen, snapshot
from tests.installs import clean, plain_environment, run, site_of, unpack

ABOUT = "torch_musa-2.7.1.dist-info"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installs.specimen_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installs.environment(tmp_path_factory.mktemp("bare") / "venv", sys.executable, "--without-pip")


@pytest.fixture
def python(bare: Path) -> Iterator[Path]:
    clean(site_of(bare))
    yield bare
    clean(site_of(bare))


def nothing(site: Path, wheel: Path, more: Path) -> None:
    pass


def metadata_alone(site: Path, wheel: Path, more: Path) -> None:
    shutil.rmtree(unpack(wheel, site))


def namespace(site: Path, wheel: Path, more: Path) -> None:
    (unpack(wheel, site) / "__init__.py").unlink()


def no_metadata(site: Path, wheel: Path, more: Path) -> None:
    unpack(wheel, site)
    shutil.rmtree(site / ABOUT)


def two(site: Path, wheel: Path, more: Path) -> None:
    unpack(wheel, site)
    shutil.copytree(site / ABOUT, more / "torch_musa-2.9.1.dist-info")


def shadowed(site: Path, wheel: Path, more: Path) -> None:
    shutil.copytree(unpack(wheel, site), more / "torch_musa")


def zipped(site: Path, wheel: Path, more: Path) -> None:
    shutil.copy(wheel, more / "torch_musa.zip")
    (site / "torch_musa.pth").write_text(f"{more}/torch_musa.zip\n")


def egg(site: Path, wheel: Path, more: Path) -> None:
    folder = site / "torch_musa-2.7.1-py3.11.egg"
    unpack(wheel, folder)
    (folder / ABOUT).rename(folder / "EGG-INFO")
    (folder / "EGG-INFO" / "METADATA").rename(folder / "EGG-INFO" / "PKG-INFO")
    (site / "easy-install.pth").write_text(f"./{folder.name}\n")


def zipped_egg(site: Path, wheel: Path, more: Path) -> None:
    egg(site, wheel, more)
    folder = next(site.glob("*.egg"))
    folder.rename(more / "egg")
    with zipfile.ZipFile(folder, "w") as archive:
        for path in (more / "egg").rglob("*"):
            archive.write(path, path.relative_to(more / "egg"))


def broken_finder(site: Path, wheel: Path, more: Path) -> None:
    (site / "sitecustomize.py").write_text(
        "import sys\nclass F:\n    def find_spec(self, name, *rest):\n"
        "        if name == 'torch_musa':\n            raise OSError('stale mount')\nsys.meta_path.insert(0, F())\n"
    )


def extension_module(site: Path, wheel: Path, more: Path) -> None:
    (unpack(wheel, site) / "__init__.abi3.so").write_bytes(b"")


Install = Callable[[Path, Path, Path], None]
MESSAGES: dict[str, tuple[Install, int, tuple[str, ...]]] = {
    "not-installed": (nothing, 4, ("torch_musa is not installed for this interpreter (looked in ", "--python EXE")),
    "metadata-alone": (metadata_alone, 1, (f"{ABOUT} (version 2.7.1) speaks of torch_musa, but there is nothing",)),
    "namespace": (namespace, 1, ("is a namespace package, a folder without __init__.py: ", "These are remains")),
    "no-metadata": (no_metadata, 1, ("of which no metadata speaks", "apply.py apply ")),
    "two": (two, 1, ("several distributions", ABOUT, "torch_musa-2.9.1.dist-info", "pip uninstall torch_musa")),
    "shadowed": (shadowed, 1, (f"{ABOUT} (version 2.7.1) speaks of", "but what would be imported is MORE/torch_musa")),
    "zip": (zipped, 1, ("out of the zip file MORE/torch_musa.zip", "An archive is not changed in place")),
    "egg": (egg, 1, ("is installed as an egg: ", "torch_musa-2.7.1-py3.11.egg", "pip install --force-reinstall")),
    "zipped-egg": (zipped_egg, 1, ("out of the zipped egg ", "torch_musa-2.7.1-py3.11.egg")),
    "extension-module": (extension_module, 1, ("torch_musa/__init__.abi3.so, and not from an __init__.py beside it",)),
    "broken-finder": (broken_finder, 4, ("cannot tell from where", "OSError: stale mount")),
}


@pytest.mark.parametrize("install, code, said", MESSAGES.values(), ids=MESSAGES)
def test_what_cannot_be_patched_gets_its_message(
    python: Path, wheel: Path, tmp_path: Path, install: Install, code: int, said: tuple[str, ...]
) -> None:
    (tmp_path / "more").mkdir()
    install(site_of(python), wheel, tmp_path / "more")
    before = snapshot(site_of(python)), snapshot(tmp_path)
    ran = run("apply", "--installed", "--python", python, env={"PYTHONPATH": str(tmp_path / "more")})
    assert ran.code == code and "Traceback" not in ran.stderr
    assert [text for text in said if text.replace("MORE", str(tmp_path / "more")) not in ran.stderr] == []
    assert (snapshot(site_of(python)), snapshot(tmp_path)) == before


@pytest.mark.parametrize("path", ["more", ":more", "/nonexistent:./more"])
def test_a_relative_pythonpath_is_the_callers(
    python: Path, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    (tmp_path / "more").mkdir()
    shadowed(site_of(python), wheel, tmp_path / "more")
    monkeypatch.chdir(tmp_path)
    ran = run("apply", "--installed", "--python", python, env={"PYTHONPATH": path})
    assert ran.code == 1 and f"what would be imported is {tmp_path}/more/torch_musa" in ran.stderr


def test_the_users_site_packages_are_found_and_named(python: Path, wheel: Path, tmp_path: Path) -> None:
    (python.parents[1] / "pyvenv.cfg").write_text(
        (python.parents[1] / "pyvenv.cfg").read_text().replace("packages = false", "packages = true")
    )
    version = f"python3.{sys.version_info[1]}"
    unpack(wheel, tmp_path / "lib" / version / "site-packages")
    env = {"PYTHONUSERBASE": str(tmp_path)}
    ran = run("apply", "--installed", "--tests=none", "--python", python, env=env)
    assert ran.code == 0 and "(the user's site-packages)" in ran.stdout
    unpack(wheel, site_of(python))
    ran = run("status", "--installed", "--python", python, env=env)
    assert ran.code == 1 and "several distributions" in ran.stderr


PROJECT = "[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n"
SETUP = (
    "from setuptools import setup\nsetup(name='torch_musa', version='2.7.1', packages=['torch_musa', 'torch_musa.core']"
)


def project(folder: Path, src: bool = False) -> Path:
    """Make a source tree that setuptools builds; src: with the package below src/, and no tests."""
    tree = copy_specimen(folder)
    setup = SETUP
    if src:
        (tree / "src").mkdir()
        (tree / "torch_musa").rename(tree / "src" / "torch_musa")
        shutil.rmtree(tree / "tests")
        setup += ", package_dir={'': 'src'}"
    (tree / "setup.py").write_text(f"{setup})\n")
    (tree / "pyproject.toml").write_text(PROJECT)
    return tree


def install_editable(tree: Path, site: Path, mode: str) -> None:
    """Install with setuptools' own editable wheel, and note where it came from as pip does (PEP 610)."""
    script = (
        "import sys; from setuptools import build_meta; "
        "print(build_meta.build_editable(sys.argv[1], {'editable_mode': sys.argv[2]}))"
    )
    (tree / "dist").mkdir()
    words = [sys.executable, "-W", "ignore", "-c", script, str(tree / "dist"), mode]
    done = subprocess.run(words, cwd=tree, env=plain_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    unpack(next((tree / "dist").glob("*.whl")), site)
    about = {"url": tree.as_uri(), "dir_info": {"editable": True}}
    next(site.glob("torch_musa-*.dist-info")).joinpath("direct_url.json").write_text(json.dumps(about))


@pytest.mark.torch  # setuptools comes with it
@pytest.mark.parametrize("mode", ["lenient", "strict", "compat"])
def test_an_editable_install_is_its_source_tree(python: Path, tmp_path: Path, mode: str) -> None:
    tree = project(tmp_path / "my tree")
    install_editable(tree, site_of(python), mode)
    before, site = contents(tree), snapshot(site_of(python))
    ran = run("apply", "--installed", "--tests=none", "--python", python)
    assert ran.code == 0, ran.stderr
    assert f"{tree}/torch_musa: an editable install of a source tree" in ran.stdout
    assert "applied 3 patches" in ran.stdout and (tree / NEW_TEST).is_file()
    ran = run("unapply", "--installed", "--python", python)
    assert ran.code == 0 and contents(tree) == before and snapshot(site_of(python)) == site


def note_editable(site: Path, tree: Path, path: Path) -> None:
    """Put an editable install there by hand: metadata, where it came from, and a path file."""
    (site / ABOUT).mkdir()
    (site / ABOUT / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_musa\nVersion: 2.7.1\n")
    (site / ABOUT / "direct_url.json").write_text(json.dumps({"url": tree.as_uri(), "dir_info": {"editable": True}}))
    (site / "torch_musa.pth").write_text(f"{path}\n")


def test_an_editable_install_of_a_tree_without_tests_is_patched_as_a_package(python: Path, tmp_path: Path) -> None:
    tree = project(tmp_path / "tree", src=True)
    note_editable(site_of(python), tree, tree / "src")
    before = contents(tree)
    ran = run("apply", "--installed", "--tests=none", "--python", python)
    assert ran.code == 0 and "applied 2 patches" in ran.stdout and "left out" in ran.stdout
    assert run("unapply", "--installed", "--python", python).code == 0 and contents(tree) == before


def test_hard_links_to_a_source_tree_are_refused(python: Path, tmp_path: Path) -> None:
    tree = project(tmp_path / "tree")
    farm = tree / "build" / "__editable__.torch_musa-2.7.1"
    shutil.copytree(
        tree / "torch_musa", farm / "torch_musa", copy_function=lambda one, other: Path(other).hardlink_to(one)
    )
    note_editable(site_of(python), tree, farm)
    before = snapshot(tree)
    ran = run("apply", "--installed", "--python", python)
    assert ran.code == 1 and "hard links to the source tree" in ran.stderr and f"apply {tree}" in ran.stderr
    assert snapshot(tree) == before


def test_a_develop_install_is_its_source_tree(python: Path, tmp_path: Path) -> None:
    tree = project(tmp_path / "tree")  # what `setup.py develop` leaves: an egg-link, a path, metadata in the tree
    (tree / "torch_musa.egg-info").mkdir()
    (tree / "torch_musa.egg-info" / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: torch_musa\nVersion: 2.7.1\n")
    (site_of(python) / "torch-musa.egg-link").write_text(f"{tree}\n.")
    (site_of(python) / "easy-install.pth").write_text(f"{tree}\n")
    ran = run("apply", "--installed", "--tests=none", "--python", python)
    assert ran.code == 0 and "an editable install of a source tree" in ran.stdout and "applied 3 patches" in ran.stdout
    ran = run("apply", "--installed", "--tests=none", "--python", python)
    assert ran.code == 0 and "already so" in ran.stdout


def test_a_fork_in_an_editable_install_is_told_as_a_tree(python: Path, tmp_path: Path) -> None:
    tree = project(tmp_path / "tree")
    (tree / "torch_musa.egg-info").mkdir()
    (tree / "torch_musa.egg-info" / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: torch_musa\nVersion: 2.7.1\n")
    (site_of(python) / "easy-install.pth").write_text(f"{tree}\n")
    (tree / INIT).write_bytes((tree / INIT).read_bytes().replace(b"import sys\n", b"import sys  # ours\n", 1))
    ran = run("apply", "--installed", "--tests=none", "--python", python)
    assert ran.code == 1 and f"apply.py apply --fork {tree}" in ran.stderr
