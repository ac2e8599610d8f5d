"""Runs in the judged interpreter (stack.installed.find): what its metadata says of torch_musa, what it would import.

torch_musa itself is not imported. Prints one line of JSON, behind whatever a start-up file of that environment prints.
"""

from __future__ import annotations

import sys

if sys.path[:1] == [""]:
    del sys.path[0]  # the folder from which the tool was called is no part of the environment

import importlib.util
import json
import os
import sysconfig
from importlib import metadata
from typing import Any

NAME = "torch_musa"


def main() -> dict[str, Any]:
    """Return what there is to know of the environment."""
    import site

    return {
        "python": sys.version.split()[0],
        "version_info": list(sys.version_info[:2]),
        "prefix": sys.prefix,
        "cache_tag": sys.implementation.cache_tag,
        "path": sys.path,
        "user_site": site.getusersitepackages() if site.ENABLE_USER_SITE else "",
        "platlib": sysconfig.get_path("platlib"),
        "distributions": [_distribution(one) for one in metadata.distributions(name=NAME)],
        **_spec(),
    }


def _distribution(one: Any) -> dict[str, Any]:
    # The folder of the metadata has no public name; an environment that hides it is told by its location alone.
    folder = getattr(one, "_path", None)
    about = one.metadata
    return {
        "location": str(one.locate_file("")),
        "metadata": "" if folder is None else str(folder),
        "version": (about["Version"] if about is not None else None) or "",
        "installer": (one.read_text("INSTALLER") or "").strip(),
        "direct_url": one.read_text("direct_url.json") or "",
    }


def _spec() -> dict[str, Any]:
    try:
        spec = importlib.util.find_spec(NAME)
    except Exception as error:  # a finder of that environment may raise anything
        return {"spec": None, "spec_error": f"{type(error).__name__}: {error}"}
    if spec is None:
        return {"spec": None, "spec_error": ""}
    loader = spec.loader if isinstance(spec.loader, type) else type(spec.loader)
    return {
        "spec": {
            "origin": spec.origin if spec.has_location else None,
            "loader": loader.__name__,
            "folders": [os.fspath(folder) for folder in spec.submodule_search_locations or ()],
        },
        "spec_error": "",
    }


if __name__ == "__main__":
    print("\n" + json.dumps(main()))
