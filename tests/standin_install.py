"""An installed stand-in torch_musa: a distribution made of the specimen, device provider included.

It lives in a virtual environment of its own that sees the packages of the running one, so that the hardware level meets
what it meets on a real host: an interpreter whose torch_musa sees two cards.
"""

from __future__ import annotations

import shutil
import site
import subprocess
import sys
from pathlib import Path

PROVIDER = '''"""The device provider of the stand-in distribution: two cards, each with a generator of its own."""

import sys

from verify.standin import card, device, extension

globals().update(extension.Extension(card.generator).answers())
_musart = object()
sys.modules["torch_musa"].get_device_name = lambda index: f"stand-in card {index}"
device.install()
'''
NO_DEVICE = PROVIDER + "_musa_getDeviceCount = lambda: 0\n"


def make_environment(folder: Path) -> Path:
    """Make a virtual environment that sees the packages of the running one; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    lines = [str(Path(__file__).parents[1]), *site.getsitepackages()]
    (_site(folder) / "outer.pth").write_text("\n".join(lines) + "\n")
    return folder / "bin" / "python"


def install(environment: Path, package: Path, provider: str = PROVIDER) -> Path:
    """Install the torch_musa folder of a tree, with a provider; return where the package lies."""
    installed = _site(environment) / "torch_musa"
    shutil.copytree(package / "torch_musa", installed)
    (installed / "_MUSAC.py").write_text(provider)
    about = _site(environment) / "torch_musa-2.7.1.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_musa\nVersion: 2.7.1\n")
    return installed


def _site(environment: Path) -> Path:
    return next((environment / "lib").glob("python3.*/site-packages"))
