"""The help texts of the command line."""

from __future__ import annotations

from stack.cli import EVERYWHERE, VERBS
from stack.errors import MEANING

HELP = {
    "release=": (
        "R",
        "the release that you believe TREE is, or whose stack to export; refused if the bytes differ",
    ),
    "dry-run": ("", "plan and check, write nothing"),
    "tests=": ("LEVEL", "what to prove before writing: auto (default), none, or as --level"),
    "keep": ("", "write the result although the proof failed; the exit code is still 5"),
    "fork": ("", "apply to a tree that is no release, where every hunk has one exact place"),
    "commit": ("", "make a commit of each patch, as git am would; TREE is the top of a git work tree"),
    "branch=": ("B", "with --commit: on the new branch B, made at HEAD"),
    "clone=": ("URL", "first clone this URL or path into TREE, which must be absent or empty"),
    "ref=": ("REF", "with --clone: the branch, tag or commit to check out"),
    "installed": ("", "no TREE: the torch_musa that an interpreter imports"),
    "python=": ("EXE", "with --installed: that interpreter, this one if not named"),
    "owner=": ("PACKAGE", "with --installed: the package of the package manager that owns the files"),
    "level=": ("LEVEL", "static, import, simulated, hardware; auto (default) is the highest here"),
    "junit=": ("FILE", "write the report as JUnit XML too"),
    "html=": ("FILE", "write the report as one HTML page too"),
    "pc": ("", "quilt, after apply: also the state that lets quilt pop -a take the stack out"),
    "to=": ("R", "the release that the new stack is for"),
    "from=": ("R", "the release whose patches are ported; the closest one if not named"),
    "accept-lazy-init=": ("DIGEST", "the SHA-256 of a core/_lazy_init.py that no pin knows and that you have read"),
    "json": ("", "print one JSON object, schema 1 (README)"),
    "stacks=": ("DIR", "another folder with patches/ and series/"),
    "help": ("", "this text"),
}


def usage(about: str, name: str) -> str:
    """Return the help of one verb, or with an empty name of all, about being what the command is for."""
    return _of_verb(name) if name else _overview(about)


def _overview(about: str) -> str:
    lines = [about, "", "usage: apply.py VERB [OPTIONS] [TREE]", "", "verbs:"]
    lines += [f"  {name:<10}{verb.what}" for name, verb in VERBS.items()]
    lines += ["", "apply.py VERB --help tells a verb's options.", "", "exit codes:"]
    lines += [f"  {code.value:<10}{meaning}" for code, meaning in MEANING.items()]
    return "\n".join(lines) + "\n"


def _of_verb(name: str) -> str:
    verb = VERBS[name]
    lines = [" ".join(["usage: apply.py", name, "[OPTIONS]", *verb.arguments]), "", verb.what, "", "options:"]
    for option in (*verb.options, *EVERYWHERE):
        value, text = HELP[option]
        lines.append(f"  --{option.rstrip('=') + ' ' + value:<25}{text}")
    return "\n".join(lines) + "\n"
