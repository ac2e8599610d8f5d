"""A tree to port and a stacks folder to port into, and the forms of the import that the tests put into the tree."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stack.outcome import Outcome
from stack.port import Ask, port
from stack.store import Store
from tests.conftest import STACKS, contents, copy_specimen
from verify.port_command import prove

IMPORT = functools.partial(prove, level="import")
BLOCK = (
    "from .core._lazy_init import (\n    _lazy_init,\n    _lazy_call,\n    _initialized,\n    _is_in_bad_fork,\n"
    "    is_initialized,\n    musart,\n)\n"
)
ONE_LINE = "from .core._lazy_init import {}\n"
FOUR = "_lazy_init, _initialized, _is_in_bad_fork, is_initialized"
# A release for torch 2.0 binds fewer names, and nobody misses them.
OLD = 'TORCH_MIN_VERSION = "2.0.0"\n'
OLDER_BLOCK = 'TORCH_MIN_VERSION = "2.5.0"\n' + ONE_LINE.format(FOUR)
ALL = "_lazy_init, _lazy_call, _initialized, _is_in_bad_fork, is_initialized, musart"
EDIT = "# An edit of the fork's own.\n"
Text = Callable[[str], str]


class Bench:
    """A specimen tree, edited, and a stacks folder to write into."""

    def __init__(self, where: Path, stacks: Path = STACKS) -> None:
        self.stacks = where / "stacks"
        shutil.copytree(stacks, self.stacks)
        self.tree = copy_specimen(where / "tree")
        self.before = contents(self.stacks)

    def edit(self, path: str, change: Text) -> None:
        file = self.tree / path
        text = file.read_bytes().decode()
        assert change(text) != text
        file.write_bytes(change(text).encode())

    def port(self, name: str = "2.7.2", prove: Any = IMPORT, **ask: str | None) -> Outcome:
        wanted = Ask(name, ask.get("source"), ask.get("accept"))
        tree = contents(self.tree)
        try:
            return port(str(self.tree), Store(str(self.stacks)), wanted, prove)
        finally:
            assert contents(self.tree) == tree, "a port only reads the tree"

    @property
    def untouched(self) -> bool:
        return contents(self.stacks) == self.before

    def files(self, name: str = "2.7.2") -> dict[str, bytes]:
        found = contents(self.stacks).items()
        return {label: data for label, (data, _) in found if f"/{name}" in label and data is not None}


def swap(block: str) -> Text:
    return lambda text: text.replace(BLOCK, block)
