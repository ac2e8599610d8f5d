"""Children of the judged interpreter: a script of ours as text, JSON in, one line of JSON out."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from stack.errors import Environment

# What decides which files an interpreter imports, and where it finds its own libraries. Nothing else of ours gets in.
_KEPT = (
    *("PATH", "HOME", "LD_LIBRARY_PATH", "TMPDIR", "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE"),
    *("PYTHONPYCACHEPREFIX", "PYTHONSAFEPATH"),
)
_SECONDS = 120


def kept() -> dict[str, str]:
    """Return what a judged interpreter keeps of our environment. A relative folder of PYTHONPATH is the caller's."""
    found = {name: os.environ[name] for name in _KEPT if name in os.environ}
    if path := found.get("PYTHONPATH"):  # an empty entry is the current directory
        found["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, path.split(os.pathsep)))
    return found


def ask(python: str, script: str, order: object = None) -> Any:
    """Return what a script of this folder answers in a child of python; raises Environment with what went wrong."""
    with open(f"{os.path.dirname(__file__)}/{script}", encoding="utf-8") as file:
        text = file.read()
    try:
        done = subprocess.run(
            [python, "-B", "-c", text],
            input=json.dumps(order).encode(),
            cwd="/",
            env={**kept(), "LC_ALL": "C.UTF-8"},
            capture_output=True,
            timeout=_SECONDS,
        )
        if not done.returncode:
            return json.loads(done.stdout.rstrip(b"\n").rpartition(b"\n")[2])
        why = f"ended with exit code {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Environment(f"{python}: cannot be run: {error}", "--python names a Python interpreter.") from error
    except ValueError:
        why = "gave no answer that can be read"
    told = done.stderr.decode("utf-8", "replace").strip().splitlines()[-3:]
    raise Environment(f"{python}: {script} {why}" + "".join(f"\n  {line}" for line in told))
