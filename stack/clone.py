"""From nothing to a patched tree: clone, check out, and the main job. On failure DEST is as before.

The clone has no templates, hooks or filters, and its files are the very bytes of the commit. Until it is
whole, DEST has a journal (stack.journal) that says so: after a kill every command names what to do.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable

from stack.errors import Environment, Exit, Refused, StackError, Usage
from stack.gitrun import alone, gitpython, online
from stack.journal import CLONE, clone_tip
from stack.outcome import Outcome
from stack.paths import JOURNAL
from stack.transaction import shielded
from stack.tree import stands

_SCHEMES = ("file", "git", "http", "https", "ssh")
# Unspecified, not unset: git dies of an unset working-tree-encoding (git manual, gitattributes).
_NO_CONVERSION = b"* -text !eol !crlf !ident !filter !working-tree-encoding\n"


def clone_and(url: str, ref: str, dest: str, job: Callable[[], Outcome], keep: bool) -> Outcome:
    """Clone url into dest, check ref out, and run the job on it; return the job's outcome.

    dest: absent, or an empty directory. keep: the clone stays although the job's proof failed.
    Raises Usage for a url or ref that is not plainly one, Refused for a dest that is in use,
    Environment when git cannot clone; then, and when the job fails, dest is as it was.
    """
    source = _source(url)
    if ref.startswith("-") or not ref.isprintable():
        raise Usage(f"--ref {ref!r}: is no branch, tag or commit")
    gitpython()
    made = _claim(dest)
    try:
        _mark(dest)
        _clone(source, dest)
        _check_out(dest, ref)
        _unmark(dest)
        outcome = job()
    except StackError as error:
        gone = _put_back(dest, made)
        raise type(error)(f"{error}\n{gone}", error.tip) from error
    except BaseException:
        _put_back(dest, made)
        raise
    if outcome.exit is Exit.DONE or keep:
        return outcome
    return outcome._replace(message=f"{outcome.message}\n{_put_back(dest, made)}")


def _source(url: str) -> str:
    """Return what git shall clone; raise Usage for a url that could be more than an address.

    `NAME::ADDRESS` makes git run a program (git manual, gitremote-helpers); `-` starts an option.
    """
    scheme = re.match(r"([^/:]*)://", url)
    if url.startswith("-") or not url.isprintable() or re.match(r"[^/]*?::", url):
        raise Usage(f"--clone {url!r}: is no address that is cloned from", "A path, or https://, ssh://, HOST:PATH.")
    if scheme and scheme[1] not in _SCHEMES:
        raise Usage(f"--clone {url}: {scheme[1]}:// is not cloned from", f"One of {', '.join(_SCHEMES)}.")
    return os.path.abspath(url) if os.path.exists(url) else url


def _claim(dest: str) -> bool:
    """Make dest, or take an empty directory; return whether it was made."""
    try:
        os.mkdir(dest)
        return True
    except FileExistsError:
        pass
    except OSError as error:
        raise Environment(f"{dest}: cannot be made: {error.strerror}") from error
    try:
        if stands(f"{dest}/{JOURNAL}/{CLONE}"):
            raise Refused(f"{dest}: a clone was cut off here, or is still at work", clone_tip(dest))
        if os.listdir(dest):
            raise Refused(f"{dest}: is not empty", "Name a directory that is not there yet, or an empty one.")
    except OSError as error:
        raise Refused(f"{dest}: is no directory that can be cloned into: {error.strerror}") from error
    return False


def _mark(dest: str) -> None:
    os.mkdir(f"{dest}/{JOURNAL}", 0o700)
    os.close(os.open(f"{dest}/{JOURNAL}/{CLONE}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _unmark(dest: str) -> None:
    os.unlink(f"{dest}/{JOURNAL}/{CLONE}")
    os.rmdir(f"{dest}/{JOURNAL}")


def _put_back(dest: str, made: bool) -> str:
    """Take away what was cloned; return that it is so, for the message."""
    with shielded():
        for name in os.listdir(dest):
            path = os.path.join(dest, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        if made:
            os.rmdir(dest)
    return f"{dest}: {'the clone was removed again' if made else 'is empty again'}"


def _clone(source: str, dest: str) -> None:
    shown = re.sub(r"(?<=://)[^/@]*@", "*****@", source)  # it may hold a password
    if sys.stderr and sys.stderr.isatty():
        print(f"cloning {shown}", file=sys.stderr)
    # Beside the mark, for git clones into an empty directory only; then its one entry goes to its place.
    where = os.path.abspath(f"{dest}/{JOURNAL}/tree")
    options = ("--quiet", "--no-checkout", "--template=", "--origin=origin")
    answer = online(os.path.dirname(where)).run("clone", *options, "--", source, where)
    if answer.code:
        raise Environment(
            f"{shown}: cannot be cloned: {answer.error.replace(source, shown)}",
            "If your configuration is needed to reach it, clone it with git yourself, then: apply.py apply DEST.",
        )
    os.rename(f"{where}/.git", f"{dest}/.git")
    os.rmdir(where)


def _check_out(dest: str, ref: str) -> None:
    """Check a branch, tag or commit out, in that order, as git clone --branch would; bytes unconverted."""
    root = os.path.realpath(dest)
    git = alone(root, os.path.join(root, ".git"))
    branch = f"refs/remotes/origin/{ref}"
    if ref != "HEAD" and not git.run("rev-parse", "--verify", "--quiet", f"{branch}^{{commit}}").code:
        args = ["-B", ref, "--track", branch]
    else:
        found = git.run("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        if found.code:
            raise Refused(f"{dest}: the clone has no branch, tag or commit {ref}", "git ls-remote URL lists them.")
        args = ["--detach", found.out.decode().strip()]
    # The highest of all attributes, for this one check-out; no clone has the directory (--template=).
    info = os.path.join(root, ".git", "info")
    os.mkdir(info)
    with open(os.path.join(info, "attributes"), "xb") as file:
        file.write(_NO_CONVERSION)
    git.ask("checkout", "--quiet", *args)
    shutil.rmtree(info)
