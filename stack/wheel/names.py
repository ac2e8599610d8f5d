"""The names of a patched wheel: a local version says that it is not upstream's own.

A local version is what a redistributor adds (Python packaging specifications, "Version Specifiers"); `==2.7.1` still
accepts it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from stack.errors import Refused

LOCAL = "initfix1"


def local_version(version: str) -> str:
    """Return the version of the patched wheel.

    >>> local_version("2.7.1"), local_version("2.7.1+abc")
    ('2.7.1+initfix1', '2.7.1+abc.initfix1')
    """
    return f"{version}{'.' if '+' in version else '+'}{LOCAL}"


class Names(NamedTuple):
    """The version of a wheel as its file name writes it, and the stem `name-version` before and after."""

    version: str
    before: str
    after: str

    def renamed(self, path: str) -> str:
        """Return a member's name in the patched wheel: the folders named after the version follow it."""
        folder, slash, rest = path.partition("/")
        for end in (".dist-info", ".data"):
            if folder == self.before + end:
                return f"{self.after}{end}{slash}{rest}"
        return path


def read_names(file_name: str) -> Names:
    """Return the names of a wheel by its file name; raise Refused for one that names no torch_musa wheel."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename
    from packaging.version import Version

    try:
        name, version, _, _ = parse_wheel_filename(file_name)
    except InvalidWheelFilename as error:
        why = f"{file_name}: is no name of a wheel: {error}"
        raise Refused(why, "Give it the name back that it was built with.") from error
    if not re.fullmatch(r"[\w.+-]+\.whl", file_name, re.ASCII):  # a browser's second download, say
        raise Refused(f"{file_name}: is no name of a wheel", "Give it the name back that it was built with.")
    if name != "torch-musa":
        raise Refused(f"{file_name}: is a wheel of {name}, not of torch_musa")
    distribution, text = file_name.split("-")[:2]
    after = local_version(text)
    assert Version(after).public == version.public
    return Names(text, f"{distribution}-{text}", f"{distribution}-{after}")


def patched_file_name(file_name: str, names: Names) -> str:
    """Return the file name of the patched wheel."""
    return names.after + file_name[len(names.before) :]


def with_version(metadata: bytes, names: Names, where: str) -> bytes:
    """Return METADATA with its one Version line changed, every other byte kept; raise Refused for another version."""
    from packaging.version import InvalidVersion, Version

    lines = metadata.splitlines(keepends=True)
    end = next((number for number, line in enumerate(lines) if not line.strip()), len(lines))
    found = [number for number in range(end) if lines[number].lower().startswith(b"version:")]
    if len(found) != 1:
        raise Refused(f"{where}: has {len(found)} Version lines; one is right")
    line = lines[found[0]]
    text = line.partition(b":")[2].strip().decode("ascii", "backslashreplace")
    try:
        same = Version(text) == Version(names.version)
    except InvalidVersion:
        same = False
    if not same:
        raise Refused(f"{where}:{found[0] + 1}: says version {text}, the file name {names.version}")
    start, after = line.find(text.encode()), local_version(text).encode()
    lines[found[0]] = line[:start] + after + line[start + len(text) :]
    return b"".join(lines)
