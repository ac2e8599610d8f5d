"""What `torch_musa/__init__.py` binds at module level, in order, and every write that could change a module name."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from stack.symbols import (
    FLAG,
    OWN,
    PACKAGE,
    Kind,
    Scope,
    Value,
    import_values,
    imported_base,
    source_of,
    truth_of,
    value_of,
)

ANY = "?"
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BLOCKS = frozenset({"body", "orelse", "finalbody", "handlers", "cases"})


class Reach(str, Enum):
    """Whether a statement runs when the module is imported."""

    ALWAYS = "always"
    PERHAPS = "under a condition"
    NEVER = "never"
    LATER = "in a function"


class Binding(NamedTuple):
    """One write to a module-level name; the name is `?` when only a run can tell, `*` for a star import."""

    name: str
    line: int
    how: str
    value: Value
    reach: Reach


class Source(NamedTuple):
    """A module as read: its syntax tree, its bindings in order, and the scope that they leave behind."""

    tree: ast.Module
    bindings: tuple[Binding, ...]
    scope: Scope


LARGEST_SOURCE = 192 * 1024
"""Bytes of a module that is parsed: its syntax tree takes up to a thousand times as many, and the parser of Python 3.10
dies of one that is a chain of some hundred thousand links."""


def parse(source: bytes) -> ast.Module:
    """Parse a module without the compiler's warnings on its strings. Raises SyntaxError or ValueError."""
    if len(source) > LARGEST_SOURCE:
        raise ValueError(f"{len(source)} bytes, at most {LARGEST_SOURCE} are read")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def read_source(source: bytes) -> Source:
    """Read a module. Raises SyntaxError or ValueError (null bytes, undecodable text)."""
    tree = parse(source)
    scope = Scope({}, {})
    bindings: list[Binding] = []
    for statement, reach in statements(tree.body, scope):
        for binding in _bound_by(statement, reach, scope):
            bindings.append(binding)
            _remember(binding, scope)
    bindings += global_writes(tree)
    bindings += dynamic_writes(tree, scope)
    return Source(tree, tuple(bindings), scope)


def statements(body: list[ast.stmt], scope: Scope, reach: Reach = Reach.ALWAYS) -> Iterator[tuple[ast.AST, Reach]]:
    """Yield every statement of a module level, blocks opened, with whether it runs. Constant conditions are read."""
    for statement in body:
        yield statement, reach
        if not isinstance(statement, _SCOPES):
            for block, inner in _blocks(statement, scope, reach):
                yield from statements(block, scope, inner)


def _blocks(statement: ast.AST, scope: Scope, reach: Reach) -> Iterator[tuple[list[ast.stmt], Reach]]:
    perhaps = reach if reach is Reach.NEVER else Reach.PERHAPS
    if isinstance(statement, (ast.If, ast.While)):
        truth = truth_of(statement.test, scope)
        for block, runs in ((statement.body, True), (statement.orelse, False)):
            yield block, perhaps if truth is None else (reach if truth is runs else Reach.NEVER)
        return
    for field in sorted(_BLOCKS & set(statement._fields), key=statement._fields.index):
        sure = field == "finalbody" or isinstance(statement, (ast.With, ast.Try)) and field == "body"
        yield getattr(statement, field), reach if sure else perhaps


def _remember(binding: Binding, scope: Scope) -> None:
    if binding.reach is Reach.NEVER:
        return
    if binding.how == "del":
        scope.module.pop(binding.name, None)
        return
    scope.module[binding.name] = at_import(binding.value)


def at_import(value: Value) -> Value:
    """Return what is left of a value that was read while the module was imported: of the flag, a snapshot."""
    if value.kind is Kind.PATH and value.text == FLAG:
        return Value(Kind.SNAPSHOT, "the flag's value from import time")
    if value.kind is Kind.TABLE:
        return value._replace(payload={key: at_import(item) for key, item in value.payload.items()})
    return value


def _bound_by(statement: ast.AST, reach: Reach, scope: Scope) -> Iterator[Binding]:
    line = getattr(statement, "lineno", 0)
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        yield from _submodules(statement, reach, scope)
        for name, value, line in import_values(statement):
            yield Binding(name, line, "star import" if name == "*" else "import", value, reach)
    elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield Binding(statement.name, line, "def", Value(Kind.FUNCTION, statement.name, statement), reach)
    elif isinstance(statement, ast.ClassDef):
        yield Binding(statement.name, line, "class", Value(Kind.OTHER, f"class {statement.name}"), reach)
    else:
        known = _assigned(statement, scope)
        for name, line, how in stored_names(statement):
            yield Binding(name, line, how, known.get(name) or Value(Kind.UNKNOWN, how), reach)


def _submodules(statement: ast.Import | ast.ImportFrom, reach: Reach, scope: Scope) -> Iterator[Binding]:
    # Importing torch_musa.core.x leaves `core` behind as an attribute of the package.
    bases = [imported_base(statement)] if isinstance(statement, ast.ImportFrom) else [a.name for a in statement.names]
    for base in bases:
        parts = base.split(".")
        if parts[0] == PACKAGE and len(parts) > 1 and parts[1] not in scope.module:
            yield Binding(
                parts[1],
                statement.lineno,
                "submodule",
                Value(Kind.PATH, ".".join(parts[:2])),
                reach,
            )


def _assigned(statement: ast.AST, scope: Scope) -> dict[str, Value]:
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return {}
    targets: list[ast.expr] = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    value = statement.value
    found = {}
    for target in targets:
        for name, item in _pairs(target, value):
            found[name] = value_of(item, scope)
    return found


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for inner, item in zip(target.elts, value.elts, strict=True):
            yield from _pairs(inner, item)


def stored_names(statement: ast.AST) -> Iterator[tuple[str, int, str]]:
    """Yield the plain names that a statement's own part (not its blocks, not inner scopes) writes or deletes."""
    if isinstance(statement, ast.AnnAssign) and statement.value is None:
        return
    if isinstance(statement, ast.ExceptHandler) and statement.name:
        yield statement.name, statement.lineno, "except target"
    for node in _own_nodes(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno, "assignment"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del):
            yield node.id, node.lineno, "del"
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name, node.lineno, "match capture"
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest, node.lineno, "match capture"


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for field, value in ast.iter_fields(node):
        if field in _BLOCKS and isinstance(value, list):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, _COMPREHENSIONS):
                yield from (n.target for n in ast.walk(child) if isinstance(n, ast.NamedExpr))
            elif isinstance(child, ast.AST) and not isinstance(child, _SCOPES):
                yield child
                yield from _own_nodes(child)


def global_writes(tree: ast.Module) -> Iterator[Binding]:
    """Yield what functions and classes rebind through a `global` statement."""
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        declared = {name for node in _inside(function) if isinstance(node, ast.Global) for name in node.names}
        for node in _inside(function) if declared else ():
            for name, line, how in _written(node):
                if name in declared:
                    what = f"{how} through global in {function.name}()"
                    yield Binding(name, line, what, Value(Kind.UNKNOWN, how), Reach.LATER)


def _inside(function: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, _SCOPES):
            yield from _inside(child)


def _written(node: ast.AST) -> Iterator[tuple[str, int, str]]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from ((name, line, "import") for name, _, line in import_values(node))
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name, node.lineno, "def"
    elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id, node.lineno, "del" if isinstance(node.ctx, ast.Del) else "assignment"
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name, node.lineno, "except target"
    elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name, node.lineno, "match capture"


def dynamic_writes(root: ast.AST, scope: Scope) -> list[Binding]:
    """Return the writes below `root` to the package's names by another door: `globals()`, `setattr`, attributes."""
    found = []
    for node in ast.walk(root):
        for name in _dynamic_names(node, scope):
            line = getattr(node, "lineno", 0)
            found.append(Binding(name, line, source_of(node), Value(Kind.UNKNOWN, source_of(node)), Reach.LATER))
    return found


def _dynamic_names(node: ast.AST, scope: Scope) -> Iterator[str]:
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        if value_of(node.value, scope).text == PACKAGE:
            yield node.attr
    elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        base = value_of(node.value, scope)
        if base.kind is Kind.PATH and base.text == OWN:
            yield _key(node.slice, scope)
        elif base.text == "sys.modules" and _key(node.slice, scope) == PACKAGE:
            yield ANY
    elif isinstance(node, ast.Call):
        yield from _names_of_call(node, scope)


def _key(node: ast.expr, scope: Scope) -> str:
    payload = value_of(node, scope).payload
    return payload if isinstance(payload, str) else ANY


def _names_of_call(node: ast.Call, scope: Scope) -> Iterator[str]:
    function = value_of(node.func, scope)
    if function.kind is not Kind.PATH:
        return
    if function.text in ("builtins.setattr", "builtins.delattr") and len(node.args) > 1:
        if value_of(node.args[0], scope).text == PACKAGE:
            yield _key(node.args[1], scope)
    elif function.text in (f"{OWN}.update", f"{OWN}.__ior__"):
        yield from (keyword.arg or ANY for keyword in node.keywords)
        for argument in node.args:
            table = value_of(argument, scope)
            yield from table.payload if table.kind is Kind.TABLE else [ANY]
    elif function.text == "builtins.exec":
        yield ANY
    elif function.text in _DICT_WRITES or function.text in _MODULE_WRITES:
        yield _key(node.args[0], scope) if node.args else ANY


_DICT_WRITES = frozenset(f"{OWN}.{method}" for method in ("setdefault", "__setitem__", "__delitem__", "pop", "clear"))
_MODULE_WRITES = frozenset(f"{PACKAGE}.{method}" for method in ("__setattr__", "__delattr__"))
