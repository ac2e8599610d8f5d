"""apply --clone: from nothing to a patched tree with one command, or nothing at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import INIT, ROOT, STACKS, RunCli, contents
from repositories import NOBODY, WHO, am, commits, head, hostile_home, patches, specimen_repository
from stacks import git

from stack.paths import JOURNAL

ENV = {**NOBODY, **WHO}


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """A repository with blanks in its path: main, a branch, a tag, and a tag that has another tree."""
    tree = specimen_repository(tmp_path / "up stream")
    git(tree, "tag", "v2.7.1")
    git(tree, "branch", "release/2.7")
    (tree / INIT).write_bytes((tree / INIT).read_bytes() + b"# mine\n")
    git(tree, "commit", "-q", "-am", "drift")
    git(tree, "tag", "drifted")
    return tree


def clone(run_cli: RunCli, url: object, ref: str, dest: Path, *more: str) -> tuple[int, str]:
    ran = run_cli("apply", "--tests", "none", f"--clone={url}", f"--ref={ref}", *more, dest, env=ENV)
    return ran.code, ran.stdout + ran.stderr


def pinned(tree: Path) -> bool:
    pins = STACKS / "patches" / "2.7.1+specimen" / "result.sha256"
    return subprocess.run(["sha256sum", "--strict", "--quiet", "-c", pins], cwd=tree).returncode == 0


@pytest.mark.parametrize("kind", ["path", "bare", "file URL"])
def test_clones_and_applies(kind: str, upstream: Path, tmp_path: Path, run_cli: RunCli) -> None:
    source: object = upstream
    if kind == "bare":
        git(tmp_path, "clone", "-q", "--bare", str(upstream), "bare.git")
        source = tmp_path / "bare.git"
    if kind == "file URL":
        source = f"file://{upstream}"
    code, said = clone(run_cli, source, "v2.7.1", tmp_path / "new tree")
    assert code == 0, said
    assert pinned(tmp_path / "new tree")
    assert not git(tmp_path / "new tree", "fsck", "--strict")


@pytest.mark.parametrize("ref", ["v2.7.1", "release/2.7", "v2.7.1^0", "commit"])
def test_every_kind_of_ref_with_commits(ref: str, upstream: Path, tmp_path: Path, run_cli: RunCli) -> None:
    base = git(upstream, "rev-parse", "v2.7.1").decode().strip()
    dest = tmp_path / "dest"
    dest.mkdir(mode=0o700)
    code, said = clone(run_cli, upstream, base if ref == "commit" else ref, dest, "--commit")
    assert code == 0, said
    other = tmp_path / "other"
    git(tmp_path, "clone", "-q", "-b", "v2.7.1", str(upstream), "other")
    am(other, *patches("2.7.1+specimen"))
    assert commits(dest, base) == commits(other, base)
    assert git(dest, "status", "--porcelain") == b""
    branch = git(dest, "rev-parse", "--abbrev-ref", "HEAD").decode().strip()
    assert branch == ("release/2.7" if ref == "release/2.7" else "HEAD")
    assert dest.stat().st_mode & 0o777 == 0o700


def test_the_default_branch_is_checked_out_too(upstream: Path, tmp_path: Path, run_cli: RunCli) -> None:
    git(upstream, "reset", "-q", "--hard", "v2.7.1")
    code, said = clone(run_cli, upstream, "main", tmp_path / "dest", "--commit", "--branch", "fixed")
    assert code == 0, said
    assert (tmp_path / "dest/.git/HEAD").read_text() == "ref: refs/heads/fixed\n"


def test_no_configuration_template_or_attribute_counts(upstream: Path, tmp_path: Path, run_cli: RunCli) -> None:
    git(upstream, "checkout", "-q", "v2.7.1")
    (upstream / ".gitattributes").write_text("*.py text eol=crlf filter=evil ident\n")
    git(upstream, "add", ".gitattributes")
    git(upstream, "commit", "-q", "-m", "attributes")
    git(upstream, "tag", "attributed")
    env = hostile_home(tmp_path / "home", tmp_path / "marker")
    dest = tmp_path / "dest"
    args = ("apply", "--tests", "none", "--clone", upstream, "--ref", "attributed", "--commit", dest)
    ran = run_cli(*args, env=env)
    assert ran.code == 0, ran.stderr
    assert pinned(dest) and not (tmp_path / "marker").exists()
    assert not (dest / ".git" / "hooks").exists() and not (dest / ".git" / "info").exists()
    # The set-up bites: stock git in the same home runs a hook, and without hooks has other bytes.
    only = {"HOME": env["HOME"], "PATH": os.environ["PATH"]}
    argv = ["git", "clone", "-q", "-b", "attributed", str(upstream), "stock"]
    assert (
        subprocess.run(argv, cwd=tmp_path, env=only, capture_output=True).returncode and (tmp_path / "marker").exists()
    )
    quiet = ["-c", "core.hooksPath=/dev/null", "-c", "filter.evil.smudge=cat"]
    subprocess.run([argv[0], *quiet, *argv[1:]], cwd=tmp_path, env=only, capture_output=True)
    assert b"\r\n" in (tmp_path / "stock" / INIT).read_bytes()


REFUSED = {
    "wrong ref": ("{upstream}", "v0", 1, "no branch, tag or commit v0"),
    "drifted": ("{upstream}", "drifted", 1, "no known release"),
    "no such path": ("/nonexistent/x", "v2.7.1", 4, "cannot be cloned"),
    "no repository": ("{tmp}", "v2.7.1", 4, "cannot be cloned"),
    "ext": ("ext::sh -c 'touch {tmp}/ran'", "v2.7.1", 2, "no address"),
    "fd": ("fd::3", "v2.7.1", 2, "no address"),
    "file with two colons": ("file::{upstream}", "v2.7.1", 2, "no address"),
    "unknown scheme": ("foo://x/y", "v2.7.1", 2, "foo:// is not cloned from"),
    "option as URL": ("--upload-pack=touch {tmp}/ran", "v2.7.1", 2, "no address"),
    "option as ref": ("{upstream}", "--detach", 2, "no branch, tag or commit"),
    "newline in URL": ("{upstream}\nx", "v2.7.1", 2, "no address"),
}


@pytest.mark.parametrize("before", ["absent", "empty"])
@pytest.mark.parametrize("url, ref, code, message", REFUSED.values(), ids=REFUSED)
def test_refuses_and_leaves_no_clone(
    url: str, ref: str, code: int, message: str, before: str, upstream: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    dest = tmp_path / "dest"
    if before == "empty":
        dest.mkdir()
    got, said = clone(run_cli, url.format(upstream=upstream, tmp=tmp_path), ref, dest)
    assert (got, message in said) == (code, True), said
    assert dest.exists() == (before == "empty") and not (before == "empty" and list(dest.iterdir()))
    assert not (tmp_path / "ran").exists()


def test_a_password_in_the_url_is_not_shown(tmp_path: Path, run_cli: RunCli) -> None:
    code, said = clone(run_cli, "http://user:secret@127.0.0.1:9/x", "v1", tmp_path / "dest")
    assert code == 4 and "secret" not in said and "*****@127.0.0.1" in said


@pytest.mark.parametrize("what", ["file", "full directory", "no parent"])
def test_refuses_a_dest_in_use(what: str, upstream: Path, tmp_path: Path, run_cli: RunCli) -> None:
    dest = tmp_path / "place" / "dest"
    if what != "no parent":
        dest.parent.mkdir()
    if what == "file":
        dest.write_text("mine")
    if what == "full directory":
        dest.mkdir()
        (dest / ".hidden").write_text("mine")
    before = contents(tmp_path)
    code, said = clone(run_cli, upstream, "v2.7.1", dest)
    assert code in (1, 4) and str(dest) in said, said
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "options",
    [["--clone", "x"], ["--ref", "x"], ["--branch", "x"], ["--clone", "x", "--ref", "y", "--dry-run"]],
    ids=" ".join,
)
def test_options_that_do_not_go_together(options: list[str], tmp_path: Path, run_cli: RunCli) -> None:
    ran = run_cli("apply", "--tests", "none", *options, tmp_path / "dest")
    assert ran.code == 2 and not (tmp_path / "dest").exists()


def test_an_interrupted_clone_leaves_nothing_and_no_git_at_work(tmp_path: Path) -> None:
    """A server that never answers; the interrupt goes to our process alone."""
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        url = f"git://127.0.0.1:{server.getsockname()[1]}/x"
        args = [
            "apply",
            "--tests",
            "none",
            "--clone",
            url,
            "--ref",
            "v1",
            "--stacks",
            str(STACKS),
            str(tmp_path / "dest"),
        ]
        child = subprocess.Popen([sys.executable, str(ROOT / "apply.py"), *args], stderr=subprocess.PIPE)
        connection, _ = server.accept()
        assert (tmp_path / "dest" / JOURNAL / "tree" / ".git").exists()
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=30)
        assert child.returncode == 130, said
        assert not (tmp_path / "dest").exists()
        connection.settimeout(10)
        while connection.recv(4096):  # what git had asked; then its end of the line closes
            time.sleep(0)
        connection.close()


def test_a_failed_proof_leaves_no_clone_unless_kept(upstream: Path, tmp_path: Path) -> None:
    from stack import commands
    from stack.clone import clone_and
    from stack.commands import Proof
    from stack.outcome import Outcome
    from stack.store import Store

    dest = tmp_path / "dest"

    def unproven(*_: object) -> Proof:
        return Proof(False, "not proven")

    def job(keep: bool) -> Outcome:
        return commands.apply(str(dest), Store(str(STACKS)), commands.How(prove=unproven, keep=keep))

    outcome = clone_and(str(upstream), "v2.7.1", str(dest), lambda: job(False), False)
    assert outcome.exit == 5 and "removed again" in outcome.message and not dest.exists()
    outcome = clone_and(str(upstream), "v2.7.1", str(dest), lambda: job(True), True)
    assert outcome.exit == 5 and pinned(dest) and head(dest)


@pytest.mark.parametrize("at", ["_clone", "_check_out", "_unmark"])
def test_what_a_killed_clone_leaves_is_named_with_what_to_do(
    at: str, upstream: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    import shlex

    from stack import clone as cloning

    dest = tmp_path / "dest"
    child = os.fork()
    if not child:
        setattr(cloning, at, lambda *args: os._exit(99))
        cloning.clone_and(str(upstream), "v2.7.1", str(dest), lambda: os._exit(1), False)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 99
    command = f"rm -r {dest}"
    assert command in run_cli("status", dest).stdout
    for verb in ("apply", "unapply", "recover"):
        ran = run_cli(verb, dest)
        assert ran.code == 4 and command in ran.stderr
    code, said = clone(run_cli, upstream, "v2.7.1", dest)
    assert code == 1 and command in said
    subprocess.run(shlex.split(command), check=True)
    assert clone(run_cli, upstream, "v2.7.1", dest)[0] == 0 and pinned(dest)
