"""The releases as an installed package can have them: of every stack only what it does below `torch_musa/`.

A wheel has the package and not the tests. So a patch of tests alone drops out, and the pins, the series and the line
digests are those of the package's files. All else is the same data and the same engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeVar

from stack.errors import Usage
from stack.patch import Patch
from stack.store import Release, Store

PACKAGE = "torch_musa/"

_Value = TypeVar("_Value")


def of_package(values: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return what belongs to the package's own files."""
    return {path: value for path, value in values.items() if path.startswith(PACKAGE)}


def hides(path: str, other: str) -> bool:
    """Whether a file is imported in place of the source at path: an extension module, or a package of that name.

    >>> [hides("p/m.py", other) for other in ("p/m.cpython-311-x86_64-linux-gnu.so", "p/m/__init__.py", "p/m2.so")]
    [True, True, False]
    """
    rest = other.removeprefix(path.removesuffix(".py"))
    return rest != other and re.fullmatch(r"(\.[\w-]+)*\.(so|pyd)|/__init__\..*", rest, re.ASCII) is not None


class PackageRelease(Release):
    """One release, seen from the package."""

    @cached_property
    def _whole(self) -> Release:
        return Release(self.stacks, self.name)

    @cached_property
    def patches(self) -> tuple[Patch, ...]:
        seen = (
            patch._replace(files=tuple(change for change in patch.files if change.path.startswith(PACKAGE)))
            for patch in self._whole.patches
        )
        return tuple(patch for patch in seen if patch.files)

    @cached_property
    def series(self) -> tuple[str, ...]:
        return tuple(patch.name.rpartition("/")[2] for patch in self.patches)

    @cached_property
    def left_out(self) -> tuple[str, ...]:
        """The patches that change none of the package's files."""
        return tuple(name for name in self._whole.series if name not in self.series)

    @cached_property
    def fingerprint(self) -> Mapping[str, Any]:
        return of_package(self._whole.fingerprint)

    def _pins(self, name: str) -> dict[str, str]:
        return of_package(super()._pins(name))


class PackageStore(Store):
    """The releases under one stacks folder, seen from the package."""

    @cached_property
    def releases(self) -> tuple[Release, ...]:
        seen = tuple(PackageRelease(self.stacks, release.name) for release in Store(self.stacks).releases)
        useful = tuple(release for release in seen if release.paths)
        if not useful:
            raise Usage(f"{self.stacks}: no stack here changes a file of the package")
        return useful


def left_out(release: Release | None) -> str:
    """Return the sentence on the patches that an installed package has no files for, or an empty text."""
    names = release.left_out if isinstance(release, PackageRelease) else ()
    return f"left out, since there are no such files here: {', '.join(names)}" if names else ""
