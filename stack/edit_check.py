"""What the syntax-aware edit of `torch_musa/__init__.py` takes over, and the sources that it must refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from stack.defect import FLAG_NAME, reexport_line
from stack.errors import Refused
from stack.state import INIT, LAZY_INIT

if TYPE_CHECKING:
    import ast

    from stack.bindings import Source

HANDLE_NAME = "_lazy_init_module"
BY_HAND = "Make this change by hand, then run the command again, or carry a stack of your own (README, Forks)."


class Name(NamedTuple):
    """One imported name: what it is called there and here, the comments above it, and those beside it."""

    name: str
    bound: str
    above: tuple[str, ...]
    beside: tuple[str, ...]


class Block(NamedTuple):
    """One import statement that takes the flag: its place in the module's body, and its parts."""

    at: int
    module: str
    names: tuple[Name, ...]
    beside: tuple[str, ...]
    below: tuple[str, ...]


def refused(line: int, why: str) -> Refused:
    """Return the refusal of an edit, for the caller to raise."""
    return Refused(f"{INIT}:{line}: {why}", BY_HAND)


def check_blocks(
    source: bytes, blocks: Sequence[Block], lines: Mapping[int, tuple[int, int]], rebound: Mapping[str, int]
) -> None:
    """Raise Refused where the edited source would not be the same module but for the flag.

    lines: the first and the last line of each statement, by its index. rebound: as for stack.edit.edit_init.
    """
    from stack.bindings import read_source

    module = read_source(source)
    flags = flags_of(blocks) | {FLAG_NAME}
    _check_bindings(module, flags, [lines[block.at] for block in blocks])
    used = sorted({line for flag in flags for line in _reads(module.tree, flag)})
    if used:
        places = ", ".join(f"{INIT}:{line}" for line in used)
        raise refused(used[0], f"reads the flag by its bare name, which is not bound after the fix ({places})")
    for block in blocks:
        for name in block.names:
            if name.name in rebound and name.name != FLAG_NAME:
                why = f"takes {name.name} too, which {LAZY_INIT}:{rebound[name.name]} rebinds: a snapshot like the flag"
                raise refused(lines[block.at][0], why)


def flags_of(blocks: Sequence[Block]) -> set[str]:
    """Return the names under which the blocks bind the flag."""
    return {name.bound for block in blocks for name in block.names if name.name == FLAG_NAME}


def _check_bindings(module: Source, flags: set[str], spans: Sequence[tuple[int, int]]) -> None:
    from stack.bindings import Reach
    from stack.symbols import FLAG

    if not spans:
        raise refused(reexport_line(module) or 1, "binds the flag in another way than by an import at module level")
    for binding in module.bindings:
        ours = any(first <= binding.line <= last for first, last in spans)
        if binding.reach is Reach.NEVER or ours:
            continue
        if binding.name in flags or binding.how == "import" and binding.value.text == FLAG:
            raise refused(
                binding.line, f"binds the flag in another way than by an import at module level: {binding.how}"
            )
        if binding.name in ("__getattr__", HANDLE_NAME):
            raise refused(binding.line, f"binds {binding.name} already, which the fix would bind")


def _reads(node: ast.AST, name: str) -> Iterator[int]:
    """Yield the lines below node where the module's own `name` is meant."""
    import ast

    for child in ast.iter_child_nodes(node):
        if _means(child, name):
            yield getattr(child, "lineno", 0)
        if not _binds_locally(child, name):
            yield from _reads(child, name)


def _means(node: ast.AST, name: str) -> bool:
    import ast

    if isinstance(node, ast.Subscript):  # globals()["_initialized"]
        return isinstance(node.slice, ast.Constant) and node.slice.value == name
    return isinstance(node, ast.Name) and node.id == name or isinstance(node, ast.Global) and name in node.names


def _binds_locally(node: ast.AST, name: str) -> bool:
    import ast

    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return False
    arguments = {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}
    inner = list(ast.walk(node))
    declared = any(isinstance(child, ast.Global) and name in child.names for child in inner)
    stored = any(isinstance(c, ast.Name) and c.id == name and isinstance(c.ctx, ast.Store) for c in inner)
    return not declared and (name in arguments or stored)


def notes(source: bytes, blocks: Sequence[Block]) -> Iterator[str]:
    """Yield what a person should look at, though it prevents no edit."""
    import ast

    from stack.bindings import parse

    flags = flags_of(blocks)
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Constant) and node.value in flags:
            yield f"{INIT}:{node.lineno}: has the flag's name as a text: is the flag looked up there, past __getattr__?"
    aliases = sorted(flags - {FLAG_NAME})
    if aliases:
        yield f"{INIT}: the flag was imported as {', '.join(aliases)}, too; that name is forwarded as well"
