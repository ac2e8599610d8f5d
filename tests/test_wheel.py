"""apply.py wheel: a patched wheel with a version of its own, the rest as it was, the same bytes in every run."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch
from zipfile import ZIP_BZIP2, ZIP_STORED, ZipFile, ZipInfo

import pytest
from wheel.wheelfile import WheelFile

from stack.installed.record import digest_of
from tests import installs
from tests.conftest import INIT, LAZY_INIT, ROOT, STACKS, copy_specimen
from tests.installs import build_wheel, run, run_apart

ABOUT, NEW_ABOUT = "torch_musa-2.7.1.dist-info", "torch_musa-2.7.1+initfix1.dist-info"
NAME, NEW_NAME = "torch_musa-2.7.1-py3-none-any.whl", "torch_musa-2.7.1+initfix1-py3-none-any.whl"
CHANGED = {INIT, LAZY_INIT, f"{ABOUT}/METADATA", f"{ABOUT}/RECORD"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    tree = copy_specimen(folder / "tree")
    more = {"torch_musa-2.7.1.data/scripts/musa-converter": b"#!python\n", "torch_musa/share/a, b.txt": b"x" * 100_000}
    return build_wheel(folder, tree, more=more)


@pytest.fixture
def wheel(built: Path, tmp_path: Path) -> Path:
    """A copy of the wheel in a folder of its own, beside a folder `out`."""
    (tmp_path / "out").mkdir()
    return Path(shutil.copy(built, tmp_path))


def out(wheel: Path) -> Path:
    return wheel.parent / "out"


def members(path: Path) -> list[tuple[object, ...]]:
    with ZipFile(path) as archive:
        return [
            (one.filename, archive.read(one), one.external_attr, one.compress_type, one.date_time)
            for one in archive.infolist()
        ]


def test_all_but_the_fix_and_the_version_is_as_it_was(wheel: Path) -> None:
    ran = run("wheel", wheel, out(wheel))
    assert ran.code == 0, ran.stderr
    assert "left out" in ran.stdout and "2 files are those of" in ran.stdout
    assert [path.name for path in out(wheel).iterdir()] == [NEW_NAME]
    old, new = members(wheel), members(out(wheel) / NEW_NAME)
    renamed = [str(one[0]).replace("torch_musa-2.7.1.d", "torch_musa-2.7.1+initfix1.d") for one in old]
    assert [one[0] for one in new] == renamed
    changed = {str(one[0]) for one, other in zip(old, new, strict=True) if one[1] != other[1]}
    assert changed == CHANGED
    assert [one[2:] for one in old] == [one[2:] for one in new]
    contents = {str(one[0]): bytes(one[1]) for one in new}  # type: ignore[arg-type]
    metadata = installs.METADATA.format("2.7.1+initfix1").encode()
    assert contents[f"{NEW_ABOUT}/METADATA"] == metadata and metadata.endswith(b"\n\nVersion: x\n")
    pins = (STACKS / "patches/2.7.1+specimen/result.sha256").read_text()
    for path in (INIT, LAZY_INIT):
        assert f"{hashlib.sha256(contents[path]).hexdigest()}  {path}\n" in pins
    before = {str(one[0]): bytes(one[1]) for one in old}[f"{ABOUT}/RECORD"]  # type: ignore[arg-type]
    rows = zip(before.splitlines(), contents[f"{NEW_ABOUT}/RECORD"].splitlines(), strict=True)
    touched = {new.split(b",sha256")[0].decode() for row, new in rows if row != new}
    assert touched == {
        *(INIT, LAZY_INIT, "torch_musa-2.7.1+initfix1.data/scripts/musa-converter"),
        *(f"{NEW_ABOUT}/METADATA", f"{NEW_ABOUT}/WHEEL", f"{NEW_ABOUT}/RECORD,,"),
    }
    with WheelFile(out(wheel) / NEW_NAME) as written:
        assert all(written.read(name) is not None for name in written.namelist())  # RECORD, by the library


def test_every_run_writes_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    seen = set()
    for number, (mask, env) in enumerate([(0o022, {}), (0o077, {}), (0o022, EPOCH), (0o077, EPOCH)]):
        folder = tmp_path / f"out {number}"
        folder.mkdir()
        ran = run_apart("wheel", wheel, folder, env=env, umask=mask)
        assert ran.code == 0, ran.stderr
        times = {one[4] for one in members(folder / NEW_NAME)}
        assert times == ({(2026, 1, 2, 3, 4, 6)} if env else times)
        assert (folder / NEW_NAME).stat().st_mode & 0o777 == 0o666 & ~mask
        seen.add((bool(env), (folder / NEW_NAME).read_bytes()))
    assert len(seen) == 2


EPOCH = {"SOURCE_DATE_EPOCH": "1767323046"}


def test_a_second_run_is_already_so_and_other_bytes_stay(wheel: Path) -> None:
    assert run("wheel", wheel, out(wheel)).code == 0
    ran = run("wheel", wheel, out(wheel))
    assert ran.code == 0 and f"{NEW_NAME}: already so" in ran.stdout
    (out(wheel) / NEW_NAME).write_bytes(b"another")
    ran = run("wheel", wheel, out(wheel))
    assert ran.code == 1 and "exists already, with other bytes" in ran.stderr
    assert (out(wheel) / NEW_NAME).read_bytes() == b"another"
    assert [path.name for path in out(wheel).iterdir()] == [NEW_NAME]


def test_a_local_version_is_added_to_and_a_patched_wheel_is_already_so(tmp_path: Path) -> None:
    source = build_wheel(tmp_path, copy_specimen(tmp_path / "tree"), "2.7.1+abc1234")
    (tmp_path / "out").mkdir()
    assert run("wheel", source, tmp_path / "out").code == 0
    (written,) = (tmp_path / "out").iterdir()
    assert written.name == "torch_musa-2.7.1+abc1234.initfix1-py3-none-any.whl"
    ran = run("wheel", written, tmp_path)
    assert ran.code == 0 and "applied: all 2 patches are in: nothing was written" in ran.stdout


def patched_init(tree: Path) -> None:
    assert run("apply", "--tests=none", tree).code == 0
    (tree / INIT).write_bytes((tree / INIT).read_bytes() + b"\n# later\n")
    (tree / LAZY_INIT).write_bytes((tree / LAZY_INIT).read_bytes() + b"\n# later\n")


def edited(tree: Path) -> None:
    (tree / LAZY_INIT).write_bytes((tree / LAZY_INIT).read_bytes() + b"\n# ours\n")


def gone(tree: Path) -> None:
    (tree / INIT).unlink()
    (tree / LAZY_INIT).unlink()


OTHERS: dict[str, tuple[Callable[[Path], None], int, str]] = {
    "fork": (edited, 1, "no known release; closest is 2.7.1+specimen\n  2.7.1+specimen: torch_musa/core/_lazy_init.py"),
    "fixed-upstream": (patched_init, 0, "fixed upstream: no re-export"),
    "no-package": (gone, 1, "not torch_musa: it has neither"),
}


@pytest.mark.parametrize("change, code, said", OTHERS.values(), ids=OTHERS)
def test_a_wheel_of_other_bytes_is_named_as_a_tree_is(
    tmp_path: Path, change: Callable[[Path], None], code: int, said: str
) -> None:
    tree = copy_specimen(tmp_path / "tree")
    change(tree)
    (tmp_path / "out").mkdir()
    ran = run("wheel", build_wheel(tmp_path, tree), tmp_path / "out")
    assert ran.code == code and said in ran.stdout + ran.stderr
    assert list((tmp_path / "out").iterdir()) == []


def rewritten(wheel: Path, change: Callable[[ZipInfo, bytes], Iterator[tuple[ZipInfo, bytes]]]) -> None:
    """Write the wheel anew, each member as what `change` makes of it."""
    with ZipFile(wheel) as archive:
        old = [(one, archive.read(one)) for one in archive.infolist()]
    with ZipFile(wheel, "w", ZIP_STORED) as archive:
        for info, data in old:
            for one, content in change(info, data):
                archive.writestr(one, content)


def added(name: str, data: bytes = b"", **fields: object) -> Callable[[Path], None]:
    def damage(wheel: Path) -> None:
        info = ZipInfo(name)
        for field, value in fields.items():
            setattr(info, field, value)
        with pytest.warns(UserWarning) if name == INIT else _nothing(), ZipFile(wheel, "a") as archive:
            archive.writestr(info, data)

    return damage


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def replaced(name: str, old: bytes, new: bytes) -> Callable[[Path], None]:
    def change(info: ZipInfo, data: bytes) -> Iterator[tuple[ZipInfo, bytes]]:
        if info.filename == name:
            assert old in data
            data = data.replace(old, new, 1)
        yield info, data

    return lambda wheel: rewritten(wheel, change)


def without(name: str) -> Callable[[Path], None]:
    def change(info: ZipInfo, data: bytes) -> Iterator[tuple[ZipInfo, bytes]]:
        if info.filename != name:
            yield info, data

    return lambda wheel: rewritten(wheel, change)


def in_place(old: bytes, new: bytes, times: int = -1) -> Callable[[Path], None]:
    """Change bytes of the archive itself."""

    def damage(wheel: Path) -> None:
        data = wheel.read_bytes()
        assert old in data
        wheel.write_bytes(data.replace(old, new, times))

    return damage


def encrypted(wheel: Path) -> None:
    data = bytearray(wheel.read_bytes())
    for match in re.finditer(rb"PK\x01\x02", bytes(data)):
        data[match.start() + 8] |= 1
    wheel.write_bytes(data)


def declared_huge(wheel: Path) -> None:
    data = bytearray(wheel.read_bytes())
    for match in re.finditer(rb"PK\x01\x02", bytes(data)):
        data[match.start() + 24 : match.start() + 28] = (0xF0000000).to_bytes(4, "little")
    wheel.write_bytes(data)


def no_archive(wheel: Path) -> None:
    wheel.write_bytes(b"PK\x03\x04" + b"\0" * 1000)


def with_metadata(old: bytes, new: bytes) -> Callable[[Path], None]:
    """Change METADATA and its row alike."""

    def change(info: ZipInfo, data: bytes) -> Iterator[tuple[ZipInfo, bytes]]:
        text = installs.METADATA.format("2.7.1").encode()
        other = text.replace(old, new)
        if info.filename == METADATA:
            data = other
        if info.filename == RECORD:
            sides = [f"{digest_of(side)},{len(side)}".encode() for side in (text, other)]
            assert sides[0] in data
            data = data.replace(*sides)
        yield info, data

    return lambda wheel: rewritten(wheel, change)


def listed(name: str) -> Callable[[Path], None]:
    """Add an empty member and its row."""
    row = f"{name},{digest_of(b'')},0\n".encode()

    def damage(wheel: Path) -> None:
        replaced(RECORD, b"", row)(wheel)
        added(name)(wheel)

    return damage


RECORD, METADATA = f"{ABOUT}/RECORD", f"{ABOUT}/METADATA"
HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "signed-jws": (added(f"{ABOUT}/RECORD.jws"), "is a signature"),
    "signed-p7s": (added(f"{ABOUT}/RECORD.p7s"), "is a signature"),
    "unlisted-member": (added("torch_musa/more.py"), "RECORD has no row for torch_musa/more.py"),
    "listed-and-gone": (without("torch_musa/_MUSAC.py"), "lists a file that is not in the wheel: torch_musa/_MUSAC.py"),
    "digest": (replaced("torch_musa/core/ops.py", b"o", b"0"), "Hash mismatch for file 'torch_musa/core/ops.py'"),
    "digest-of-a-touched-file": (replaced(RECORD, f"{INIT},sha256=".encode(), f"{INIT},sha256=A".encode()), "Hash mis"),
    "size": (replaced(RECORD, b",16388", b",16389"), "does not agree with torch_musa/lib/libmusa_python.so"),
    "no-digest": (replaced(RECORD, b"torch_musa/_MUSAC.py,sha256", b"torch_musa/_MUSAC.py,,\nx,sha256"), "RECORD"),
    "weak-digest": (replaced(RECORD, b"sha256", b"md5"), "Weak hash algorithm"),
    "two-fields": (replaced(RECORD, b",,", b","), "RECORD:17: has 2 fields"),
    "open-quote": (replaced(RECORD, b"torch", b'"torch'), "RECORD:1: a quotation mark is never closed"),
    "listed-twice": (replaced(RECORD, RECORD.encode(), f"{RECORD},,\n{RECORD}".encode()), "is listed twice"),
    "no-record": (without(RECORD), f"has no {RECORD}"),
    "no-metadata": (without(METADATA), f"has no {METADATA}"),
    "two-dist-infos": (added("other-1.dist-info/METADATA"), "has the metadata folders ['other-1.dist-info'"),
    "other-version": (with_metadata(b"2.7.1", b"2.7.2"), "METADATA:3: says version 2.7.2, the file name 2.7.1"),
    "no-version": (with_metadata(b"Version: 2.7.1", b"X: y"), "has 0 Version lines"),
    "member-twice": (added(INIT), f"'{INIT}' is there twice"),
    "case-twin": (added("torch_musa/__Init__.py"), "differ in case only"),
    "below-a-file": (added(f"{INIT}/x.py"), "lies below a name that is a file"),
    "data-purelib": (
        added("torch_musa-2.7.1.data/PureLib/torch_musa/__init__.py"),
        "would be installed over the package",
    ),
    "extension-beside": (listed("torch_musa/core/_lazy_init.abi3.so"), f"would be imported in place of {LAZY_INIT}"),
    "package-beside": (listed("torch_musa/core/_lazy_init/__init__.py"), f"would be imported in place of {LAZY_INIT}"),
    "endless-quote": (replaced(RECORD, b"", b'"' + b"\n" * 300_000), "RECORD:1: "),
    "many-rows": (replaced(RECORD, b"", b"\n" * 500_001), "500018 lines; at most 500000 are read"),
    "absolute": (added("/etc/passwd"), "'/etc/passwd': a name that is absolute"),
    "dots": (added("torch_musa/../../x"), "leaves the folder"),
    "drive": (added("c:x"), "a name that is absolute"),
    "line-end": (added("torch_musa/a\nb"), "a name with a NUL"),
    "nul": (in_place(b"torch_musa/_MUSAC.py", b"torch_musa/_M\0SAC.py"), "a name with a NUL"),
    "backslash": (in_place(b"torch_musa/_MUSAC.py", b"torch_musa\\_MUSAC.py"), "a backslash"),
    "long": (added("x" * 2000), "a name of more than 1024 characters"),
    "link": (added("torch_musa/l", b"/etc/passwd", external_attr=0o120777 << 16), "is a symbolic link"),
    "fifo": (added("torch_musa/f", external_attr=0o010644 << 16), "another special file"),
    "bzip2": (added("torch_musa/b", b"x", compress_type=ZIP_BZIP2), "compressed in a way that wheels do not use"),
    "encrypted": (encrypted, "is encrypted"),
    "bomb-declared": (declared_huge, "that is no wheel, but a bomb"),
    "bomb": (added("torch_musa/z", b"\0" * 60_000_000, compress_type=8), "that is no wheel, but a bomb"),
    "no-archive": (no_archive, "cannot be read as a wheel: File is not a zip file"),
    "cut": (lambda wheel: os.truncate(wheel, 3000), "cannot be read as a wheel"),
    "flipped": (in_place(b"\xfe\xff\x00\x01\x02", b"\xfe\xff\x00\x01\x03", 1), "cannot be read as a wheel"),
}


@pytest.fixture(scope="module")
def stored(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel without compression, so that its bytes can be changed in place."""
    path = tmp_path_factory.mktemp("stored") / NAME

    def change(info: ZipInfo, data: bytes) -> Iterator[tuple[ZipInfo, bytes]]:
        info.compress_type = ZIP_STORED
        yield info, data

    shutil.copy(built, path)
    rewritten(path, change)
    return path


@pytest.mark.parametrize("damage, said", HOSTILE.values(), ids=HOSTILE)
def test_a_wheel_that_no_builder_makes_is_refused(
    stored: Path, tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    path = Path(shutil.copy(stored, tmp_path))
    (tmp_path / "out").mkdir()
    damage(path)
    before = path.read_bytes()
    ran = run("wheel", path, tmp_path / "out")
    assert ran.code == 1 and said in ran.stderr and "Traceback" not in ran.stderr, ran
    assert list((tmp_path / "out").iterdir()) == [] and path.read_bytes() == before


NAMES = {
    "no-wheel": ("torch_musa.whl", 1, "is no name of a wheel"),
    "another-package": ("torch-2.7.1-py3-none-any.whl", 1, "is a wheel of torch, not of torch_musa"),
    "another-version": ("torch_musa-2.7.2-py3-none-any.whl", 1, "one named torch_musa-2.7.2.dist-info is right"),
    "another-spelling": ("Torch_Musa-2.7.1-py3-none-any.whl", 1, "has the metadata folders"),
    "second-download": ("torch_musa-2.7.1-py3-none-any (1).whl", 1, "is no name of a wheel"),
    "bad-version": ("torch_musa-x-py3-none-any.whl", 1, "is no name of a wheel"),
}


@pytest.mark.parametrize("name, code, said", NAMES.values(), ids=NAMES)
def test_a_file_name_that_does_not_fit_is_refused(wheel: Path, name: str, code: int, said: str) -> None:
    wheel.rename(wheel.parent / name)
    ran = run("wheel", wheel.parent / name, out(wheel))
    assert ran.code == code and said in ran.stderr and list(out(wheel).iterdir()) == []


def test_what_cannot_be_read_or_written_is_told(wheel: Path, tmp_path: Path) -> None:
    for words, code, said in (
        ((tmp_path / "none.whl", out(wheel)), 2, "is no file"),
        ((wheel, tmp_path / "none" / "out"), 2, "cannot be made"),
        ((wheel,), 2, "expected WHEEL and OUT, got 1"),
    ):
        ran = run("wheel", *words)
        assert ran.code == code and said in ran.stderr
    ran = run("wheel", wheel, out(wheel), env={"SOURCE_DATE_EPOCH": "soon"})
    assert ran.code == 2 and "is no count of seconds" in ran.stderr


@pytest.mark.parametrize("library", ["wheel", "packaging"])
def test_a_library_that_is_missing_is_named_with_the_way_to_get_it(wheel: Path, tmp_path: Path, library: str) -> None:
    (tmp_path / "block").mkdir()
    (tmp_path / "block" / f"{library}.py").write_text(f"raise ModuleNotFoundError('No module named {library}')\n")
    ran = run_apart("wheel", wheel, out(wheel), env={"PYTHONPATH": str(tmp_path / "block")})
    assert ran.code == 4 and f"No module named {library}" in ran.stderr and f"python3-{library}" in ran.stderr
    assert list(out(wheel).iterdir()) == []


def test_a_folder_that_is_not_there_is_made_and_goes_again_on_a_failure(wheel: Path, tmp_path: Path) -> None:
    with patch("stack.wheel.command.check_whole", side_effect=OSError(5, "Input/output error")):
        assert run("wheel", wheel, tmp_path / "new").code == 4
    assert not (tmp_path / "new").exists()
    assert run("wheel", wheel, tmp_path / "new").code == 0
    assert [path.name for path in (tmp_path / "new").iterdir()] == [NEW_NAME]


def test_a_full_disk_leaves_nothing(stored: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
    try:
        ran = run("wheel", stored, disk)
        left = list(disk.iterdir())
    finally:
        subprocess.run(["umount", disk], check=True)
    assert ran.code == 4 and "No space left" in ran.stderr and "is as it was" in ran.stderr
    assert left == []


@pytest.mark.parametrize("after", ["recover", "wheel"])
def test_a_kill_leaves_no_wheel_and_status_names_what_clears_up(wheel: Path, after: str) -> None:
    folder = out(wheel)
    (folder / "torch_musa-2.7.1+initfix1-py3-none-any.whl.keep").write_text("somebody's")
    script = (
        "import os, signal, sys; sys.path.insert(0, sys.argv.pop(1)); import stack.wheel.command as c; "
        "c.check_whole = lambda path: os.kill(os.getpid(), signal.SIGKILL); import apply; apply.main(sys.argv[1:])"
    )
    words = [sys.executable, "-c", script, ROOT, "wheel", f"--stacks={STACKS}", wheel, folder]
    assert subprocess.run(list(map(str, words))).returncode == -signal.SIGKILL
    assert [path.name for path in folder.glob("*.whl")] == [] and len(list(folder.iterdir())) == 2
    assert f"apply.py recover {folder}" in run("status", folder).stdout
    assert run(*(["recover"] if after == "recover" else ["wheel", wheel]), folder).code == 0
    assert sorted(path.name for path in folder.glob("*.whl")) == ([] if after == "recover" else [NEW_NAME])
    assert {path.name for path in folder.iterdir()} - {NEW_NAME} == {f"{NEW_NAME}.keep"}


def test_a_wheel_that_came_out_wrong_is_not_published(wheel: Path) -> None:
    with patch("stack.wheel.write.rewritten", lambda data, *_: data):
        ran = run("wheel", wheel, out(wheel))
    assert ran.code == 70 and "Hash mismatch" in ran.stderr
    assert list(out(wheel).iterdir()) == []


def test_what_fails_after_the_wheel_has_its_name_does_not_deny_it(wheel: Path) -> None:
    with patch("stack.transaction.clear", side_effect=OSError(5, "Input/output error")):
        ran = run("wheel", wheel, out(wheel))
    assert ran.code == 4 and f"has the patched wheel, {NEW_NAME}" in ran.stderr and (out(wheel) / NEW_NAME).exists()
    assert run("recover", out(wheel)).code == 0
    assert [path.name for path in out(wheel).iterdir()] == [NEW_NAME]


PEAK = """
import re, sys
sys.path.insert(0, sys.argv.pop(1))
import apply
code = apply.main(sys.argv[1:])
print(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1], file=sys.stderr)
sys.exit(code)
"""


def test_large_members_are_copied_in_chunks(wheel: Path, tmp_path: Path) -> None:
    large = random.Random(1).randbytes(1_000_000) * 80
    big = build_wheel(tmp_path / "big", copy_specimen(tmp_path / "tree"), more={"torch_musa/lib/big.so": large})
    words = [sys.executable, "-c", PEAK, ROOT, "wheel", f"--stacks={STACKS}", big, out(wheel)]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stderr) < 60_000, f"{done.stderr} KiB of memory for a member of 80 MB"
