"""git, run through GitPython, alone with the repository: nothing of the user's set-up counts.

Every command gets a complete environment (env -i): GitPython itself would hand on the GIT_* that it
finds. SETTINGS outweigh what the repository's own configuration says; each has its reason.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from stack.errors import Environment
from stack.gitenv import OFFLINE, SECONDS, search_path

_NOTHING = os.devnull
SETTINGS = (
    f"core.hooksPath={_NOTHING}",  # no hook runs: reference-transaction, post-index-change, post-checkout
    f"core.attributesFile={_NOTHING}",
    "core.fsmonitor=",  # empty, not false: before 2.36 the value is a program, and `false` is one
    "core.autocrlf=false",  # rewrites bytes
    "core.splitIndex=false",  # would leave a shared index beside a temporary one
    "i18n.commitEncoding=UTF-8",  # would put another encoding into the commit, or a header
    "mailinfo.scissors=false",  # would drop a part of the message
    "protocol.allow=never",  # for a clone, which alone has any: ext:: runs a program
    *(f"protocol.{name}.allow=always" for name in ("file", "git", "http", "https", "ssh")),
)
_ALWAYS = ("USER", "LOGNAME", "TMPDIR", "LD_LIBRARY_PATH")
# Where the user's configuration is, and who the user is: for questions about just that. SUDO_UID: with it git
# trusts the repositories of the user who called sudo.
_USER = (
    *("HOME", "XDG_CONFIG_HOME", "EMAIL", "SUDO_UID"),
    *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"),
)
_COMMITTER = ("GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_COMMITTER_DATE")
# How to reach a server: a proxy, certificates, an ssh agent, and HOME for .ssh and .netrc.
_NETWORK = (
    *("HOME", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"),
)
_ALONE = {
    "HOME": _NOTHING,
    "XDG_CONFIG_HOME": _NOTHING,
    "GIT_CONFIG_GLOBAL": _NOTHING,
    "GIT_CONFIG_SYSTEM": _NOTHING,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_GRAFT_FILE": _NOTHING,
    "GIT_NO_REPLACE_OBJECTS": "1",  # a replacement would stand in for the real HEAD
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
_GET_GITPYTHON = "Commits and clones need it: apt install python3-git, or pip install GitPython."
_GET_GIT = "Commits and clones need it: apt install git. Without them, no option of apply needs git."


class Answer(NamedTuple):
    """What a command came to."""

    code: int
    out: bytes
    error: str


class Git(NamedTuple):
    """git in one directory, with one complete environment and the settings for every command.

    keep: descriptors that git inherits. With that of a locked tree the lock lasts until git has ended, though we
    were killed: no later run meets a git that still works for an earlier one.
    seconds: a command that takes longer is ended; None where a server may take its time.
    """

    folder: str
    env: Mapping[str, str]
    settings: tuple[str, ...] = SETTINGS
    keep: tuple[int, ...] = ()
    seconds: float | None = SECONDS

    def run(self, *args: str, data: bytes = b"", **env: str) -> Answer:
        """Run one command with data on its standard input; env is added for this one.

        Raises Environment when there is no GitPython or no git.
        """
        from shutil import which
        from subprocess import TimeoutExpired
        from tempfile import TemporaryFile

        library = gitpython()
        pairs = [f"{key}={value}" for key, value in {**self.env, **env}.items()]
        settings = [word for setting in self.settings for word in ("-c", setting)]
        argv = [which("env", path=self.env["PATH"]) or "/usr/bin/env", "-i", *pairs, "git", *settings, *args]
        with TemporaryFile() as file:
            file.write(data)
            file.seek(0)
            # GitPython ends the process when its wrapper goes: the name keeps it.
            wrapper = library.cmd.Git(self.folder).execute(argv, istream=file, as_process=True, pass_fds=self.keep)
            process = wrapper.proc
            try:
                out, error = process.communicate(timeout=self.seconds)
            except BaseException as cause:
                process.terminate()  # an interrupted run leaves no git at work behind it
                process.wait()
                if isinstance(cause, TimeoutExpired):
                    why = f"{self.folder}: git {args[0]} has not ended in {self.seconds:g} s, and was ended"
                    raise Environment(why) from cause
                raise
        return Answer(process.returncode, out, error.decode("utf-8", "replace").strip())

    def read(self, *args: str, data: bytes = b"", **env: str) -> bytes:
        """Run one command that must not fail; return its output."""
        answer = self.run(*args, data=data, **env)
        if answer.code:
            raise Environment(f"{self.folder}: git {args[0]} failed with code {answer.code}: {answer.error}")
        return answer.out

    def ask(self, *args: str, data: bytes = b"", **env: str) -> str:
        """Run one command that must not fail; return its output as text, without the last newline."""
        return os.fsdecode(self.read(*args, data=data, **env).removesuffix(b"\n"))

    def adding(self, **env: str) -> Git:
        """Return the same with more in its environment."""
        return self._replace(env={**self.env, **env})


def alone(folder: str, git_dir: str) -> Git:
    """Return git on a known repository whose work tree is folder, without the user's configuration."""
    return Git(folder, {**_always(), **_ALONE, **OFFLINE, "GIT_DIR": git_dir, "GIT_WORK_TREE": folder})


def online(folder: str) -> Git:
    """Return git for a clone: without the user's configuration, but with the way to a server."""
    return Git(folder, {**_always(), **_ALONE, **_taken(_NETWORK)}, seconds=None)


def asking_user(folder: str) -> Git:
    """Return git with the user's configuration, for what only that knows: who the committer is, and
    whose repositories are safe (git manual, safe.directory). Such a command runs no program of it."""
    return Git(folder, {**_always(), **OFFLINE, **_taken((*_USER, *_COMMITTER))}, ("user.useConfigOnly=true",))


def _always() -> dict[str, str]:
    return {**_taken(_ALWAYS), "PATH": search_path(), "LC_ALL": "C"}


def _taken(names: tuple[str, ...]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def gitpython() -> Any:
    """Return the module git; raise Environment with what to install. It runs a git of PATH when it is imported."""
    import shutil

    program = shutil.which("git", path=search_path())
    if program is None:
        raise Environment("git is not found", _GET_GIT)
    os.environ["GIT_PYTHON_GIT_EXECUTABLE"] = program
    try:
        import git
    except ImportError as error:
        missing = (error.name or "").partition(".")[0] in ("git", "gitdb", "smmap")
        what = "GitPython is not installed" if missing else f"GitPython cannot be used: {error}"
        raise Environment(what, _GET_GITPYTHON) from error
    return git
