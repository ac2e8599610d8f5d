"""Judge the stacks themselves: form, chain, positions, and the three records against each other.

The records are independent of each other: the pins (base.sha256, result.sha256), the blob ids in
the patches, and the line digests (fingerprint.json). A silent edit of one contradicts another.
Every rule is in RULES; each finding names its rule, and all are collected before the run fails.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from stack.bindings import parse
from stack.digest import git_blob, sha256
from stack.errors import Exit, Malformed, StackError
from stack.fingerprint import known_lines, step_lines
from stack.header import slug
from stack.hunk import Work
from stack.outcome import Outcome
from stack.patch import FileChange, Hunk, Patch
from stack.store import Release, Store
from stack.timeline import UNNAMED, Point, timeline
from verify.lint_header import HEADER_RULES, check_header
from verify.lint_sums import SUMS_RULE, check_sums

RULES = {
    "release-data": "series/ and patches/ name the same releases, each with release.json complete",
    "series-grammar": "a series has bare patch names, one a line, LF, no duplicates",
    "series-present": "every patch that a series names is there",
    "series-listed": "every file of a release's folder is a listed patch, a pin or a data file",
    "series-same": "all releases have patches of the same names",
    "patch-number": "patch names count from 0001 without a gap",
    "patch-form": "a patch is a git diff: shape, counts, full blob ids, paths inside the tree",
    "patch-context": "hunks have three lines of context, less only at the ends of the file",
    "patch-whitespace": "added lines have no trailing blanks, tabs or CR, and end in a newline",
    "patch-position": "every hunk stands at its stated line of the real file, by line digests",
    "patch-python": "a new Python file can be compiled",
    "pins-grammar": "pins are lines of sha256sum, sorted, with paths inside the tree",
    "pins-chain": "blob ids lead from base to result, and the pins name the same files",
    "pins-base": "base.sha256, the patches' blob ids and fingerprint.json agree on the base",
    "pins-result": "result.sha256, the patches' blob ids and fingerprint.json agree on the result",
    "pins-new": "result.sha256 and the blob id of a new file are those of its bytes",
    "directories": "the folder of a new file is in release.json, or holds a pinned file",
    **HEADER_RULES,
    **SUMS_RULE,
}
DATA_FILES = ("base.sha256", "result.sha256", "release.json", "fingerprint.json")


class Problem(NamedTuple):
    """One finding: which rule, where (file, or file:line), and what is wrong."""

    rule: str
    where: str
    message: str


def lint_command(store: Store) -> Outcome:
    """Return the outcome of `apply.py lint`."""
    problems = lint_folder(store)
    names = ", ".join(release.name for release in store.releases)
    data = {"rules": RULES, "findings": [problem._asdict() for problem in problems]}
    if not problems:
        return Outcome("lint", Exit.DONE, "lint", f"{names}: clean by {len(RULES)} rules", data=data)
    lines = [f"{problem.where}: {problem.message} [{problem.rule}]" for problem in problems]
    message = "\n".join([*lines, f"{store.stacks}: {len(problems)} findings"])
    return Outcome("lint", Exit.MALFORMED, "lint", message, data=data)


def lint_folder(store: Store) -> list[Problem]:
    """Return every finding about a whole stacks folder: those about its releases, and its SHA256SUMS."""
    problems = lint_stacks(store)
    try:
        return [*problems, *(Problem("sums", *found) for found in check_sums(store))]
    except StackError as error:
        return [*problems, _from_error("sums", error)]


def lint_stacks(store: Store) -> list[Problem]:
    """Return every finding about every release, in order. Raises only when there is no stack."""
    problems = list(_folders(store))
    for release in store.releases:
        problems += _release(release)
    names = {release.name: _or_none(release, "series") for release in store.releases}
    first = next((series for series in names.values() if series), None)
    problems += [
        Problem("series-same", f"series/{name}", "has other patch names than the first release")
        for name, series in names.items()
        if series is not None and series != first
    ]
    return problems


def _or_none(release: Release, part: str) -> object:
    try:
        return getattr(release, part)
    except StackError:
        return None


def _folders(store: Store) -> Iterator[Problem]:
    listed = {release.name for release in store.releases}
    try:
        folders = sorted(os.listdir(f"{store.stacks}/patches"))
    except OSError as error:
        yield Problem("release-data", "patches", f"cannot be listed: {error.strerror}")
        return
    for name in folders:
        if name not in listed:
            yield Problem("release-data", f"patches/{name}", f"there is no series/{name}")
    for name in sorted(set(os.listdir(f"{store.stacks}/series")) - listed):
        yield Problem("release-data", f"series/{name}", "is not the name of a release")


def _release(release: Release) -> Iterator[Problem]:
    """Check one release; a part that cannot be read is one finding, and what needs it is left."""
    broken = False
    parts = {
        "series": "series-grammar",
        "base": "pins-grammar",
        "result": "pins-grammar",
        "paths": "pins-grammar",
        "about": "release-data",
        "fingerprint": "release-data",
    }
    for part, rule in parts.items():
        try:
            getattr(release, part)
        except StackError as error:
            broken = True
            yield _from_error(rule, error)
    if _or_none(release, "series") is None:
        return
    yield from _listed(release)
    patches = []
    for name in release.series:
        where = f"{release.label}/{name}"
        if not os.path.isfile(f"{release.stacks}/{where}"):
            yield Problem("series-present", where, f"{release.series_label} names it")
            broken = True
            continue
        try:
            patches.append(release.patch(name))
        except StackError as error:
            broken = True
            yield _from_error("patch-form", error)
    for patch in patches:
        yield from check_header(patch, slug)
        yield from _patch_text(patch)
    if not broken:
        yield from _about(release)
        yield from _chain(release)


def _from_error(rule: str, error: StackError) -> Problem:
    where, _, message = str(error).partition(": ")
    return Problem(rule, where, message)


def _listed(release: Release) -> Iterator[Problem]:
    known = {*release.series, *DATA_FILES}
    try:
        found = sorted(os.listdir(f"{release.stacks}/{release.label}"))
    except OSError:
        found = []
    for name in found:
        if name not in known:
            yield Problem("series-listed", f"{release.label}/{name}", "is not listed in the series")
    for number, name in enumerate(release.series, 1):
        if not name.startswith(f"{number:04d}-"):
            yield Problem("patch-number", f"{release.label}/{name}", f"expected {number:04d}-...")


def _patch_text(patch: Patch) -> Iterator[Problem]:
    for change in patch.files:
        for hunk in change.hunks:
            for offset, (kind, line) in enumerate(hunk.lines, 1):
                where = f"{patch.name}:{hunk.number + offset}"
                if kind == "+" and (not line.endswith(b"\n") or line[:-1] != line[:-1].rstrip()):
                    yield Problem("patch-whitespace", where, "adds trailing blanks or no newline")
                elif kind == "+" and b"\t" in line:
                    yield Problem("patch-whitespace", where, "adds a tab")
        if change.old_mode is None and change.path.endswith(".py"):
            yield from _compiles(patch, change)


def _compiles(patch: Patch, change: FileChange) -> Iterator[Problem]:
    source = b"".join(line for hunk in change.hunks for line in hunk.after)
    try:
        parse(source)  # refuses a source whose syntax tree would fill the memory
        compile(source, change.path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        yield Problem("patch-python", patch.name, f"{change.path}: {error}")


def _about(release: Release) -> Iterator[Problem]:
    where = f"{release.label}/release.json"
    commit = str(release.about["upstream_commit"])
    if len(commit) != 40 or not set(commit) <= set("0123456789abcdef"):
        yield Problem("release-data", where, "upstream_commit is not a full commit id")
    if set(release.about) != {"upstream_commit", "torch", "fixed_in", "directories"}:
        yield Problem("release-data", where, "has other keys than the four that it needs")
    if set(release.fingerprint) != set(release.base):
        yield Problem("pins-base", f"{release.label}/fingerprint.json", "covers other files than base.sha256")
    pinned = {path.rpartition("/")[0] for path in release.base}
    for path in set(release.result) - set(release.base):
        folder = path.rpartition("/")[0]
        if folder and folder not in pinned and folder not in release.about["directories"]:
            yield Problem("directories", where, f"{folder}, where {path} is made, is not listed")


def _chain(release: Release) -> Iterator[Problem]:
    try:
        points = timeline(release)
    except Malformed as error:
        yield _from_error("pins-chain", error)
        return
    for path, pin in release.base.items():
        known = release.fingerprint.get(path, {})
        blob = points[path][0].blob
        if known.get("sha256") != pin or blob not in (UNNAMED, known.get("git_blob")):
            yield Problem("pins-base", f"{release.label}/fingerprint.json", f"{path}: digests differ")
        if not _same_result(known.get("result"), points[path][-1]):
            yield Problem("pins-result", f"{release.label}/fingerprint.json", f"{path}: digests of the result differ")
    yield from _positions(release)


def _same_result(known: object, last: Point) -> bool:
    """Whether `result` of a fingerprint, null for a file that goes, is the last point of the timeline.

    Line digests cannot tell the digest of a changed file: an edited result would pass without this."""
    if not isinstance(known, dict):
        return known is None and last.blob is None
    return known.get("sha256") == last.sha256 and last.blob in (UNNAMED, known.get("git_blob"))


def _positions(release: Release) -> Iterator[Problem]:
    lines = {path: known_lines(release, path) for path in release.base}
    work = Work()
    for patch in release.patches:
        for change in patch.files:
            before = lines.get(change.path, [])
            try:
                lines[change.path] = step_lines(before, change, f"{patch.name}: {change.path}", work)
            except StackError as error:
                yield _from_error("patch-position", error)
                if isinstance(error, Malformed):  # no more work
                    return
                continue
            yield from _context(patch, change, len(before))
            if change.old_mode is None:
                yield from _new_file(release, patch, change)


def _context(patch: Patch, change: FileChange, length: int) -> Iterator[Problem]:
    """Check the context of a change to a file that had `length` lines before it."""
    for hunk in change.hunks if change.old_mode and change.new_mode else ():
        leading, trailing = context_of(hunk)
        at_end = hunk.old + len(hunk.before) - 1 == length
        if leading > 3 or trailing > 3 or (leading < 3 and hunk.old > 1) or (trailing < 3 and not at_end):
            where = f"{patch.name}:{hunk.number}"
            message = f"{leading} lines of context before the change, {trailing} after it"
            yield Problem("patch-context", where, message)


def context_of(hunk: Hunk) -> tuple[int, int]:
    """Return how many lines of context stand before the first change of a hunk, and after the last one."""
    kinds = "".join(kind for kind, _ in hunk.lines)
    return len(kinds) - len(kinds.lstrip(" ")), len(kinds) - len(kinds.rstrip(" "))


def _new_file(release: Release, patch: Patch, change: FileChange) -> Iterator[Problem]:
    data = b"".join(line for hunk in change.hunks for line in hunk.after)
    if git_blob(data) != change.new_blob:
        yield Problem("pins-new", patch.name, f"{change.path}: the blob id is not that of its lines")
    if len(release.changes[change.path]) == 1 and release.result.get(change.path) != sha256(data):
        where = f"{release.label}/result.sha256"
        yield Problem("pins-new", where, f"{change.path}: the digest is not that of its lines")
