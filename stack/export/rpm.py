"""RPM: the patches for SOURCES or dist-git, and the lines for the spec.

Above each patch stands its status upstream, as Fedora's packaging guidelines ask ("All patches should have an upstream
bug link or comment").
"""

from __future__ import annotations

from stack.export import ours
from stack.export.draft import PREFIX, Ask, Draft, names, stack_files
from stack.header import parse_header
from stack.patch import Patch
from stack.pins import format_pins, pins_of

LINES = "torch-musa-patches.spec.inc"
MANIFEST = "torch-musa-patches.sha256"
_FIRST = 9001
"""Numbers that come after those of the spec's own patches."""
_STATUS = ("Bug", "Forwarded", "Applied-Upstream")


def draft(ask: Ask) -> Draft:
    """Return patches, lines and manifest."""
    patches = stack_files(ask.release, "")
    new = {**patches, LINES: _lines(ask.release.patches, names(patches))}
    have = ours.known(ask.tree, MANIFEST, rf"{PREFIX}[^/]+\.patch|{LINES}")
    settled = ours.settle(ask.tree, have, new)
    tip = f"Paste the Patch lines of {LINES} behind the spec's own, and %autosetup -p1 into %prep."
    return Draft({**settled.files, MANIFEST: format_pins(pins_of(new))}, kept=settled.kept, tip=tip)


def _lines(patches: tuple[Patch, ...], named: tuple[str, ...]) -> bytes:
    rows = []
    for number, (patch, name) in enumerate(zip(patches, named, strict=True), _FIRST):
        header = parse_header(patch.head, patch.name)
        status = [f"{key}: {value}" for key, value in header.fields if key in _STATUS]
        # A macro is expanded in a comment too.
        rows += [f"# {text}".replace("%", "%%") for text in (header.subject, *status)]
        rows.append(f"Patch{number}: {name}")
    return "\n".join([*rows, "", "# In %%prep:", "%autosetup -p1", ""]).encode()
