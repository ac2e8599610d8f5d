"""Exports in the hands of each system's own tools: the tree that they build has the bytes of result.sha256."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from stack.errors import Environment, Refused
from stack.export import mbox
from tests.conftest import INIT, STACKS, RunCli, contents, copy_specimen, snapshot
from tests.exports import CHANGELOG, FIRST, LATER, NAME, SECOND, THIRD, changed_stacks, edit, run
from tests.stock_tools import RELEASES, Stack, check_sums, environment, repository, sound
from tests.stock_tools import run as run_tool

pytestmark = pytest.mark.distro

every_release = pytest.mark.parametrize("release", RELEASES)
DISPLACED = re.compile(r"\(offset|with fuzz|succeeded at")
CONTROL = (
    "Source: torch-musa\nSection: misc\nPriority: optional\nMaintainer: A Packager <packager@example.org>\n"
    "Build-Depends: debhelper-compat (= 13)\nStandards-Version: 4.6.2\n\n"
    "Package: torch-musa\nArchitecture: all\nDescription: specimen\n A specimen.\n"
)
THEIRS = """\
Description: a patch of the packager's
Author: A Packager <packager@example.org>
Forwarded: not-needed
Last-Update: 2026-11-30
---
--- a/version.txt
+++ b/version.txt
@@ -1 +1 @@
-2.7.1
+2.7.1 packaged
"""


def source_package(where: Path, release: str = "2.7.1", theirs: bool = False) -> Path:
    """Make a source package of the specimen that builds, with a patch of the packager's own if asked for."""
    tree = copy_specimen(where / f"torch-musa-{release}", release)
    sound(["tar", "-czf", f"torch-musa_{release}.orig.tar.gz", tree.name], where)
    files = {
        "source/format": "3.0 (quilt)\n",
        "changelog": CHANGELOG.replace("2.7.1", release),
        "control": CONTROL,
        "copyright": "Specimen.\n",
        "rules": "#!/usr/bin/make -f\n%:\n\tdh $@\n",
    }
    if theirs:
        files |= {"patches/theirs.patch": THEIRS, "patches/series": "# theirs\n\ntheirs.patch -p1\n"}
    for name, text in files.items():
        (tree / "debian" / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / "debian" / name).write_text(text)
    (tree / "debian/rules").chmod(0o755)
    return tree


def has_result(tree: Path, release: str = "2.7.1") -> bool:
    return check_sums(tree, Stack(release).folder / "result.sha256")[0] == 0


@every_release
def test_a_source_package_is_built_and_extracted(release: str, tmp_path: Path) -> None:
    tree = source_package(tmp_path, release, theirs=release == "2.7.1")
    assert run("debian", tree, f"{release}+specimen").outcome == "exported"
    sound(["dpkg-source", "--build", tree.name], tmp_path)
    sound(["dpkg-source", "--extract", f"torch-musa_{release}-1.dsc", "extracted"], tmp_path)
    assert has_result(tmp_path / "extracted", release)
    # In the extracted tree the patches are applied, and stay as they are.
    assert run("debian", tmp_path / "extracted", f"{release}+specimen").outcome == "already so"
    for name in ("NEWS", "changelog"):
        text = sound(["dpkg-parsechangelog", "-l", f"debian/torch-musa_patches/{name}"], tree)
        assert "warning" not in text and f"\nVersion: {release}-1\n" in text and "Loss curves" in text


def quilt(tree: Path, *arguments: str, folder: str = "patches") -> str:
    """Run quilt, which must not fail; return what it said."""
    code, said = run_tool(["quilt", "--quiltrc", "-", *arguments], tree, env=environment(QUILT_PATCHES=folder))
    assert code == 0, said
    return said


def test_a_newer_export_into_an_extracted_package_does_as_the_tip_says(tmp_path: Path) -> None:
    def change(stacks: Path) -> None:
        edit(stacks / "patches" / NAME / SECOND, "Drop this", "Tell the distro. Drop this")

    tree, stacks = source_package(tmp_path, theirs=True), changed_stacks(tmp_path / "stacks", change)
    run("debian", tree)
    sound(["dpkg-source", "--build", tree.name], tmp_path)
    sound(["dpkg-source", "--extract", "torch-musa_2.7.1-1.dsc", "extracted"], tmp_path)
    with pytest.raises(Environment, match=f"has applied torch-musa-{SECOND}") as held:
        run("debian", tmp_path / "extracted", stacks=stacks)
    assert held.value.tip.endswith("QUILT_PATCHES=debian/patches quilt pop -a")
    quilt(tmp_path / "extracted", "pop", "-a", folder="debian/patches")
    assert run("debian", tmp_path / "extracted", stacks=stacks).data["written"][0].endswith(SECOND)
    sound(["dpkg-source", "--before-build", "."], tmp_path / "extracted")
    assert has_result(tmp_path / "extracted")


def test_lintian_has_nothing_to_say_of_our_patches(tmp_path: Path) -> None:
    tree = source_package(tmp_path, theirs=True)
    run("debian", tree)
    shutil.copy(tree / "debian/torch-musa_patches/NEWS", tree / "debian/NEWS")
    # One without a header, so that lintian is seen to look at headers at all.
    edit(tree / "debian/patches/theirs.patch", THEIRS.partition("---\n")[0], "")
    sound(["dpkg-source", "--build", tree.name], tmp_path)
    said = sound(["lintian", "--allow-root", "--pedantic", "--display-info", "torch-musa_2.7.1-1.dsc"], tmp_path)
    tags = [line for line in said.splitlines() if re.match("[EWIP]: .*(patch|dep3|news)", line, re.IGNORECASE)]
    assert tags and all("theirs.patch" in tag for tag in tags), said


def test_gbp_rewrites_our_patches_and_they_are_kept(tmp_path: Path) -> None:
    tree = source_package(tmp_path, theirs=True)
    run("debian", tree)
    repository(tree)
    sound(["gbp", "pq", "import"], tree)
    assert has_result(tree)
    sound(["gbp", "pq", "export"], tree)
    before = contents(tree)
    outcome = run("debian", tree)
    assert outcome.outcome == "already so"
    assert outcome.data["kept"] == [f"debian/patches/torch-musa-{name}" for name in (FIRST, SECOND, THIRD)]
    assert contents(tree) == before
    sound(["dpkg-source", "--before-build", "."], tree)
    assert has_result(tree)


def test_a_newer_export_refuses_what_gbp_has_rewritten_until_it_is_removed(tmp_path: Path) -> None:
    tree = source_package(tmp_path)
    run("debian", tree)
    repository(tree)
    sound(["gbp", "pq", "import"], tree)
    sound(["gbp", "pq", "export"], tree)
    copy_specimen(tmp_path / "later", "2.9.1.post1")
    shutil.copytree(tmp_path / "later", tree, dirs_exist_ok=True)
    mine = tree / f"debian/patches/torch-musa-{FIRST}"
    with pytest.raises(Refused, match=f"{FIRST}: was changed since we wrote it") as refused:
        run("debian", tree, LATER)
    assert "gbp pq export" in refused.value.tip
    mine.unlink()
    assert run("debian", tree, LATER).outcome == "exported"
    sound(["dpkg-source", "--before-build", "."], tree)
    assert has_result(tree, "2.9.1.post1")


def spec_lines(text: str) -> tuple[str, str]:
    """Return the lines for the preamble of a spec, and those for %prep."""
    preamble, prep = text.split("\n\n# In %%prep:\n")
    return preamble, prep


@pytest.mark.parametrize("option", ["", "-S git "], ids=["patch", "git"])
@every_release
def test_rpmbuild_prepares_the_tree_from_our_lines(release: str, option: str, tmp_path: Path) -> None:
    tree = copy_specimen(tmp_path / f"torch-musa-{release}", release)
    sources = tmp_path / "SOURCES"
    run("rpm", sources, f"{release}+specimen")
    sound(["tar", "-czf", str(sources / "source.tar.gz"), tree.name], tmp_path)
    (sources / "theirs.patch").write_text(THEIRS)
    theirs = "Patch1: theirs.patch\n" if release == "2.7.1" else ""
    preamble, prep = spec_lines((sources / "torch-musa-patches.spec.inc").read_text())
    assert prep == "%autosetup -p1\n" and preamble.count("\n# Forwarded: ") == 3
    (tmp_path / "torch-musa.spec").write_text(
        f"Name: torch-musa\nVersion: {release}\nRelease: 1\nSummary: specimen\nLicense: BSD\nBuildArch: noarch\n"
        f"Source0: source.tar.gz\n{theirs}{preamble}\n\n%description\nA specimen.\n\n"
        f"%prep\n{prep.replace('-p1', option + '-p1')}"
    )
    folders = [f"--define=_sourcedir {sources}", f"--define=_topdir {tmp_path}/rpm"]
    said = sound(["rpmbuild", "-bp", "--nodeps", *folders, "torch-musa.spec"], tmp_path)
    assert "warning" not in said and not DISPLACED.search(said), said
    (built,) = (tmp_path / "rpm/BUILD").glob("torch-musa-*")
    assert has_result(built, release)
    assert ("packaged" in (built / "version.txt").read_text()) == bool(theirs)


@every_release
def test_quilt_applies_the_folder(release: str, tmp_path: Path) -> None:
    tree = copy_specimen(tmp_path / "tree", release)
    run("quilt", tree, f"{release}+specimen")
    before = contents(tree)
    assert not DISPLACED.search(quilt(tree, "push", "-a", "--fuzz=0"))
    assert has_result(tree, release)
    quilt(tree, "pop", "-a")
    shutil.rmtree(tree / ".pc")
    assert contents(tree) == before


def test_quilts_own_refresh_is_kept(tmp_path: Path) -> None:
    tree = copy_specimen(tmp_path / "tree")
    run("quilt", tree)
    quilt(tree, "push", "-a", "--fuzz=0")
    for name in (FIRST, SECOND, THIRD):
        quilt(tree, "refresh", name)
    outcome = run("quilt", tree)
    assert outcome.outcome == "already so" and len(outcome.data["kept"]) == 3


def test_quilt_takes_out_what_apply_has_put_in(tmp_path: Path, run_cli: RunCli) -> None:
    tree = copy_specimen(tmp_path / "tree")
    (tree / INIT).chmod(0o664)
    os.chown(tree / INIT, 12345, 23456)
    before = {path: shot[:2] + shot[3:] for path, shot in snapshot(tree).items()}
    assert run_cli("apply", tree).code == 0
    run("quilt", tree, pc="")
    assert quilt(tree, "applied").split("\n", 1)[1] == "".join(f"{name}\n" for name in (FIRST, SECOND, THIRD))
    assert run_cli("unapply", tree).code == 4  # quilt has the account now
    quilt(tree, "pop", "-a")
    after = {path: shot[:2] + shot[3:] for path, shot in snapshot(tree).items() if not path.startswith((".pc", "pat"))}
    assert after == before
    quilt(tree, "push", "-a", "--fuzz=0")
    assert has_result(tree)


def test_our_state_is_the_one_that_quilt_writes(tmp_path: Path, run_cli: RunCli) -> None:
    tree, quilts = copy_specimen(tmp_path / "ours"), copy_specimen(tmp_path / "quilts")
    for path in (tree, quilts):
        (path / INIT).chmod(0o664)
    assert run_cli("apply", tree).code == 0
    run("quilt", tree, pc="")
    run("quilt", quilts)
    quilt(quilts, "push", "-a", "--fuzz=0")
    theirs = {path: shot for path, shot in contents(quilts).items() if not path.endswith("/.timestamp")}
    assert contents(tree) == theirs


def test_quilt_does_not_take_out_a_later_edit(tmp_path: Path, run_cli: RunCli) -> None:
    tree = copy_specimen(tmp_path / "tree")
    assert run_cli("apply", tree).code == 0
    run("quilt", tree, pc="")
    times = (tree / INIT).stat()
    edit(tree / INIT, "from .core import memory\n", "from .core import memory  # mine\n")
    os.utime(tree / INIT, ns=(times.st_atime_ns, times.st_mtime_ns))  # the bytes count, not the time
    code, said = run_tool(["quilt", "--quiltrc", "-", "pop", "-a"], tree)
    assert code == 1 and "does not remove cleanly" in said
    assert "# mine" in (tree / INIT).read_text()


@every_release
def test_git_am_takes_the_one_file(release: str, tmp_path: Path) -> None:
    tree = repository(copy_specimen(tmp_path / "tree", release))
    run("mbox", tmp_path / "stack.mbox", f"{release}+specimen")
    sound(["git", "am", str(tmp_path / "stack.mbox")], tree)
    assert has_result(tree, release)
    one_by_one = repository(copy_specimen(tmp_path / "other", release))
    sound(["git", "am", *map(str, Stack(release).patches)], one_by_one)
    form = ["git", "log", "-3", "--format=%T %an %ae %ad%n%B"]
    assert sound(form, tree) == sound(form, one_by_one)


def test_git_am_keeps_prose_that_begins_like_a_mail(tmp_path: Path) -> None:
    def change(stacks: Path) -> None:
        edit(stacks / "patches" / NAME / FIRST, "Take one handle", "From now on, take one handle")

    run("mbox", tmp_path / "m", NAME, changed_stacks(tmp_path / "stacks", change))
    tree = repository(copy_specimen(tmp_path / "tree"))
    sound(["git", "am", str(tmp_path / "m")], tree)
    assert has_result(tree) and "\nFrom now on, take one" in sound(["git", "log", "--format=%B"], tree)


def test_git_am_would_split_what_is_refused(tmp_path: Path) -> None:
    message = (STACKS / "patches" / NAME / FIRST).read_bytes()
    line = b"From here on Mon Sep 17 12:00:00 2026"
    (tmp_path / "m").write_bytes(mbox._FROM + message.replace(b"Take one", line + b"\nTake one", 1))
    assert mbox._SEPARATOR.search((tmp_path / "m").read_bytes().partition(b"\n")[2])
    (tmp_path / "mails").mkdir()
    assert sound(["git", "mailsplit", "-omails", "m"], tmp_path).endswith("\n2\n")
