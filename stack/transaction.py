"""Make a plan true on disk, all or nothing.

Stage every new file beside the tree's own, keep a hard link to every original, write the record,
replace, clean up. Up to the record nothing of the tree is touched; from then on any failure puts
the originals back, and a kill leaves a journal from which the next run does so.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress

from stack.digest import sha256
from stack.errors import Environment, Refused
from stack.journal import (
    UNSETTLED,
    Line,
    Record,
    clear,
    describe,
    format_record,
    open_journal,
    pending,
    remove_empty,
    undo,
    unlink,
)
from stack.lock import this_host
from stack.many import MANY, for_each
from stack.paths import JOURNAL, parents
from stack.plan import File, Plan, Step
from stack.tree import Entry, Kind, Tree, close, read_at

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Partner:
    """What changes together with the files, all or nothing: stack.gitwork moves a branch and an index."""

    def begin(self, journal: int) -> None:
        """Make ready; journal is open on the journal's directory. No file of the tree has been touched."""

    def publish(self) -> None:
        """All files are in place: do what others see, or raise. Interrupts are held back."""

    def withdraw(self) -> None:
        """Take back what publish did, all or in part, before the files go back."""

    def end(self) -> None:
        """Leave nothing behind, whatever the outcome; also after a begin that raised."""


def commit(tree: Tree, plan: Plan, partner: Partner | None = None) -> None:
    """Make the plan true. The caller holds the tree's lock and has recovered what lay there.

    partner: what goes with the files. What a kill leaves of it is stack.journal's to put right.
    On a file system without locks (stack.lock), the making of the journal's directory is one.
    Raises Refused when a file is no longer what the plan was made from, Environment when the disk
    or its permissions prevent the work; either way the tree is as it was.
    """
    if not plan.steps:
        return
    done = False
    try:
        with journal_in(tree) as handle, _with(partner, handle):
            _run(tree, handle, plan, partner)
            done = True
            if partner is None:  # what git moves is no more durable than git makes it
                with suppress(OSError):  # unsynced, the change could be taken back after a power cut, no more
                    os.fsync(handle)
    except OSError as error:
        raise _cannot(tree, error, done) from error


def _cannot(tree: Tree, error: OSError, done: bool) -> Environment:
    what = f"{tree.root}: cannot be changed: {describe(error)}"
    if done:
        tip = f"All files are changed as planned; only {JOURNAL} is left. Remove it, or run any command again."
    elif pending(tree):
        tip = "It is not yet as it was. Put right what prevents it, then run the command again: it first undoes."
    else:
        tip = "The tree is as it was."
    return Environment(what, tip)


@contextmanager
def _with(partner: Partner | None, handle: int) -> Iterator[None]:
    if partner is None:
        yield
        return
    try:
        partner.begin(handle)
        yield
    finally:
        if "record" not in os.listdir(handle):  # else the next run needs what the partner has
            with shielded():
                partner.end()


def _run(tree: Tree, handle: int, plan: Plan, partner: Partner | None) -> None:
    try:
        record = _stage(tree, handle, plan)
    except BaseException:
        unlink(handle, "record")  # it may be there in part; no file of the tree has been touched
        raise
    try:
        for path in record.made:
            _make(tree, path)
        for number, step in enumerate(plan.steps):
            _replace(tree, handle, number, step)
        _settle(tree, record)
        with shielded() if partner else nullcontext():
            if partner:
                partner.publish()
            # The point of no return: without a record, what is in place stays.
            os.unlink("record", dir_fd=handle)
    except BaseException:
        if "record" in os.listdir(handle):  # an interrupt may come just after it went
            with shielded():
                if partner:
                    partner.withdraw()
                undo(tree, handle, record)
        raise


@contextmanager
def shielded() -> Iterator[None]:
    """Hold back the signals that end a run: impatience must not leave half a tree.

    By handlers, not by a mask: a mask is a thread's own, and a signal for the process finds another thread.
    """
    import signal

    held: list[int] = []
    before = {}
    with suppress(ValueError):  # Python interrupts the main thread alone, and only there are handlers set
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            before[number] = signal.signal(number, lambda number, frame: held.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for late in dict.fromkeys(held):
            signal.raise_signal(late)


@contextmanager
def journal_in(tree: Tree) -> Iterator[int]:
    """Make the journal and yield its directory, open; at the end it goes, with all that is ours in it.

    Raises Environment where there is one already, or something else of that name.
    """
    try:
        os.mkdir(JOURNAL, 0o700, dir_fd=tree.handle)
    except FileExistsError as error:
        kind = tree.read(JOURNAL).kind
        if kind is not Kind.DIRECTORY:
            raise Environment(f"{tree.root}/{JOURNAL}: is a {kind.value}", "Remove it: the name is ours.") from error
        raise Environment(f"{tree.root}: another run is at work here ({JOURNAL})") from error
    try:
        handle = open_journal(tree)
    except BaseException:
        os.rmdir(JOURNAL, dir_fd=tree.handle)
        raise
    try:
        yield handle
    finally:
        try:
            if not UNSETTLED.intersection(os.listdir(handle)):
                clear(tree, handle)
        finally:
            close(handle)


def _stage(tree: Tree, handle: int, plan: Plan) -> Record:
    """Write every new file, link every original, then the record. Touches no file of the tree."""
    many = len(plan.steps) > MANY
    for number, step in enumerate(plan.steps):
        old = f"{number}.old" if step.before.kind is Kind.FILE else ""
        if old:
            with _folder(tree, step.path) as (folder, name):
                os.link(name, old, src_dir_fd=folder, dst_dir_fd=handle, follow_symlinks=False)
        if step.after is not None:
            where = f"{tree.root}/{step.path}"
            _write(handle, f"{number}.new", step.after, step.like or step.before, not many, old, where)
    if many:
        staged = [f"{number}.new" for number, step in enumerate(plan.steps) if step.after is not None]
        for_each(lambda name: _sync(handle, name), staged)
    files = tuple(
        Line(number, _digest(step.before), sha256(step.after.data) if step.after else "-", step.path)
        for number, step in enumerate(plan.steps)
    )
    made = tuple(_missing_folders(tree, plan.steps))
    gone = tuple(_emptied_folders(tree, plan))
    record = Record(this_host(), os.getpid(), files, made, gone, os.fstat(handle).st_ino)
    _write(handle, "record", File(format_record(record), False), None)
    os.fsync(handle)
    os.fsync(tree.handle)  # the journal's own name: without it the originals could not be found again
    return record


def _digest(entry: Entry) -> str:
    return sha256(entry.data) if entry.kind is Kind.FILE else "-"


def _sync(handle: int, name: str) -> None:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
    try:
        os.fsync(descriptor)
    finally:
        close(descriptor)


def _write(
    handle: int, name: str, file: File, like: Entry | None, sync: bool = True, old: str = "", path: str = ""
) -> None:
    """Write a staged file with the mode and the owner of the file that it shall be like.

    old: the file that it replaces, whose extended attributes it gets; path: where that one stands, for messages.
    """
    descriptor = os.open(name, _NEW, 0o777 if file.executable else 0o666, dir_fd=handle)
    try:
        view = memoryview(file.data)
        while view:
            view = view[os.write(descriptor, view) :]
        if like is not None and like.kind is Kind.FILE:
            now = os.fstat(descriptor)
            if (now.st_uid, now.st_gid) != (like.uid, like.gid):
                _own(descriptor, like, path)
            os.fchmod(descriptor, _mode(like, file.executable))
        if old:
            _keep_attributes(handle, old, descriptor, path)
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _own(descriptor: int, like: Entry, path: str) -> None:
    try:
        os.fchown(descriptor, like.uid, like.gid)
    except PermissionError as error:
        raise Environment(
            f"{path}: belongs to user {like.uid} and group {like.gid}, and you may not give a new file to them",
            "Run it as that user, a member of that group, or as root.",
        ) from error


def _keep_attributes(handle: int, old: str, new: int, path: str) -> None:
    """Give a new file the extended attributes of the old one, and no others: an access control list is one (xattr(7)).

    Those of the kernel's own security modules follow its policy, where they cannot be set.
    """
    if not hasattr(os, "listxattr"):
        return
    descriptor = os.open(old, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=handle)
    try:
        for name, value in _changes(_attributes(descriptor), _attributes(new)):
            try:
                os.removexattr(new, name) if value is None else os.setxattr(new, name, value)
            except OSError as error:
                if not name.startswith("security."):
                    raise Environment(
                        f"{path}: its extended attribute {name} cannot be kept: {error.strerror}",
                        "Take it off (setfattr, setfacl) if it is not needed, or run this as one who may set it.",
                    ) from error
    finally:
        close(descriptor)


def _attributes(descriptor: int) -> dict[str, bytes]:
    try:
        return {name: os.getxattr(descriptor, name) for name in os.listxattr(descriptor)}
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return {}
        raise


def _changes(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
    yield from ((name, None) for name in new if name not in old)
    yield from ((name, value) for name, value in old.items() if new.get(name) != value)


def _mode(like: Entry, executable: bool) -> int:
    if executable == like.executable:
        return like.mode
    # As git does: everybody who may read may execute.
    return like.mode | (like.mode & 0o444) >> 2 if executable else like.mode & ~0o111


def _missing_folders(tree: Tree, steps: Iterable[Step]) -> Iterator[str]:
    """Yield the directories that new files need and that are not there, outermost first."""
    seen: set[str] = set()
    for step in steps:
        parts = step.path.split("/")[:-1] if step.after else []
        for depth in range(1, len(parts) + 1):
            path = "/".join(parts[:depth])
            if path not in seen and tree.read(path).kind is Kind.ABSENT:
                yield path
            seen.add(path)


@contextmanager
def _folder(tree: Tree, path: str) -> Iterator[tuple[int, str]]:
    folder = tree.folder(path)
    try:
        yield folder, path.rsplit("/", 1)[-1]
    finally:
        close(folder)


def _emptied_folders(tree: Tree, plan: Plan) -> Iterator[tuple[int, str]]:
    """Yield mode and path of what becomes empty and is not the release's own, innermost first."""
    goes = {step.path for step in plan.steps if step.after is None}
    for path in sorted({folder for gone in goes for folder in parents(gone)}, key=len, reverse=True):
        handle = tree.folder(f"{path}/")
        try:
            left = {f"{path}/{name}" for name in os.listdir(handle)} - goes
            if not left and path not in plan.kept:
                goes.add(path)
                yield stat.S_IMODE(os.fstat(handle).st_mode), path
        finally:
            close(handle)


def _make(tree: Tree, path: str) -> None:
    with _folder(tree, path) as (folder, name):
        os.mkdir(name, dir_fd=folder)
        os.fsync(folder)


def _replace(tree: Tree, handle: int, number: int, step: Step) -> None:
    with _folder(tree, step.path) as (folder, name):
        if read_at(folder, name) != step.before:
            raise Refused(
                f"{tree.root}/{step.path}: was changed by somebody else during this run",
                "Nothing was applied. Look at the file, then run the command again.",
            )
        if step.after is None:
            os.unlink(name, dir_fd=folder)
        else:
            os.rename(f"{number}.new", name, src_dir_fd=handle, dst_dir_fd=folder)


def _settle(tree: Tree, record: Record) -> None:
    """Remove the emptied directories; make the names of all others durable."""
    for _, path in record.gone:
        remove_empty(tree, path)
    gone = {path for _, path in record.gone}
    for path in sorted({line.path.rpartition("/")[0] for line in record.files} - gone):
        handle = tree.folder(f"{path}/" if path else "")
        try:
            os.fsync(handle)
        finally:
            close(handle)
