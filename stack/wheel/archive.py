"""A wheel as an archive: what may be in it, checked before any member is read. Anything in it is hostile until then."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipInfo

from stack.errors import Refused
from stack.paths import parents
from stack.tree import LARGEST

MOST_MEMBERS = 100_000
MOST_BYTES = 16 * 1024**3
MOST_RATIO = 200
"""A wheel of compiled code grows three to tenfold when it is unpacked; the room below is for small ones."""
_LONGEST = 1024
_FREE = 16 * 1024**2
_SIGNATURES = ("/RECORD.jws", "/RECORD.p7s")


def check_members(members: Iterable[ZipInfo], size: int, where: str) -> None:
    """Raise Refused, naming the member, for a wheel that no builder makes: size is that of the archive in bytes."""
    listed = list(members)
    if len(listed) > MOST_MEMBERS:
        raise Refused(f"{where}: has {len(listed)} members; at most {MOST_MEMBERS} are read")
    for one in listed:
        problem = _problem(one)
        if problem:
            raise Refused(f"{where}: {one.orig_filename[:200]!r}: {problem}", "No wheel is made like this: look at it.")
        if one.orig_filename.endswith(_SIGNATURES):
            raise Refused(
                f"{where}: {one.orig_filename}: is a signature, which a changed wheel would break",
                "Patch the wheel as it was before it was signed, and sign the new one.",
            )
    _check_names([one.filename for one in listed], where)
    total = sum(one.file_size for one in listed)
    if total > min(MOST_BYTES, MOST_RATIO * size + _FREE):
        raise Refused(f"{where}: {size} bytes would unpack to {total}: that is no wheel, but a bomb")


def _problem(one: ZipInfo) -> str:
    name = one.orig_filename
    parts = name.removesuffix("/").split("/")
    if len(name) > _LONGEST:
        return f"a name of more than {_LONGEST} characters"
    if "\0" in name or "\\" in name or "\n" in name or "\r" in name:
        return "a name with a NUL, a backslash or a line end"
    if name.startswith("/") or ":" in parts[0] or any(part in ("", ".", "..") for part in parts):
        return "a name that is absolute or leaves the folder"
    if one.flag_bits & 1:
        return "is encrypted"
    if one.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        return f"is compressed in a way that wheels do not use ({one.compress_type})"
    kind = stat.S_IFMT(one.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or (kind == stat.S_IFDIR) != name.endswith("/") and kind:
        return "is a symbolic link or another special file"
    return ""


def _check_names(names: list[str], where: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        key = name.removesuffix("/").lower()
        if key in seen:
            what = "is there twice" if seen[key] == name else f"and {seen[key]!r} differ in case only"
            raise Refused(f"{where}: {name!r} {what}")
        seen[key] = name
    files = {key for key, name in seen.items() if not name.endswith("/")}
    for key in seen:
        if any(above in files for above in parents(key)):
            raise Refused(f"{where}: {seen[key]!r} lies below a name that is a file")


def check_small(one: ZipInfo, where: str) -> None:
    """Raise Refused for a member that is read whole and is too large for that."""
    if one.file_size > LARGEST:
        raise Refused(f"{where}: {one.filename}: has more than {LARGEST} bytes")
