"""What a state means for a person: the message, and what to do next."""

from __future__ import annotations

from stack.state import LAZY_INIT, Evidence, Standing, State
from stack.tree import Kind, Tree

_TIPS = {
    "line endings": "Check the files out with LF (git config core.autocrlf false, then again).",
    "executable bit": "Set the file's mode to that of the release (chmod).",
    "missing": "Restore the file from the release.",
    "in the way": "Move the file away if it is yours, then run the command again.",
    "another release": "The tree mixes releases. Restore it from one of them.",
    "edited": 'This looks like a fork: see "Forks" in the README.',
    "huge file": "Restore the file from the release.",
}
_NO_REGULAR_FILE = "Put the release's regular file in its place: links are never followed."


def headline(state: State) -> str:
    """Return the state in one line: release, standing, and how far."""
    name = state.release.name if state.release else ""
    if state.standing is Standing.PARTLY:
        return f"{name}, partly applied: patches 1..{state.applied} of {state.total} are in"
    if state.standing is Standing.APPLIED:
        return f"{name}, applied: all {state.total} patches are in"
    if state.standing is Standing.PRISTINE:
        return f"{name}, pristine: none of {state.total} patches is in"
    if state.standing is Standing.MIXED:
        return f"{name}, mixed: its files are those of different steps of the series"
    if state.standing is Standing.DRIFTED:
        return f"no known release; closest is {name}"
    if state.standing is Standing.FORKED:
        return f"a fork of {name}, applied: the hunks of the stack are in its package"
    return f"{state.standing.value}: {state.note}"


def describe(state: State) -> str:
    """Return the state for `status`: the headline, and a line for each touched file."""
    lines = [headline(state)]
    lines += [f"  {evidence.path}: {evidence.note or evidence.kind}" for evidence in state.files]
    if state.note and state.standing in (Standing.DRIFTED, Standing.FORKED):
        lines.append(f"  {state.note}")
    return "\n".join(lines)


def differences(state: State) -> list[str]:
    """Return a line for each file that says why the state is what it is."""
    if state.standing is Standing.MIXED:
        return [f"{evidence.path} is {evidence.kind}" for evidence in state.files]
    return [f"{evidence.path} {evidence.note}" for evidence in state.files if not evidence.spans]


def refusal(state: State, tree: Tree) -> tuple[str, str]:
    """Return message and tip for a tree that nothing is applied to."""
    lines = [f"{tree.root}: {headline(state)}"]
    lines += [f"  {state.release.name}: {line}" for line in differences(state) if state.release]
    if state.note and state.standing is not Standing.OTHER:
        lines.append(f"  {state.note}")
    lines += _version_hint(tree)
    return "\n".join(lines), _tip(state, tree)


def _version_hint(tree: Tree) -> list[str]:
    entry = tree.read("version.txt")
    if entry.kind is not Kind.FILE:
        return []
    text = entry.data[:40].decode("ascii", "backslashreplace").split("\n")[0].strip()
    return [f"  version.txt says {text!r}; the bytes are those of no known release"]


def _tip(state: State, tree: Tree) -> str:
    if state.standing is Standing.OTHER:
        return _tip_for_other(tree)
    if state.standing is Standing.FIXED:
        return "No stack of this folder is in. If one of your own is, name its folder: --stacks DIR."
    if state.standing is Standing.MIXED:
        return "Restore these files from the release, then run the command again."
    unknown = [evidence for evidence in state.files if not evidence.spans]
    if any(evidence.path == LAZY_INIT and evidence.kind == "edited" for evidence in unknown):
        return f'The fix was reasoned about one {LAZY_INIT}, and this is another. See "Forks" in the README.'
    return " ".join(dict.fromkeys(_tip_for(evidence) for evidence in unknown))


def _tip_for(evidence: Evidence) -> str:
    return _TIPS.get(evidence.kind, _NO_REGULAR_FILE)


def _tip_for_other(tree: Tree) -> str:
    if tree.read("core/_lazy_init.py").kind is Kind.FILE:
        return f"This looks like the package itself. Name the directory above it: {tree.root}/.."
    return "Name the top of a torch_musa source tree: the directory that holds torch_musa/."
