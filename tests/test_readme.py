"""The README keeps its word: its commands run as they stand, and its tables are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stack import cli
from stack.errors import MEANING
from stack.outcome import Outcome
from stack.state import Standing
from tests import installs
from tests.conftest import ROOT, STACKS, contents, copy_specimen
from tests.docs import README, blocks

BLOCKS = blocks(README)
RELEASES = ("2.7.1", "2.9.1.post1")


def run(block: str, release: str, tree: Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a block of the README as a user would: in sh -e, with the variables that the text names."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "QUILT_"))}
    env |= {"STACKS": str(STACKS), "RELEASE": f"{release}+specimen", "TREE": str(tree), "HOME": str(tree.parent)}
    env |= {"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org", **more}
    return subprocess.run(["sh", "-ec", block], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def prepared(folder: Path, release: str, name: str) -> Path:
    tree = copy_specimen(folder / "torch_musa src", release)
    if name == "git-am":
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "base"]):
            identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "core.autocrlf=false"]
            subprocess.run(["git", *identity, *words], cwd=tree, check=True)
    if name == "debian":
        (tree / "debian" / "source").mkdir(parents=True)
        (tree / "debian" / "source" / "format").write_text("3.0 (quilt)\n")
        control = "Source: torch-musa\nMaintainer: A <a@example.org>\n\nPackage: torch-musa\nArchitecture: all\n"
        (tree / "debian" / "control").write_text(control + "Description: specimen\n")
        changelog = "torch-musa (2.7.1-1) unstable; urgency=low\n\n  * Specimen.\n\n"
        signature = " -- A <a@example.org>  Mon, 30 Nov 2026 12:00:00 +0000\n"
        (tree / "debian" / "changelog").write_text(changelog + signature)
    return tree


@pytest.mark.distro
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", ["quilt", "git-am", "git-apply", "patch", "debian"])
def test_stock_commands_lead_to_the_pinned_bytes(tmp_path: Path, name: str, release: str) -> None:
    tree = prepared(tmp_path, release, name)
    done = run(BLOCKS[name], release, tree, tree)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.distro
@pytest.mark.parametrize("name", ["quilt", "git-am", "git-apply", "patch", "debian"])
def test_stock_commands_fail_on_another_tree(tmp_path: Path, name: str) -> None:
    tree = prepared(tmp_path, "2.7.1", name)
    (tree / "torch_musa" / "__init__.py").write_text("other = 1\n")
    assert run(BLOCKS[name], "2.7.1", tree, tree).returncode != 0


def test_the_packagers_commands_end_as_they_began(tmp_path: Path) -> None:
    tree = copy_specimen(tmp_path / "torch_musa src")
    before = contents(tree)
    block = BLOCKS["packager"].replace("python3 apply.py", f"{sys.executable} apply.py")
    block = re.sub(r"apply\.py (\w+)", rf"apply.py \1 --stacks '{STACKS}'", block)
    done = run(block, "2.7.1", tree, ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "applied 3 patches" in done.stdout
    assert "already so" in done.stdout
    assert contents(tree) == before


def exported(folder: Path, name: str) -> dict[str, str]:
    """Lay out what an export needs that a packager has; return the names that the README uses for it."""
    tree = prepared(folder, "2.7.1", {"export-debian": "debian", "export-mbox": "git-am"}.get(name, ""))
    places = {"SOURCE": tree, "SOURCES": folder / "SOURCES", "SPEC": folder / "torch-musa.spec", "MBOX": folder / "m"}
    if name == "export-rpm":
        places["SOURCES"].mkdir()
        tree = tree.rename(folder / "source")  # rpm takes no blank in it
        subprocess.run(["tar", "-czf", places["SOURCES"] / "source.tar.gz", tree.name], cwd=folder, check=True)
        patches = (STACKS / "series" / "2.7.1+specimen").read_text().split()
        numbered = "".join(f"Patch{number}: torch-musa-{patch}\n" for number, patch in enumerate(patches, 9001))
        places["SPEC"].write_text(
            f"Name: torch-musa\nVersion: 1\nRelease: 1\nSummary: x\nLicense: BSD\nSource0: source.tar.gz\n{numbered}\n"
            f"%description\nx\n\n%prep\n%autosetup -p1 -n source\n"
        )
    (folder / "build").mkdir()
    return {"BUILD": str(folder / "build"), **{name: str(path) for name, path in places.items()}}


@pytest.mark.distro
@pytest.mark.parametrize("name", [name for name in BLOCKS if name.startswith("export-")])
def test_exports_lead_to_the_pinned_bytes(tmp_path: Path, name: str) -> None:
    names = exported(tmp_path, name)
    block = re.sub(r"apply\.py (\w+( quilt)?)", rf"apply.py \1 --stacks '{STACKS}'", BLOCKS[name])
    block = block.replace("python3 apply.py", f"{sys.executable} apply.py")
    done = run(block, "2.7.1", tmp_path / "torch_musa src", ROOT, **names)
    assert done.returncode == 0, done.stdout + done.stderr
    if name == "export-rpm":
        assert "Patch9003: torch-musa-0003" in done.stdout
        pins = STACKS / "patches/2.7.1+specimen/result.sha256"
        subprocess.run(["sha256sum", "-c", pins], cwd=tmp_path / "build/source", check=True)


TEXTS = blocks(README, "text")
SERIES = {path.name: path.read_text().split() for path in (ROOT / "series").iterdir()}


@pytest.mark.parametrize("name", ["conda", "nix", "gentoo", "arch"])
def test_texts_for_packages_name_the_patches_in_order(name: str) -> None:
    named = re.findall(r"[\w-]+\.patch", TEXTS[name])
    assert SERIES and all(named == series for series in SERIES.values())


def bash(script: str, cwd: Path, **names: str) -> str:
    done = subprocess.run(
        ["bash", "-euc", script], cwd=cwd, env={**os.environ, **names}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_text_for_gentoo_is_an_array_of_files(tmp_path: Path) -> None:
    stack = STACKS / "patches/2.7.1+specimen"
    for path in bash(
        f'{TEXTS["gentoo"]}\nprintf "%s\\n" "${{PATCHES[@]}}"', tmp_path, FILESDIR=str(stack)
    ).splitlines():
        assert Path(path).parent == stack and Path(path).is_file()


def test_the_text_for_arch_leads_to_the_pinned_bytes(tmp_path: Path) -> None:
    tree = copy_specimen(tmp_path / "torch_musa-2.7.1")
    stack = STACKS / "patches/2.7.1+specimen"
    for path in stack.glob("*.patch"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    bash(f"{TEXTS['arch']}\nprepare", tmp_path, srcdir=str(tmp_path), pkgver="2.7.1")
    assert bash(f"sha256sum -c '{stack}/result.sha256'", tree).count(": OK") == 4


def test_the_text_for_a_container_is_one_command_of_ours() -> None:
    wanted = {
        "docker": ("apply", "/opt/torch_musa", {"tests": "import"}),
        "docker-installed": ("apply", "", {"installed": ""}),
    }
    for name, parsed in wanted.items():
        copied, command = TEXTS[name].splitlines()
        ours = command.partition(f"python3 {copied.split(' ')[-1]}/apply.py ")[2]
        assert cli.parse(ours.split(" ")) == parsed, name


def test_the_commands_for_an_installed_package_and_a_wheel_run(tmp_path: Path) -> None:
    wheel = installs.specimen_wheel(tmp_path)
    python = installs.environment(tmp_path / "an env", sys.executable, "--without-pip")
    installs.add_pip(python)
    site = installs.site_of(python)
    installs.unpack(wheel, site)
    before = contents(site / "torch_musa")
    (tmp_path / "out").mkdir()
    variables = f"EXE='{python}' WHEEL='{wheel}' OUT='{tmp_path}/out'\n"
    for name in ("installed", "wheel"):
        block = BLOCKS[name].replace("python3 apply.py", f"{sys.executable} apply.py")
        block = re.sub(r"apply\.py (\w+)", rf"apply.py \1 --stacks '{STACKS}'", block)
        done = run(variables + block, "2.7.1", tmp_path, ROOT)
        assert done.returncode == 0, done.stdout + done.stderr
    assert contents(site / "torch_musa") == before
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["torch_musa-2.7.1+initfix1-py3-none-any.whl"]


def table(heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    text = README.split(f"\n{heading}\n", 1)[1]
    rows = re.findall(r"^\|(.*)\|$", text.split("\n#", 1)[0], re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in rows[2:]]


def test_exit_codes_are_those_of_the_code() -> None:
    assert table("### Exit codes") == [[str(code.value), meaning] for code, meaning in MEANING.items()]


def test_states_are_those_of_the_code() -> None:
    assert [row[0].strip("`") for row in table("### States")] == [standing.value for standing in Standing]


def test_the_figures_of_the_cases_are_those_of_the_folders() -> None:
    cases = list((ROOT / "tests" / "cases").iterdir())
    said = [line for case in cases for file in case.glob("tools.txt") for line in file.read_text().split("\n")]
    words = ("same", "refuses", "half", "differs")
    patch, git = ([said.count(f"{tool}: {word}") for word in words] for tool in ("patch -F0", "git apply"))
    after = sum((case / "after").is_dir() for case in cases)
    figures = [len(cases), after, len(cases) - after, *patch, *git]
    (told,) = re.findall(r"^- \*\*Cases\.\*\*(.*?)^- ", README, re.M | re.S)
    assert [int(number) for number in re.findall(r"(?<!-F)\b\d+\b", told)] == figures


def test_every_verb_is_told() -> None:
    for verb in cli.VERBS:
        assert re.search(rf"`(apply\.py )?{verb}[ `]", README), verb


def test_json_keys_are_told() -> None:
    told = README.split("### JSON", 1)[1].split("\n#", 1)[0]
    printed = set(Outcome._fields) - {"interrupted"} | {"schema"}
    assert {key for key in printed if f"`{key}`" not in told} == set()


def test_links_into_the_readme_lead_somewhere() -> None:
    headings = {
        re.sub(r"[^a-z0-9 -]", "", text.lower()).replace(" ", "-")
        for text in re.findall(r"^#+ (.*)$", README, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([a-z0-9-]+)\)", README)) <= headings
    for path in re.findall(r"\]\(([A-Z]+(?:\.md)?)\)", README):
        assert (ROOT / path).is_file()
