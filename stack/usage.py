"""The help texts of the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stack.errors import MEANING

HELP = {
    "release=": ("R", "the release that you believe TREE is; refused if the bytes say otherwise"),
    "dry-run": ("", "plan and check, write nothing"),
    "tests=": ("LEVEL", "what to prove before writing: auto (default), none, or as --level"),
    "keep": ("", "write the result although the proof failed; the exit code is still 5"),
    "fork": ("", "apply to a tree that is no release, where every hunk has one exact place"),
    "commit": ("", "make a commit of each patch, as git am would; TREE is the top of a git work tree"),
    "branch=": ("B", "with --commit: on the new branch B, made at HEAD"),
    "clone=": ("URL", "first clone this URL or path into TREE, which must be absent or empty"),
    "ref=": ("REF", "with --clone: the branch, tag or commit to check out"),
    "level=": ("LEVEL", "static, import, simulated, hardware; auto (default) is the highest here"),
    "junit=": ("FILE", "write the report as JUnit XML too"),
    "html=": ("FILE", "write the report as one HTML page too"),
    "to=": ("R", "the release that the new stack is for"),
    "from=": ("R", "the release whose patches are ported; the closest one if not named"),
    "accept-lazy-init=": ("DIGEST", "the SHA-256 of a core/_lazy_init.py that no pin knows and that you have read"),
    "json": ("", "print one JSON object, schema 1 (README)"),
    "stacks=": ("DIR", "another folder with patches/ and series/"),
    "help": ("", "this text"),
}


def overview(about: str, verbs: Mapping[str, str]) -> str:
    """Return the help of the whole command; verbs maps each verb to what it does."""
    lines = [about, "", "usage: apply.py VERB [OPTIONS] [TREE]", "", "verbs:"]
    lines += [f"  {name:<10}{what}" for name, what in verbs.items()]
    lines += ["", "apply.py VERB --help tells a verb's options.", "", "exit codes:"]
    lines += [f"  {code.value:<10}{meaning}" for code, meaning in MEANING.items()]
    return "\n".join(lines) + "\n"


def of_verb(name: str, what: str, options: Sequence[str], takes_tree: bool) -> str:
    """Return the help of one verb; an option that takes a value ends in `=`, as getopt has it."""
    tree = {"refresh": " RELEASE WORKTREE"}.get(name, " TREE" if takes_tree else "")
    lines = [f"usage: apply.py {name} [OPTIONS]{tree}", "", what, "", "options:"]
    for option in options:
        value, text = HELP[option]
        lines.append(f"  --{option.rstrip('=') + ' ' + value:<18}{text}")
    return "\n".join(lines) + "\n"
