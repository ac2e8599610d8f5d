"""Commits become patch files in our form, or are refused by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stack.commits import export_commits
from stack.errors import Refused, Usage
from stack.header import parse_header
from stack.patch import parse_patch
from stack.plan import File, change_file
from stack.plumbing import clean_head
from stack.store import Store
from tests.conftest import SPECIMEN, STACKS, copy_specimen
from tests.stacks import git
from verify.port_command import lint_files

BODY = (
    "Why.\n\nDrop this patch when the test goes.\n\n"
    "Origin: vendor\nBug: https://example.org/1\nForwarded: no\nApplied-Upstream: no\nLast-Update: 2026-11-02\n"
)
Change = Callable[[Path], object]


def patched_specimen(release: str) -> dict[str, bytes]:
    """Return the touched files of the specimen after its stack, by the engine."""
    parts = release.removesuffix("+specimen")
    images: dict[str, File | None] = {}
    for patch in Store(str(STACKS)).release(release).patches:
        for change in patch.files:
            own = SPECIMEN / parts / change.path
            path = own if own.is_file() else SPECIMEN / "2.7.1" / change.path
            before = images.get(change.path) or (File(path.read_bytes(), False) if path.is_file() else None)
            images[change.path] = change_file(before, change, False, patch.name)
    return {path: image.data for path, image in images.items() if image}


def repository(tree: Path) -> Path:
    """Make the tree a repository whose commits have a date and an author of their own."""
    git(tree, "init", "-q", "-b", "main")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "base")
    return tree


def commit(
    tree: Path, subject: str = "change a file", body: str = BODY, author: str = "A Tester <t@example.org>"
) -> str:
    """Commit all that is in the tree; return the id."""
    git(tree, "add", "-A")
    message = f"{subject}\n\n{body}"
    dated = "--date=Mon, 2 Nov 2026 12:00:00 +0100"
    git(tree, "commit", "-q", "--allow-empty", "--cleanup=verbatim", f"--author={author}", dated, "-m", message)
    return git(tree, "rev-parse", "HEAD").decode().strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with one commit: a text of twenty lines, and a script."""
    root = tmp_path / "tree"
    root.mkdir()
    (root / "a.txt").write_text("".join(f"line {n}\n" for n in range(20)))
    (root / "run.sh").write_text("#!/bin/sh\n")
    return repository(root)


def exported(tree: Path) -> dict[str, bytes]:
    base = git(tree, "rev-list", "--max-parents=0", "HEAD").decode().strip()
    return dict(export_commits(str(tree), base, "HEAD"))


def test_a_commit_becomes_a_patch_in_our_form(tree: Path) -> None:
    (tree / "a.txt").write_text((tree / "a.txt").read_text().replace("line 9\n", "line nine\n"))
    commit(tree)
    files = exported(tree)
    assert list(files) == ["0001-change-a-file.patch", "series"]
    assert files["series"] == b"0001-change-a-file.patch\n"
    head, _, diff = files["0001-change-a-file.patch"].decode().partition("---\n")
    mail = "From: A Tester <t@example.org>\nDate: Mon, 2 Nov 2026 12:00:00 +0100\nSubject: change a file\n\n"
    assert head == mail + BODY
    assert diff.startswith("diff --git a/a.txt b/a.txt\nindex ")
    assert "@@ -7,7 +7,7 @@ line 5\n line 6\n line 7\n line 8\n-line 9\n+line nine\n line 10\n" in diff


def test_what_is_exported_passes_lint(specimen: Path) -> None:
    repository(specimen)
    release = Store(str(STACKS)).release("2.7.1+specimen")
    git(specimen, "am", "-q", *[str(STACKS / release.label / name) for name in release.series])
    files = exported(specimen)
    labels = {f"patches/1/{name}": data for name, data in files.items() if name != "series"}
    data = {f"patches/1/{name}": release.read(f"{release.label}/{name}") for name in _DATA}
    assert lint_files("1", {**labels, **data, "series/1": files["series"]}) == []
    assert labels == {f"patches/1/{name}": release.read(f"{release.label}/{name}") for name in release.series}


_DATA = ("base.sha256", "result.sha256", "fingerprint.json", "release.json")


def _mode(tree: Path) -> None:
    (tree / "run.sh").chmod(0o755)


def _new(tree: Path) -> None:
    (tree / "new.sh").write_text("#!/bin/sh\n")
    (tree / "new.sh").chmod(0o755)


def _no_newline(tree: Path) -> None:
    (tree / "a.txt").write_bytes((tree / "a.txt").read_bytes() + b"no newline")


def _bytes(tree: Path) -> None:
    (tree / "a.txt").write_bytes((tree / "a.txt").read_bytes() + b"caf\xe9 \xe2\x80\xa8 \x0b\x0c\r\n")


READ: dict[str, Change] = {
    "mode-alone": _mode,
    "new-executable": _new,
    "deleted": lambda tree: (tree / "a.txt").unlink(),
    "no-final-newline": _no_newline,
    "odd-bytes": _bytes,
    "new-empty-file": lambda tree: (tree / "empty").touch(),
}


@pytest.mark.parametrize("change", READ.values(), ids=READ)
def test_what_is_exported_leads_to_the_commit(tree: Path, change: Change) -> None:
    before = {path.name: File(path.read_bytes(), False) for path in tree.iterdir() if path.is_file()}
    change(tree)
    commit(tree)
    data = exported(tree)["0001-change-a-file.patch"]
    patch = parse_patch(data, "p")
    parse_header(patch.head, "p")
    for one in patch.files:
        after = change_file(before.get(one.path), one, False, "p")
        path = tree / one.path
        assert after == (File(path.read_bytes(), os.access(path, os.X_OK)) if path.is_file() else None)


def _rename(tree: Path) -> None:
    (tree / "a.txt").rename(tree / "b.txt")


def _merge(tree: Path) -> None:
    git(tree, "checkout", "-q", "-b", "side")
    (tree / "side").write_text("x\n")
    commit(tree, "side")
    git(tree, "checkout", "-q", "main")
    (tree / "main").write_text("x\n")
    commit(tree, "main")
    git(tree, "merge", "-q", "--no-ff", "-m", f"a merge\n\n{BODY}", "side")


NOT_EXPORTED: dict[str, tuple[Change, str]] = {
    "empty": (lambda tree: None, "changes nothing"),
    "rename": (_rename, "renames a file to b.txt"),
    "binary": (lambda tree: (tree / "bin").write_bytes(b"\0\1\2"), "Binary files"),
    "link": (lambda tree: (tree / "link").symlink_to("a.txt"), "a symbolic link"),
    "odd-name": (lambda tree: (tree / "a b").write_text("x\n"), "not plain ASCII"),
    "quoted-name": (lambda tree: (tree / "\u00fc").write_text("x\n"), "differ, or are quoted"),
}


@pytest.mark.parametrize(("change", "reason"), NOT_EXPORTED.values(), ids=NOT_EXPORTED)
def test_refuses_a_commit_that_no_stack_can_hold(tree: Path, change: Change, reason: str) -> None:
    change(tree)
    identity = commit(tree)
    with pytest.raises(Refused, match=reason) as caught:
        exported(tree)
    assert str(caught.value).startswith(f'commit {identity[:12]} ("change a file"): ')


def test_refuses_a_merge(tree: Path) -> None:
    _merge(tree)
    with pytest.raises(Refused, match='"a merge".*is a merge'):
        exported(tree)


MESSAGES = {
    "no-fields": ("change a file", "Why.\n", "DEP-3"),
    "subject-of-two-lines": ("change\na file", BODY, "empty line after the mail lines"),
    "sample-diff": ("change a file", "Index: x\n\n" + BODY, "start of a diff"),
    "scissors": ("change a file", "---\n\n" + BODY, "end of the message"),
    "not-ascii": ("change a file", "Caf\u00e9.\n\n" + BODY, "ASCII"),
    "no-name": ("...", BODY, "makes no file name"),
}


@pytest.mark.parametrize(("subject", "body", "reason"), MESSAGES.values(), ids=MESSAGES)
def test_refuses_a_message_that_is_not_in_our_form(tree: Path, subject: str, body: str, reason: str) -> None:
    (tree / "new").write_text("x\n")
    commit(tree, subject, body)
    with pytest.raises(Refused, match=reason):
        exported(tree)


def test_an_author_whose_name_is_not_ascii_is_written_as_mail_has_it(tree: Path) -> None:
    (tree / "new").write_text("x\n")
    commit(tree, author="Jos\u00e9 Tester <t@example.org>")
    (patch,) = [data for name, data in exported(tree).items() if name != "series"]
    path = tree.parent / "0001.patch"
    path.write_bytes(patch)
    git(tree, "reset", "-q", "--hard", "HEAD~1")
    git(tree, "am", "-q", str(path))
    assert git(tree, "show", "-s", "--format=%an <%ae>").decode() == "Jos\u00e9 Tester <t@example.org>\n"


def _settings(tree: Path) -> None:
    """Everything in a repository that changes what git diff says, or runs a program."""
    marker = tree.parent / "ran"
    program = tree.parent / "program"
    program.write_text(f"#!/bin/sh\ntouch '{marker}'\n")
    program.chmod(0o755)
    for key in ("diff.external", "core.fsmonitor", "diff.x.textconv", "diff.x.command", "log.showSignature"):
        git(tree, "config", key, str(program) if key != "log.showSignature" else "true")
    pairs = {"diff.noprefix": "true", "diff.context": "9", "diff.algorithm": "patience", "core.quotePath": "false"}
    for key, value in {
        **pairs,
        "diff.renames": "copies",
        "color.ui": "always",
        "i18n.logOutputEncoding": "utf-16",
    }.items():
        git(tree, "config", key, value)
    (tree / ".git/info").mkdir(exist_ok=True)
    (tree / ".git/info/attributes").write_text("* diff=x -text\n")
    (tree / ".gitattributes").write_text("* binary diff=x\n")


def test_no_setting_of_the_repository_or_the_user_counts(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "a.txt").write_text((tree / "a.txt").read_text().replace("line 9\n", "line nine\n"))
    commit(tree)
    expected = exported(tree)
    _settings(tree)
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(tree.parent / "program"))
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    monkeypatch.setenv("GIT_DIFF_OPTS", "-u0")
    base = git(tree, "rev-list", "--max-parents=0", "HEAD").decode().strip()
    assert dict(export_commits(str(tree), base, _head(tree))) == expected
    assert not (tree.parent / "ran").exists()


def _head(tree: Path) -> str:
    return git(tree, "rev-parse", "HEAD").decode().strip()


def test_replaced_commits_are_not_believed(tree: Path) -> None:
    (tree / "new").write_text("x\n")
    first = commit(tree)
    expected = exported(tree)
    (tree / "new").write_text("y\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "--amend", "--no-edit")
    other = _head(tree)
    git(tree, "reset", "-q", "--hard", first)
    git(tree, "replace", first, other)
    assert exported(tree) == expected


def test_a_linked_work_tree_is_read_like_any_other(tree: Path, tmp_path: Path) -> None:
    (tree / "new").write_text("x\n")
    commit(tree)
    git(tree, "worktree", "add", "-q", str(tmp_path / "linked"), "HEAD")
    assert exported(tmp_path / "linked") == exported(tree)


def test_a_directory_inside_a_repository_is_no_work_tree(tree: Path) -> None:
    inner = tree / "inner"
    inner.mkdir()
    with pytest.raises(Usage, match="not the top of a git work tree"):
        export_commits(str(inner), "HEAD", "HEAD")


def test_head_counts_only_where_the_work_tree_is_clean(tmp_path: Path) -> None:
    tree = repository(copy_specimen(tmp_path / "tree"))
    assert clean_head(str(tree)) == _head(tree)
    (tree / "version.txt").touch()
    index = (tree / ".git/index").read_bytes()
    assert clean_head(str(tree)) == _head(tree)
    assert (tree / ".git/index").read_bytes() == index
    (tree / "version.txt").write_text("other\n")
    assert clean_head(str(tree)) == ""
    git(tree, "add", "-A")
    assert clean_head(str(tree)) == ""
    assert clean_head(str(tree / "torch_musa")) == ""
