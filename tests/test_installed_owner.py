"""Files that a package manager owns: each is asked, the owner is named, and only its exact name lets one pass."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests import installs
from tests.conftest import contents, snapshot
from tests.installs import clean, run, site_of, unpack

PACKAGE = "python3-torch-musa"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare")
    python = installs.environment(folder / "venv", sys.executable, "--without-pip")
    installs.specimen_wheel(folder)
    return python


@pytest.fixture
def python(bare: Path) -> Iterator[Path]:
    clean(site_of(bare))
    unpack(next(bare.parents[2].glob("*.whl")), site_of(bare))
    yield bare
    clean(site_of(bare))
    shutil.rmtree(bare.parents[1] / "conda-meta", ignore_errors=True)


def by_dpkg(python: Path, folder: Path) -> dict[str, str]:
    """Unpack the files as a package into a database of its own; dpkg takes it by DPKG_ADMINDIR (dpkg-query(1))."""
    source, database = folder / "deb", folder / "database"
    inner = source / site_of(python).relative_to("/")
    shutil.copytree(site_of(python) / "torch_musa", inner / "torch_musa")
    (source / "DEBIAN").mkdir()
    fields = {"Package": PACKAGE, "Version": "2.7.1-1", "Architecture": "all", "Maintainer": "A <a@example.org>"}
    text = "".join(f"{name}: {value}\n" for name, value in fields.items())
    (source / "DEBIAN" / "control").write_text(f"{text}Description: stand-in\n")
    subprocess.run(["dpkg-deb", "-b", source, folder / "x.deb"], check=True, capture_output=True)
    for name in ("info", "updates", "triggers"):
        (database / name).mkdir(parents=True)
    for name in ("status", "available"):
        (database / name).touch()
    words = ["dpkg", "--admindir", database, "--log", "/dev/null", "--force-not-root", "--force-bad-path"]
    words += ["--instdir", folder / "root", "-i", folder / "x.deb"]
    (folder / "root").mkdir()
    subprocess.run(words, check=True, capture_output=True)
    return {"DPKG_ADMINDIR": str(database)}


SPEC = """Name: {name}
Version: 2.7.1
Release: 1
Summary: stand-in
License: BSD
BuildArch: noarch
%define __brp_python_bytecompile %{{nil}}
%description
x
%install
mkdir -p %{{buildroot}}{site}
cp -r {site}/torch_musa %{{buildroot}}{site}/
%files
{site}/torch_musa
"""


def by_rpm(python: Path, folder: Path) -> dict[str, str]:
    """Note a built package in a database of its own; rpm takes it from the user's macros (rpm(8))."""
    (folder / "x.spec").write_text(SPEC.format(name=PACKAGE, site=site_of(python)))
    (folder / ".rpmmacros").write_text(f"%_topdir {folder}/rpmbuild\n%_dbpath {folder}/rpmdb\n")
    env = {**os.environ, "HOME": str(folder)}
    subprocess.run(["rpmbuild", "--quiet", "-bb", folder / "x.spec"], env=env, check=True, capture_output=True)
    (built,) = (folder / "rpmbuild").rglob("*.rpm")
    words = ["rpm", "-i", "--justdb", "--nodeps", "--ignoreos", "--ignorearch", built]
    subprocess.run(words, env=env, check=True, capture_output=True)
    return {"HOME": str(folder)}


def by_pacman(python: Path, folder: Path) -> dict[str, str]:
    """Stand in for pacman, which is for Arch alone: `pacman -Qoq FILE` prints the owner's name (pacman(8))."""
    (folder / "bin").mkdir()
    script = folder / "bin" / "pacman"
    wanted = f"{site_of(python)}/torch_musa/__init__.py"
    script.write_text(f'#!/bin/sh\n[ "$*" = "-Qoq {wanted}" ] && echo {PACKAGE} && exit 0\nexit 1\n')
    script.chmod(0o755)
    return {"PATH": f"{folder}/bin:{os.environ['PATH']}"}


def by_conda(python: Path, folder: Path) -> dict[str, str]:
    """Note the files as conda does: conda-meta/NAME-VERSION-BUILD.json in the environment."""
    meta = python.parents[1] / "conda-meta"
    meta.mkdir()
    files = [str((site_of(python) / "torch_musa/__init__.py").relative_to(python.parents[1]))]
    (meta / "python3-torch-musa-2.7.1-0.json").write_text(json.dumps({"name": PACKAGE, "files": files}))
    (meta / "other-1-0.json").write_text(json.dumps({"name": "other", "files": ["bin/torch_musa"]}))
    (meta / "history").write_text("")
    return {}


Own = Callable[[Path, Path], Mapping[str, str]]
MANAGERS: dict[str, Own] = {"dpkg-query": by_dpkg, "rpm": by_rpm, "pacman": by_pacman, "conda": by_conda}


@pytest.mark.distro
@pytest.mark.parametrize("manager", MANAGERS)
def test_a_packages_files_are_changed_only_by_its_exact_name(python: Path, tmp_path: Path, manager: str) -> None:
    env = MANAGERS[manager](python, tmp_path)
    before = snapshot(site_of(python))
    words = ("--installed", "--python", python)
    ran = run("apply", *words, "--tests=none", env=env)
    assert ran.code == 1 and f"is a part of the package {PACKAGE} ({manager})" in ran.stderr
    assert f"--owner {PACKAGE}" in ran.stderr
    assert snapshot(site_of(python)) == before
    ran = run("apply", *words, "--tests=none", f"--owner={PACKAGE}", env=env)
    assert ran.code == 0, ran.stderr
    assert f"the next upgrade of the package {PACKAGE} ({manager}) takes the fix away" in ran.stdout


def test_another_name_than_the_owners_is_usage_and_unapply_asks_too(python: Path, tmp_path: Path) -> None:
    by_conda(python, tmp_path)
    kept = contents(site_of(python))
    words = ("--installed", "--python", python)
    ran = run("apply", *words, "--tests=none", "--owner=torch-musa")
    assert ran.code == 2 and f"is a part of {PACKAGE} (conda)" in ran.stderr
    assert run("apply", *words, "--tests=none", f"--owner={PACKAGE}").code == 0
    assert run("unapply", *words).code == 1
    assert run("unapply", *words, f"--owner={PACKAGE}").code == 0
    assert contents(site_of(python)) == kept


@pytest.mark.distro
def test_where_rpm_has_no_database_asking_makes_none(python: Path, tmp_path: Path) -> None:
    """rpm on another system's machine: a query would make an empty database, in $HOME on Debian."""
    assert shutil.which("rpm")
    (tmp_path / ".rpmmacros").write_text(f"%_dbpath {tmp_path}/rpmdb\n")
    ran = run("apply", "--installed", "--python", python, "--tests=none", env={"HOME": str(tmp_path)})
    assert ran.code == 0, ran
    assert [path.name for path in tmp_path.iterdir()] == [".rpmmacros"]


def test_an_owner_that_is_none_is_usage(python: Path) -> None:
    ran = run("apply", "--installed", "--python", python, "--tests=none", "--owner=x")
    assert ran.code == 2 and "no package manager here says that it owns" in ran.stderr


def test_a_package_manager_that_cannot_be_asked_is_told(python: Path, tmp_path: Path) -> None:
    (tmp_path / "status").write_text("no database\n")
    ran = run(*("apply", "--installed", "--python", python, "--tests=none"), env={"DPKG_ADMINDIR": str(tmp_path)})
    assert ran.code == 0 and "dpkg-query could not be asked whether it owns the package" in ran.stdout
