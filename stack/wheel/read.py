"""Read a wheel: its archive, its list of files, and the package's files that the pins speak of.

The wheel library reads RECORD and holds every member that is read against it; what it does not look at is checked here.
"""

from __future__ import annotations

import csv
import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from stack.errors import Environment, Refused, Usage
from stack.installed.record import Row, check_fields, read_rows
from stack.installed.view import hides
from stack.tree import Entry, Kind
from stack.wheel.archive import check_members, check_small
from stack.wheel.names import Names, read_names

if TYPE_CHECKING:
    from wheel.wheelfile import WheelFile

CHUNK = 1024 * 1024


class Wheel(NamedTuple):
    """An open wheel: its archive (the library's, once it is sound), its names, the members by name in their order."""

    file: zipfile.ZipFile
    names: Names
    members: Mapping[str, zipfile.ZipInfo]

    @property
    def record(self) -> str:
        return f"{self.names.before}.dist-info/RECORD"

    @property
    def metadata(self) -> str:
        return f"{self.names.before}.dist-info/METADATA"

    def read(self, name: str) -> bytes:
        """Return a member whole; it must be a small one."""
        check_small(self.members[name], os.path.basename(self.file.filename or ""))
        data: bytes = self.file.read(name)
        return data


@contextmanager
def opened(path: str) -> Iterator[Wheel]:
    """Open a wheel whose archive and list of files are sound; raise StackError, naming the file, for another."""
    try:
        import packaging.utils  # noqa: F401 - the names of wheels (stack.wheel.names)
        from wheel.wheelfile import WheelFile
    except ModuleNotFoundError as error:
        raise Environment(
            f"the libraries wheel and packaging are needed: {error}",
            "apt install python3-wheel python3-packaging, or pip install wheel packaging",
        ) from error
    name = os.path.basename(path)
    if not os.path.isfile(path):
        raise Usage(f"{path}: is no file", "Name a wheel of torch_musa.")
    found = _open(path, name, WheelFile)
    with found.file:
        yield found


def _open(path: str, name: str, library: type[WheelFile]) -> Wheel:
    names = read_names(name)
    try:
        with readable(name):
            with zipfile.ZipFile(path) as archive:  # the library reads RECORD at once: not before all this is known
                check_members(archive.infolist(), os.path.getsize(path), name)
                plain = Wheel(archive, names, {one.filename: one for one in archive.infolist()})
                _check_folders(plain, name)
                _check_record(plain, name)
            file = library(path)
            return Wheel(file, names, {one.filename: one for one in file.infolist()})
    except OSError as error:
        raise Environment(f"{path}: cannot be read: {error.strerror}") from error


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn what the libraries raise for an archive that is none, or is damaged, into a refusal."""
    from wheel.wheelfile import WheelError

    try:
        yield
    except (WheelError, zipfile.BadZipFile, zlib.error, csv.Error, EOFError, NotImplementedError, ValueError) as error:
        raise Refused(f"{name}: cannot be read as a wheel: {error}", "Get the wheel anew.") from error


def _check_folders(wheel: Wheel, name: str) -> None:
    tops = {one.partition("/")[0] for one in wheel.members}
    found = sorted(top for top in tops if top.lower().endswith(".dist-info"))
    if found != [f"{wheel.names.before}.dist-info"]:
        raise Refused(f"{name}: has the metadata folders {found}; one named {wheel.names.before}.dist-info is right")
    inside = re.compile(rf"{re.escape(wheel.names.before)}\.data/(purelib|platlib)/torch_musa/", re.IGNORECASE)
    for member in wheel.members:
        if inside.match(member):
            raise Refused(f"{name}: {member}: would be installed over the package", "No wheel is made like this.")
    missing = [one for one in (wheel.record, wheel.metadata) if one not in wheel.members]
    if missing:
        raise Refused(f"{name}: has no {missing[0]}")


def _check_record(wheel: Wheel, name: str) -> None:
    """Raise Refused where RECORD and the members are not one list. Digests are held against it as members are read."""
    rows = read_rows(wheel.read(wheel.record), f"{name}: RECORD")
    listed: dict[str, Row] = {}
    for row in rows:
        check_fields(row, f"{name}: RECORD")
        if listed.setdefault(row.path, row) is not row:
            raise Refused(f"{name}: RECORD:{row.line}: {row.path} is listed twice")
    files = {path: one for path, one in wheel.members.items() if not path.endswith("/")}
    for path in sorted(set(files) ^ set(listed)):
        where = "has no row for" if path in files else "lists a file that is not in the wheel:"
        raise Refused(f"{name}: RECORD {where} {path}", "The wheel was changed after it was built. Get it anew.")
    for path, row in listed.items():
        if path != wheel.record and (not row.fields[1] or row.fields[2] not in ("", str(files[path].file_size))):
            raise Refused(f"{name}: RECORD:{row.line}: does not agree with {path}", "Get the wheel anew.")


def entries_of(wheel: Wheel, paths: Iterable[str]) -> dict[str, Entry]:
    """Return what the wheel has at each of the paths. A mode is the builder's affair here, and is kept as it is.

    Raises Refused where something else of the wheel would be imported in the place of one of them.
    """
    paths = tuple(paths)
    for member in wheel.members:
        if path := next((path for path in paths if hides(path, member)), ""):
            raise Refused(
                f"{member}: would be imported in place of {path}", "The fix would not be seen: nothing was done."
            )
    return {
        path: Entry(Kind.FILE, wheel.read(path), 0o644) if path in wheel.members else Entry(Kind.ABSENT)
        for path in paths
    }
