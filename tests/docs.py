"""The commands and texts that the docs mark for the tests."""

from __future__ import annotations

import re

from tests.conftest import ROOT

README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def blocks(text: str, kind: str = "run") -> dict[str, str]:
    """Return the marked blocks of a document by name. kind: `run` for commands, `text` for what is read alone."""
    language = "sh" if kind == "run" else "[a-z]+"
    return dict(re.findall(rf"<!-- {kind}: ([a-z-]+) -->\n```{language}\n(.*?)```", text, re.DOTALL))
