"""The scan for the class of bug: what it must report, as harmful or not, and what it must leave alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from verify.finding import Status
from verify.imports import MAX_BYTES
from verify.scan import scan, scan_findings, survey

OWNER = "flag = False\n_flag = 0\n\n\ndef start():\n    global flag, _flag\n    flag = True\n    _flag += 1\n"
READ = "print(flag)\n"


def _write(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return root


# One importer of p/owner.py each: its path, its source, and (line, name, harmful) of each hit.
CASES: dict[str, tuple[str, str, list[tuple[int, str, bool]]]] = {
    "re-export": ("p/__init__.py", "from .owner import flag\n", [(1, "flag", True)]),
    "re-export-absolute": ("p/__init__.py", "from p.owner import flag\n", [(1, "flag", True)]),
    "alias": ("p/__init__.py", "from .owner import flag as f\n", [(1, "f", True)]),
    "parenthesised": ("p/__init__.py", "from .owner import (\n    start,\n    flag,\n)\n", [(3, "flag", True)]),
    "continued": ("p/__init__.py", "from .owner import start, \\\n    flag\n", [(2, "flag", True)]),
    "after-semicolon": ("p/__init__.py", "import os; from .owner import flag\n", [(1, "flag", True)]),
    "star": ("p/__init__.py", "from .owner import *\n", [(1, "flag", True)]),
    "read": ("p/user.py", "from .owner import flag\n" + READ, [(1, "flag", True)]),
    "read-in-function": ("p/user.py", "from .owner import flag\ndef f():\n    return flag\n", [(1, "flag", True)]),
    "in-all": ("p/user.py", "__all__ = ['flag']\nfrom .owner import flag\n", [(2, "flag", True)]),
    "in-try": (
        "p/user.py",
        "try:\n    from .owner import flag\nexcept ImportError:\n    flag = 0\n" + READ,
        [(2, "flag", True)],
    ),
    "script-beside-it": ("p/tool.py", "from owner import flag\n" + READ, [(1, "flag", True)]),
    "deeper": ("p/q/user.py", "from ..owner import _flag\nprint(_flag)\n", [(1, "_flag", True)]),
    "never-read": ("p/user.py", "from .owner import flag\n", [(1, "flag", False)]),
    "in-a-function": ("p/user.py", "def f():\n    from .owner import flag\n    return flag\n", [(2, "flag", False)]),
    "type-checking": ("p/user.py", "if TYPE_CHECKING:\n    from .owner import flag\n" + READ, [(2, "flag", False)]),
    "own-copy": (
        "p/user.py", "from .owner import flag\ndef f():\n    global flag\n    flag = 2\n" + READ, [(1, "flag", False)],
    ),
    "handle": ("p/user.py", "from . import owner\nprint(owner.flag)\n", []),
    "never-rebound": ("p/user.py", "from .owner import start\nstart()\n", []),
    "same-name-elsewhere": ("p/user.py", "from .other import flag\n" + READ, []),
    "in-a-string": ("p/user.py", "TEXT = '''\nfrom .owner import flag\n'''\n", []),
    "too-many-dots": ("p/user.py", "from .....owner import flag\n" + READ, []),
}  # fmt: skip


@pytest.mark.parametrize(("path", "source", "expected"), CASES.values(), ids=CASES.keys())
def test_finds_and_judges_a_stale_import(
    tmp_path: Path, path: str, source: str, expected: list[tuple[int, str, bool]]
) -> None:
    root = _write(
        tmp_path,
        {"p/__init__.py": "", "p/owner.py": OWNER, "p/other.py": "flag = 1\n", path: source},
    )
    hits = scan(root)
    assert [(hit.file, hit.line, hit.name, hit.harmful) for hit in hits] == [(path, *item) for item in expected]
    assert all(hit.rebound in ("p/owner.py:7", "p/owner.py:8") for hit in hits)


def test_a_star_import_honours_all(tmp_path: Path) -> None:
    files = {
        "p/__init__.py": "from .owner import *\n",
        "p/owner.py": "__all__ = ['_flag']\n__all__ += ['start']\n" + OWNER,
    }
    assert [hit.name for hit in scan(_write(tmp_path, files))] == ["_flag"]


REBINDS = {
    "assignment": "flag = 1",
    "augmented": "flag += 1",
    "annotated-global-elsewhere": "if x:\n        flag = 1",
    "import": "import flag",
    "for": "for flag in []:\n        pass",
    "with": "with x as flag:\n        pass",
    "except": "try:\n        pass\n    except E as flag:\n        pass",
    "walrus": "print(flag := 1)",
    "def": "def flag():\n        pass",
    "del": "del flag",
}


@pytest.mark.parametrize("rebind", REBINDS.values(), ids=REBINDS.keys())
def test_every_way_to_rebind_counts(tmp_path: Path, rebind: str) -> None:
    owner = f"flag = 0\ndef start():\n    global flag\n    {rebind}\n"
    files = {"p/__init__.py": "from .owner import flag\n", "p/owner.py": owner}
    assert [hit.harmful for hit in scan(_write(tmp_path, files))] == [True]


@pytest.mark.parametrize("body", ["flag.append(1)", "print(flag)", "flag[0] = 1"], ids=["call", "read", "item"])
def test_a_global_that_is_only_used_does_not_count(tmp_path: Path, body: str) -> None:
    owner = f"flag = []\ndef start():\n    global flag\n    {body}\n"
    assert scan(_write(tmp_path, {"p/__init__.py": "from .owner import flag\n", "p/owner.py": owner})) == []


def test_follows_a_chain_of_re_exports(tmp_path: Path) -> None:
    files = {
        "p/__init__.py": "from .a import *\n", "p/a.py": "from .b import flag\n", "p/b.py": "from .owner import flag\n",
        "p/owner.py": OWNER, "p/late.py": "def f():\n    from p import flag\n    return flag\n",
    }  # fmt: skip
    hits = scan(_write(tmp_path, files))
    assert [(hit.file, hit.harmful) for hit in hits] == [
        ("p/__init__.py", True), ("p/a.py", True), ("p/b.py", True), ("p/late.py", True),
    ]  # fmt: skip
    assert {hit.rebound for hit in hits} == {"p/owner.py:7"}
    assert "p/a.py:1" in hits[2].why


def test_a_circle_of_imports_ends(tmp_path: Path) -> None:
    files = {
        "p/a.py": "from .b import *\nfrom .owner import flag\n",
        "p/b.py": "from .a import *\n",
        "p/owner.py": OWNER,
    }
    assert {hit.file for hit in scan(_write(tmp_path, files))} == {"p/a.py", "p/b.py"}


def test_a_copy_of_a_name_from_outside_is_harmless(tmp_path: Path) -> None:
    user = "from torch.random import warned\ndef f():\n    global warned\n    if not warned:\n        warned = True\n"
    hits = scan(_write(tmp_path, {"p/user.py": user}))
    assert [(hit.file, hit.line, hit.module, hit.rebound, hit.harmful) for hit in hits] == [
        ("p/user.py", 1, "torch.random", "p/user.py:5", False)
    ]


def test_the_root_may_be_the_package_itself(tmp_path: Path) -> None:
    _write(tmp_path, {"p/__init__.py": "from p.owner import flag\n", "p/owner.py": OWNER})
    assert [hit.file for hit in scan(tmp_path / "p")] == ["__init__.py"]


def test_trouble_becomes_a_note(tmp_path: Path) -> None:
    _write(tmp_path, {"p/__init__.py": "from .owner import flag\n", "p/owner.py": OWNER})
    _write(
        tmp_path,
        {"p/bad.py": "from .owner import flag\ndef f(:\n", "p/huge.py": "#" * (MAX_BYTES + 1)},
    )
    (tmp_path / "p/latin.py").write_bytes(b"x = '\xe9'\n")
    (tmp_path / "p/wide.py").write_bytes("from .owner import flag\n".encode("utf-16"))
    (tmp_path / "p/nul.py").write_bytes(b"from .owner import flag\n\0")
    (tmp_path / "p/loop.py").symlink_to("loop.py")
    (tmp_path / "p/gone.py").symlink_to("nowhere.py")
    (tmp_path / "p/again").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(tmp_path / "p/pipe.py")
    found = survey(tmp_path)
    assert [hit.file for hit in found.hits] == ["p/__init__.py"]
    noted = {note.split(":")[0] for note in found.notes}
    assert noted == {f"p/{name}.py" for name in ("bad", "huge", "latin", "wide", "nul", "loop", "gone", "pipe")}


def test_a_declared_encoding_is_read(tmp_path: Path) -> None:
    (tmp_path / "owner.py").write_bytes(b"# coding: latin-1\n# \xe9\n" + OWNER.encode())
    _write(tmp_path, {"user.py": "from owner import flag\n" + READ})
    assert [hit.rebound for hit in scan(tmp_path)] == ["owner.py:9"]
    assert survey(tmp_path).notes == []


def test_crlf_sources_are_read(tmp_path: Path) -> None:
    (tmp_path / "owner.py").write_bytes(OWNER.replace("\n", "\r\n").encode())
    (tmp_path / "user.py").write_bytes(b"from owner import \\\r\n  flag\r\nprint(flag)\r\n")
    assert [(hit.line, hit.harmful) for hit in scan(tmp_path)] == [(2, True)]


@pytest.mark.parametrize(
    ("source", "status"),
    [("from .owner import flag\n", Status.REFUTED), ("from . import owner\n", Status.PROVEN)],
    ids=["harmful", "clean"],
)
def test_findings_follow_the_harmful_hits(tmp_path: Path, source: str, status: Status) -> None:
    findings = scan_findings(survey(_write(tmp_path, {"p/__init__.py": source, "p/owner.py": OWNER})))
    assert [(finding.check, finding.status) for finding in findings] == [("no-stale-import", status)]


def test_what_was_left_out_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
    findings = scan_findings(survey(tmp_path))
    assert [(finding.check, finding.status) for finding in findings] == [
        ("no-stale-import", Status.PROVEN), ("scan-complete", Status.NOT_RUN),
    ]  # fmt: skip
