"""Export a release's stack again from a git work tree whose commits are the patches.

The base is found by the bytes of the touched files, as everywhere. A patch whose commit says and does what its file
says keeps that file's bytes, so that the way from patches to commits and back changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from email.header import decode_header, make_header
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from stack.commits import export, read_commit
from stack.digest import git_blob, sha256
from stack.errors import Exit, Malformed, Refused, StackError
from stack.header import Header, parse_header
from stack.journal import recover
from stack.lock import locked
from stack.outcome import Claim, Outcome
from stack.patch import Patch, parse_patch
from stack.plumbing import Git, Repository, open_repository, reading, unfinished
from stack.records import (
    Files,
    Images,
    created,
    fingerprints,
    folders_of,
    format_json,
    plan_files,
    record_files,
    told,
    touched,
)
from stack.series import parse_series
from stack.store import Release, Store
from stack.sums import with_sums
from stack.transaction import commit
from stack.tree import Kind, Tree

Check = Callable[[str, Mapping[str, bytes]], Sequence[str]]
"""Judges the files of a release before they are written; returns its findings, none for a sound stack."""

_CHUNK = 256


class Source(NamedTuple):
    """Where the patches come from: the commits after `base` up to HEAD, and what base is called."""

    git: Git
    repository: Repository
    base: str
    label: str


def refresh(name: str, root: str, store: Store, check: Check) -> Outcome:
    """Write the stack of the release anew from the commits of the work tree at root.

    Raises StackError; then nothing is written. All files are replaced, or none.
    """
    with Tree(store.stacks) as tree, locked(tree) as have_lock:
        recover(tree, have_lock)
        release = store.release(name)
        repository = open_repository(root)
        _check_settled(root, repository)
        with reading(repository) as git:
            source = Source(git, repository, *_find_base(git, repository, release, root))
            files = _files(source, release)
            _check_clean(root, source, release, files)
        problems = check(name, {label: data for label, data in files.items() if data is not None})
        if problems:
            raise Refused("\n".join([f"{root}: lint would not pass the stack:", *problems]), "Amend the commits.")
        plan = plan_files(tree, with_sums(tree, store, files))
        commit(tree, plan)
    return _outcome(root, release, source, told(plan), files)


def _outcome(root: str, release: Release, source: Source, changes: list[str], files: Files) -> Outcome:
    patches = [label for label in files if label.endswith(".patch") and files[label] is not None]
    about = f"{len(patches)} patches from the commits after {source.label}"
    data = {"base": source.base, "patches": patches, "changed": [line.strip() for line in changes]}
    claim = Claim(f"the touched files of {source.base[:12]} are those of {release.label}/base.sha256", "by digest")
    if not changes:
        message = f"{root}: {release.name}: {about}: already so, nothing was changed"
        return Outcome("refresh", Exit.DONE, "already so", message, "", root, None, (claim,), data)
    message = "\n".join([f"{root}: {release.name}: refreshed: {about}", *changes])
    return Outcome("refresh", Exit.DONE, "refreshed", message, "", root, None, (claim,), data)


def _check_settled(root: str, repository: Repository) -> None:
    what = unfinished(repository)
    if what:
        raise Refused(f"{root}: is in the middle of {what}: not all commits are there", "Finish or abort it first.")


def _find_base(git: Git, repository: Repository, release: Release, root: str) -> tuple[str, str]:
    """Return id and name of the newest ancestor of HEAD that is the release as far as the stack touches it.

    A commit with a message in our form is a patch, never the base: a patch that comes first and touches other files
    than the stack did so far would pass for it.
    """
    for candidate in _matching(git, repository.head, release):
        found = read_commit(git, candidate, "")
        try:
            parse_header(found.head, candidate)
        except Malformed:
            return candidate, found.label
    raise Refused(
        f"{root}: no ancestor of HEAD has the touched files of {release.label}/base.sha256",
        f"Make the commits on top of release {release.name}: git am puts the stack there.",
    )


def _matching(git: Git, head: str, release: Release) -> Iterator[str]:
    wanted = {path: _base_blob(release, path) for path in release.paths}
    ids = git.text("rev-list", "--first-parent", head).split("\n")
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        asked = [(commit, path) for commit in chunk for path in wanted]
        lines = _blobs(git, asked)
        differ = {commit for (commit, path), blob in zip(asked, lines, strict=True) if blob != wanted[path]}
        yield from (commit for commit in chunk if commit not in differ and _is_pinned(git, commit, release))


def _base_blob(release: Release, path: str) -> str | None:
    if path not in release.base:
        return None
    try:
        return str(release.fingerprint[path]["git_blob"])
    except KeyError as error:
        raise Malformed(f"{release.label}/fingerprint.json: has no git_blob for {path}") from error


def _blobs(git: Git, asked: Iterable[tuple[str, str]]) -> list[str | None]:
    """Return the id of the blob at each (commit, path); None where there is no file."""
    data = "".join(f"{commit}:{path}\n" for commit, path in asked).encode()
    rows = [row.split(" ") for row in git.run("cat-file", "--batch-check", data=data).decode().splitlines()]
    return [row[0] if len(row) == 3 and row[1] == "blob" else None for row in rows]


def _is_pinned(git: Git, commit: str, release: Release) -> bool:
    return all(sha256(git.run("cat-file", "blob", f"{commit}:{path}")) == pin for path, pin in release.base.items())


def _files(source: Source, release: Release) -> dict[str, bytes | None]:
    """Return every file that the release shall have, and None for each that goes."""
    exported = dict(export(source.git, source.base, source.repository.head))
    if not exported:
        raise Refused(f"{source.label} is HEAD: there is no commit after it, so no patch", "Check out the patches.")
    patches = [parse_patch(data, name) for name, data in exported.items()]
    old = _old_names(release)
    kept = {name: _kept(release, name, patch, exported[name]) for name, patch in zip(exported, patches, strict=True)}
    gone = {f"{release.label}/{name}": None for name in old if name not in kept}
    return {
        **gone,
        **{f"{release.label}/{name}": data for name, data in kept.items()},
        release.series_label: _series(release, old, tuple(kept)),
        **_records(release, _images(source, patches)),
        f"{release.label}/release.json": _about(source, release, patches),
    }


def _records(release: Release, images: Images) -> dict[str, bytes]:
    """Return pins and line digests; fingerprint.json as it is when it says the same in another order."""
    files = record_files(release.name, images)
    if dict(release.fingerprint) == fingerprints(images):
        label = f"{release.label}/fingerprint.json"
        files[label] = release.read(label)
    return files


def _old_names(release: Release) -> tuple[str, ...]:
    try:
        return release.series
    except Malformed:
        return ()  # a series that is missing or damaged is written anew


def _series(release: Release, old: tuple[str, ...], new: tuple[str, ...]) -> bytes:
    """Return the series with the comments that stand before a patch that stays; as it is, when no name changes."""
    above: dict[str, list[str]] = {}
    comments: list[str] = []
    for line in release.read(release.series_label).decode("utf-8", "replace").splitlines() if old else []:
        if line.startswith("#"):
            comments.append(line)
        else:
            above[line], comments = comments, []
    lines = [line for name in new for line in [*above.get(name, []), name]]
    data = "".join(f"{line}\n" for line in [*lines, *comments]).encode()
    same = old == new
    return release.read(release.series_label) if same else _checked(data, release, new)


def _checked(data: bytes, release: Release, names: tuple[str, ...]) -> bytes:
    assert parse_series(data, release.series_label) == names, "a series that is written can be read"
    return data


def _kept(release: Release, name: str, patch: Patch, data: bytes) -> bytes:
    """Return the bytes of the patch as it is filed, when its commit says and does the same; else the new ones."""
    try:
        old = release.patch(name)
        same = _meaning(old) == _meaning(patch)
    except StackError:
        return data
    return release.read(f"{release.label}/{name}") if same else data


def _meaning(patch: Patch) -> object:
    header = parse_header(patch.head, patch.name)
    changes = [change._replace(hunks=()) for change in patch.files]
    return _plain(header), changes


def _plain(header: Header) -> Header:
    """Return the header without what differs between two ways to write one mail."""
    author = str(make_header(decode_header(header.author))).replace('"', "")
    return header._replace(author=author, date=parsedate_to_datetime(header.date).isoformat())


def _images(source: Source, patches: Sequence[Patch]) -> Images:
    """Return the images of the touched files before and after the commits, from the commits themselves."""
    paths = touched(patches)
    sides = []
    for commit_id in (source.base, source.repository.head):
        asked = [(commit_id, path) for path in paths]
        found = zip(paths, _blobs(source.git, asked), strict=True)
        sides.append({path: source.git.run("cat-file", "blob", blob) for path, blob in found if blob})
    return Images(*sides)


def _about(source: Source, release: Release, patches: Sequence[Patch]) -> bytes:
    """Return release.json: as it is, unless a patch makes a file in a folder that it does not name yet."""
    made = set(created(patches))
    have = source.git.text("ls-tree", "-r", "-d", "--name-only", "--full-tree", source.base).split("\n")
    folders = sorted({*release.about["directories"], *folders_of(made - set(release.result), have)})
    if folders == sorted(release.about["directories"]):
        return release.read(f"{release.label}/release.json")
    return format_json({**release.about, "directories": folders})


def _check_clean(root: str, source: Source, release: Release, files: Files) -> None:
    """Refuse when a touched file of the work tree, or the index, is not as HEAD has it: it would be left out."""
    patches = [parse_patch(data, label) for label, data in files.items() if data and label.endswith(".patch")]
    paths = sorted({*release.paths, *touched(patches)})
    head = _listed(source.git, source.repository.head, paths)
    with Tree(root) as tree:
        dirty = [path for path in paths if _at_work(tree, path) != head.get(path)]
    env = {**source.git.env, "GIT_INDEX_FILE": source.repository.index_file}
    staged = source.git._replace(env=env).text(
        "diff-index", "--cached", "--name-only", source.repository.head, "--", *paths
    )
    dirty += [path for path in staged.split("\n") if path and path not in dirty]
    if dirty:
        raise Refused(f"{root}: differs from HEAD: {', '.join(dirty)}", "Commit the change, or take it back.")


def _listed(git: Git, commit: str, paths: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return mode and blob of those of the paths that the commit has."""
    rows = git.text("ls-tree", "-z", "--full-tree", commit, "--", *paths).split("\0")
    words = {row.partition("\t")[2]: row.partition("\t")[0].split(" ") for row in rows if row}
    return {path: (mode, blob) for path, (mode, _, blob) in words.items()}


def _at_work(tree: Tree, path: str) -> tuple[str, str] | None:
    entry = tree.read(path)
    if entry.kind is Kind.ABSENT:
        return None
    return ("100755" if entry.executable else "100644", git_blob(entry.data) if entry.kind is Kind.FILE else "")
