"""Find the class of bug in any tree: `from X import name` where X rebinds `name` through `global`.

Such an import is a snapshot: the importer never sees the new value. Bytes are searched first, with patterns that find
too much rather than too little; only the files on both ends of a suspect import are parsed, and only what the syntax
tree confirms is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from verify.finding import Finding, Level, Status
from verify.imports import Files, declared_all, read_files, resolve, star_exports

if TYPE_CHECKING:
    import ast

_GLOBAL = re.compile(rb"global[ \t]+((?:[^\n;#\\]|\\\r?\n)+)")
# `(?=(X))\1` takes X and gives nothing back: what somebody wrote to be slow is as quick as any other text.
_IMPORT = re.compile(
    rb"from(?=([ \t]+))\1(?=((?:\.[. \t]*)?))\2(?=((?:(?!import\b)\w[\w.]*)?))\3(?=([ \t\\\r\n]*))\4\bimport\b[ \t]*"
)
_REST = re.compile(rb"(?:[^\n\\]|\\\r?\n)*")
_NAME = re.compile(rb"[^\W\d]\w*|\*")
HOW = "by source reading"
_UNREAD = "never read here"
_AT_USE = "imported inside a function, at each use"


class Hit(NamedTuple):
    """One stale import.

    file, line: where the name is imported; module: what the statement reads, as it is written.
    rebound: `file:line` of a statement that rebinds it; for a module outside the tree, of the importer's own.
    """

    file: str
    line: int
    name: str
    module: str
    rebound: str
    harmful: bool
    why: str


class Survey(NamedTuple):
    """All hits of a tree in order of place, and notes on the files that could not be read."""

    hits: list[Hit]
    notes: list[str]
    files: int


class _Suspect(NamedTuple):
    importer: str
    target: str | None
    name: str  # as the target has it


class _Copy(NamedTuple):
    """A stale name that others can import: where the original is rebound, and the lines that read the copy."""

    rebound: str
    readers: list[str]


class _Import(NamedTuple):
    bound: str
    node: ast.ImportFrom
    line: int
    inside: str  # "function", "type checking" or ""


def scan(root: Path) -> list[Hit]:
    """Return every import below `root` of a name that its module rebinds through `global`."""
    return survey(root).hits


def survey(root: Path) -> Survey:
    """Scan `root`; unlike `scan`, also tell what was left out and why."""
    return survey_files(read_files(root))


def survey_files(files: Files) -> Survey:
    """Scan files that were read already."""
    imports = {path: _imports(source) for path, source in files.sources.items() if b"import" in source}
    claimed = {path: _claimed(source) for path, source in files.sources.items() if b"global" in source}
    wave = set(_suspects(files, imports, {path: names for path, names in claimed.items() if names}))
    wave |= {_Suspect(path, None, name) for path, names in claimed.items() for name in names & _taken(imports, path)}
    hits: dict[tuple[str, int, str], Hit] = {}
    copies: dict[tuple[str, str], _Copy] = {}
    while wave:
        fresh: dict[str, set[str]] = {}
        for suspect in sorted(wave, key=str):
            for hit, travels in _judge(files, suspect, copies.get((suspect.target or "", suspect.name))):
                hits.setdefault((hit.file, hit.line, hit.name), hit)
                if travels and (hit.file, hit.name) not in copies:
                    copies[hit.file, hit.name] = _Copy(hit.rebound, [])
                    fresh.setdefault(hit.file, set()).add(hit.name)
        wave = set(_suspects(files, imports, fresh))
    found = [_read_elsewhere(hit, copies.get((hit.file, hit.name))) for hit in sorted(hits.values())]
    return Survey(found, sorted(set(files.notes)), len(files.sources))


def _claimed(source: bytes) -> set[str]:
    return {name.decode(errors="replace") for match in _GLOBAL.finditer(source) for name in _NAME.findall(match[1])}


def _imports(source: bytes) -> list[tuple[int, str, set[str]]]:
    found, end, last = [], 0, source.rfind(b")")
    while match := _IMPORT.search(source, end):
        begin = match.end()
        if source.startswith(b"(", begin) and begin < last:
            end = source.index(b")", begin)
        else:
            rest = _REST.match(source, begin)
            end = rest.end() if rest else begin
        names = {name.decode(errors="replace") for name in _NAME.findall(source, begin, end)}
        found.append((match[2].count(b"."), match[3].decode(errors="replace"), names))
    return found


def _taken(imports: dict[str, list[tuple[int, str, set[str]]]], path: str) -> set[str]:
    return {name for _, _, names in imports.get(path, []) for name in names}


def _suspects(
    files: Files, imports: dict[str, list[tuple[int, str, set[str]]]], wanted: dict[str, set[str]]
) -> Iterator[_Suspect]:
    """Yield the imports that read a wanted name from its file, as far as bytes can tell."""
    last = {path.removesuffix("/__init__.py").removesuffix(".py").rpartition("/")[2] for path in wanted}
    for importer, statements in imports.items():
        for level, module, names in statements:
            if module and module.rpartition(".")[2] not in last:
                continue
            target = resolve(files, importer, module, level)
            if target in wanted and target != importer:
                for name in wanted[target] if "*" in names else wanted[target] & names:
                    yield _Suspect(importer, target, name)


def _judge(files: Files, suspect: _Suspect, copy: _Copy | None) -> Iterator[tuple[Hit, bool]]:
    """Yield what the syntax trees confirm: the hit, and whether others can import the name from there."""
    tree = files.tree(suspect.importer)
    if tree is None:
        return
    own = files.rebound(suspect.importer)
    rebound = copy.rebound if copy else (files.rebound(suspect.target) if suspect.target else own).get(suspect.name)
    for found in _from_imports(files, tree, suspect) if rebound else ():
        harmful, why = _verdict(tree, found, suspect, own, copy)
        written = "." * found.node.level + (found.node.module or "")
        if copy and found.inside != "type checking":
            copy.readers.append(f"{suspect.importer}:{found.line}")
        hit = Hit(suspect.importer, found.line, found.bound, written, rebound or "", harmful, why)
        yield hit, not found.inside and found.bound not in own


def _from_imports(files: Files, tree: ast.Module, suspect: _Suspect) -> Iterator[_Import]:
    import ast

    for node, inside in _walk(tree, ""):
        if not isinstance(node, ast.ImportFrom):
            continue
        if resolve(files, suspect.importer, node.module or "", node.level) != suspect.target:
            continue
        for alias in node.names:
            if alias.name == suspect.name:
                yield _Import(alias.asname or alias.name, node, alias.lineno, inside)
            elif alias.name == "*" and suspect.target is not None:
                target = files.tree(suspect.target)
                if target is not None and star_exports(target, suspect.name):
                    yield _Import(suspect.name, node, alias.lineno, inside)


def _walk(node: ast.AST, inside: str) -> Iterator[tuple[ast.AST, str]]:
    import ast

    for child in ast.iter_child_nodes(node):
        yield child, inside
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _walk(child, "function")
        elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for statement in child.body:
                yield from [(statement, "type checking"), *_walk(statement, "type checking")]
            for statement in child.orelse:
                yield from [(statement, inside), *_walk(statement, inside)]
        elif isinstance(child, ast.stmt) or not isinstance(child, ast.expr):
            yield from _walk(child, inside)


def _verdict(
    tree: ast.Module, found: _Import, suspect: _Suspect, own: dict[str, str], copy: _Copy | None
) -> tuple[bool, str]:
    if found.inside == "type checking":
        return False, "read at type checking only"
    if found.bound in own and not found.inside:
        where = "" if suspect.target else "; the module that it comes from is outside this tree"
        return (
            False,
            f"the importer keeps a copy of its own and rebinds that ({own[found.bound]}){where}",
        )
    if found.inside:
        return (True, f"read out of {suspect.target}, whose copy is stale") if copy else (False, _AT_USE)
    if suspect.importer.rpartition("/")[2] == "__init__.py":
        return (
            True,
            "re-exported by a package: everyone who reads it there sees the value from import time",
        )
    if found.bound in (declared_all(tree) or ()):
        return (
            True,
            "re-exported through __all__: everyone who reads it there sees the value from import time",
        )
    line = _read_line(tree, found.bound)
    return (False, _UNREAD) if line is None else (True, f"read on line {line}: the value from import time")


def _read_line(tree: ast.Module, name: str) -> int | None:
    import ast

    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name)
    return min((node.lineno for node in names if isinstance(node.ctx, ast.Load)), default=None)


def _read_elsewhere(hit: Hit, copy: _Copy | None) -> Hit:
    if hit.why != _UNREAD or copy is None or not copy.readers:
        return hit
    return hit._replace(harmful=True, why=f"imported from here at {', '.join(sorted(copy.readers))}: a stale value")


def scan_findings(found: Survey) -> list[Finding]:
    """Return a survey as findings."""
    harmful = [hit for hit in found.hits if hit.harmful]
    detail = "\n".join(describe(hit) for hit in harmful or found.hits)
    if not harmful:
        rest = f"{len(found.hits)} harmless:\n{detail}" if found.hits else "no such import"
        detail = f"{found.files} files; {rest}"
    data = {"hits": [hit._asdict() for hit in found.hits], "notes": found.notes}
    claim = "no name is imported from a module that rebinds it through global, where the stale value could be seen"
    status = Status.REFUTED if harmful else Status.PROVEN
    findings = [Finding(Level.STATIC, "no-stale-import", claim, status, HOW, detail, data=data)]
    if found.notes:
        claim = "every Python file of the tree was scanned"
        findings.append(
            Finding(Level.STATIC, "scan-complete", claim, Status.NOT_RUN, HOW, "\n".join(found.notes), optional=True)
        )
    return findings


def describe(hit: Hit) -> str:
    """Return a hit on one line, for people."""
    verdict = "harmful" if hit.harmful else "harmless"
    return f"{hit.file}:{hit.line}: {hit.name} from {hit.module}, rebound at {hit.rebound}: {verdict}: {hit.why}"
