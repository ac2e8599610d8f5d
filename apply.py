#!/usr/bin/env python3
"""Carry the fix of torch.musa._initialized into a torch_musa tree, or say exactly why not."""

from __future__ import annotations

import sys

if sys.version_info < (3, 10):  # noqa: UP036 - the one line that an old Python must reach
    sys.exit("apply.py: needs Python 3.10 or later, this is " + sys.version.split()[0])

# getopt, not argparse: argparse and its help machinery take as long as all else that apply does.
import gc
import getopt
import os
from collections.abc import Callable, Mapping
from typing import TextIO

from stack import commands
from stack.errors import Exit, StackError, Usage
from stack.outcome import Outcome, to_json, to_text
from stack.store import Store

# realpath: a link to this file may stand in a directory of programs.
HERE = os.path.dirname(os.path.realpath(__file__))

Options = Mapping[str, str]
"""The options given, by name without dashes; a flag has the value ''."""


def apply(tree: str, store: Store, options: Options) -> Outcome:
    """apply the stack of the release that TREE is, whole or not at all"""
    fork, level = "fork" in options, options.get("tests", "auto")
    if fork and ("keep" in options or level in ("none", "static")):
        raise Usage("--fork needs the proof of the import level at least", "Leave --keep and --tests out.")
    prove = None
    if level != "none":
        from verify.command import prover

        prove = prover(level)
    flags = "dry-run" in options, prove, "keep" in options, fork

    def job(writer: commands.Writer | None = None) -> Outcome:
        return commands.apply(tree, store, commands.How(options.get("release"), *flags, writer or commands.Writer()))

    if not options.keys() & {"commit", "branch", "clone", "ref"}:
        return job()
    if fork:
        raise Usage("--fork does not go with --commit and --clone", "Commit the result yourself.")
    from stack.gitwork import run

    return run(tree, options, job)


def unapply(tree: str, store: Store, options: Options) -> Outcome:
    """take the stack out again: the exact bytes and modes of the release"""
    return commands.unapply(tree, store)


def status(tree: str, store: Store, options: Options) -> Outcome:
    """name the release, the state, and what each touched file is"""
    return commands.status(tree, store)


def verify(tree: str, store: Store, options: Options) -> Outcome:
    """prove or refute the fix in TREE as it stands, patched or not, and write nothing into it"""
    from verify.command import verify as judge

    return judge(tree, store, options.get("level", "auto"), options)


def scan(tree: str, store: Store, options: Options) -> Outcome:
    """list each name that TREE imports from a module that rebinds it: the class of this bug"""
    from verify.command import scan_command

    return scan_command(tree)


def port(tree: str, store: Store, options: Options) -> Outcome:
    """cut a stack for TREE, which no pin matches: the fix as a syntax-aware edit, proven, then written as a release"""
    from verify.port_command import port as run

    return run(tree, store, options)


def refresh(tree: str, store: Store, options: Options) -> Outcome:
    """write the stack of RELEASE anew from the git work tree WORKTREE, whose commits are the patches"""
    from verify.port_command import refresh as run

    return run(tree, store, options)


def releases(tree: str, store: Store, options: Options) -> Outcome:
    """list the releases that have a stack"""
    return commands.releases(store)


def lint(tree: str, store: Store, options: Options) -> Outcome:
    """judge the stacks themselves, and report every finding"""
    from verify.lint import lint_command

    return lint_command(store)


Verb = Callable[[str, Store, Options], Outcome]
VERBS: dict[str, Verb] = {
    verb.__name__: verb for verb in (apply, unapply, status, verify, scan, port, refresh, releases, lint)
}
WITHOUT_TREE = ("releases", "lint")
EVERYWHERE = ("json", "stacks=", "help")
OPTIONS = {
    "apply": ("release=", "dry-run", "tests=", "keep", "fork", "commit", "branch=", "clone=", "ref="),
    "verify": ("level=", "junit=", "html="),
    "port": ("to=", "from=", "accept-lazy-init="),
}
LEVELS = ("auto", "hardware", "simulated", "import", "static")
VALUES = {"tests": (*LEVELS, "none"), "level": LEVELS}


def usage(name: str) -> str:
    """Return the help of one verb, or of all."""
    from stack.usage import of_verb, overview

    what = {verb: run.__doc__ or "" for verb, run in VERBS.items()}
    if not name:
        return overview(__doc__ or "", what)
    known = (*OPTIONS.get(name, ()), *EVERYWHERE)
    return of_verb(name, what[name], known, name not in WITHOUT_TREE)


def parse(argv: list[str]) -> tuple[str, str, dict[str, str]]:
    """Return verb, TREE and options; raise Usage for a command line that is not one."""
    name = argv[0] if argv else ""
    if name in ("-h", "--help"):
        return "", "", {"help": ""}
    if name not in VERBS:
        raise Usage(f"{name or 'no verb'}: expected one of {', '.join(VERBS)}", "apply.py --help")
    try:
        known = [*OPTIONS.get(name, ()), *EVERYWHERE]
        pairs, rest = getopt.gnu_getopt(argv[1:], "h", known)
    except getopt.GetoptError as error:
        raise Usage(f"{name}: {error}", f"apply.py {name} --help") from error
    options = {option.lstrip("-").replace("h", "help", option == "-h"): value for option, value in pairs}
    for option, value in options.items():
        if f"{option}=" in known and not value:
            raise Usage(f"{name}: --{option} has an empty value", f"apply.py {name} --help")
    if name == "refresh" and len(rest) == 2:
        options["release"] = rest.pop(0)
    elif name == "refresh" and "help" not in options:
        raise Usage(f"refresh: expected RELEASE and WORKTREE, got {len(rest)}", "apply.py refresh --help")
    if "help" not in options and len(rest) != (name not in WITHOUT_TREE):
        expected = "no argument" if name in WITHOUT_TREE else "one TREE"
        raise Usage(f"{name}: expected {expected}, got {len(rest)}", f"apply.py {name} --help")
    for option, values in VALUES.items():
        if options.get(option, values[0]) not in values:
            raise Usage(f"--{option} {options[option]}: expected one of {', '.join(values)}")
    return name, rest[0] if rest else "", options


def main(argv: list[str]) -> int:
    """Run one command; return its exit code. The one place where errors become messages."""
    name, tree, options = argv[0] if argv else "", "", {"json": ""} if "--json" in argv else {}
    try:
        name, tree, options = parse(argv)
        if "help" in options:
            return write(sys.stdout, usage(name), Exit.DONE)
        outcome = VERBS[name](tree, Store(options.get("stacks", HERE)), options)
    except StackError as error:
        data = error.data
        outcome = Outcome(name, error.exit, "error", str(error), error.tip, tree or None, data=data)
    except KeyboardInterrupt:
        tip = "Either no part of the change is in, or all of it: apply.py status TREE tells which."
        outcome = Outcome(name, Exit.INTERRUPTED, "error", "interrupted", tip, tree or None)
    except Exception as error:
        import traceback

        traceback.print_exc()
        outcome = Outcome(name, Exit.BUG, "error", f"a bug of ours: {error!r}")
    return report(outcome, "json" in options)


def report(outcome: Outcome, as_json: bool) -> int:
    """Print the outcome; return its exit code."""
    text = to_json(outcome) if as_json else to_text(outcome)
    stream = sys.stdout if as_json or outcome.outcome != "error" else sys.stderr
    return write(stream, text, outcome.exit)


def write(stream: TextIO | None, text: str, code: Exit) -> int:
    """Print text; return the code, or ENVIRONMENT when a result could not be printed.

    A reader that has gone is no error, nor is a stream that was closed from the start (then None).
    """
    if stream is None:
        return int(code)
    try:
        # A path need not be text in the encoding of the terminal.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]
        stream.write(text)
        stream.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if not isinstance(error, BrokenPipeError):
            return int(code or Exit.ENVIRONMENT)
    return int(code)


def keep_standard_descriptors() -> None:
    """Fill the descriptors 0 to 2 that were closed from the start: a tree or a pipe must not get their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


if __name__ == "__main__":
    keep_standard_descriptors()
    gc.disable()  # a run this short leaves no cycles worth the search for them
    sys.exit(main(sys.argv[1:]))
