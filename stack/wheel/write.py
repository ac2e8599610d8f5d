"""Write a wheel after another one: a few members changed, the rest copied in chunks, every run the same bytes."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, BadZipFile, ZipInfo

from stack.errors import Usage
from stack.installed.record import appended, read_rows, rewritten
from stack.plan import Plan
from stack.tree import Kind
from stack.wheel.names import Names, with_version
from stack.wheel.read import CHUNK, Wheel

if TYPE_CHECKING:
    from wheel.wheelfile import WheelFile

Time = tuple[int, int, int, int, int, int]
# What the zip format can say.
_FIRST, _LAST = 315532800, 4354819198
_STREAMED = 0x08
"""Sizes after the data (APPNOTE 4.4.4): the library's way out where it cannot seek, and other bytes than always."""


def epoch() -> Time | None:
    """Return the time of all members by SOURCE_DATE_EPOCH (reproducible-builds.org), None where it is not set."""
    text = os.environ.get("SOURCE_DATE_EPOCH")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Usage(f"SOURCE_DATE_EPOCH={text}: is no count of seconds")
    moment = time.gmtime(min(max(int(text), _FIRST), _LAST))
    return moment.tm_year, moment.tm_mon, moment.tm_mday, moment.tm_hour, moment.tm_min, moment.tm_sec


def changed_members(wheel: Wheel, plan: Plan, where: str) -> dict[str, bytes | None]:
    """Return the members that are not copied, by their old names: the package's files, METADATA and RECORD."""
    files = {step.path: step.after.data if step.after else None for step in plan.steps}
    metadata = with_version(wheel.read(wheel.metadata), wheel.names, f"{where}: METADATA")
    record = _renamed_rows(wheel.read(wheel.record), wheel.names)
    listed = {**files, wheel.names.renamed(wheel.metadata): metadata}
    record = rewritten(record, listed, f"{where}: RECORD")
    new = {step.path: step.after.data for step in plan.steps if step.after and step.before.kind is Kind.ABSENT}
    record = appended(record, new) if new else record
    return {**files, wheel.metadata: metadata, wheel.record: record}


def _renamed_rows(record: bytes, names: Names) -> bytes:
    before, after = names.before.encode(), names.after.encode()
    return b"".join(
        row.data if names.renamed(row.path) == row.path else row.data.replace(before, after, 1)
        for row in read_rows(record, "RECORD")
    )


def write(wheel: Wheel, changed: Mapping[str, bytes | None], path: str) -> None:
    """Write the patched wheel to path, whose name must be the final one. Raises OSError, and Refused by the caller."""
    from wheel.wheelfile import WheelFile

    when = epoch()
    with WheelFile(path, "w") as out:
        out.comment = wheel.file.comment
        for name, member in wheel.members.items():
            if name not in changed:
                _copy(wheel, member, out, _like(member, wheel.names.renamed(name), when))
            elif (data := changed[name]) is not None:
                _put(out, _like(member, wheel.names.renamed(name), when), data)
        for name in sorted(set(changed) - set(wheel.members)):
            _put(out, _new(name, when or wheel.members[wheel.record].date_time), changed[name] or b"")
        if any(member.flag_bits & _STREAMED for member in out.infolist()):
            raise OSError(errno.ESPIPE, "cannot be written at a place of one's choice", path)


def _like(member: ZipInfo, name: str, when: Time | None) -> ZipInfo:
    like = ZipInfo(name, when or member.date_time)
    like.compress_type, like.comment = member.compress_type, member.comment
    like.create_system, like.internal_attr, like.external_attr = (
        member.create_system,
        member.internal_attr,
        member.external_attr,
    )
    like.file_size = member.file_size  # the library takes the large form of the header by it
    return like


def _new(name: str, when: Time) -> ZipInfo:
    member = ZipInfo(name, when)
    member.compress_type, member.external_attr = ZIP_DEFLATED, 0o100644 << 16
    return member


# By open(), not writestr(): that one holds a whole member in memory, and would write a RECORD of its own at the end.
def _put(out: WheelFile, member: ZipInfo, data: bytes) -> None:
    member.file_size, mode = len(data), member.external_attr
    with out.open(member, "w") as target:
        target.write(data)
    member.external_attr = mode  # open() gives one to a member that has none


def _copy(wheel: Wheel, source: ZipInfo, out: WheelFile, member: ZipInfo) -> None:
    mode = member.external_attr
    with wheel.file.open(source) as reader, out.open(member, "w") as target:
        while chunk := reader.read(CHUNK):
            target.write(chunk)
    member.external_attr = mode


def check_whole(path: str) -> None:
    """Read a wheel's every member, which the library holds against RECORD.

    Raises WheelError where one differs, OSError where it cannot be read: the library takes some for a bad file.
    """
    from wheel.wheelfile import WheelFile

    try:
        with WheelFile(path) as file:
            for member in file.infolist():
                with file.open(member) as reader:
                    while reader.read(CHUNK):
                        pass
    except BadZipFile as error:
        raise OSError(errno.EIO, f"cannot be read again: {error}", path) from error
