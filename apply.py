#!/usr/bin/env python3
"""Carry the fix of torch.musa._initialized into a torch_musa tree, or say exactly why not."""

from __future__ import annotations

import gc
import sys

if sys.version_info < (3, 10):  # noqa: UP036 - the one line that an old Python must reach
    sys.exit("apply.py: needs Python 3.10 or later, this is " + sys.version.split()[0])
if __name__ == "__main__":
    gc.disable()  # a run this short leaves no cycles worth the search for them, and the imports are most of it

import os
from collections.abc import Mapping

from stack import cli, commands
from stack.errors import Exit, StackError, Usage
from stack.journal import describe
from stack.outcome import Outcome
from stack.store import Store

# realpath: a link to this file may stand in a directory of programs.
HERE = os.path.dirname(os.path.realpath(__file__))

Options = Mapping[str, str]

INSTALLED = {"installed", "python", "owner"}


def apply(tree: str, store: Store, options: Options) -> Outcome:
    """apply the stack of the release that TREE is, whole or not at all"""
    if options.keys() & INSTALLED:
        from verify.installed import apply as run_installed

        return run_installed(store, options)
    fork, level = "fork" in options, options.get("tests", "auto")
    if fork and ("keep" in options or level in ("none", "static")):
        raise Usage(
            "--fork needs the proof of the import level at least",
            "Say --tests import or a higher level, and no --keep.",
        )
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
    if options.keys() & INSTALLED:
        from stack.installed.command import unapply as run_installed

        return run_installed(store, options)
    return commands.unapply(tree, store)


def recover(tree: str, store: Store, options: Options) -> Outcome:
    """put right what a run has left that was cut off in TREE, or in a stacks folder; do nothing else"""
    return commands.recover(tree)


def status(tree: str, store: Store, options: Options) -> Outcome:
    """name the release, the state, and what each touched file is"""
    if options.keys() & INSTALLED:
        from verify.installed import status as run_installed

        return run_installed(store, options)
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


def export(tree: str, store: Store, options: Options) -> Outcome:
    """write the stack of a release into OUT in the form of a packaging system: debian, rpm, quilt or mbox"""
    from stack.export.command import export as run

    return run(options["form"], tree, store, options)


def wheel(tree: str, store: Store, options: Options) -> Outcome:
    """write a patched wheel of the torch_musa wheel WHEEL into the folder OUT, with a version of its own"""
    from stack.wheel.command import wheel as run

    return run(options["wheel"], tree, store)


def releases(tree: str, store: Store, options: Options) -> Outcome:
    """list the releases that have a stack"""
    return commands.releases(store)


def lint(tree: str, store: Store, options: Options) -> Outcome:
    """judge the stacks themselves, and report every finding"""
    from verify.lint import lint_command

    return lint_command(store)


VERBS = (apply, unapply, recover, status, verify, scan, port, refresh, export, wheel, releases, lint)
RUN = {verb.__name__: verb for verb in VERBS}


def main(argv: list[str]) -> int:
    """Run one command; return its exit code. The one place where errors become messages."""
    name, tree, options = argv[0] if argv else "", "", {"json": ""} if "--json" in argv else {}
    try:
        name, tree, options = cli.parse(argv)
        if "help" in options:
            from stack.usage import usage

            return cli.write(sys.stdout, usage(__doc__ or "", name), Exit.DONE)
        outcome = RUN[name](tree, Store(options.get("stacks", HERE)), options)
    except StackError as error:
        data = error.data
        outcome = Outcome(name, error.exit, "error", str(error), error.tip, tree or None, data=data)
    except KeyboardInterrupt:
        tip = "Either no part of the change is in, or all of it: apply.py status TREE tells which."
        tip = tip if name in ("apply", "unapply") else ""
        outcome = Outcome(name, Exit.INTERRUPTED, "error", "interrupted", tip, tree or None)
    except OSError as error:
        # The disk, its permissions or a missing file, where no message of its own was due: the way out has put
        # right what was begun, and if that failed as well a journal is left.
        tip = "apply.py status TREE tells whether a run was cut off there."
        outcome = Outcome(name, Exit.ENVIRONMENT, "error", f"the system says: {describe(error)}", tip, tree or None)
    except Exception as error:
        import traceback

        traceback.print_exc()
        outcome = Outcome(name, Exit.BUG, "error", f"a bug of ours: {error!r}")
    return cli.report(outcome, "json" in options)


if __name__ == "__main__":
    cli.keep_standard_descriptors()
    # All is written and closed; to take every module down in good order would take longer than to apply a patch.
    os._exit(main(sys.argv[1:]))
