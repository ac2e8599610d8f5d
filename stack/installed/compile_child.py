"""Runs in the interpreter that an installed package is for (stack.installed.bytecode): makes the bytecode of sources.

Reads one JSON list of {path, data, levels} and prints one, in the same order, of {level: bytecode}, both with bytes in
base64. path is where the source will lie. Nothing is imported and nothing but a temporary folder is written.
"""

from __future__ import annotations

import sys

if sys.path[:1] == [""]:
    del sys.path[0]

import base64
import json
import os
import py_compile
import tempfile
from typing import Any


def made(folder: str, source: dict[str, Any]) -> dict[int, str]:
    """Return the bytecode of one source for each optimisation level."""
    plain, cached = os.path.join(folder, "source.py"), os.path.join(folder, "cached.pyc")
    with open(plain, "wb") as file:
        file.write(base64.b64decode(source["data"]))
    found = {}
    for level in source["levels"]:
        # Checked against the source's hash, not its time: the source is still to be written.
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        py_compile.compile(plain, cached, source["path"], doraise=True, optimize=level, invalidation_mode=mode)
        with open(cached, "rb") as file:
            found[level] = base64.b64encode(file.read()).decode()
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        answer = [made(where, source) for source in json.load(sys.stdin)]
    print("\n" + json.dumps(answer))
