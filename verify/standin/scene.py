"""The imported package at the import level, and what its stand-ins saw of it on the way."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from verify.standin import extension, finder

UNKNOWN = "no_such_name"
MISSING = "<missing>"


class Version:
    """As much of packaging.version.Version as a version guard needs."""

    def __init__(self, text: str) -> None:
        self.base_version = text.partition("+")[0]
        self._numbers = [int(number) for number in re.findall(r"\d+", self.base_version)]

    def __lt__(self, other: Version) -> bool:
        return self._numbers < other._numbers

    def __ge__(self, other: Version) -> bool:
        return not self < other


class Glimpse:
    """What a stand-in that is imported by the package saw of the flag at that moment."""

    def __init__(self, module: str) -> None:
        package = sys.modules["torch_musa"]
        self.module = module
        # _lazy_init is bound by the same block as the forwarder, in every release: from there on the flag must be
        # there.
        self.after_block = "_lazy_init" in vars(package)
        self.flag = _ask_safely(package, "_initialized")
        self.unknown = _ask_safely(package, UNKNOWN)


class Scene:
    """The imported package and what stands around it, as every check gets it."""

    def __init__(self, root: Path, names: Sequence[str] = ()) -> None:
        self.names = names  # what the package must bind off core/_lazy_init
        self.extension = extension.Extension(lambda card: finder.Anything(f"generator {card}"))
        self.glimpses: list[Glimpse] = []
        answers = {
            finder.EXTENSION: self.extension.answers(),
            "torch": {"__version__": _torch_version(root)},
            "packaging.version": {"Version": Version},
        }
        finder.Finder(root, answers, packages=("torch", "packaging"), notify=self._glimpse).install()
        import torch_musa

        self.package: Any = torch_musa
        self.flag_module: Any = sys.modules["torch_musa.core._lazy_init"]

    def _glimpse(self, module: str) -> None:
        if module.startswith("torch_musa."):
            self.glimpses.append(Glimpse(module))

    def flags(self) -> tuple[Any, Any]:
        """Return the flag as torch_musa and as torch.musa give it."""
        return _ask(self.package, "_initialized"), _ask(sys.modules["torch"].musa, "_initialized")


def _ask(module: ModuleType, name: str) -> Any:
    """Return an attribute, or the missing mark; any exception but AttributeError goes on."""
    return getattr(module, name, MISSING)


def _ask_safely(module: ModuleType, name: str) -> Any:
    """Return an attribute, the missing mark, or the text of an exception.

    A look during the import must not break it.
    """
    try:
        return _ask(module, name)
    except Exception as error:  # any exception is what the tree answered
        return f"{type(error).__name__}: {error}"


def _torch_version(root: Path) -> str:
    """Return the torch version that the tree asks for, so that its version guard is content."""
    source = (root / "torch_musa" / "__init__.py").read_text("utf-8", "replace")
    found = re.search(r'TORCH_MIN_VERSION = Version\("([^"]+)"\)', source)
    return found.group(1) if found else "2.7.1"


def expect(seen: Any, wanted: Any, what: str) -> None:
    """Raise AssertionError unless seen is wanted, the same object."""
    if seen is not wanted:
        raise AssertionError(f"{what} is {seen!r}, not {wanted!r}")


def expect_equal(seen: Any, wanted: Any, what: str) -> None:
    """Raise AssertionError unless seen equals wanted."""
    if seen != wanted:
        raise AssertionError(f"{what} is {seen!r}, not {wanted!r}")
