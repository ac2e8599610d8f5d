"""A release is signed and verified by the commands that the docs name: one changed byte anywhere is told."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import STACKS
from tests.docs import CONTRIBUTING, README, blocks

pytestmark = pytest.mark.distro

BLOCKS = blocks(README + CONTRIBUTING)
KEY = "Tester <tester@example.org>"


class Desk:
    """A git checkout of a stacks folder, and a keyring of its own with one key."""

    def __init__(self, folder: Path) -> None:
        self.stacks = folder / "stacks"
        shutil.copytree(STACKS, self.stacks)
        ring = folder / "ring"
        ring.mkdir(mode=0o700)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "GPG"))}
        self.env |= {"GNUPGHOME": str(ring), "HOME": str(folder), "TAG": "1", "STACKS": str(self.stacks), "LC_ALL": "C"}
        self.sound("gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", KEY, "ed25519", "sign")
        self.sound("git", "init", "-q")
        for name, value in (("user.name", "Tester"), ("user.email", "tester@example.org")):
            self.sound("git", "config", name, value)
        self.sound("git", "add", "-A")
        self.sound("git", "commit", "-qm", "base")

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, cwd=self.stacks, env=self.env, capture_output=True, text=True, check=False)

    def sound(self, *argv: str) -> None:
        done = self.run(*argv)
        assert done.returncode == 0, f"{argv}: {done.returncode}: {done.stderr}"

    def verified(self) -> tuple[bool, str]:
        done = self.run("sh", "-ec", BLOCKS["signature"])
        return done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    desk = Desk(tmp_path_factory.mktemp("desk"))
    desk.sound("sh", "-ec", BLOCKS["sign"])
    yield desk
    desk.run("gpgconf", "--kill", "all")


def test_a_signed_release_is_verified(signed: Desk) -> None:
    assert signed.verified()[0], signed.verified()[1]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("series/2.7.1+specimen", "series/2.7.1+specimen: FAILED"),
        ("patches/2.7.1+specimen/release.json", "release.json: FAILED"),
        ("SHA256SUMS", "BAD signature"),
    ],
)
def test_a_changed_byte_is_told(signed: Desk, path: str, said: str) -> None:
    file = signed.stacks / path
    before = file.read_bytes()
    file.write_bytes(before + b"\n")
    verified, text = signed.verified()
    file.write_bytes(before)
    assert not verified and said in text
    assert signed.verified()[0]
