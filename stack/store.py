"""The releases as data: a folder with `series/<release>` and `patches/<release>/`.

Nothing is read before it is asked for: to name a pristine tree takes the pins alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from stack.errors import Environment, Malformed, Usage
from stack.patch import LARGEST, MOST_LINES, FileChange, Patch, parse_patch
from stack.paths import JOURNAL, check_path, check_twins
from stack.pins import parse_pins
from stack.series import parse_series
from stack.tree import MOST_LINES as MOST_LINES_OF_FILES
from stack.tree import Kind, Tree, stands

_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+-")
_HEX = frozenset("0123456789abcdef")


class Release:
    """One release of upstream and the stack for it; every part is read once, when asked for."""

    def __init__(self, stacks: str, name: str) -> None:
        self.name = name
        self.stacks = stacks
        self._data: dict[str, bytes] = {}
        self.series_label = f"series/{name}"
        self.label = f"patches/{name}"
        """The folder of the patches and pins, as messages name it: from the stacks folder on."""
        self._counted: set[str] = set()
        self._lines = 0

    def read(self, label: str) -> bytes:
        """Return the bytes of one data file; raise Malformed or Environment naming it."""
        if label not in self._data:
            self._data[label] = self._load(label)
        return self._data[label]

    def _load(self, label: str) -> bytes:
        """Read one data file.

        It is a regular file, and no link leads to it: what stands elsewhere on the machine is nobody's patch, and
        would show in messages.
        """
        with Tree(self.stacks) as tree:
            found = tree.read(label)
        if found.kind is Kind.ABSENT:
            raise Malformed(f"{label}: is missing", f"Release {self.name} is not complete.")
        if found.kind is Kind.HUGE or len(found.data) > LARGEST:
            raise Malformed(f"{label}: is a huge file: it may have {LARGEST} bytes and {MOST_LINES_OF_FILES} lines")
        if found.kind is not Kind.FILE:
            via = f" (through {found.via})" if found.via else ""
            raise Malformed(f"{label}: is a {found.kind.value}{via}, not a regular file")
        return found.data

    def labels(self) -> list[str]:
        """Return the label of every file of the release: its folder's, whatever they are, and its series."""
        try:
            names = os.listdir(f"{self.stacks}/{self.label}")
        except (FileNotFoundError, NotADirectoryError):
            raise Malformed(f"{self.label}: is missing", f"Release {self.name} is not complete.") from None
        except OSError as error:
            raise Environment(f"{self.label}: cannot be listed: {error.strerror}") from error
        return [*(f"{self.label}/{name}" for name in sorted(names)), self.series_label]

    @cached_property
    def series(self) -> tuple[str, ...]:
        return parse_series(self.read(self.series_label), self.series_label)

    @cached_property
    def patches(self) -> tuple[Patch, ...]:
        return tuple(self.patch(name) for name in self.series)

    @cached_property
    def changes(self) -> Mapping[str, list[tuple[str, FileChange]]]:
        """What happens to each touched path, in order, with the label of the patch that does it."""
        changes: dict[str, list[tuple[str, FileChange]]] = {}
        for patch in self.patches:
            for change in patch.files:
                changes.setdefault(change.path, []).append((patch.name, change))
        return changes

    def steps(self, path: str) -> list[tuple[str, FileChange | None]]:
        """Return what each patch of the series does to one file, with the patch's label; None where it does nothing."""
        return [(patch.name, next((one for one in patch.files if one.path == path), None)) for patch in self.patches]

    def patch(self, name: str) -> Patch:
        """Return one patch of the release's folder; raise Malformed for more lines in all than a stack may have."""
        label = f"{self.label}/{name}"
        data = self.read(label)
        if name not in self._counted:
            self._counted.add(name)
            self._lines += data.count(b"\n") + len(data) // 1024  # long lines take their time, too
        if self._lines > MOST_LINES:
            raise Malformed(f"{label}: with it the stack has more than {MOST_LINES} lines or kilobytes")
        return parse_patch(data, label)

    def _pins(self, name: str) -> dict[str, str]:
        label = f"{self.label}/{name}"
        return parse_pins(self.read(label), label)

    @cached_property
    def base(self) -> Mapping[str, str]:
        """SHA-256 of each touched file before the stack; without the files that the stack makes."""
        return self._pins("base.sha256")

    @cached_property
    def result(self) -> Mapping[str, str]:
        """SHA-256 of each touched file after the stack; without the files that it deletes."""
        return self._pins("result.sha256")

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The touched paths, sorted."""
        paths = sorted({**self.base, **self.result})
        check_twins(paths, self.label)
        return tuple(paths)

    @cached_property
    def about(self) -> Mapping[str, Any]:
        """release.json: upstream_commit, torch, fixed_in, and `directories`, those of the release's
        own directories in which the stack makes files (so that unapply never removes them)."""
        about = self._json("release.json")
        texts = [about.get(key) for key in ("upstream_commit", "torch", "fixed_in")]
        folders = about.get("directories")
        if not all(map(_is_plain, texts)) or not isinstance(folders, list):
            raise Malformed(
                f"{self.label}/release.json: needs the texts upstream_commit, torch "
                "and fixed_in, in plain ASCII, and the list directories"
            )
        for folder in folders:
            if not isinstance(folder, str):
                raise Malformed(f"{self.label}/release.json: {folder!r} in directories is not a text")
            check_path(folder, f"{self.label}/release.json")
        return about

    @cached_property
    def fingerprint(self) -> Mapping[str, Any]:
        """fingerprint.json: size, sha256, git_blob and line digests of each file of the base, and
        `result`: sha256 and git_blob after the stack, null for a file that goes."""
        prints = self._json("fingerprint.json")
        for path, entry in prints.items():
            check_path(path, f"{self.label}/fingerprint.json")
            lines = entry.get("lines") if isinstance(entry, dict) else None
            if not isinstance(lines, list) or not all(map(_is_line, lines)):
                raise Malformed(f"{self.label}/fingerprint.json: {path}: no lines, or one that is no line digest")
        return prints

    def _json(self, name: str) -> dict[str, Any]:
        import json

        label = f"{self.label}/{name}"
        try:
            value = json.loads(self.read(label))
        except (ValueError, RecursionError) as error:
            raise Malformed(f"{label}: {error}") from error
        if not isinstance(value, dict):
            raise Malformed(f"{label}: is not a JSON object")
        return value


def _is_plain(value: object) -> bool:
    """Whether this is a text that can be printed: JSON may hold half a character, or a terminal's escapes."""
    return isinstance(value, str) and value.isascii() and value.isprintable()


class Store:
    """The releases under one stacks folder."""

    def __init__(self, stacks: str) -> None:
        self.stacks = os.path.abspath(stacks)

    @cached_property
    def releases(self) -> tuple[Release, ...]:
        """All releases, oldest version first; raise Usage when the folder has none, Environment for one that a run
        is writing, or was cut off from writing (port, refresh): it may hold the one half of a stack."""
        if stands(f"{self.stacks}/{JOURNAL}"):
            from shlex import quote

            raise Environment(
                f"{self.stacks}: a run is at work on these stacks, or was cut off ({JOURNAL})",
                f"If none is at work, this puts them right: apply.py recover {quote(self.stacks)}",
            )
        try:
            names = os.listdir(f"{self.stacks}/series")
        except OSError as error:
            raise Usage(
                f"{self.stacks}: no stacks here: series: {error.strerror}",
                "--stacks names a folder that holds series/ and patches/.",
            ) from error
        names = [name for name in names if is_release(name)]
        if not names:
            raise Usage(f"{self.stacks}/series: names no release")
        return tuple(Release(self.stacks, name) for name in sorted(names, key=version_key))

    def release(self, name: str) -> Release:
        """Return one release by name; raise Usage with the known names."""
        for release in self.releases:
            if release.name == name:
                return release
        known = ", ".join(release.name for release in self.releases)
        raise Usage(f"release {name!r} has no stack here", f"Known: {known}.")

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Every path that some release's stack touches, sorted."""
        return tuple(sorted({path for release in self.releases for path in release.paths}))


def is_release(name: str) -> bool:
    """Whether this can be the name of a release: it begins with a digit, and no shell or terminal minds it."""
    return name[:1].isdigit() and _NAME.issuperset(name)


def _is_line(digest: object) -> bool:
    return isinstance(digest, str) and len(digest) == 16 and _HEX.issuperset(digest)


def version_key(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts 2.9.1.post1 before 2.11.0.

    >>> sorted(["2.11.0.post1", "2.9.1", "2.9.1.post1"], key=version_key)
    ['2.9.1', '2.9.1.post1', '2.11.0.post1']
    """
    import re

    parts = re.findall(r"\d+|[A-Za-z]+", name)
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]
