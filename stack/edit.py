"""The fix as a syntax-aware edit, for trees on which no known hunk stands.

libcst keeps every byte of a source that it is not told to change. What the edit cannot carry over soundly it refuses,
with file and line; that what it wrote is the fix is then proven like any other (verify).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stack.defect import FLAG_NAME, read_init
from stack.edit_check import BY_HAND, HANDLE_NAME, Block, Name, check_blocks, flags_of, notes, refused
from stack.errors import Environment, Refused
from stack.state import INIT, LAZY_INIT

_REASON = f"# _lazy_init() rebinds {FLAG_NAME}: a name bound here would keep the value from import time."
_GET_LIBCST = "It edits sources without touching the rest: pip install --requirement requirements/port.txt."
TYPO, MEANT = "_queue_calls", "_queued_calls"


class Edited(NamedTuple):
    """The edited source, the names that are bound off the handle, in order, and what a person should look at."""

    data: bytes
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()


def edit_init(source: bytes, rebound: Mapping[str, int]) -> Edited:
    """Return `torch_musa/__init__.py` with the flag forwarded and the other imported names bound off one handle.

    rebound: the names that core/_lazy_init.py rebinds through `global`, each with a line where it does.
    Raises Refused, with the line and the reason, for a source that is not edited; Environment without libcst.
    """
    cst = _libcst()
    reading = read_init(source)
    if reading.error:
        raise Refused(f"{INIT} cannot be read as Python: {reading.error}")
    if reading.reexport_line is None:
        raise Refused(f"{INIT} does not bind the flag at import (by source reading): it has not the defect")
    module = _parse(cst, source)
    lines = _lines(cst, module)
    blocks = [block for block in _blocks(cst, module, lines) if any(name.name == FLAG_NAME for name in block.names)]
    check_blocks(source, blocks, lines, rebound)
    edited = _rewritten(cst, module, blocks)
    names = tuple(name.bound for block in blocks for name in block.names if name.name != FLAG_NAME)
    return Edited(edited.bytes, names, tuple(notes(source, blocks)))


def edit_lazy_init(source: bytes) -> bytes:
    """Return `core/_lazy_init.py` with the queued calls named rightly in `global` statements; as it is, if they are."""
    from stack.bindings import read_source

    try:
        bound = {binding.name for binding in read_source(source).bindings}
    except (SyntaxError, ValueError, RecursionError) as error:
        raise Refused(f"{LAZY_INIT} cannot be read as Python: {error}") from error
    if TYPO in bound or MEANT not in bound or TYPO.encode() not in source:
        return source
    cst = _libcst()
    import libcst.matchers as match

    module: Any = _parse(cst, source, LAZY_INIT)
    item = match.NameItem(name=match.Name(TYPO))
    for statement in match.findall(module, match.Global()):
        named = {one.name.value for one in statement.names}
        if MEANT not in named:
            for found in match.findall(statement, item):
                module = module.deep_replace(found.name, found.name.with_changes(value=MEANT))
    return bytes(module.bytes)


def rebound_names(source: bytes) -> dict[str, int]:
    """Return the names that functions of a module rebind through `global`, each with the first such line."""
    from stack.bindings import global_writes, parse

    found: dict[str, int] = {}
    try:
        for binding in global_writes(parse(source)):
            found.setdefault(binding.name, binding.line)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise Refused(f"{LAZY_INIT} cannot be read as Python: {error}") from error
    return found


def _libcst() -> Any:
    try:
        import libcst
    except ImportError as error:
        raise Environment(f"libcst cannot be imported: {error}", _GET_LIBCST) from error
    return libcst


def _parse(cst: Any, source: bytes, path: str = INIT) -> Any:
    try:
        module = cst.parse_module(source)
    except cst.ParserSyntaxError as error:
        raise Refused(f"{path}:{error.raw_line}: libcst cannot read it: {error.message}") from error
    if module.bytes != source:
        raise Refused(f"{path}: libcst does not give it back as it is", BY_HAND)
    return module


def _lines(cst: Any, module: Any) -> dict[int, tuple[int, int]]:
    """Return the first and the last line of each statement of the module's body."""
    metadata = cst.metadata
    # unsafe_skip_copy: the nodes are looked up by identity, and none stands twice in a module that was parsed.
    spans = metadata.MetadataWrapper(module, unsafe_skip_copy=True).resolve(metadata.PositionProvider)
    return {i: (spans[node].start.line, spans[node].end.line) for i, node in enumerate(module.body)}


def _blocks(cst: Any, module: Any, lines: Mapping[int, tuple[int, int]]) -> Iterator[Block]:
    """Yield the import statements at module level that name what they take from core/_lazy_init."""
    for index, statement in enumerate(module.body):
        parts = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
        for part in parts:
            package = _package(cst, module, part)
            if not package:
                continue
            block = _block(cst, index, package, part, statement.trailing_whitespace)
            if len(parts) > 1 and any(name.name == FLAG_NAME for name in block.names):
                raise refused(lines[index][0], "the import shares its line with other statements (semicolon)")
            yield block


def _package(cst: Any, module: Any, part: Any) -> str:
    """Return how the statement names the package torch_musa.core, when it imports names out of its _lazy_init."""
    if not isinstance(part, cst.ImportFrom) or isinstance(part.names, cst.ImportStar) or part.module is None:
        return ""
    written = "." * len(part.relative) + "".join(module.code_for_node(part.module).split())
    package, _, last = written.rpartition(".")
    return package if last == "_lazy_init" and package in (".core", "torch_musa.core") else ""


def _block(cst: Any, index: int, package: str, part: Any, trailing: Any) -> Block:
    """Read the names and comments of an import in their order."""
    beside: list[str] = []
    above: list[str] = []
    names: list[Name] = []
    if part.lpar:
        beside, above = _comments(cst, part.lpar.whitespace_after)
    for alias in part.names:
        bound = alias.asname.name.value if alias.asname else alias.name.value
        own = _all_comments(alias.with_changes(comma=cst.MaybeSentinel.DEFAULT))
        after, below = _after(cst, alias.comma)
        names.append(Name(alias.name.value, bound, tuple(above), (*own, *after)))
        above = below
    if part.rpar:
        after, below = _comments(cst, part.rpar.whitespace_before)
        names[-1] = names[-1]._replace(beside=(*names[-1].beside, *after))
        above += below
    end = [trailing.comment.value] if trailing.comment else []
    return Block(index, package, tuple(names), tuple(beside or end), tuple([*above, *(end if beside else [])]))


def _after(cst: Any, comma: Any) -> tuple[list[str], list[str]]:
    if not isinstance(comma, cst.Comma):
        return [], []
    beside, below = _comments(cst, comma.whitespace_after)
    return [*_all_comments(comma.whitespace_before), *beside], below


def _comments(cst: Any, space: Any) -> tuple[list[str], list[str]]:
    """Return the comment at the end of the line, and those on lines of their own."""
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return [], []
    first = [space.first_line.comment.value] if space.first_line.comment else []
    return first, [line.comment.value for line in space.empty_lines if line.comment]


def _all_comments(node: Any) -> list[str]:
    import libcst.matchers as match

    return [found.value for found in match.findall(node, match.Comment())]


def _rewritten(cst: Any, module: Any, blocks: Sequence[Block]) -> Any:
    """Return the module with the blocks replaced; the first one makes room for the handle and the forwarder."""
    body: list[Any] = []
    pending: list[Any] = []  # comments that lost the statement that they stood above
    room = ""  # the line end of the blank lines that are due
    by_index = {block.at: block for block in blocks}
    aliases = sorted(flags_of(blocks) - {FLAG_NAME})
    for index, statement in enumerate(module.body):
        block = by_index.get(index)
        above = [*pending, *statement.leading_lines]
        above = _apart(cst, above, room) if room else above
        pending, room = [], ""
        if block is None:
            body.append(statement.with_changes(leading_lines=above))
            continue
        first = block is blocks[0]
        text = _first(block, aliases) if first else _later(block)
        new, pending = _statements(cst, module, statement, text, above)
        body += new
        room = _newline(module, statement) if first else ""
    footer = [*pending, *module.footer]
    return module.with_changes(body=body, footer=_apart(cst, footer, room) if room and footer else footer)


def _newline(module: Any, statement: Any) -> str:
    return str(statement.trailing_whitespace.newline.value or module.default_newline)


def _apart(cst: Any, lines: Iterable[Any], newline: str) -> list[Any]:
    """Return the lines with two blank ones in front, as there are after a function."""
    lines = list(lines)
    blank = 0
    while blank < len(lines) and lines[blank].comment is None:
        blank += 1
    return [cst.EmptyLine(indent=False, newline=cst.Newline(newline)) for _ in range(2 - blank)] + lines


def _first(block: Block, aliases: Sequence[str]) -> list[str]:
    asked = f'name == "{FLAG_NAME}"'
    if aliases:
        asked = "name in (" + ", ".join(f'"{name}"' for name in (FLAG_NAME, *aliases)) + ")"
    bound = _bound(block)
    about = [comment for name in block.names if name.name == FLAG_NAME for comment in (*name.above, *name.beside)]
    return [
        _beside(f"from {block.module} import _lazy_init as {HANDLE_NAME}", block.beside),
        *(["", *bound] if bound else []),
        "",
        "",
        *about,
        _REASON,
        "def __getattr__(name):",
        f"    if {asked}:",
        f"        return {HANDLE_NAME}.{FLAG_NAME}",
        "    raise AttributeError(f\"module '{__name__}' has no attribute '{name}'\")",
    ]


def _later(block: Block) -> list[str]:
    flag = [comment for name in block.names if name.name == FLAG_NAME for comment in (*name.above, *name.beside)]
    return [*block.beside, *_bound(block), *flag]


def _bound(block: Block) -> list[str]:
    lines: list[str] = []
    for name in block.names:
        if name.name != FLAG_NAME:
            lines += [*name.above, *name.beside[1:], _beside(f"{name.bound} = {HANDLE_NAME}.{name.name}", name.beside)]
    return [*lines, *block.below]


def _beside(code: str, comments: Sequence[str]) -> str:
    return f"{code}  {comments[0]}" if comments else code


def _statements(cst: Any, module: Any, old: Any, text: Sequence[str], above: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the statements of the text in place of an old one, and the comments that are left over at its end.

    The line end of the old statement is that of all new lines.
    """
    lost = set(_all_comments(old.with_changes(leading_lines=()))) - {
        part for line in text for part in _comment_of(line)
    }
    if lost:
        raise Refused(f"{INIT}: the comment {sorted(lost)[0]!r} would be lost", BY_HAND)
    newline = _newline(module, old)
    code = "".join(f"{line}{newline}" for line in text)
    parsed = _explicit(cst, cst.parse_module(code), newline)
    if not parsed.body:
        return [], [*above, *parsed.header, *parsed.footer]
    first = parsed.body[0]
    lines = [*above, *parsed.header, *first.leading_lines]
    return [first.with_changes(leading_lines=lines), *parsed.body[1:]], list(parsed.footer)


def _explicit(cst: Any, parsed: Any, newline: str) -> Any:
    """Return parsed text with its indents and line ends written out: in another module the defaults may differ."""
    import libcst.matchers as match

    parsed = match.replace(parsed, match.IndentedBlock(indent=None), lambda node, _: node.with_changes(indent="    "))
    return match.replace(parsed, match.Newline(value=None), lambda node, _: node.with_changes(value=newline))


def _comment_of(line: str) -> list[str]:
    code, mark, _ = line.partition("#")
    return [line[len(code) :]] if mark else []
