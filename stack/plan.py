"""A plan: for every touched file, what is there now and what shall be there. Pure; no disk.

Every image on the way is checked against the blob ids of the patches, and the last one against the
pins: a plan that exists leads to the pinned bytes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from stack.digest import git_blob, sha256, split_lines
from stack.errors import Malformed
from stack.hunk import Work, apply_hunks
from stack.patch import FileChange, Patch
from stack.state import State
from stack.store import Release
from stack.tree import LARGEST, MOST_LINES, Entry, Kind


class File(NamedTuple):
    """The content of a file to be: its bytes, and whether it is executable."""

    data: bytes
    executable: bool


class Step(NamedTuple):
    """One file: `before` is what was read, `after` is None for a file that goes.

    like: the file whose mode and owner a new file gets; else they are those of any file that is made.
    """

    path: str
    before: Entry
    after: File | None
    like: Entry | None = None


class Plan(NamedTuple):
    """All steps of one command, and the directories that must stay though they become empty."""

    steps: tuple[Step, ...]
    kept: frozenset[str] = frozenset()


def plan_apply(state: State, entries: Mapping[str, Entry]) -> Plan:
    """Plan the patches that are not in yet. The state is PRISTINE, PARTLY or APPLIED."""
    release = _release(state)
    changes = [patch.files for patch in release.patches[state.applied :]]
    after = _images(release, entries, changes, reverse=False)
    _check_pins(after, release, release.result, "result")
    return Plan(_steps(entries, after))


def images_of_each(state: State, entries: Mapping[str, Entry]) -> Iterator[tuple[Patch, dict[str, File | None]]]:
    """Yield each patch that is not in yet, and the files that it changes as they are after it."""
    release = _release(state)
    return _images_of(release, entries, release.patches[state.applied :], reverse=False)


def images_before_each(state: State, entries: Mapping[str, Entry]) -> Iterator[tuple[Patch, dict[str, File | None]]]:
    """Yield each patch that is in, the last one first, and the files that it changes as they are without it."""
    release = _release(state)
    return _images_of(release, entries, release.patches[: state.applied][::-1], reverse=True)


def _images_of(
    release: Release, entries: Mapping[str, Entry], patches: Sequence[Patch], reverse: bool
) -> Iterator[tuple[Patch, dict[str, File | None]]]:
    walk = _walk(release, entries, [patch.files for patch in patches], reverse)
    for patch, images in zip(patches, walk, strict=True):
        yield patch, {change.path: images[change.path] for change in patch.files}


def plan_unapply(state: State, entries: Mapping[str, Entry]) -> Plan:
    """Plan the way back from the patches that are in."""
    release = _release(state)
    changes = [patch.files for patch in reversed(release.patches[: state.applied])]
    after = _images(release, entries, changes, reverse=True)
    _check_pins(after, release, release.base, "base")
    steps = _steps(entries, after)
    goes = any(step.after is None for step in steps)
    kept = release.about["directories"] if goes else ()
    return Plan(steps, frozenset(kept))


def _release(state: State) -> Release:
    assert state.release is not None, "only a state with a release is planned from"
    return state.release


def _images(
    release: Release,
    entries: Mapping[str, Entry],
    changes: Iterable[tuple[FileChange, ...]],
    reverse: bool,
) -> dict[str, File | None]:
    """Return each touched file after the changes, in their order."""
    return [_before(release, entries), *_walk(release, entries, changes, reverse)][-1]


def _before(release: Release, entries: Mapping[str, Entry]) -> dict[str, File | None]:
    return {
        path: File(entry.data, entry.executable) if entry.kind is Kind.FILE else None
        for path in release.paths
        for entry in (entries[path],)
    }


def _walk(
    release: Release,
    entries: Mapping[str, Entry],
    changes: Iterable[tuple[FileChange, ...]],
    reverse: bool,
) -> Iterator[dict[str, File | None]]:
    """Yield every touched file after each group of changes: one mapping, which goes on changing."""
    images = _before(release, entries)
    work = Work()
    for group in changes:
        for change in group:
            where = f"{release.name}: {change.path}"
            images[change.path] = change_file(images[change.path], change, reverse, where, work)
        yield images


def fold(image: File | None, changes: Iterable[tuple[str, FileChange | None]], reverse: bool) -> File | None:
    """Return one file after what some patches do to it (Release.steps), in the order given."""
    work = Work()
    for name, change in changes:
        if change is not None:
            image = change_file(image, change, reverse, f"{name}: {change.path}", work)
    return image


def change_file(
    image: File | None, change: FileChange, reverse: bool, where: str, work: Work | None = None
) -> File | None:
    """Return the file after one change of one patch, forward or back.

    work: what is left to spend where there are more changes than this one.
    Raises Refused where a hunk does not match, Malformed where a blob id is not that of the bytes.
    """
    old, new = (change.new_blob, change.old_blob) if reverse else (change.old_blob, change.new_blob)
    mode = change.old_mode if reverse else change.new_mode
    data = image.data if image else b""
    if image and old and git_blob(data) != old:
        raise Malformed(f"{where}: the bytes are not those of blob {old[:12]} in the index line")
    lines = split_lines(data)
    if work:
        work.go_over(len(data), len(lines), where)
    lines = apply_hunks(lines, change.hunks, reverse, where)
    result = b"".join(lines)
    if mode is None:
        if result:  # the way back could not bring these lines again
            raise Malformed(f"{where}: the hunks leave lines of a file that goes")
        return None
    if len(lines) > MOST_LINES or len(result) > LARGEST:  # it could not be read again, nor taken back
        raise Malformed(f"{where}: the result would have {len(lines)} lines and {len(result)} bytes: too many")
    if new and git_blob(result) != new:
        raise Malformed(f"{where}: the hunks do not lead to blob {new[:12]} of the index line")
    return File(result, mode == 0o755)


def _check_pins(images: Mapping[str, File | None], release: Release, pins: Mapping[str, str], name: str) -> None:
    for path in release.paths:
        image = images[path]
        if (sha256(image.data) if image else None) != pins.get(path):
            label = f"{release.label}/{name}.sha256"
            raise Malformed(f"{label}: {path}: the stack does not lead to this digest")


def _steps(entries: Mapping[str, Entry], after: Mapping[str, File | None]) -> tuple[Step, ...]:
    return tuple(
        Step(path, entries[path], image) for path, image in sorted(after.items()) if not _same(entries[path], image)
    )


def _same(entry: Entry, image: File | None) -> bool:
    if image is None:
        return entry.kind is Kind.ABSENT
    return entry.kind is Kind.FILE and image == File(entry.data, entry.executable)
