"""The patches of a new base: what each does to the tree's files, then git's own diffs of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from stack.commits import export
from stack.digest import git_blob
from stack.edit import MEANT, TYPO, edit_init, edit_lazy_init, rebound_names
from stack.edit_check import HANDLE_NAME
from stack.errors import Refused
from stack.header import parse_header
from stack.patch import FileChange, Patch, parse_patch
from stack.plan import File, change_file
from stack.plumbing import empty
from stack.records import Images, record_files, touched
from stack.state import INIT, LAZY_INIT
from stack.store import Release, Store
from stack.tree import Entry, Kind


class Change(NamedTuple):
    """One patch to be: its head, and the files that it changes, as they are after it."""

    head: bytes
    files: Mapping[str, File | None]


class Work(NamedTuple):
    """What a port is made of: the tree's files before it, the changes, and what a person must still look at."""

    base: Mapping[str, File]
    changes: tuple[Change, ...]
    look: tuple[str, ...]


def work_on(entries: Mapping[str, Entry], source: Release, store: Store) -> Work:
    """Make the changes of the source release's patches on the tree's files, each as its kind asks. Raises Refused."""
    base = {path: File(e.data, e.executable) for path, e in entries.items() if e.kind is Kind.FILE}
    now: dict[str, File | None] = dict(base)
    look: list[str] = []
    changes = []
    for patch in source.patches:
        files: dict[str, File | None] = {}
        for change in patch.files:
            after, notes = _after(now, change, patch.name.rpartition("/")[2], store)
            look += notes
            if after != now.get(change.path):
                files[change.path] = after
        now |= files
        if files:
            changes.append(Change(_dated(patch), files))
        else:
            look.append(f"{patch.name.rpartition('/')[2]}: nothing of it is left to do here: the patch is left out")
    return Work(base, tuple(changes), tuple(look))


def _after(
    now: Mapping[str, File | None], change: FileChange, where: str, store: Store
) -> tuple[File | None, list[str]]:
    """Return the file after what a patch means to do to it, and what a person should look at."""
    file = now.get(change.path)
    removed = b"".join(text for hunk in change.hunks for kind, text in hunk.lines if kind == "-")
    if file and change.path == INIT and b"_initialized" in removed:
        lazy = now.get(LAZY_INIT)
        assert lazy is not None
        edited = edit_init(file.data, rebound_names(lazy.data))
        return file._replace(data=edited.data), [*_other_names(edited.names, change, where), *edited.notes]
    if file and change.path == LAZY_INIT and TYPO.encode() in removed:
        data = edit_lazy_init(file.data)
        left = [] if data != file.data else [f"{LAZY_INIT}: no global statement names {TYPO} for {MEANT}"]
        return file._replace(data=data), left
    if change.path in (INIT, LAZY_INIT):
        raise Refused(
            f"{where}: what it does to {change.path} is not the fix that port knows", "Name another release: --from."
        )
    return _carried(file, change, where, store)


def _other_names(names: tuple[str, ...], change: FileChange, where: str) -> list[str]:
    """Say so when the edit binds other names than the patch that is ported, whose message it keeps."""
    added = b"".join(text for hunk in change.hunks for kind, text in hunk.lines if kind == "+")
    known = re.findall(rf"(?m)^(\w+) = {HANDLE_NAME}\.".encode(), added)
    if {name.decode() for name in known} == set(names):
        return []
    bound = ", ".join(names) or "no name"
    return [f"{where}: binds {bound} off the handle here: does the message of the patch still say what it does?"]


def _carried(file: File | None, change: FileChange, where: str, store: Store) -> tuple[File | None, list[str]]:
    """Carry a change to any other file as it is, where the file is one that a known stack changes."""
    if file is None:
        if change.old_mode is None:
            return change_file(None, change, False, where), []
        return None, [f"{change.path}: is not in this tree: what {where} does to it is left out"]
    if change.old_mode is None:
        return file, [f"{change.path}: exists already: what {where} would make is left out"]
    known = [one for release in store.releases for p in release.patches for one in p.files if one.path == change.path]
    for one in [change, *known]:
        if one.old_blob == git_blob(file.data) and (one.old_mode == 0o755) == file.executable:
            return change_file(file, one, False, where), []
    return file, [f"{change.path}: is one that no stack knows: what {where} does to it is left out"]


def _dated(patch: Patch) -> bytes:
    """Return the patch's head, last updated today, and never before the date of the patch."""
    from email.utils import parsedate_to_datetime

    written = parsedate_to_datetime(parse_header(patch.head, patch.name).date).date()
    day = max(_today(), written.isoformat())
    return re.sub(rb"(?m)^Last-Update: .*$", b"Last-Update: " + day.encode(), patch.head)


def _today() -> str:
    """Return the day in UTC; that of SOURCE_DATE_EPOCH makes the same bytes again (reproducible-builds.org)."""
    import os
    from datetime import datetime, timezone

    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.fromtimestamp(int(epoch), timezone.utc) if epoch.isdigit() else datetime.now(timezone.utc)
    return now.date().isoformat()


def stack_files(root: str, name: str, source: Release, work: Work) -> dict[str, bytes]:
    """Return patches, series and records of the new release by their labels: the patches are git's own diffs."""
    if not work.changes:
        raise Refused(f"{root}: nothing of {source.name} is left to do here")
    with empty() as git:
        git.run("fast-import", "--quiet", "--date-format=rfc2822", data=b"".join(_stream(work)))
        patches = dict(export(git, f"refs/heads/x~{len(work.changes)}", "refs/heads/x"))
    parsed = [parse_patch(data, label) for label, data in patches.items()]
    result: dict[str, File | None] = dict(work.base)
    for change in work.changes:
        result |= change.files
    paths = touched(parsed)
    images = Images(
        {path: work.base[path].data for path in paths if path in work.base},
        {path: file.data for path in paths if (file := result.get(path)) is not None},
    )
    return {
        **{f"patches/{name}/{label}": data for label, data in patches.items()},
        f"series/{name}": "".join(f"{label}\n" for label in patches).encode(),
        **record_files(name, images),
    }


def _stream(work: Work) -> Iterator[bytes]:
    """Yield base and changes as commits for git fast-import (git manual, git-fast-import)."""
    yield from _commit(b"base <base@base.example> Thu, 1 Jan 1970 00:00:00 +0000", b"base", work.base)
    for change in work.changes:
        header = parse_header(change.head, "the patch to port")
        message = change.head.split(b"\n", 3)[3].removesuffix(b"---\n")
        who = f"{_decoded(header.author)} {header.date}".encode()
        yield from _commit(who, f"{header.subject}\n".encode() + message, change.files)


def _decoded(author: str) -> str:
    from email.header import decode_header, make_header

    return str(make_header(decode_header(author)))


def _commit(who: bytes, message: bytes, files: Mapping[str, File | None]) -> Iterator[bytes]:
    yield b"commit refs/heads/x\nauthor %s\ncommitter %s\ndata %d\n%s\n" % (who, who, len(message), message)
    for path, file in sorted(files.items()):
        if file is None:
            yield b"D %s\n" % path.encode()
        else:
            mode = b"100755" if file.executable else b"100644"
            yield b"M %s inline %s\ndata %d\n%s\n" % (mode, path.encode(), len(file.data), file.data)
