"""The command line as data, and how it is read and answered. apply.py has the verbs themselves."""

# getopt, not argparse: argparse and its help machinery take as long as all else that apply does.
import getopt
import os
import sys
from typing import NamedTuple, TextIO

from stack.errors import Exit, Usage
from stack.outcome import Outcome, to_json, to_text

EVERYWHERE = ("json", "stacks=", "help")
INSTALLED = ("installed", "python=")
LEVELS = ("auto", "hardware", "simulated", "import", "static")
FORMS = ("debian", "rpm", "quilt", "mbox")
VALUES = {"tests": (*LEVELS, "none"), "level": LEVELS, "form": FORMS}


class Verb(NamedTuple):
    """One verb: what it does, its arguments, and its own options as getopt has them (`=`: takes a value)."""

    what: str
    arguments: tuple[str, ...] = ("TREE",)
    options: tuple[str, ...] = ()


VERBS = {
    "apply": Verb(
        "apply the stack of the release that TREE is, whole or not at all",
        options=(
            *("release=", "dry-run", "tests=", "keep", "fork", "commit", "branch=", "clone=", "ref="),
            *INSTALLED,
            "owner=",
        ),
    ),
    "unapply": Verb(
        "take the stack out again: the exact bytes and modes of the release", options=(*INSTALLED, "owner=")
    ),
    "recover": Verb("put right what a run has left that was cut off in TREE, or in a stacks folder; do nothing else"),
    "status": Verb("name the release, the state, and what each touched file is", options=INSTALLED),
    "verify": Verb(
        "prove or refute the fix in TREE as it stands, patched or not, and write nothing into it",
        options=("level=", "junit=", "html="),
    ),
    "scan": Verb("list each name that TREE imports from a module that rebinds it: the class of this bug"),
    "port": Verb(
        "cut a stack for TREE, which no pin matches: the fix as a syntax-aware edit, proven, then written as a release",
        options=("to=", "from=", "accept-lazy-init="),
    ),
    "refresh": Verb(
        "write the stack of RELEASE anew from the git work tree WORKTREE, whose commits are the patches",
        ("RELEASE", "WORKTREE"),
    ),
    "export": Verb(
        "write the stack of a release into OUT in the form of a packaging system: debian, rpm, quilt or mbox",
        ("FORM", "OUT"),
        ("release=", "pc"),
    ),
    "wheel": Verb(
        "write a patched wheel of the torch_musa wheel WHEEL into the folder OUT, with a version of its own",
        ("WHEEL", "OUT"),
    ),
    "releases": Verb("list the releases that have a stack", ()),
    "lint": Verb("judge the stacks themselves, and report every finding", ()),
}


class Parsed(NamedTuple):
    """A command line: the verb, its last argument, and the options by name without dashes ('' for a flag)."""

    verb: str
    tree: str
    options: dict[str, str]


def parse(argv: list[str]) -> Parsed:
    """Return the parsed command line; raise Usage for one that is none. Arguments before the last become options."""
    name = argv[0] if argv else ""
    if name in ("-h", "--help"):
        return Parsed("", "", {"help": ""})
    if name not in VERBS:
        raise Usage(f"{name or 'no verb'}: expected one of {', '.join(VERBS)}", "apply.py --help")
    help_tip = f"apply.py {name} --help"
    known = [*VERBS[name].options, *EVERYWHERE]
    try:
        pairs, rest = getopt.gnu_getopt(argv[1:], "h", known)
    except getopt.GetoptError as error:
        raise Usage(f"{name}: {error}", help_tip) from error
    options = {"help" if option == "-h" else option[2:]: value for option, value in pairs}
    for option, value in options.items():
        if f"{option}=" in known and not value:
            raise Usage(f"{name}: --{option} has an empty value", help_tip)
        _check_value(option, value, f"--{option}")
    if "installed" not in options:
        for option in ("python", "owner"):
            if option in options:
                raise Usage(f"{name}: --{option} goes with --installed only", help_tip)
    wanted = () if "installed" in options else VERBS[name].arguments
    if "help" not in options and len(rest) != len(wanted):
        expected = f"one {wanted[0]}" if len(wanted) == 1 else " and ".join(wanted) or "no argument"
        raise Usage(f"{name}: expected {expected}, got {len(rest)}", help_tip)
    for argument, value in zip(wanted[:-1], rest, strict=False):  # for help, arguments may be missing
        _check_value(argument.lower(), value, argument)
        options[argument.lower()] = value
    return Parsed(name, rest[-1] if rest else "", options)


def _check_value(option: str, value: str, said: str) -> None:
    known = VALUES.get(option)
    if known and value not in known:
        raise Usage(f"{said} {value}: expected one of {', '.join(known)}")


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
