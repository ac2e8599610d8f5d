"""A meta-path finder: the judged files of a tree run for real, the rest is stood in for.

Which modules must be real follows from the defect: the flag, the functions that set it, and what
torch's checkpoint calls on the way (device guard and random state). They need no card; the rest of
torch_musa does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

PACKAGE = "torch_musa"
EXTENSION = "torch_musa._MUSAC"
REAL = frozenset(
    {
        "torch_musa",
        "torch_musa.version",
        "torch_musa.core",
        "torch_musa.core._lazy_init",
        "torch_musa.core._utils",
        "torch_musa.core.device",
        "torch_musa.core.random",
        "torch_musa.core.musa",
    }
)


class Anything:
    """Answers any use of an imported name: called, decorated with, inherited from, iterated."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Anything:
        # Protocol look-ups (pickle, typing, inspect) must see an ordinary object.
        if name.startswith("__"):
            raise AttributeError(name)
        answer = Anything(f"{self.__name__}.{name}")
        setattr(self, name, answer)
        return answer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        used_as_decorator = len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], Anything)
        return args[0] if used_as_decorator else Anything(f"{self.__name__}()")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __getitem__(self, key: Any) -> Anything:
        return self

    def __or__(self, other: Any) -> Anything:
        return self

    __ror__ = __or__

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __index__(self) -> int:
        return 0

    def __enter__(self) -> Anything:  # Self needs Python 3.11
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<stand-in {self.__name__}>"


class StandIn(ModuleType):
    """A module that answers any name, and gives nothing to a star import."""

    __all__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        answer = Anything(f"{self.__name__}.{name}")
        setattr(self, name, answer)
        return answer


class _StandInLoader:
    """Makes a stand-in module with the answers that were prepared for it."""

    def __init__(self, answers: Mapping[str, object], notify: Callable[[str], None]) -> None:
        self._answers = answers
        self._notify = notify

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(self._answers)
        self._notify(module.__name__)


class FreshLoader(SourceFileLoader):
    """Compiles the source each time.

    Bytecode beside the tree may be stale, and none is written there.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class Finder:
    """Finds the real modules of one tree, and stand-ins for the rest of it.

    root: the folder that holds torch_musa.
    answers: module name -> names and values that its stand-in must have.
    packages: further top-level packages that are stood in for as a whole (torch, packaging).
    notify: called with the name of each stand-in at the moment it is imported.
    A module that the tree does not have is not found: a stand-in there would hide a misspelt
    import.
    """

    def __init__(
        self,
        root: Path,
        answers: Mapping[str, Mapping[str, object]],
        packages: Iterable[str] = (),
        notify: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._root = root
        self._answers = answers
        self._packages = frozenset(packages)
        self._notify = notify

    def install(self) -> None:
        """Put this finder before all others."""
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Answer the import system (importlib's finder protocol).

        Raises ModuleNotFoundError for a torch_musa module that the tree lacks: no other finder may
        supply an installed one.
        """
        package = name.partition(".")[0]
        if package in self._packages:
            return self._stand_in(name)
        if package != PACKAGE:
            return None
        spec = self._real(name) if name in REAL else self._stand_in(name) if self._has(name) else None
        if spec is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return spec

    def _stand_in(self, name: str) -> ModuleSpec:
        loader = _StandInLoader(self._answers.get(name, {}), self._notify)
        spec = ModuleSpec(name, loader, is_package=True)  # type: ignore[arg-type]  # by protocol
        spec.origin = "stand-in"
        return spec

    def _has(self, name: str) -> bool:
        """Say whether the tree has this module, as source, folder or compiled.

        The extension is built, not source.
        """
        place = self._place(name)
        return name == EXTENSION or place.is_dir() or any(place.parent.glob(f"{place.name}.*"))

    def _real(self, name: str) -> ModuleSpec | None:
        """Return the spec of a real module, read from its source.

        None when the tree has no such source.
        """
        place = self._place(name)
        for source, folder in ((place / "__init__.py", place), (place.with_suffix(".py"), None)):
            if source.is_file():
                spec = ModuleSpec(
                    name,
                    FreshLoader(name, str(source)),
                    origin=str(source),
                    is_package=bool(folder),
                )
                spec.has_location = True
                if folder:
                    spec.submodule_search_locations = [str(folder)]
                return spec
        return None

    def _place(self, name: str) -> Path:
        return self._root.joinpath(*name.split("."))
