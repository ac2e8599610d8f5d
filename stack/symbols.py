"""Follow names through the source of `torch_musa/__init__.py` without running it.

A value is followed as a dotted path (`torch_musa.core._lazy_init`), however it was come by: import, handle,
`sys.modules`, `importlib.import_module`, `getattr`, `vars`. What cannot be followed is unknown, never guessed.
This module imports `ast`, so it is itself imported only where a source is read.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

PACKAGE = "torch_musa"
HANDLE = "torch_musa.core._lazy_init"
FLAG = f"{HANDLE}._initialized"
OWN = f"{PACKAGE}.__dict__"


class Kind(str, Enum):
    """What is known about a value."""

    PATH = "path"  # a dotted path, looked up anew whenever the expression runs
    CONSTANT = "constant"
    TABLE = "table"  # a dict whose keys are constants
    FUNCTION = "function"
    INSTANCE = "instance"  # made by calling the class that the text names
    SNAPSHOT = "snapshot"  # the flag's value at import time
    OTHER = "other"  # surely none of the above
    UNKNOWN = "unknown"


class Value(NamedTuple):
    """A value as read; `text` is its dotted path, or its source for messages."""

    kind: Kind
    text: str
    payload: Any = None


class Scope(NamedTuple):
    """The names of the module, and those of a function that is being followed (empty at module level)."""

    module: dict[str, Value]
    local: dict[str, Value]


def source_of(node: ast.AST) -> str:
    """Return the node's source on one line, shortened for a message."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else text[:57] + "..."


def value_of(node: ast.expr, scope: Scope) -> Value:
    """Follow an expression. Never raises; what it cannot follow is `Kind.UNKNOWN`."""
    reader = _READERS.get(type(node))
    return (reader(node, scope) if reader else None) or Value(Kind.UNKNOWN, source_of(node))


def truth_of(node: ast.expr, scope: Scope) -> bool | None:
    """Return the truth of a condition, or None where the source alone does not say."""
    if (
        isinstance(node, ast.Name)
        and node.id == "TYPE_CHECKING"
        or (isinstance(node, ast.Attribute) and node.attr == "TYPE_CHECKING")
    ):
        return False
    value = value_of(node, scope)
    if value.kind in (Kind.CONSTANT, Kind.TABLE):
        return bool(value.payload)
    return True if value.kind is Kind.FUNCTION else None


def imported_base(node: ast.ImportFrom, package: str = PACKAGE) -> str:
    """Return the absolute dotted name of the module that a `from` import reads, as seen from `package`'s `__init__`."""
    if not node.level:
        return node.module or ""
    parent = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parent, *([node.module] if node.module else [])])


def import_values(node: ast.Import | ast.ImportFrom) -> list[tuple[str, Value, int]]:
    """Return the names that an import statement binds (a star import binds `*`), what to, and on which line."""
    found = []
    base = imported_base(node) if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
        top = alias.name.split(".")[0]
        path = base if alias.name == "*" else f"{base}.{alias.name}" if base else alias.name if alias.asname else top
        name = alias.asname or (alias.name if base else top)
        found.append((name, Value(Kind.PATH, _known_as(path)), alias.lineno))
    return found


def _known_as(path: str) -> str:
    # torch.musa is the module torch_musa: __init__ puts it there.
    return PACKAGE + path[len("torch.musa") :] if path == "torch.musa" or path.startswith("torch.musa.") else path


def _constant(payload: Any, node: ast.AST) -> Value:
    return Value(Kind.CONSTANT, source_of(node), payload)


def _member(base: Value, name: str, scope: Scope) -> Value | None:
    if base.kind is not Kind.PATH:
        return None
    if base.text == PACKAGE and name in scope.module:
        return scope.module[name]
    return Value(Kind.PATH, _known_as(f"{base.text}.{name}"))


def _name(node: ast.Name, scope: Scope) -> Value | None:
    for names in (scope.local, scope.module):
        if node.id in names:
            return names[node.id]
    if node.id in ("__name__", "__package__"):
        return _constant(PACKAGE, node)
    return Value(Kind.PATH, f"builtins.{node.id}") if hasattr(builtins, node.id) else None


def _attribute(node: ast.Attribute, scope: Scope) -> Value | None:
    return _member(value_of(node.value, scope), node.attr, scope)


def _subscript(node: ast.Subscript, scope: Scope) -> Value | None:
    base, key = value_of(node.value, scope), value_of(node.slice, scope)
    if key.kind is not Kind.CONSTANT:
        return None
    if base.kind is Kind.TABLE:
        return base.payload.get(key.payload) or Value(Kind.OTHER, source_of(node))
    return _entry(base, key, scope)


def _entry(base: Value, key: Value, scope: Scope) -> Value | None:
    if base.kind is not Kind.PATH or not isinstance(key.payload, str):
        return None
    if base.text == "sys.modules":
        return Value(Kind.PATH, _known_as(key.payload))
    if base.text.endswith(".__dict__"):
        return _member(Value(Kind.PATH, base.text.removesuffix(".__dict__")), key.payload, scope)
    return None


def _call(node: ast.Call, scope: Scope) -> Value | None:
    function = value_of(node.func, scope)
    arguments = [value_of(a, scope) for a in node.args]
    if function.kind is not Kind.PATH:
        return _text_method(node, arguments, scope)
    reader = _CALLS.get(function.text)
    if reader is not None:
        return reader(arguments, node, scope)
    if function.text.endswith(".get") and len(arguments) == 1:
        return _entry(Value(Kind.PATH, function.text.removesuffix(".get")), arguments[0], scope)
    if function.text.startswith("builtins.") and function.text.endswith(("Error", "Exception")):
        return Value(Kind.INSTANCE, function.text)
    return Value(Kind.OTHER, source_of(node)) if function.text.startswith(HANDLE) else None


def _text_method(node: ast.Call, arguments: list[Value], scope: Scope) -> Value | None:
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in ("startswith", "endswith"):
        return None
    text = value_of(node.func.value, scope).payload
    if not isinstance(text, str) or len(arguments) != 1 or not isinstance(arguments[0].payload, (str, tuple)):
        return None
    return _constant(getattr(text, node.func.attr)(arguments[0].payload), node)


def _getattr(arguments: list[Value], node: ast.Call, scope: Scope) -> Value | None:
    if len(arguments) == 3:
        return Value(Kind.OTHER, f"{source_of(node)}, which has a default")
    if len(arguments) != 2 or not isinstance(arguments[1].payload, str):
        return None
    return _member(arguments[0], arguments[1].payload, scope)


def _import_module(arguments: list[Value], node: ast.Call, scope: Scope) -> Value | None:
    name = arguments[0].payload if arguments else None
    if not isinstance(name, str):
        return None
    if not name.startswith("."):
        return Value(Kind.PATH, _known_as(name))
    keywords = [value_of(k.value, scope) for k in node.keywords if k.arg == "package"]
    anchor = [*arguments[1:], *keywords]
    return Value(Kind.PATH, f"{PACKAGE}{name}") if anchor and anchor[0].payload == PACKAGE else None


def _dunder_import(arguments: list[Value], node: ast.Call, _scope: Scope) -> Value | None:
    name = arguments[0].payload if arguments else None
    if not isinstance(name, str):
        return None
    whole = len(arguments) > 3 or any(k.arg == "fromlist" for k in node.keywords)
    return Value(Kind.PATH, name if whole else name.split(".")[0])


def _vars(arguments: list[Value], _node: ast.Call, _scope: Scope) -> Value | None:
    if not arguments:
        return Value(Kind.PATH, OWN)
    return Value(Kind.PATH, f"{arguments[0].text}.__dict__") if arguments[0].kind is Kind.PATH else None


def _collected(arguments: list[Value], node: ast.Call, _scope: Scope) -> Value | None:
    return _constant(arguments[0].payload, node) if arguments and arguments[0].kind is Kind.CONSTANT else None


def _literal(node: ast.expr, _scope: Scope) -> Value | None:
    try:
        return _constant(ast.literal_eval(node), node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _table(node: ast.Dict, scope: Scope) -> Value | None:
    entries = {}
    for key, item in zip(node.keys, node.values, strict=True):
        if not isinstance(key, ast.Constant):
            return None
        entries[key.value] = value_of(item, scope)
    return Value(Kind.TABLE, source_of(node), entries)


def _joined(node: ast.JoinedStr, scope: Scope) -> Value | None:
    parts = [value_of(p.value if isinstance(p, ast.FormattedValue) else p, scope) for p in node.values]
    if any(p.kind is not Kind.CONSTANT for p in parts):
        return None
    return _constant("".join(str(p.payload) for p in parts), node)


def _sum(node: ast.BinOp, scope: Scope) -> Value | None:
    left, right = value_of(node.left, scope).payload, value_of(node.right, scope).payload
    if isinstance(node.op, ast.Add) and isinstance(left, str) and isinstance(right, str):
        return _constant(left + right, node)
    return None


def _choice(node: ast.IfExp, scope: Scope) -> Value | None:
    truth = truth_of(node.test, scope)
    return None if truth is None else value_of(node.body if truth else node.orelse, scope)


def _logic(node: ast.BoolOp, scope: Scope) -> Value | None:
    stop = isinstance(node.op, ast.Or)
    for part in node.values[:-1]:
        truth = truth_of(part, scope)
        if truth is None:
            return None
        if truth is stop:
            return value_of(part, scope)
    return value_of(node.values[-1], scope)


def _inverse(node: ast.UnaryOp, scope: Scope) -> Value | None:
    truth = truth_of(node.operand, scope) if isinstance(node.op, ast.Not) else None
    if truth is not None:
        return _constant(not truth, node)
    return Value(Kind.OTHER, source_of(node)) if isinstance(node.op, ast.Not) else _literal(node, scope)


def _comparison(node: ast.Compare, scope: Scope) -> Value | None:
    left, right = value_of(node.left, scope), value_of(node.comparators[0], scope)
    compare = _COMPARISONS.get(type(node.ops[0]))
    plain = {left.kind, right.kind} <= {Kind.CONSTANT, Kind.TABLE}
    if compare is None or len(node.ops) > 1 or not plain:
        return None
    try:
        return _constant(compare(left.payload, right.payload), node)
    except TypeError:
        return None


def _walrus(node: ast.NamedExpr, scope: Scope) -> Value:
    scope.local[node.target.id] = value_of(node.value, scope)
    return scope.local[node.target.id]


_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: lambda left, right: bool(left == right),
    ast.NotEq: lambda left, right: bool(left != right),
    ast.Is: lambda left, right: bool(left == right),
    ast.IsNot: lambda left, right: bool(left != right),
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_CALLS: dict[str, Callable[[list[Value], ast.Call, Scope], Value | None]] = {
    "builtins.getattr": _getattr,
    "builtins.vars": _vars,
    "builtins.globals": _vars,
    "builtins.__import__": _dunder_import,
    "importlib.import_module": _import_module,
    **{f"builtins.{name}": _collected for name in ("tuple", "list", "set", "frozenset", "str")},
}
_READERS: dict[type, Callable[[Any, Scope], Value | None]] = {
    ast.Constant: _literal,
    ast.Tuple: _literal,
    ast.List: _literal,
    ast.Set: _literal,
    ast.Dict: _table,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Call: _call,
    ast.JoinedStr: _joined,
    ast.BinOp: _sum,
    ast.IfExp: _choice,
    ast.BoolOp: _logic,
    ast.UnaryOp: _inverse,
    ast.Compare: _comparison,
    ast.NamedExpr: _walrus,
}
