"""The static level for `core/_lazy_init.py`: the flag has one owner, which declares, starts and sets it rightly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verify.finding import Finding, Level, Status
from verify.imports import Files

if TYPE_CHECKING:
    import ast

FLAG_NAME = "_initialized"
HOW = "by source reading"


def check_lazy_init(files: Files, path: str, names: tuple[str, ...]) -> list[Finding]:
    """Judge the module at `path`: its `_lazy_init()`, its flag, and that `names` are bound once."""
    claim = "core/_lazy_init.py can be read and defines _lazy_init()"
    tree = files.tree(path) if path in files.sources else None
    function = _function(tree) if tree else None
    if tree is None or function is None:
        notes = (
            "; ".join(note for note in files.notes if note.startswith(path)) or f"{path}: missing, or no _lazy_init()"
        )
        return [Finding(Level.STATIC, "lazy-init-readable", claim, Status.REFUTED, HOW, notes)]
    from stack.bindings import read_source

    module = read_source(files.sources[path])
    known = set(module.scope.module)
    rebound = [b for b in module.bindings if b.name in names and " through global " in b.how]
    at = f"{path}:{function.lineno}"
    exist = "every name in a global statement of _lazy_init() exists in the module"
    complete = "_lazy_init() declares every module global that it rebinds, the flag among them"
    last = f"_lazy_init() sets {FLAG_NAME} to True once, as its last step"
    once = "no function of the module rebinds a name that the package binds"
    return [
        _judged("global-names-exist", exist, _missing(function, known, path), at),
        _judged("global-names-complete", complete, _undeclared(function, known, path), at),
        _judged(
            "flag-starts-false",
            f"{FLAG_NAME} is bound once at module level, to False",
            *_start(tree, path),
        ),
        _judged("flag-set-last", last, *_end(function, path)),
        _judged(
            "names-rebound-nowhere",
            once,
            [f"{path}:{b.line}: {b.name}: {b.how}" for b in rebound],
            path,
        ),
    ]


def _judged(check: str, claim: str, faults: list[str], proof: str) -> Finding:
    status = Status.REFUTED if faults else Status.PROVEN
    return Finding(Level.STATIC, check, claim, status, HOW, "\n".join(faults) or proof)


def _function(tree: ast.Module) -> ast.FunctionDef | None:
    import ast

    found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "_lazy_init"]
    return found[-1] if found else None


def _globals(function: ast.FunctionDef) -> list[tuple[str, int]]:
    import ast

    return [(name, n.lineno) for n in ast.walk(function) if isinstance(n, ast.Global) for name in n.names]


def _missing(function: ast.FunctionDef, known: set[str], path: str) -> list[str]:
    return [
        f"{path}:{line}: global {name}: no such name in the module"
        for name, line in _globals(function)
        if name not in known
    ]


def _undeclared(function: ast.FunctionDef, known: set[str], path: str) -> list[str]:
    import ast

    declared = {name for name, _ in _globals(function)}
    stores = [n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    faults = [
        f"{path}:{n.lineno}: {n.id} is assigned but not declared global: a local of that name"
        for n in stores
        if n.id in known - declared and n.id.startswith("_")
    ]
    if FLAG_NAME not in declared and not faults:
        faults.append(f"{path}:{function.lineno}: {FLAG_NAME} is not declared global")
    return faults


def _start(tree: ast.Module, path: str) -> tuple[list[str], str]:
    import ast

    from stack.bindings import Reach, statements, stored_names
    from stack.symbols import Scope

    found = []
    for node, reach in statements(tree.body, Scope({}, {})):
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) and reach is not Reach.NEVER:
            found += [(node, line) for name, line, _ in stored_names(node) if name == FLAG_NAME]
    if len(found) != 1:
        return [f"{path}:{line}: bound at module level" for _, line in found] or [
            f"{path}: not bound at module level"
        ], ""
    node, line = found[0]
    value = getattr(node, "value", None)
    plain = isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(value, ast.Constant) and value.value is False
    return ([], f"{path}:{line}") if plain else ([f"{path}:{line}: {ast.unparse(node)}"], "")


def _end(function: ast.FunctionDef, path: str) -> tuple[list[str], str]:
    import ast

    stores = [n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    lines = [n.lineno for n in stores if n.id == FLAG_NAME]
    last = function.body[-1]
    while isinstance(last, (ast.With, ast.Try)):
        last = (last.orelse if isinstance(last, ast.Try) and last.orelse else last.body)[-1]
    if len(lines) != 1 or last.lineno != lines[0] or not isinstance(last, ast.Assign):
        seen = ", ".join(str(line) for line in lines) or "none"
        return [
            f"{path}:{last.lineno}: the last step is {ast.unparse(last)[:60]!r}; {FLAG_NAME} is set on line {seen}"
        ], ""
    if not isinstance(last.value, ast.Constant) or last.value.value is not True:
        return [f"{path}:{last.lineno}: {ast.unparse(last)}"], ""
    return [], f"{path}:{last.lineno}"
