"""Imports the installed torch_musa and looks at its flag: run as a script by verify.installed, `installed_child.py FD`.

No stand-in of any kind, and no device is initialized: the flag is asked for, never set to what would mean so.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Run as a script: its folder is on the path. The project goes last, so that it can hide nothing.
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parents[1])]

from verify.standin import report

NAME = "_initialized"


def look() -> dict[str, Any]:
    """Return what the imported module is like. Raises whatever the import raises."""
    import torch
    import torch_musa

    module, space = sys.modules["torch_musa"], vars(torch_musa)
    owner = sys.modules.get("torch_musa.core._lazy_init")
    return {
        "file": getattr(module, "__file__", None) or "",
        "versions": {"torch": str(torch.__version__), "torch_musa": str(space.get("__version__", "unknown"))},
        "same": getattr(torch, "musa", None) is module,
        "stored": NAME in space,
        "value": repr(space.get(NAME)),
        "forwarder": "__getattr__" in space,
        "initialized": repr(getattr(owner, NAME, None)),
        "follows": owner is not None and _follows(module, owner),
    }


def _follows(module: Any, owner: Any) -> bool:
    """Whether the package's attribute is what the owner's is at this moment: asked with a value of no meaning."""
    before, mark = getattr(owner, NAME, None), object()
    setattr(owner, NAME, mark)
    try:
        return getattr(module, NAME, None) is mark
    finally:
        setattr(owner, NAME, before)


def main(descriptor: int) -> None:
    """Look; whatever the installed packages raise is the answer."""
    try:
        value = look()
    except BaseException as error:  # SystemExit too
        value = {"unprepared": f"{type(error).__name__}: {error}"}
    report.send(descriptor, "value", value)


if __name__ == "__main__":
    main(int(sys.argv[1]))
