"""What the tests of export share: a place to export into, and the call itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

from stack.export.command import export
from stack.outcome import Outcome
from stack.store import Store
from tests.conftest import STACKS
from tests.stock_tools import Stack

NAME, LATER = "2.7.1+specimen", "2.9.1.post1+specimen"
CHANGELOG = (
    "torch-musa (2.7.1-1) unstable; urgency=medium\n\n  * Packaged.\n\n"
    " -- Zo\u00eb Packager <packager@example.org>  Mon, 30 Nov 2026 12:00:00 +0000\n"
)
FOLDERS = {"debian": "debian/patches/torch-musa-", "rpm": "torch-musa-", "quilt": "patches/"}
"""Where the patches of the forms with several files go."""
FIRST, SECOND, THIRD = (path.name for path in Stack("2.7.1").patches)


def place(form: str, where: Path) -> Path:
    """Return an OUT for the form: the packaging of a source package, an empty directory, or a name in one."""
    (where / "debian/source").mkdir(parents=True)
    (where / "debian/source/format").write_text("3.0 (quilt)\n")
    (where / "debian/changelog").write_text(CHANGELOG)
    return where / "stack.mbox" if form == "mbox" else where


store = cache(Store)  # a release is read and parsed once for all tests


def run(form: str, out: Path, release: str = NAME, stacks: Path = STACKS, **options: str) -> Outcome:
    """Export in this process."""
    return export(form, str(out), store(str(stacks)), {"release": release, **options})


def changed_stacks(where: Path, change: Callable[[Path], object]) -> Path:
    """Return a copy of the specimen's stacks, changed: what a later version of this project may bring."""
    shutil.copytree(STACKS, where)
    change(where)
    return where


def edit(path: Path, old: str, new: str) -> None:
    """Replace the first place of a text that must be there."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def write(path: Path, text: str) -> None:
    """Write a file, and make the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
