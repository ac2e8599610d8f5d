"""From patches to commits and back nothing changes; an edited commit changes its own patch and what follows from it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stack.errors import Environment, Malformed, Refused, Usage
from stack.outcome import Outcome
from stack.paths import JOURNAL
from stack.pins import format_pins
from stack.refresh import refresh
from stack.store import Store
from stack.sums import SUMS, digests
from tests.conftest import INIT, LAZY_INIT, ROOT, STACKS, RunCli, contents, copy_specimen
from tests.stacks import git
from tests.stock_tools import RELEASES
from tests.test_commits import BODY, commit, repository
from verify.lint_sums import check_sums
from verify.port_command import lint_files

NAME = "2.7.1+specimen"
FIRST, SECOND, THIRD = Store(str(STACKS)).release(NAME).series
FOLDER = f"patches/{NAME}"


class Desk:
    """A stacks folder, and a work tree whose commits are the patches of one of its releases."""

    def __init__(self, where: Path, release: str = "2.7.1") -> None:
        self.name = f"{release}+specimen"
        self.stacks = where / "stacks"
        shutil.copytree(STACKS, self.stacks)
        self.tree = repository(copy_specimen(where / "tree", release))
        (self.tree / "local.txt").write_text("a commit of the fork's own\n")
        commit(self.tree, "a local change", "Nothing that a stack touches.\n")
        git(self.tree, "am", "-q", *(str(path) for path in self.patches))
        self.before = contents(self.stacks)

    @property
    def patches(self) -> list[Path]:
        names = Store(str(self.stacks)).release(self.name).series
        return [self.stacks / "patches" / self.name / name for name in names]

    def refresh(self) -> Outcome:
        return refresh(self.name, str(self.tree), Store(str(self.stacks)), lint_files)

    def changed(self) -> dict[str, str]:
        """Return what is otherwise than at first, by label: new, changed or gone. SHA256SUMS has followed it."""
        now = contents(self.stacks)
        assert list(check_sums(Store(str(self.stacks)))) == []
        sums = now.pop(SUMS) != self.before[SUMS]
        both = {label: "changed" for label in now if label in self.before and now[label] != self.before[label]}
        gone = {label: "gone" for label in self.before if label not in now and label != SUMS}
        changes = {**both, **gone, **{label: "new" for label in now if label not in self.before}}
        assert sums == bool(changes)
        return changes

    def sum_up(self) -> None:
        """Take the stacks as they are for the state before the refresh."""
        labels = digests(Store(str(self.stacks)))
        (self.stacks / SUMS).write_bytes(format_pins(labels))
        self.before = contents(self.stacks)

    def amend(self, steps: int, edit: Callable[[], None], message: str = "") -> None:
        """Change the commit that is `steps` below HEAD, and put the later ones on top of it again."""
        later = git(self.tree, "rev-list", "--reverse", f"HEAD~{steps}..HEAD").decode().split()
        git(self.tree, "checkout", "-q", "--detach", f"HEAD~{steps}")
        edit()
        git(self.tree, "add", "-A")
        said = ["-m", message] if message else ["--no-edit"]
        git(self.tree, "commit", "-q", "--amend", "--cleanup=verbatim", *said)
        for one in later:
            git(self.tree, "cherry-pick", one)

    def message(self, steps: int) -> str:
        return git(self.tree, "show", "-s", "--format=%B", f"HEAD~{steps}").decode().rstrip("\n") + "\n"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def _append(path: Path, text: str) -> None:
    path.write_bytes(path.read_bytes() + text.encode())


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("release", RELEASES)
def test_round_trip_changes_no_byte(tmp_path: Path, release: str) -> None:
    desk = Desk(tmp_path, release)
    outcome = desk.refresh()
    assert (outcome.outcome, outcome.data["changed"]) == ("already so", [])
    assert desk.changed() == {}


@pytest.mark.parametrize("release", RELEASES)
def test_what_git_exports_is_our_own_patches(tmp_path: Path, release: str) -> None:
    """Nothing is kept here: the patches are made from the commits alone."""
    desk = Desk(tmp_path, release)
    for path in desk.patches:
        path.unlink()
    assert desk.refresh().outcome == "refreshed"
    assert desk.changed() == {}


def test_an_amended_message_changes_its_own_patch_alone(desk: Desk) -> None:
    desk.amend(1, lambda: None, desk.message(1).replace("behaviour stays the same", "nothing behaves otherwise"))
    assert desk.refresh().outcome == "refreshed"
    assert desk.changed() == {f"{FOLDER}/{SECOND}": "changed"}


def test_amended_content_changes_its_patch_and_the_result_pins(desk: Desk) -> None:
    desk.amend(2, lambda: _replace(desk.tree / INIT, "would keep the value from", "would keep its value from"))
    desk.refresh()
    assert desk.changed() == {f"{FOLDER}/{name}": "changed" for name in (FIRST, "fingerprint.json", "result.sha256")}
    assert _applies(desk)


def test_the_blob_ids_of_later_patches_follow(desk: Desk) -> None:
    _replace(desk.tree / INIT, "A miniature torch_musa:", "A small torch_musa:")
    commit(desk.tree, "say small", BODY)
    desk.refresh()
    fourth = desk.stacks / FOLDER / "0004-say-small.patch"
    old = fourth.read_bytes()
    desk.before = contents(desk.stacks)
    desk.amend(3, lambda: _replace(desk.tree / INIT, "would keep the value from", "would keep its value from"))
    desk.refresh()
    changed = {f"{FOLDER}/{name}": "changed" for name in (FIRST, fourth.name, "fingerprint.json", "result.sha256")}
    assert desk.changed() == changed
    lines = list(zip(old.splitlines(), fourth.read_bytes().splitlines(), strict=True))
    assert [one[:6] for one, other in lines if one != other] == [b"index "]


def _applies(desk: Desk) -> bool:
    """Whether the stack, by the stock tool, leads to the tree of HEAD."""
    head = git(desk.tree, "rev-parse", "HEAD^{tree}")
    base = desk.refresh().data["base"]
    git(desk.tree, "checkout", "-q", "--detach", base)
    git(desk.tree, "am", "-q", *(str(path) for path in desk.patches))
    return git(desk.tree, "rev-parse", "HEAD^{tree}") == head


def _add_last(desk: Desk) -> None:
    _append(desk.tree / "torch_musa/core/device.py", "# more\n")
    commit(desk.tree, "say more")


def _add_first(desk: Desk) -> None:
    later = git(desk.tree, "rev-list", "--reverse", "HEAD~3..HEAD").decode().split()
    git(desk.tree, "checkout", "-q", "--detach", "HEAD~3")
    _add_last(desk)
    git(desk.tree, "cherry-pick", *later)


ADDED = {"last": (_add_last, [FIRST, SECOND, THIRD, "0004-say-more.patch"]), "first": (_add_first, [])}


@pytest.mark.parametrize(("add", "names"), ADDED.values(), ids=ADDED)
def test_an_added_patch_is_followed_by_series_pins_and_line_digests(
    desk: Desk, add: Callable[[Desk], None], names: list[str]
) -> None:
    add(desk)
    desk.refresh()
    release = Store(str(desk.stacks)).release(NAME)
    moved = [f"{number:04d}-{name[5:]}" for number, name in enumerate([FIRST, SECOND, THIRD], 2)]
    assert list(release.series) == (names or ["0001-say-more.patch", *moved])
    path = "torch_musa/core/device.py"
    assert path in release.base and path in release.result and path in release.fingerprint
    assert json.loads((desk.stacks / FOLDER / "release.json").read_bytes()) == release.about
    assert lint_of(desk) == []
    assert _applies(desk)


def lint_of(desk: Desk) -> list[str]:
    files = {label: shot[0] for label, shot in contents(desk.stacks).items() if NAME in label and shot[0] is not None}
    return lint_files(NAME, {label: data for label, data in files.items() if data is not None})


def test_a_removed_patch_goes_with_its_file(desk: Desk) -> None:
    git(desk.tree, "reset", "-q", "--hard", "HEAD~1")
    desk.refresh()
    changed = {f"{FOLDER}/{name}": "changed" for name in ("base.sha256", "fingerprint.json", "result.sha256")}
    assert desk.changed() == {**changed, f"series/{NAME}": "changed", f"{FOLDER}/{THIRD}": "gone"}
    assert lint_of(desk) == []


def test_a_new_subject_renames_the_patch(desk: Desk) -> None:
    desk.amend(1, lambda: None, desk.message(1).replace("name the queued calls", "spell the queued calls", 1))
    desk.refresh()
    new = SECOND.replace("name-the", "spell-the")
    assert desk.changed() == {f"{FOLDER}/{SECOND}": "gone", f"{FOLDER}/{new}": "new", f"series/{NAME}": "changed"}


def test_comments_of_the_series_stay_with_their_patch(desk: Desk) -> None:
    series = desk.stacks / "series" / NAME
    series.write_text(f"# the stack\n{FIRST}\n# the typo\n{SECOND}\n# the tests\n{THIRD}\n# end\n")
    desk.sum_up()
    assert desk.refresh().outcome == "already so"
    git(desk.tree, "reset", "-q", "--hard", "HEAD~1")
    desk.refresh()
    assert series.read_text() == f"# the stack\n{FIRST}\n# the typo\n{SECOND}\n# end\n"


def test_a_patch_keeps_another_way_to_write_its_mail(desk: Desk) -> None:
    path = desk.stacks / FOLDER / FIRST
    path.write_bytes(
        path.read_bytes().replace(b"From: torch_musa patch maintainers ", b'From: "torch_musa patch maintainers" ')
    )
    desk.sum_up()
    assert desk.refresh().outcome == "already so"


def test_sums_that_are_missing_are_made(desk: Desk) -> None:
    (desk.stacks / SUMS).unlink()
    outcome = desk.refresh()
    assert (outcome.outcome, outcome.data["changed"]) == ("refreshed", [f"{SUMS}: new"])
    assert contents(desk.stacks) == desk.before


def test_an_entry_of_another_release_is_not_put_right_in_silence(desk: Desk) -> None:
    other = desk.stacks / "series" / "2.9.1.post1+specimen"
    other.write_bytes(b"# edited\n" + other.read_bytes())
    desk.refresh()
    assert list(check_sums(Store(str(desk.stacks)))) == [
        ("series/2.9.1.post1+specimen", "has another digest than SHA256SUMS says")
    ]


def test_sums_that_cannot_be_read_are_refused(desk: Desk) -> None:
    (desk.stacks / SUMS).write_text("x\n")
    desk.before = contents(desk.stacks)
    with pytest.raises(Malformed, match="SHA256SUMS:1: not a line of sha256sum"):
        desk.refresh()
    assert contents(desk.stacks) == desk.before


def test_a_new_file_in_another_folder_of_the_release_is_remembered(desk: Desk) -> None:
    (desk.tree / "docs/new.txt").write_text("new\n")
    commit(desk.tree, "add a text")
    desk.refresh()
    about = Store(str(desk.stacks)).release(NAME).about
    assert about["directories"] == ["docs", "tests/unittest/core"]


def _stage(desk: Desk) -> None:
    data = (desk.tree / INIT).read_bytes()
    (desk.tree / INIT).write_bytes(data + b"# staged\n")
    git(desk.tree, "add", INIT)
    (desk.tree / INIT).write_bytes(data)


def _in_rebase(desk: Desk) -> None:
    env = {**os.environ, "GIT_SEQUENCE_EDITOR": "sed -i 2s/^pick/edit/", "GIT_CONFIG_GLOBAL": os.devnull}
    who = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    subprocess.run(
        ["git", *who, "rebase", "-q", "-i", "HEAD~3"], cwd=desk.tree, env=env, check=True, capture_output=True
    )


def _at_the_base(desk: Desk) -> None:
    git(desk.tree, "reset", "-q", "--hard", "HEAD~3")


def _another_base(desk: Desk) -> None:
    shutil.rmtree(desk.tree)
    repository(copy_specimen(desk.tree, "2.9.1.post1"))


def _no_drop(desk: Desk) -> None:
    desk.amend(0, lambda: None, desk.message(0).replace("Drop this patch when", "Keep this patch until"))


def _not_ours(desk: Desk) -> None:
    _append(desk.tree / INIT, "# more\n")
    commit(desk.tree, "a local change", "No fields.\n")


REFUSED: dict[str, tuple[Callable[[Desk], object], str]] = {
    "edited": (lambda desk: _append(desk.tree / INIT, "# edit\n"), f"differs from HEAD: {INIT}"),
    "mode": (lambda desk: (desk.tree / LAZY_INIT).chmod(0o755), "differs from HEAD"),
    "deleted": (lambda desk: (desk.tree / LAZY_INIT).unlink(), f"differs from HEAD: {LAZY_INIT}"),
    "staged": (_stage, f"differs from HEAD: {INIT}"),
    "in-a-rebase": (_in_rebase, "in the middle of a rebase"),
    "no-commit-after-the-base": (_at_the_base, "is HEAD: there is no commit after it"),
    "no-such-base": (_another_base, "no ancestor of HEAD has the touched files"),
    "lint": (_no_drop, r"no paragraph says when to drop the patch \[body-drop\]"),
    "commit-without-fields": (_not_ours, 'commit .* \\("a local change"\\): cannot be a patch'),
}


@pytest.mark.parametrize(("spoil", "reason"), REFUSED.values(), ids=REFUSED)
def test_refuses_and_writes_nothing(desk: Desk, spoil: Callable[[Desk], object], reason: str) -> None:
    spoil(desk)
    with pytest.raises(Refused, match=reason):
        desk.refresh()
    assert desk.changed() == {}


def test_an_edit_of_another_file_is_no_reason_to_refuse(desk: Desk) -> None:
    (desk.tree / "version.txt").write_text("other\n")
    (desk.tree / "untracked").write_text("x\n")
    assert desk.refresh().outcome == "already so"


def test_refuses_what_is_no_work_tree_or_no_release(desk: Desk, tmp_path: Path) -> None:
    with pytest.raises(Usage, match="not the top of a git work tree"):
        refresh(NAME, str(desk.tree / "docs"), Store(str(desk.stacks)), lint_files)
    with pytest.raises(Usage, match="has no stack here"):
        refresh("9.9", str(desk.tree), Store(str(desk.stacks)), lint_files)


def test_a_failure_between_two_files_leaves_all_as_it_was(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    git(desk.tree, "reset", "-q", "--hard", "HEAD~1")
    rename, calls = os.rename, []

    def fail(*args: object, **kwargs: object) -> None:
        calls.append(args)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        rename(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(Environment, match="No space left"):
        desk.refresh()
    monkeypatch.undo()
    assert len(calls) > 2 and desk.changed() == {}


_KILLED = """
import os, sys
from stack.pins import format_pins
from stack.refresh import refresh
from stack.store import Store
from stack.sums import SUMS, digests
rename, calls = os.rename, []
def die(*args, **kwargs):
    calls.append(args)
    if len(calls) == 3: os._exit(9)
    rename(*args, **kwargs)
os.rename = die
refresh(sys.argv[1], sys.argv[2], Store(sys.argv[3]), lambda name, files: [])
"""


def test_a_kill_loses_nothing(desk: Desk) -> None:
    """The next run first puts back what was there, then does the work."""
    git(desk.tree, "reset", "-q", "--hard", "HEAD~1")
    argv = [sys.executable, "-c", _KILLED, NAME, str(desk.tree), str(desk.stacks)]
    assert subprocess.run(argv, cwd=ROOT, check=False).returncode == 9
    assert (desk.stacks / JOURNAL / "record").is_file()
    assert desk.refresh().outcome == "refreshed"
    assert not (desk.stacks / JOURNAL).exists()
    assert not (desk.stacks / FOLDER / THIRD).exists() and lint_of(desk) == []


def test_the_command(desk: Desk, run_cli: RunCli) -> None:
    ran = run_cli("refresh", NAME, desk.tree, "--stacks", desk.stacks, "--json")
    assert (ran.code, json.loads(ran.stdout)["outcome"]) == (0, "already so")
    ran = run_cli("refresh", desk.tree, "--stacks", desk.stacks)
    assert ran.code == 2 and "expected RELEASE and WORKTREE, got 1" in ran.stderr
    assert "RELEASE WORKTREE" in run_cli("refresh", "--help").stdout
    assert run_cli("refresh", "9.9", desk.tree, "--stacks", desk.stacks).code == 2
