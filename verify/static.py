"""The static level: what the source of a torch_musa tree says about the fix. No torch, and nothing of the tree runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from verify.finding import Finding, Level, Status
from verify.imports import Files, read_files, resolve, star_origin
from verify.lazy_init import check_lazy_init
from verify.scan import scan_findings, survey_files
from verify.upstream_lint import check_lint

if TYPE_CHECKING:
    import ast

    from stack.bindings import Binding, Source
    from stack.symbols import Value

__all__ = ["INIT", "NAMES", "check_level", "check_lint", "check_static"]

INIT = "torch_musa/__init__.py"
LAZY = "torch_musa/core/_lazy_init.py"
HOW = "by source reading"
FLAG_NAME = "_initialized"
# The lowest TORCH_MIN_VERSION of the releases that bind a name; None where only a tree that uses a name needs it.
NAMES: dict[str, tuple[int, ...] | None] = {
    "_lazy_init": (0,),
    "_lazy_call": None,
    "_is_in_bad_fork": (2, 5),
    "is_initialized": (2, 5),
    "musart": (2, 7),
}
# Names that no module has, chosen to fall into a test that is looser than equality with the flag's name.
_OTHERS = (
    "no_such_name",
    "_init",
    "_initialized_",
    "initialized",
    "_INITIALIZED",
    "__no_such_name__",
    "",
)
_PIN = re.compile(rb"TORCH_MIN_VERSION\s*=\s*\w*\(?[\"'](\d+)\.(\d+)")


class _Tree(NamedTuple):
    """The tree under judgement: its files, and its `__init__` as read."""

    files: Files
    init: Source


def check_level(tree: Path, replaced: Mapping[str, bytes | None] | None = None, only: str = "") -> list[Finding]:
    """Return the whole static level, `check_static` and the scan, reading the tree once.

    replaced: files to be judged with these bytes, or as absent, whatever stands in the tree. only: as for read_files.
    """
    files = read_files(tree, replaced, only)
    return [*_check(files), *scan_findings(survey_files(files))]


def check_static(tree: Path) -> list[Finding]:
    """Judge a torch_musa tree by its syntax trees. A file that cannot be read is a finding; nothing is raised."""
    return _check(read_files(tree))


def _check(files: Files) -> list[Finding]:
    claim = f"{INIT} can be read"
    if INIT not in files.sources:
        return [_finding("init-readable", claim, Status.REFUTED, f"{INIT} is missing or not readable")]
    if files.tree(INIT) is None:
        return [
            _finding(
                "init-readable",
                claim,
                Status.REFUTED,
                "; ".join(n for n in files.notes if n.startswith(INIT)),
            )
        ]
    from stack.bindings import read_source

    judged = _Tree(files, read_source(files.sources[INIT]))
    return [
        _reexport(judged),
        _defined(judged),
        *_answers(judged),
        _handle(judged),
        *_names(judged),
        *_shadows(judged),
        _written_elsewhere(files),
        *check_lazy_init(files, LAZY, tuple(NAMES)),
    ]


def _finding(check: str, claim: str, status: Status, detail: str) -> Finding:
    return Finding(Level.STATIC, check, claim, status, HOW, detail)


def _judged(check: str, claim: str, faults: list[str], proof: str) -> Finding:
    return _finding(check, claim, Status.REFUTED if faults else Status.PROVEN, "\n".join(faults) or proof)


def _reexport(tree: _Tree) -> Finding:
    from stack.defect import reexport_line

    line = reexport_line(tree.init)
    faults = [f"{INIT}:{line}: the flag is bound here: a snapshot, and it hides any forwarder"] if line else []
    return _judged(
        "re-export-gone",
        f"the package does not bind {FLAG_NAME} at import",
        faults,
        f"{INIT}: not bound",
    )


def _defined(tree: _Tree) -> Finding:
    """PEP 562: the function is looked up in the module's dict and called with the name."""
    from stack.bindings import Reach

    found = [b for b in tree.init.bindings if b.name == "__getattr__" and b.how == "def"]
    faults = [f"{INIT}:{b.line}: defined {b.reach.value}" for b in found if b.reach is not Reach.ALWAYS]
    faults += [f"{INIT}:{b.line}: defined again" for b in found[1:]]
    faults += [f"{INIT}:{b.line}: {fault}" for b in found for fault in _signature_faults(b)]
    if not found:
        faults = [f"{INIT}: no __getattr__ at module level{_elsewhere(tree.init.tree)}"]
    proof = f"{INIT}:{found[0].line}" if found else ""
    claim = "__getattr__ is defined once, at module level, under no condition, for one argument"
    return _judged("forwarder-defined", claim, faults, proof)


def _signature_faults(binding: Binding) -> list[str]:
    import ast

    node = binding.value.payload
    arguments = node.args
    count = len(arguments.posonlyargs) + len(arguments.args)
    faults = ["it has a decorator"] if node.decorator_list else []
    if isinstance(node, ast.AsyncFunctionDef):
        faults.append("it is a coroutine")
    if count != 1 or arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
        faults.append("it does not take exactly one argument")
    return faults


def _elsewhere(tree: ast.Module) -> str:
    import ast

    lines = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "__getattr__"]
    return f" (one on line {lines[0]}, in an inner scope)" if lines else ""


def _forwarder(tree: _Tree) -> ast.FunctionDef | None:
    import ast

    value = tree.init.scope.module.get("__getattr__")
    return value.payload if value and isinstance(value.payload, ast.FunctionDef) else None


def _answers(tree: _Tree) -> list[Finding]:
    """Follow the forwarder for the flag and for names that no module has."""
    claims = {
        "flag-forwarded": f"__getattr__ answers {FLAG_NAME} with the current value in core/_lazy_init on every access",
        "unknown-names-raise": "__getattr__ raises AttributeError for every other name",
    }
    function = _forwarder(tree)
    if function is None:
        return [_finding(check, claim, Status.REFUTED, f"{INIT}: no __getattr__") for check, claim in claims.items()]
    return [
        _flag_answer(tree, function, claims["flag-forwarded"]),
        _other_answers(tree, function, claims["unknown-names-raise"]),
    ]


def _flag_answer(tree: _Tree, function: ast.FunctionDef, claim: str) -> Finding:
    from stack.answer import Reply, follow

    answer, writes = follow(function, FLAG_NAME, tree.init.scope)
    faults = [f"{INIT}:{write.line}: stores on the way: {write.name}" for write in writes]
    if function.decorator_list:
        faults.append(f"{INIT}:{function.lineno}: a decorator may keep the first answer")
    if answer.reply is Reply.UNKNOWN and not faults:
        return _finding(
            "flag-forwarded",
            claim,
            Status.NOT_RUN,
            f"{INIT}:{answer.line}: cannot follow {answer.text}",
        )
    if answer.reply in (Reply.VALUE, Reply.RAISES):
        verb = "raises" if answer.reply is Reply.RAISES else "returns"
        faults.append(f"{INIT}:{answer.line}: {verb} {answer.text}, not the flag")
    return _judged("flag-forwarded", claim, faults, f"{INIT}:{answer.line}: returns {answer.text}")


def _other_answers(tree: _Tree, function: ast.FunctionDef, claim: str) -> Finding:
    from stack.answer import Reply, follow

    faults, unknown = [], []
    for name in _OTHERS:
        answer = follow(function, name, tree.init.scope).answer
        if answer.reply is Reply.UNKNOWN:
            unknown.append(f"{INIT}:{answer.line}: asked for {name!r}, cannot follow {answer.text}")
        elif answer[:2] != (Reply.RAISES, "AttributeError"):
            verb = "raises" if answer.reply is Reply.RAISES else "returns"
            faults.append(f"{INIT}:{answer.line}: asked for {name!r}, it {verb} {answer.text}")
    if unknown and not faults:
        return _finding("unknown-names-raise", claim, Status.NOT_RUN, "\n".join(unknown))
    return _judged(
        "unknown-names-raise",
        claim,
        faults,
        f"{INIT}:{function.lineno}: asked for {len(_OTHERS)} other names",
    )


def _handles(tree: _Tree) -> dict[str, Value]:
    """Return the module names through which the forwarder reads, with what the end of the file leaves them bound to."""
    import ast

    from stack.symbols import PACKAGE, Kind, Value

    function = _forwarder(tree)
    used = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} - {"__name__"} if function else set()
    bound = {b.name for b in tree.init.bindings if b.value.kind is not Kind.PATH or b.value.text.startswith(PACKAGE)}
    gone = Value(Kind.OTHER, "deleted")
    found = {name: tree.init.scope.module.get(name, gone) for name in sorted(used & bound)}
    return {name: value for name, value in found.items() if value.kind not in (Kind.TABLE, Kind.FUNCTION)}


def _handle(tree: _Tree) -> Finding:
    from stack.symbols import FLAG, HANDLE, Kind

    function = _forwarder(tree)
    claim = "what the forwarder reads is the module core/_lazy_init itself, bound before it can be asked"
    if function is None:
        return _finding("handle-is-module", claim, Status.REFUTED, f"{INIT}: no __getattr__, so nothing is read")
    faults = []
    for name, value in _handles(tree).items():
        line = _line_of(tree, name)
        if value.kind is Kind.CONSTANT and name not in _bases(function):
            continue
        if value.kind is not Kind.PATH or not FLAG.startswith(f"{value.text}."):
            faults.append(f"{INIT}:{line}: {name} is {value.text}, not the module {HANDLE}")
        elif line > function.lineno:
            faults.append(f"{INIT}:{line}: {name} is bound after __getattr__ (line {function.lineno}) can be asked")
    faults += _hidden_submodule(tree.files)
    proof = "\n".join(f"{INIT}:{_line_of(tree, name)}: {name} is {v.text}" for name, v in _handles(tree).items())
    return _judged("handle-is-module", claim, faults, proof)


def _bases(function: ast.FunctionDef) -> set[str]:
    # A constant that is only compared with, such as a tuple of names, is no handle.
    import ast

    attributes = [node.value for node in ast.walk(function) if isinstance(node, ast.Attribute)]
    return {node.id for node in attributes if isinstance(node, ast.Name)}


def _line_of(tree: _Tree, name: str) -> int:
    return next((b.line for b in reversed(tree.init.bindings) if b.name == name), 0)


def _hidden_submodule(files: Files) -> list[str]:
    # A name _lazy_init in core/__init__.py would hide the submodule from `from .core import _lazy_init`.
    core = "torch_musa/core/__init__.py"
    module = files.tree(core) if core in files.sources else None
    if module is None:
        return [f"{core}: missing or not readable"]
    from stack.bindings import read_source

    bindings = [b for b in read_source(files.sources[core]).bindings if b.name == "_lazy_init"]
    bindings = [b for b in bindings if b.value.text != "torch_musa._lazy_init"]
    return [f"{core}:{b.line}: binds _lazy_init, which hides the submodule" for b in bindings]


def _names(tree: _Tree) -> list[Finding]:
    found = []
    for name in NAMES:
        check = "binds-" + name.strip("_").replace("_", "-")
        faults, proof = _name(tree, name)
        found.append(_judged(check, f"{name} is bound to what core/_lazy_init has under that name", faults, proof))
    return found


def _name(tree: _Tree, name: str) -> tuple[list[str], str]:
    from stack.bindings import Reach
    from stack.symbols import HANDLE, Kind

    value = tree.init.scope.module.get(name)
    if value is None:
        need = _need(tree, name)
        return (
            ([f"{INIT}: {name} is not bound, {need}"], "")
            if need
            else ([], f"{INIT}: {name} is not bound, and nothing in this release needs it")
        )
    line = _line_of(tree, name)
    reach = next(b.reach for b in reversed(tree.init.bindings) if b.name == name)
    if value.kind is not Kind.PATH or value.text != f"{HANDLE}.{name}":
        return [f"{INIT}:{line}: {name} is {value.text}, not {HANDLE}.{name}"], ""
    if reach is not Reach.ALWAYS:
        return [f"{INIT}:{line}: {name} is bound {reach.value}"], ""
    return [], f"{INIT}:{line}"


def _need(tree: _Tree, name: str) -> str:
    """Say why a tree needs a name that it does not bind, or nothing: releases before 2.7.1 bind only some."""
    import ast

    reads = [n.lineno for n in ast.walk(tree.init.tree) if isinstance(n, ast.Name) and n.id == name]
    if reads:
        return f"but read on line {min(reads)}"
    since, pin = NAMES[name], _PIN.search(tree.files.sources[INIT])
    if since is None or pin is not None and (int(pin[1]), int(pin[2])) < since:
        return ""
    return "but every release binds it" + (f" for torch {pin[1].decode()}.{pin[2].decode()}" if pin else "")


def _shadows(tree: _Tree) -> list[Finding]:
    """Nothing else may write the flag, the forwarder, the handle or one of the five names."""
    handles = [name for name in _handles(tree) if name != "torch_musa"]
    groups = {
        "flag": [FLAG_NAME],
        "forwarder": ["__getattr__", "__class__"],
        "handle": handles,
        "names": list(NAMES),
    }
    found = []
    for group, names in groups.items():
        faults = [fault for name in names for fault in _rebinds(tree, name)]
        claim = (
            f"nothing in the package's __init__ rebinds, deletes or shadows the {group} ({', '.join(names) or 'none'})"
        )
        unknown = [f"{INIT}:{b.line}: {b.how} writes names that only a run can tell" for b in _open_writes(tree)]
        status = Status.REFUTED if faults else Status.NOT_RUN if unknown else Status.PROVEN
        found.append(_finding(f"{group}-not-shadowed", claim, status, "\n".join(faults or unknown)))
    return found


def _open_writes(tree: _Tree) -> list[Binding]:
    from stack.bindings import ANY

    return [binding for binding in tree.init.bindings if binding.name == ANY]


def _rebinds(tree: _Tree, name: str) -> list[str]:
    from stack.bindings import Reach

    bindings = [b for b in tree.init.bindings if b.reach is not Reach.NEVER]
    own = [b for b in bindings if b.name == name and b.how != "submodule"]
    first = _first_line(tree, name, own)
    faults = [f"{INIT}:{b.line}: {name}: {b.how}" for b in own if b.line != first]
    for star in (b for b in bindings if b.name == "*"):
        origin = _star(tree.files, star.value.text, name)
        harmless = origin is not None and origin.endswith(f" from {LAZY} {name}") and name != FLAG_NAME
        if origin is not None and not harmless and (star.line > first or name == FLAG_NAME):
            faults.append(f"{INIT}:{star.line}: {name}: the star import takes it from {origin}")
    return faults


def _first_line(tree: _Tree, name: str, own: list[Binding]) -> int:
    # The one binding that is meant: the first that has the value which the other checks ask for.
    if name in (FLAG_NAME, "__class__") or not own:
        return 0
    wanted = (f"torch_musa.core._lazy_init.{name}", "torch_musa.core._lazy_init", "__getattr__")
    return next((b.line for b in own if b.value.text in wanted), own[0].line)


def _star(files: Files, module: str, name: str) -> str | None:
    path = resolve(files, INIT, module, 0)
    return star_origin(files, path, name) if path is not None and path != INIT else None


_MODULE = rb"(?:torch_musa|torch\.musa|sys\.modules\[[^\[\]\n]*\])"
_KEY = rb"(?:_initialized|__getattr__|__class__)"
_OUTSIDE = re.compile(
    _MODULE + rb"\." + _KEY + rb"[ \t]*(?::[^:=\n]+)?[-+|&^]?=(?!=)"
    rb"|(?:setattr|delattr)\(\s*" + _MODULE + rb"\s*,\s*[\"']" + _KEY + rb"[\"']"
    rb"|vars\(" + _MODULE + rb"\)\[[\"']" + _KEY + rb"[\"']\][ \t]*=(?!=)"
)  # fmt: skip


def _written_elsewhere(files: Files) -> Finding:
    faults = []
    for path, source in files.sources.items():
        if path.startswith("torch_musa/") and path != INIT and (b"_initialized" in source or b"__getattr__" in source):
            for match in _OUTSIDE.finditer(source):
                line = source.count(b"\n", 0, match.start()) + 1
                faults.append(
                    f"{path}:{line}: {match[0].decode(errors='replace')}: a value in the module hides the forwarder"
                )
    claim = "no other module of the package writes the flag or the forwarder into torch_musa"
    return _judged("not-written-elsewhere", claim, faults, "none found")
