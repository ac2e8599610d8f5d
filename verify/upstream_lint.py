"""Upstream's own lint on the touched files: black 24.2.0 and pylint with the tree's pylintrc, after against before."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from stack.scratch import scratch_folder
from verify.finding import Finding, Level, Status

BLACK = "24.2.0"
RCFILE = "tools/lint/pylintrc"
TIMEOUT_SECONDS = 120
_CLAIMS = {
    "upstream-black": f"the touched files are no worse for black {BLACK} than before",
    "upstream-pylint": f"the touched files are no worse for pylint with {RCFILE} than before",
}


def check_lint(
    tree: Path,
    before: Mapping[str, bytes],
    after: Mapping[str, bytes],
    python: str = sys.executable,
) -> list[Finding]:
    """Lint the touched files before and after a change, on scratch copies, with the tools of the interpreter `python`.

    before, after: contents by path in the tree; a file that the change creates is in `after` only. Files that are not
    Python are ignored. A tool that is absent, or a black of another version, gives a finding that did not run.
    """
    # Without a tool there is nothing to lay out for it.
    images = (before, after) if any(_may_have(python, tool) for tool in ("black", "pylint")) else ({}, {})
    with scratch_folder() as scratch:
        sides = [_lay_out(Path(scratch, name), files) for name, files in zip(("before", "after"), images, strict=True)]
        return [_black(python, sides), _pylint(python, sides, tree / RCFILE)]


def _lay_out(folder: Path, files: Mapping[str, bytes]) -> Path:
    folder.mkdir()
    for path, data in files.items():
        target = folder / path
        if path.endswith(".py") and target.resolve().is_relative_to(folder.resolve()):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    return folder


def _files(side: Path) -> list[str]:
    return sorted(str(path.relative_to(side)) for path in side.rglob("*.py"))


def _run(python: str, arguments: list[str], cwd: Path) -> tuple[int, str]:
    import os
    import subprocess

    # Settings of the user must not count: no PYTHON*, PYLINT* or GIT_* variables, and a home without files.
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "SYSTEMROOT") if name in os.environ}
    env = kept | {
        "LC_ALL": "C",
        "HOME": str(cwd),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYLINTHOME": str(cwd / ".pylint"),
    }
    try:
        done = subprocess.run(
            [python, "-m", *arguments], cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors="replace", timeout=TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, str(error)
    return done.returncode, done.stdout + done.stderr


def _may_have(python: str, tool: str) -> bool:
    """Say whether an interpreter may have a tool; for our own that is known without starting one."""
    from importlib.util import find_spec

    return python != sys.executable or find_spec(tool) is not None


def _version(python: str, tool: str, cwd: Path) -> tuple[int, str]:
    return _run(python, [tool, "--version"], cwd) if _may_have(python, tool) else (1, f"No module named {tool}")


def _finding(check: str, status: Status, how: str, detail: str) -> Finding:
    return Finding(Level.STATIC, check, _CLAIMS[check], status, how, detail)


def _black(python: str, sides: list[Path]) -> Finding:
    code, version = _version(python, "black", sides[1])
    if code or f" {BLACK} " not in version.splitlines()[0] + " ":
        found = version.strip().splitlines()[-1] if version.strip() else f"exit {code}"
        return _finding(
            "upstream-black",
            Status.NOT_RUN,
            f"by black {BLACK}",
            f"needs black {BLACK} for {python}: {found}",
        )
    # --config: the defaults, whatever pyproject.toml stands above the scratch folder.
    worse = [path for path in _files(sides[1]) if _unformatted(python, sides[1], path)]
    worse = [path for path in worse if not (sides[0] / path).exists() or not _unformatted(python, sides[0], path)]
    status = Status.REFUTED if worse else Status.PROVEN
    detail = "; ".join(f"{path} would be reformatted" for path in worse) or ", ".join(_files(sides[1]))
    return _finding("upstream-black", status, f"by black {BLACK}", detail)


def _unformatted(python: str, side: Path, path: str) -> bool:
    import os

    return _run(python, ["black", "--check", "--quiet", "--config", os.devnull, path], side)[0] != 0


def _pylint(python: str, sides: list[Path], rcfile: Path) -> Finding:
    if not rcfile.is_file():
        return _finding("upstream-pylint", Status.NOT_RUN, "by pylint", f"the tree has no {RCFILE}")
    code, version = _version(python, "pylint", sides[1])
    if code:
        found = version.strip().splitlines()[-1] if version.strip() else f"exit {code}"
        return _finding("upstream-pylint", Status.NOT_RUN, "by pylint", f"needs pylint for {python}: {found}")
    counts = []
    for side in sides:
        messages, trouble = _messages(python, side, rcfile.resolve())
        if trouble:
            return _finding("upstream-pylint", Status.NOT_RUN, "by pylint", trouble)
        counts.append(messages)
    new = counts[1] - counts[0]
    detail = "\n".join(f"{path}: {text}" for path, text in sorted(new.elements()))
    how = f"by {version.split()[0]} {version.split()[1]}"
    return _finding(
        "upstream-pylint",
        Status.REFUTED if new else Status.PROVEN,
        how,
        detail or ", ".join(_files(sides[1])),
    )


def _messages(python: str, side: Path, rcfile: Path) -> tuple[Counter[tuple[str, str]], str]:
    """Return the messages without line numbers, which a patch shifts, or why pylint could not say."""
    import json

    if not _files(side):
        return Counter(), ""
    # --jobs=1: the rcfile asks for eight; --persistent=n: no statistics left behind.
    arguments = ["pylint", f"--rcfile={rcfile}", "--load-plugins=pylint.extensions.docparams", "--jobs=1",
                 "--persistent=n", "--output-format=json", *_files(side)]  # fmt: skip
    code, text = _run(python, arguments, side)
    try:
        # The report is one JSON list; warnings on old options in the rcfile go to stderr and follow it.
        listed, _ = json.JSONDecoder().raw_decode(text[text.index("[") :])
    except ValueError:
        return Counter(), f"pylint gave no report (exit {code}): {text[-300:]}"
    return Counter((item["path"], f"{item['message-id']} {item['obj']}: {item['message']}") for item in listed), ""
