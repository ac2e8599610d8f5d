"""The real tools that a fuzz test is measured by: git and diff make its diffs, git and patch apply them beside us.

One process for as much as it can do: thousands of examples wait for these. A scratch folder lies in memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha1

from fuzz_strategies import MODES, Case, Image, touched
from stacks import CONFIG, fingerprint, head

from stack.digest import git_blob, sha256, split_lines
from stack.patch import ABSENT
from stack.pins import format_pins
from stack.plan import File

RELEASE = "1.0"
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
# No repository, no configuration, no translation: git manual, "Environment Variables".
ENV = {
    **{key: value for key, value in os.environ.items() if not key.startswith("GIT_")},
    **{"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_DIR": "/nonexistent", "LC_ALL": "C"},
}


@contextmanager
def scratch() -> Iterator[str]:
    """Make a folder in memory, and remove it."""
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=MEMORY) as folder:
        yield folder


def run(argv: Sequence[str], cwd: str, feed: bytes = b"", **env: str) -> tuple[int, bytes]:
    """Run a tool; return its code and what it printed, both streams."""
    done = subprocess.run(
        argv, cwd=cwd, env={**ENV, **env}, input=feed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120
    )
    return done.returncode, done.stdout


def write_tree(folder: str, image: Image) -> str:
    """Write a tree that is not there yet; return its folder."""
    os.mkdir(folder)
    for path, file in image.items():
        name = f"{folder}/{path}"
        os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "wb") as stream:
            stream.write(file.data)
        os.chmod(name, MODES[file.executable])
    return folder


def read_tree(folder: str) -> tuple[Image, dict[str, int]]:
    """Return the files of a tree, and the mode of each file and folder in it; a link's target counts as its bytes."""
    image: Image = {}
    modes: dict[str, int] = {}
    for above, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            full = f"{above}/{name}"
            path = full[len(folder) + 1 :]
            modes[path] = os.lstat(full).st_mode
            if os.path.islink(full):
                image[path] = File(os.fsencode(os.readlink(full)), False)
            elif name in names:
                with open(full, "rb") as stream:
                    image[path] = File(stream.read(), bool(modes[path] & 0o100))
    return image, modes


def _store_object(repository: str, kind: bytes, body: bytes) -> str:
    """Write a loose object (git manual, gitformat-loose); return its id."""
    raw = kind + b" %d\0" % len(body) + body
    name = sha1(raw, usedforsecurity=False).hexdigest()
    folder = f"{repository}/objects/{name[:2]}"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/{name[2:]}", "wb") as stream:
        stream.write(zlib.compress(raw, 1))
    return name


def _store_tree(repository: str, image: Image) -> str:
    rows: dict[bytes, bytes] = {}
    inner: dict[str, Image] = {}
    for path, file in image.items():
        top, slash, rest = path.partition("/")
        if slash:
            inner.setdefault(top, {})[rest] = file
        else:
            mode = b"100755" if file.executable else b"100644"
            name = top.encode()
            rows[name] = mode + b" " + name + b"\0" + bytes.fromhex(_store_object(repository, b"blob", file.data))
    for top, below in inner.items():
        name = top.encode()
        rows[name + b"/"] = b"40000 " + name + b"\0" + bytes.fromhex(_store_tree(repository, below))
    return _store_object(repository, b"tree", b"".join(rows[key] for key in sorted(rows)))


def git_diffs(folder: str, images: Sequence[Image], options: Sequence[str]) -> list[bytes]:
    """Return what `git diff-tree -p --full-index` says between each two neighbours."""
    repository = f"{folder}/repository"
    os.makedirs(f"{repository}/refs")
    os.mkdir(f"{repository}/objects")
    with open(f"{repository}/HEAD", "w") as stream:
        stream.write("ref: refs/heads/main\n")
    ids = [_store_tree(repository, image) for image in images]
    pairs = [b"%s %s\n" % (old.encode(), new.encode()) for old, new in zip(ids, ids[1:], strict=False)]
    settings = [word for setting in CONFIG for word in ("-c", setting)]
    argv = ["git", *settings, "diff-tree", "--stdin", "-p", "--full-index", *options]
    code, out = run(argv, folder, b"".join(pairs), GIT_DIR=repository)
    assert code == 0, out
    diffs = []
    for pair in reversed(pairs):
        out, _, diff = out.rpartition(pair)
        diffs.append(diff)
    return diffs[::-1]


def wrapped(path: str, old: File | None, new: File | None, hunks: bytes) -> bytes:
    """Return the hunks of a plain diff under git's header lines, as a packager's tool would write them."""
    modes = [b"100755" if file and file.executable else b"100644" for file in (old, new)]
    ids = [git_blob(file.data) if file else ABSENT for file in (old, new)]
    name = path.encode()
    rows = [b"diff --git a/%s b/%s\n" % (name, name)]
    if old is None:
        rows.append(b"new file mode %s\n" % modes[1])
    elif new is None:
        rows.append(b"deleted file mode %s\n" % modes[0])
    elif modes[0] != modes[1]:
        rows.append(b"old mode %s\nnew mode %s\n" % (modes[0], modes[1]))
    if ids[0] != ids[1]:
        mode = b" " + modes[0] if old and new and modes[0] == modes[1] else b""
        rows.append(b"index %s..%s%s\n" % (ids[0].encode(), ids[1].encode(), mode))
    if hunks:
        rows.append(b"--- a/%s\n" % name if old else b"--- /dev/null\n")
        rows.append(b"+++ b/%s\n" % name if new else b"+++ /dev/null\n")
    return b"".join([*rows, hunks])


def plain_diffs(folder: str, images: Sequence[Image], options: Sequence[str]) -> list[bytes]:
    """Return what `diff -urN` says between each two neighbours, its hunks under git's header lines."""
    for number, image in enumerate(images):
        write_tree(f"{folder}/{number}", image)
    diffs = []
    for number, (old, new) in enumerate(zip(images, images[1:], strict=False)):
        code, out = run(["diff", "-urN", *options, str(number), str(number + 1)], folder)
        assert code in (0, 1), out
        hunks = _hunks_by_path(out)
        changed = [path for path in sorted({*old, *new}) if old.get(path) != new.get(path)]
        diffs.append(b"".join(wrapped(path, old.get(path), new.get(path), hunks.get(path, b"")) for path in changed))
    return diffs


def _hunks_by_path(diff: bytes) -> dict[str, bytes]:
    """Return the hunks of each file: what stands below its lines `diff`, `---` and `+++`."""
    rows = split_lines(diff)
    starts = [number for number, row in enumerate(rows) if row.startswith(b"diff -urN ")]
    return {
        rows[start][:-1].rpartition(b" ")[2].partition(b"/")[2].decode(): b"".join(rows[start + 3 : end])
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=False)
    }


def make_diffs(folder: str, case: Case) -> list[bytes]:
    """Let the case's tool make its diffs."""
    maker: Callable[..., list[bytes]] = git_diffs if case.maker == "git" else plain_diffs
    os.mkdir(f"{folder}/made")
    return maker(f"{folder}/made", case.images, [f"-U{case.context}", *case.options])


def write_stack(folder: str, images: Sequence[Image], diffs: Sequence[bytes]) -> list[str]:
    """Write a stacks folder of one release for these diffs; return the files of its patches."""
    patches = f"{folder}/patches/{RELEASE}"
    os.makedirs(patches)
    os.mkdir(f"{folder}/series")
    names = [f"{number:04d}-change.patch" for number in range(1, len(diffs) + 1)]
    data = {name: head(number, "change") + diff for number, (name, diff) in enumerate(zip(names, diffs, strict=True))}
    base, result = images[0], images[-1]
    paths = touched(images)
    for name, image in (("base", base), ("result", result)):
        data[f"{name}.sha256"] = format_pins({path: sha256(image[path].data) for path in paths & set(image)})
    prints = {path: fingerprint(base[path].data, None) for path in paths & set(base)}
    data["fingerprint.json"] = json.dumps(prints).encode()
    folders = {above for path in base for above in _above(path)}
    needed = {above for path in set(result) - set(base) for above in _above(path)}
    about = {"upstream_commit": "0" * 40, "torch": "2.7.1", "fixed_in": "9", "directories": sorted(folders & needed)}
    data["release.json"] = json.dumps(about).encode()
    for name, one in data.items():
        with open(f"{patches}/{name}", "wb") as stream:
            stream.write(one)
    with open(f"{folder}/series/{RELEASE}", "w") as series:
        series.write("".join(f"{name}\n" for name in names))
    return [f"{patches}/{name}" for name in names]


def _above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def git_apply(tree: str, patches: Sequence[str], reverse: bool = False) -> tuple[bool, bytes]:
    """Let git apply the patches to a tree, or take them out; return whether it did, and what it said."""
    settings = [word for setting in CONFIG for word in ("-c", setting)]
    order = ["-R", *reversed(patches)] if reverse else list(patches)
    code, out = run(["git", *settings, "apply", "--whitespace=nowarn", *order], tree)
    return code == 0, out


def gnu_patch(tree: str, patches: Sequence[str], reverse: bool = False) -> tuple[bool, bytes]:
    """Let `patch -p1 -F0` apply the patches, or take them out; return whether it did, and what it said."""
    said = b""
    for name in reversed(patches) if reverse else patches:
        way = ["-R"] if reverse else []
        code, out = run(["patch", "-p1", "-F0", "--force", "--no-backup-if-mismatch", *way, "-i", name], tree)
        said += out
        if code:
            return False, said
    return True, said
