"""How a child tells its parent what it found: JSON lines on a descriptor."""

from __future__ import annotations

import json
import os
from typing import Any


def send(descriptor: int, kind: str, content: Any) -> None:
    """Write one message, whole: kind is "progress" or "value" (see verify.child.run)."""
    line = json.dumps({kind: content}).encode() + b"\n"
    while line:
        line = line[os.write(descriptor, line) :]
