"""Debian, source format 3.0 (quilt): patches and series in debian/patches, and texts on what changes for users.

The texts wait in a folder of our own to be pasted: debian/NEWS and debian/changelog are the packager's. Its name has an
underscore, so that no binary package can have it: debhelper takes debian/<package> for its own.
"""

from __future__ import annotations

import re

from stack.errors import Refused, Usage
from stack.export import ours
from stack.export.draft import PREFIX, Ask, Draft, names, stack_files
from stack.export.listing import join
from stack.header import Header, parse_header
from stack.pins import format_pins, pins_of
from stack.tree import Kind, Tree

FOLDER = "debian/patches"
TEXTS = "debian/torch-musa_patches"
MANIFEST = f"{TEXTS}/manifest.sha256"
_OURS = rf"{FOLDER}/{PREFIX}[^/]+\.patch|{TEXTS}/(NEWS|changelog)"
_USERS = "What changes for users"
"""How the paragraph of a patch's header begins that users have to know of."""


def draft(ask: Ask) -> Draft:
    """Return patches, series, manifest, and texts when there is a change to tell of.

    Raises Refused for another source format, Usage where there is no debian/.
    """
    _check_format(ask.tree)
    patches = stack_files(ask.release, f"{FOLDER}/")
    have = ours.known(ask.tree, MANIFEST, _OURS)
    pins = pins_of(patches)
    told = {path: digest for path, digest in have.items() if path.startswith(f"{TEXTS}/")}
    texts, notes = _texts(ask, [parse_header(patch.head, patch.name) for patch in ask.release.patches])
    if have == {**pins, **told}:  # the change was told of, maybe in an earlier version of the package
        have, texts, notes = pins, {}, ()
    else:
        told = pins_of(texts)
    settled = ours.settle(ask.tree, have, {**patches, **texts})
    series = join(ask.tree, FOLDER, set(names(have)), patches)
    files = {**settled.files, f"{FOLDER}/series": series, MANIFEST: format_pins({**pins, **told})}
    return Draft(files, (), settled.kept, (*notes, *_other_series(ask.tree)), _tip(tuple(texts)))


def _check_format(tree: Tree) -> None:
    debian = tree.read("debian")
    if debian.kind is Kind.ABSENT:
        raise Usage(f"{tree.root}: has no debian/", "Name the top of an unpacked source package.")
    entry = ours.place(tree, "debian/source/format")
    found = entry.data.decode("ascii", "backslashreplace").strip() or "1.0, since the file is missing"
    if found != "3.0 (quilt)":
        raise Refused(
            f"{tree.root}/debian/source/format: is {found}; debian/patches is read by 3.0 (quilt) alone",
            "Change the format: echo '3.0 (quilt)' > debian/source/format. Or let your own build apply the files of "
            "apply.py export quilt.",
        )


def _texts(ask: Ask, headers: list[Header]) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return NEWS, where a patch tells users something, and changelog; and what people must be told of them."""
    head, trailer, note = _entry(ask.tree, headers[0].date)
    users = [text for header in headers for text in header.body if text.startswith(_USERS)]
    subjects = [f"- {header.subject}" for header in headers]
    news = ["\n".join([f"torch_musa {ask.release.name} is patched here:", *subjects]), *users]
    changes = [f"* Patch torch_musa {ask.release.name}:", *(f"  {line}" for line in subjects)]
    for text in users:
        first, *rest = text.split("\n")
        changes += [f"* {first}", *(f"  {line}" for line in rest)]
    bodies = {"NEWS": "\n\n".join(news).split("\n") if users else [], "changelog": changes}
    texts = {
        f"{TEXTS}/{name}": "\n".join([head, "", *(f"  {line}".rstrip() for line in body), "", trailer, ""])
        for name, body in bodies.items()
        if body
    }
    return {path: text.encode("utf-8", "surrogateescape") for path, text in texts.items()}, note


def _entry(tree: Tree, date: str) -> tuple[str, str, tuple[str, ...]]:
    """Return first and last line of an entry, as the newest entry of debian/changelog has them (deb-changelog(5))."""
    entry = tree.read("debian/changelog")
    text = entry.data.decode("utf-8", "surrogateescape")
    head = re.match(r"\s*(\w[\w.+-]* \([^ ()]+\) [^;\n]+;.*)\n", text, re.ASCII)
    end = next(filter(_ends_entry, text[head.end() :].split("\n")), "") if head else ""
    if head and end.startswith(" -- "):
        return head[1].rstrip(), end.rstrip(), ()
    note = f"  {TEXTS}: package, version and name are placeholders: debian/changelog has no entry to take them from"
    place = "torch-musa (0~version) UNRELEASED; urgency=medium"
    return place, f" -- Your Name <you@example.org>  {date}", (note,)


def _ends_entry(line: str) -> bool:
    """Whether a line of a changelog is the trailer of an entry, or begins another one."""
    name, _, rest = line.removeprefix(" -- ").partition(" <")
    mail, _, date = rest.partition(">  ")
    trailer = line.startswith(" -- ") and name and mail and date[:1].strip()
    return bool(trailer) or re.match(r"\w", line) is not None


def _other_series(tree: Tree) -> list[str]:
    """Return a line for each series of a vendor, which dpkg-source reads instead of `series` (dpkg-source(1))."""
    if tree.read(FOLDER).kind is not Kind.DIRECTORY:
        return []
    found = sorted(name for name in tree.names(FOLDER) if name.endswith(".series"))
    return [f"  {FOLDER}/{name}: stands in for series on that vendor's systems, and is left alone" for name in found]


def _tip(texts: tuple[str, ...]) -> str:
    if not texts:
        return ""
    pairs = [f"{path} into debian/{path.rpartition('/')[2]}" for path in texts]
    return f"Paste {' and '.join(pairs)}; dpkg-source --before-build . applies the patches."
