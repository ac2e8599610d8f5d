"""The hardware level's child: looks at the cards, or runs one carried test file on the installed torch_musa.

Run as a script by verify.hardware: `hardware_child.py FD JSON`. No stand-in of any kind: what is imported here is the
installed torch, and the torch_musa of the overlay in which only the touched files differ from the installed one.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Run as a script: its folder is on the path. The project goes last, so that it can hide nothing.
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parents[1])]

from verify.standin import report


def look() -> dict[str, Any]:
    """Return what is installed and which cards it sees. Raises whatever the import of torch_musa raises."""
    import torch
    import torch_musa

    count = torch.musa.device_count() if torch.musa.is_available() else 0
    return {
        "package": os.path.dirname(os.path.abspath(torch_musa.__file__)),
        "cards": [torch.musa.get_device_name(index) for index in range(count)],
        "versions": {
            "Python": platform.python_version(),
            "torch": torch.__version__,
            "torch_musa": getattr(torch_musa, "__version__", "unknown"),
            "MUSA": str(getattr(torch.version, "musa", "unknown")),
        },
    }


def run(root: str, test: str, stale: bool) -> dict[str, Any]:
    """Run one test file with the overlay at root in front of the installed package.

    stale: put the flag into the module's own dict, as the re-export does: the defect, recreated exactly.
    """
    sys.path.insert(0, root)
    import torch_musa

    found = os.path.dirname(os.path.abspath(torch_musa.__file__))
    if found != os.path.join(root, "torch_musa"):
        raise ImportError(f"torch_musa was imported from {found}, not from the overlay")
    if stale:
        vars(torch_musa)["_initialized"] = False
    from verify.standin import pytest_run

    return pytest_run.run(Path(root), test)


def main(descriptor: int, order: dict[str, Any]) -> None:
    """Do what was ordered; whatever the installed packages raise is the answer."""
    try:
        value = run(**order) if order else look()
    except Exception as error:
        value = {"unprepared": f"{type(error).__name__}: {error}"}
    report.send(descriptor, "value", value)


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
