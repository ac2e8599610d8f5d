"""The Python files below a folder, which of them an import reads, and what a star import takes from one.

Nothing is imported. Files are read once; a syntax tree is made only of a file that is asked about.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ast

MAX_BYTES = 4 << 20
_SKIPPED = frozenset({".git", ".hg", ".svn", ".pc", "__pycache__"})


class Files(NamedTuple):
    """Sources by path relative to the root, with notes on what was left out, and what was worked out so far."""

    root_name: str
    sources: Mapping[str, bytes]
    notes: list[str]
    trees: dict[str, ast.Module | None]
    rebinds: dict[str, dict[str, str]]

    def rebound(self, path: str) -> dict[str, str]:
        """Return the names that functions of a file rebind through `global`, each with a `file:line`."""
        from stack.bindings import global_writes

        if path not in self.rebinds:
            tree = self.tree(path) if b"global" in self.sources[path] else None
            writes = global_writes(tree) if tree else ()
            self.rebinds[path] = {write.name: f"{path}:{write.line}" for write in writes}
        return self.rebinds[path]

    def tree(self, path: str) -> ast.Module | None:
        """Return a file's syntax tree, or None with a note when it cannot be parsed."""
        from stack.bindings import parse

        if path not in self.trees:
            try:
                self.trees[path] = parse(self.sources[path])
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                self.trees[path] = None
                self.notes.append(f"{path}:{getattr(error, 'lineno', None) or 1}: not readable as Python: {error}")
        return self.trees[path]


def read_files(root: Path, replaced: Mapping[str, bytes | None] | None = None, only: str = "") -> Files:
    """Read every `.py` file below `root`. What cannot be read becomes a note; links to folders are not followed.

    replaced: files to be taken as having these bytes, or as absent, whatever stands in the tree.
    only: the one folder of root that is looked at, all of them if empty: a site-packages holds much else.
    """
    sources: dict[str, bytes] = {}
    notes: list[str] = []
    top = os.fspath(root)
    for folder, folders, names in os.walk(top, onerror=lambda e: notes.append(f"{e.filename}: {e.strerror}")):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        if only and folder == top:
            folders[:], names = [name for name in folders if name == only], []
        for name in sorted(names):
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                shown = path[len(top) :].lstrip(os.sep).replace(os.sep, "/")
                data = _read(path, shown, notes)
                if data is not None:
                    sources[shown] = data
    for path, content in (replaced or {}).items():
        sources.pop(path, None)
        if content is not None and path.endswith(".py"):
            sources[path] = content
    return Files(root.resolve().name, sources, notes, {}, {})


def _read(path: str, shown: str, notes: list[str]) -> bytes | None:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            notes.append(f"{shown}: not a regular file, left out")
            return None
        if status.st_size > MAX_BYTES:
            notes.append(f"{shown}: larger than 4 MiB, left out")
            return None
        with open(path, "rb") as stream:
            data = stream.read()
    except OSError as error:
        notes.append(f"{shown}: {error.strerror}")
        return None
    if not data.isascii():
        _note_encoding(data, shown, notes)
    return data


def _note_encoding(data: bytes, shown: str, notes: list[str]) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        if b"coding" not in data[:200]:
            notes.append(f"{shown}: not UTF-8 and names no encoding")


def resolve(files: Files, importer: str, module: str, level: int) -> str | None:
    """Return the file that `from <module> import` in `importer` reads, or None when it is outside the root.

    An absolute name is looked for beside the importer and in each folder above it, up to the root, as a script's own
    folder and a source root are both on the path.
    """
    folder = PurePosixPath(importer).parent
    parts = module.split(".") if module else []
    if level:
        up = [folder, *folder.parents]
        return _module_file(files, up[level - 1].joinpath(*parts)) if level <= len(up) else None
    if parts and parts[0] == files.root_name and "__init__.py" in files.sources:
        parts = parts[1:]
    for base in (folder, *folder.parents):
        found = _module_file(files, base.joinpath(*parts))
        if found is not None:
            return found
    return None


def _module_file(files: Files, path: PurePosixPath) -> str | None:
    package = str(path / "__init__.py")
    module = f"{path}.py"
    return package if package in files.sources else module if module in files.sources else None


def declared_all(tree: ast.Module) -> frozenset[str] | None:
    """Return the names in a module's `__all__` as far as they are written out, or None if it has none."""
    import ast

    found: set[str] = set()
    declared = False
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                declared = True
                found.update(_strings(node.value))
        elif isinstance(node, ast.Expr) and ast.unparse(node).startswith(("__all__.extend(", "__all__.append(")):
            found.update(_strings(node.value))
    return frozenset(found) if declared else None


def _strings(node: ast.AST) -> Iterator[str]:
    import ast

    for child in ast.walk(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.value


def star_exports(tree: ast.Module, name: str) -> bool:
    """Return whether `from module import *` would take `name`, should the module bind it."""
    names = declared_all(tree)
    return not name.startswith("_") if names is None else name in names


def star_origin(files: Files, path: str, name: str, seen: frozenset[str] = frozenset()) -> str | None:
    """Return where a star import of `path` gets `name` from: `file:line`, with ` from FILE NAME` for an import."""
    source = files.sources[path]
    if path in seen or (name.encode() not in source and b"import *" not in source):
        return None
    tree = files.tree(path)
    if tree is None or not star_exports(tree, name):
        return None
    return _origin(files, path, tree, name, seen | {path})


def _origin(files: Files, path: str, tree: ast.Module, name: str, seen: frozenset[str]) -> str | None:
    import ast

    from stack.bindings import Reach, statements, stored_names
    from stack.symbols import Scope

    found = None
    for node, reach in statements(tree.body, Scope({}, {})):
        if reach is Reach.NEVER:
            continue
        if isinstance(node, ast.ImportFrom):
            found = _imported(files, path, node, name, seen) or found
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found = f"{path}:{node.lineno}" if node.name == name else found
        elif isinstance(node, ast.Import):
            bound = {alias.asname or alias.name.split(".")[0] for alias in node.names}
            found = f"{path}:{node.lineno}" if name in bound else found
        else:
            lines = [line for stored, line, _ in stored_names(node) if stored == name]
            found = f"{path}:{lines[-1]}" if lines else found
    return found


def _imported(files: Files, path: str, node: ast.ImportFrom, name: str, seen: frozenset[str]) -> str | None:
    target = resolve(files, path, node.module or "", node.level)
    for alias in node.names:
        if alias.name == "*" and target is not None:
            return star_origin(files, target, name, seen)
        if (alias.asname or alias.name) == name:
            return f"{path}:{alias.lineno} from {target} {alias.name}"
    return None
