"""The journal of a transaction: what was there, so that a kill at any point can be undone.

It is a directory in TREE, on the same file system as the files. It holds, for the n-th file of the
plan, `n.new` (the staged file) and `n.old` (a hard link to the original, times and owner included),
and `record`, which is written when all is staged and removed when all is in place:

- without a whole `record`, no file of the tree has been touched, or all are in place: what is left
  goes;
- with `record`, the originals go back.

A journal can come with a tree: in somebody's commit or tarball, or from another user of the machine. So a record is
obeyed only where it was written: in a directory of our own user, with the inode number that the record names.

`wheel` (stack.wheel) writes its file there, too: it is staged like any other, and goes if it is still there.
Two more names tell of work that a plain undo does not cover: `git` (stack.gitrecover: a branch and an
index move together with the files) and `clone` (stack.clone: the tree itself is only being made).
"""

import contextlib
import errno
import os
import re
from typing import NamedTuple

from stack.digest import sha256
from stack.errors import Environment, Malformed
from stack.lock import this_host
from stack.many import for_each
from stack.paths import JOURNAL, check_path
from stack.tree import Kind, Tree, close, read_at

_HEADER = "torch-musa-patches journal 1"
_END = "end"
_OWN = r"record|\d+\.(new|old)|[\w.+!-]+\.whl"
GIT, CLONE = "git", "clone"
UNSETTLED = frozenset({"record", GIT, CLONE})
"""While one of these names is in the journal, the journal stays."""


_BY_HAND = f"Nothing was changed. Compare the *.old files in {JOURNAL} with the tree, then remove it."


class Line(NamedTuple):
    """One file of the record: digests of both images, `-` where the file is absent."""

    number: int
    before: str
    after: str
    path: str


class Record(NamedTuple):
    """What `record` holds."""

    host: str
    pid: int
    files: tuple[Line, ...]
    made: tuple[str, ...]
    """Directories that the plan makes, outermost first."""
    gone: tuple[tuple[int, str], ...]
    """Mode and path of the directories that the plan empties and removes, innermost first."""
    place: int = 0
    """The inode number of the journal's directory, which nobody can know who prepares one for another machine."""


def format_record(record: Record) -> bytes:
    """Return the record as text lines; paths are plain ASCII (stack.paths)."""
    lines = [_HEADER, f"host {record.host}", f"pid {record.pid}", f"place {record.place}"]
    lines += [f"file {line.number} {line.before} {line.after} {line.path}" for line in record.files]
    lines += [f"made {path}" for path in record.made]
    lines += [f"gone {mode:o} {path}" for mode, path in record.gone]
    return ("\n".join([*lines, _END]) + "\n").encode()


def parse_record(data: bytes, where: str) -> Record | None:
    """Return the record, or None for one that was cut off while it was written.

    Raises Environment when it is not one of ours.
    """
    if not data.endswith(f"\n{_END}\n".encode()):
        return None
    try:
        header, host, pid, place, *rest = data.decode("ascii").split("\n")[:-2]
        words = [line.split(" ") for line in rest]
        files = tuple(Line(_number(w[1]), w[2], w[3], w[4]) for w in words if w[0] == "file")
        made = tuple(w[1] for w in words if w[0] == "made")
        gone = tuple((_number(w[1], 8), w[2]) for w in words if w[0] == "gone")
        if header != _HEADER or len(files) + len(made) + len(gone) != len(rest):
            raise ValueError("odd lines")
        for path in [line.path for line in files] + [*made] + [path for _, path in gone]:
            check_path(path, where)
        if not all(mode <= 0o7777 for mode, _ in gone):
            raise ValueError("odd mode")
        host, pid, place = host.removeprefix("host "), pid.removeprefix("pid "), place.removeprefix("place ")
        return Record(host, _pid(pid), files, made, gone, _number(place))
    except (ValueError, IndexError, Malformed) as error:
        raise Environment(
            f"{where}: is not a journal that this version can read: {error}",
            _BY_HAND,
        ) from error


def _number(text: str, base: int = 10) -> int:
    """Return a number of at most 20 digits: to read one of a million takes minutes, or is an error, by the Python."""
    if not text.isdecimal() or len(text) > 20:
        raise ValueError("odd number")
    return int(text, base)


def _pid(text: str) -> int:
    pid = _number(text)
    if not 0 < pid < 1 << 31:
        raise ValueError("odd pid")
    return pid


def pending(tree: Tree) -> bool:
    """Whether a journal lies in the tree: a run is at work, or was cut off."""
    return tree.read(JOURNAL).kind is Kind.DIRECTORY


def recover(tree: Tree, have_lock: bool) -> bool:
    """Undo what a run left that was cut off; return whether there was one.

    have_lock: whether the lock of this tree is held, which proves that no such run still lives on
    this machine. Raises Environment for a run of another machine.
    """
    if not pending(tree):
        return False
    try:
        handle = open_journal(tree)
        try:
            _recover(tree, handle, have_lock)
        finally:
            close(handle)
    except OSError as error:
        raise Environment(
            f"{tree.root}: a run was cut off here, and it cannot be undone: {describe(error)}",
            f"Put right what prevents it, then run the command again. {JOURNAL} holds the originals.",
        ) from error
    return True


def _recover(tree: Tree, handle: int, have_lock: bool) -> None:
    entry = read_at(handle, "record")
    where = f"{tree.root}/{JOURNAL}/record"
    if entry.kind not in (Kind.FILE, Kind.ABSENT):
        raise Environment(f"{where}: is a {entry.kind.value}, which no run of this tool has made", _BY_HAND)
    record = parse_record(entry.data, where)
    if record:
        _check_owner(tree, record, have_lock)
        found = os.fstat(handle)
        _check_place(where, found, record.place == found.st_ino)
    if _exists(handle, CLONE):
        raise Environment(f"{tree.root}: a clone was cut off here, or is still at work", clone_tip(tree.root))
    tip = ""
    if _is_marked(tree, handle):
        from stack.gitrecover import recover_git

        tip = recover_git(tree, handle, record)
    elif record:
        undo(tree, handle, record)
    clear(tree, handle)
    if tip:
        raise Environment(f"{tree.root}: a run was cut off here: all is put right, but for a lock of git's own", tip)


def mark(handle: int) -> None:
    """Note that git takes part in what the journal on this handle is about, in the journal itself."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(GIT, "wb", opener=lambda name, _: os.open(name, flags, 0o600, dir_fd=handle)) as file:
        file.write(_marked(handle))
        file.flush()
        os.fsync(file.fileno())


def _marked(handle: int) -> bytes:
    return f"place {os.fstat(handle).st_ino}\nend\n".encode()


def _is_marked(tree: Tree, handle: int) -> bool:
    """Whether git takes part. A note that was cut off is none: nothing comes before it. Remove it."""
    entry, whole = read_at(handle, GIT), _marked(handle)
    if entry.kind is Kind.ABSENT:
        return False
    if entry.kind is Kind.FILE and entry.data != whole and whole.startswith(entry.data):
        unlink(handle, GIT)
        return False
    _check_place(f"{tree.root}/{JOURNAL}/{GIT}", os.fstat(handle), entry.data == whole)
    return True


def clone_tip(root: str) -> str:
    """Return what to do about a directory that is half a clone."""
    from shlex import quote

    return f"If no such run is at work, remove what there is, then clone again: rm -r {quote(root)}"


def open_journal(tree: Tree) -> int:
    """Open the journal's directory; the caller closes it."""
    return os.open(JOURNAL, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=tree.handle)


def describe(error: OSError) -> str:
    """Return what the system said, and about which file."""
    names = [name for name in (error.filename, error.filename2) if isinstance(name, str)]
    return " ".join([*names, error.strerror or str(error)])


def _check_owner(tree: Tree, record: Record, have_lock: bool) -> None:
    name, boot = this_host().split(" ")
    host = record.host.split(" ")
    same_boot = boot != "-" and host[-1] == boot
    if not same_boot and host[0] != name:
        raise Environment(
            f"{tree.root}: a run on the machine {host[0]} was cut off here, or is still at work",
            "Run any command of this tool on that machine; it puts the tree right.",
        )
    if same_boot and not have_lock and _alive(record.pid):
        raise Environment(f"{tree.root}: process {record.pid} is at work here")


def _check_place(where: str, found: os.stat_result, ours: bool) -> None:
    if found.st_uid != os.geteuid():
        raise Environment(
            f"{where}: belongs to the user {found.st_uid}",
            f"If a run of that user was cut off here, run the command as that user. {_BY_HAND}",
        )
    if not ours:
        raise Environment(f"{where}: was not written here: the tree was copied, or came with it", _BY_HAND)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def undo(tree: Tree, handle: int, record: Record) -> None:
    """Put every file of the record back, last one first. Can itself be cut off and run again.

    A file that cannot be put back does not keep the others from it: the first such error is raised
    at the end, and the record stays.
    """
    for mode, path in reversed(record.gone):
        _make_again(tree, mode, path)
    errors = [error for line in reversed(record.files) if (error := _try_undo(tree, handle, line))]
    if errors:
        raise errors[0]
    for path in reversed(record.made):
        remove_empty(tree, path)
    os.unlink("record", dir_fd=handle)


def _try_undo(tree: Tree, handle: int, line: Line) -> OSError | Environment | None:
    try:
        _undo_file(tree, handle, line)
    except (OSError, Environment) as error:
        return error
    return None


def _make_again(tree: Tree, mode: int, path: str) -> None:
    folder = tree.folder(path)
    name = path.rsplit("/", 1)[-1]
    try:
        os.mkdir(name, dir_fd=folder)
        made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.fchmod(made, mode)
        finally:
            os.close(made)
    except FileExistsError:
        pass
    finally:
        close(folder)


def _undo_file(tree: Tree, handle: int, line: Line) -> None:
    if line.after != "-" and _exists(handle, f"{line.number}.new"):
        return  # it still waits here: nothing of ours has come to the tree
    try:
        folder = tree.folder(line.path)
    except FileNotFoundError:
        return  # a directory that was still to be made
    name, old = line.path.rsplit("/", 1)[-1], f"{line.number}.old"
    try:
        if not _untouched(handle, old, folder, name):
            _put_back(tree, handle, line, folder)
            os.fsync(folder)
        unlink(handle, old)
    finally:
        close(folder)


def _exists(handle: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _untouched(handle: int, old: str, folder: int, name: str) -> bool:
    """Whether the file is still the one inode that `n.old` is a second link to."""
    try:
        kept = os.stat(old, dir_fd=handle, follow_symlinks=False)
        here = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(kept, here)


def _put_back(tree: Tree, handle: int, line: Line, folder: int) -> None:
    name, old = line.path.rsplit("/", 1)[-1], f"{line.number}.old"
    entry = read_at(folder, name)
    now = sha256(entry.data) if entry.kind is Kind.FILE else entry.kind.value
    now = "-" if entry.kind is Kind.ABSENT else now
    # An executable bit alone leaves the digest as it was: then the original must go back as well.
    if now == line.before and not (now == line.after and _exists(handle, old)):
        return
    if now != line.after:
        raise Environment(
            f"{tree.root}/{line.path}: was changed by somebody else during the run; it is left",
            f"The original is kept as {tree.root}/{JOURNAL}/{old}. Put the file right by hand, then remove {JOURNAL}.",
        )
    if line.before == "-":
        unlink(folder, name)
    else:
        os.rename(old, name, src_dir_fd=handle, dst_dir_fd=folder)


def clear(tree: Tree, handle: int) -> None:
    """Remove the journal's own files and the journal. Raises OSError where others keep it there, and names them."""
    own = [name for name in sorted(os.listdir(handle)) if re.fullmatch(_OWN, name)]
    for_each(lambda name: unlink(handle, name), own)
    if others := sorted(os.listdir(handle)):
        said = f"holds what no run of this tool has made: {', '.join(map(repr, others[:3]))}"
        raise OSError(errno.ENOTEMPTY, said, f"{tree.root}/{JOURNAL}")
    os.rmdir(JOURNAL, dir_fd=tree.handle)


def unlink(handle: int, name: str) -> None:
    """Remove a file that may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=handle)


def remove_empty(tree: Tree, path: str) -> bool:
    """Remove a directory if it is empty; return whether it went."""
    try:
        folder = tree.folder(path)
    except OSError:
        return False
    try:
        os.rmdir(path.rsplit("/", 1)[-1], dir_fd=folder)
    except OSError:
        return False
    finally:
        close(folder)
    return True
