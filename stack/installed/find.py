"""Where an environment has its torch_musa: what the metadata speaks of must be what would be imported.

The interpreter itself is asked (look_child), with the environment variables that decide what it imports: only it knows
its path, its `.pth` files and its finders.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from stack.errors import Environment, Refused
from stack.installed.child import ask

PACKAGE = "torch_musa"
_REINSTALL = "Install the wheel of your release anew: pip install --force-reinstall --no-deps WHEEL."


class Installed(NamedTuple):
    """An installed torch_musa.

    python: its interpreter as named; prefix: that environment's folder. site: the folder that holds torch_musa, for an
    editable install the source tree's. metadata: the name of its metadata folder in site, or empty where that is not
    a part of site. version: by metadata, a hint only. editable: whether site is a source tree, imported in place.
    user: whether site is the user's own site-packages.
    """

    python: str
    prefix: str
    version_info: tuple[int, int]
    cache_tag: str
    site: str
    metadata: str
    version: str
    installer: str
    editable: bool
    user: bool

    @property
    def package(self) -> str:
        return f"{self.site}/{PACKAGE}"

    def describe(self) -> str:
        """Return where it is, for people."""
        what = "an editable install of a source tree" if self.editable else "installed"
        place = " (the user's site-packages)" if self.user else ""
        version = f", version {self.version} by its metadata" if self.version else ""
        return f"{self.package}: {what} for {self.python}{place}{version}"


def find(python: str) -> Installed:
    """Return the torch_musa that an interpreter imports; raise StackError for each way to have none."""
    seen = ask(python, "look_child.py")
    return choose(python, seen)


def choose(python: str, seen: Mapping[str, Any]) -> Installed:
    """Return the installed torch_musa out of what look_child saw, or raise what is wrong with it."""
    known = _apart(seen["distributions"])
    if seen["spec_error"]:
        raise Environment(f"{python}: cannot tell from where torch_musa would be imported: {seen['spec_error']}")
    if seen["spec"] is None:
        raise _absent(python, seen, known)
    if len(known) > 1:
        names = "".join(f"\n  {_named(one)}" for one in known)
        raise Refused(
            f"{python}: several distributions of torch_musa are installed:{names}",
            f"Only the first is imported. Uninstall all, then install one: {quote(python)} -m pip uninstall torch_musa",
        )
    origin = _origin(python, seen["spec"])
    if not known:
        raise Refused(
            f"{python}: would import torch_musa from {os.path.dirname(origin)}, of which no metadata speaks",
            "If that is a source tree, name the folder above it: apply.py apply "
            f"{quote(os.path.dirname(os.path.dirname(origin)))}",
        )
    return _installed(python, seen, known[0], origin)


def _apart(distributions: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Return the distributions, each once: a folder may stand twice on the path."""
    return list({os.path.realpath(one["metadata"] or one["location"]): one for one in distributions}.values())


def _named(one: Mapping[str, str]) -> str:
    return f"{one['metadata'] or one['location']} (version {one['version'] or 'unknown'})"


def _absent(python: str, seen: Mapping[str, Any], known: Sequence[Mapping[str, str]]) -> Exception:
    if known:
        return Refused(
            f"{python}: {_named(known[0])} speaks of torch_musa, but there is nothing to import",
            f"What is left is metadata alone. {_REINSTALL}",
        )
    looked = ", ".join(seen["path"]) or "nowhere"
    return Environment(
        f"{python}: torch_musa is not installed for this interpreter (looked in {looked})",
        "Name the interpreter that has it: --python EXE. Another user's site-packages are that user's alone.",
    )


def _origin(python: str, spec: Mapping[str, Any]) -> str:
    """Return the file that would be imported; raise Refused where it is none that can be patched."""
    origin = spec["origin"]
    if spec["loader"] == "zipimporter":
        archive = next((part for part in _above(origin) if os.path.isfile(part)), origin)
        kind = "the zipped egg" if archive.endswith(".egg") else "the zip file"
        raise Refused(
            f"{python}: imports torch_musa out of {kind} {archive}",
            "An archive is not changed in place. " + _REINSTALL,
        )
    if origin is None:
        folders = ", ".join(spec["folders"])
        raise Refused(
            f"{python}: torch_musa is a namespace package, a folder without __init__.py: {folders}",
            f"These are remains, or a folder of that name that hides the package. Remove it. {_REINSTALL}",
        )
    if os.path.basename(origin) != "__init__.py":
        raise Refused(
            f"{python}: would import torch_musa from {origin}, and not from an __init__.py beside it",
            f"A fix of the source would not be seen. {_REINSTALL}",
        )
    if not os.path.isfile(origin):
        raise Refused(f"{python}: would import torch_musa from {origin}, which is no file", _REINSTALL)
    return str(origin)


def _above(path: str) -> list[str]:
    found = []
    while path not in ("", "/"):
        found.append(path)
        path = os.path.dirname(path)
    return found


def _installed(python: str, seen: Mapping[str, Any], one: Mapping[str, str], origin: str) -> Installed:
    location, metadata = one["location"], one["metadata"].rstrip("/")
    if os.path.basename(metadata) == "EGG-INFO":
        raise Refused(
            f"{python}: torch_musa is installed as an egg: {os.path.dirname(metadata)}",
            f"Eggs have no list of their files that could be kept right. {_REINSTALL}",
        )
    source = _source_of(one)
    site = os.path.realpath(location)
    if source is not None:
        site = _editable_site(python, source, origin, one)
    elif not _same(os.path.dirname(origin), f"{location}/{PACKAGE}"):
        raise _shadowed(python, one, f"{location.rstrip('/')}/{PACKAGE}", origin)
    return Installed(
        python,
        seen["prefix"],
        (seen["version_info"][0], seen["version_info"][1]),
        seen["cache_tag"],
        site,
        "" if source is not None else os.path.basename(metadata),
        one["version"],
        one["installer"],
        source is not None,
        bool(seen["user_site"]) and _same(location, seen["user_site"]),
    )


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _shadowed(python: str, one: Mapping[str, str], spoken_of: str, origin: str) -> Refused:
    return Refused(
        f"{python}: {_named(one)} speaks of {spoken_of}, but what would be imported is {os.path.dirname(origin)}",
        "Take the one that is not meant out of the way (PYTHONPATH, a .pth file, a folder), then run it again.",
    )


def _source_of(one: Mapping[str, str]) -> str | None:
    """Return the source tree of an editable install, or None for another install.

    pip notes it in direct_url.json (Python packaging specifications, "Direct URL Data Structure"); a `develop` install
    has its metadata in the source tree itself.
    """
    try:
        about = json.loads(one["direct_url"] or "{}")
        if about.get("dir_info", {}).get("editable") is True:
            return unquote(urlsplit(about["url"]).path)
    except (ValueError, KeyError, AttributeError):
        pass
    location = one["location"]
    has_sources = any(os.path.isfile(f"{location}/{name}") for name in ("setup.py", "pyproject.toml", "setup.cfg"))
    return location if has_sources and one["metadata"].endswith(".egg-info") else None


def _editable_site(python: str, source: str, origin: str, one: Mapping[str, str]) -> str:
    """Return the folder of the source tree that holds the imported package."""
    real, top = os.path.realpath(origin), os.path.realpath(source)
    site = os.path.dirname(os.path.dirname(real))
    if not real.startswith(f"{top}/"):
        raise _shadowed(python, one, f"the source tree {source}", origin)
    for own in (f"{top}/{PACKAGE}/__init__.py", f"{top}/src/{PACKAGE}/__init__.py"):
        if _same(own, real) and os.path.realpath(own) != real:
            raise Refused(
                f"{python}: imports torch_musa from {site}, hard links to the source tree {source}",
                "A patched source file would be a new file, and the link would keep the old one. Patch the tree, "
                f"apply.py apply {quote(source)}, then install it anew: pip install -e.",
            )
    return site
