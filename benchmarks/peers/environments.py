"""Environments of peers: build/peers/NAME has the versions that NAME.txt pins, and is made when it is first needed."""

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "peers"


class InstallError(Exception):
    """A peer could not be installed here."""


def pins_of(name: str) -> Path:
    """Return the file with the pinned requirements of a peer."""
    return Path(__file__).with_name(f"{name}.txt")


def version_of(name: str) -> str:
    """Return the pinned version of a peer."""
    return next(line for line in pins_of(name).read_text().splitlines() if line.startswith(f"{name}==")).split("==")[1]


def prepare(name: str) -> Path:
    """Return the Python of a peer's environment; make the environment if it is missing, or the pins have changed."""
    folder, pins = FOLDER / name, pins_of(name)
    python, marker = folder / "bin" / "python", folder / "installed.txt"
    if not marker.exists() or marker.read_text() != pins.read_text():
        venv.create(folder, clear=True, with_pip=True)
        _install(python, pins)
        marker.write_text(pins.read_text())
    return python


def _install(python: Path, pins: Path) -> None:
    """Install with uv if this environment has it, otherwise with pip. Wheels only: a peer is not compiled here."""
    options = ["--only-binary", ":all:", "--requirement", str(pins)]
    commands = (
        [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python), *options],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *options],
    )
    said = ""
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        said = done.stderr
    lines = said.strip().splitlines() or ["no reason given"]
    raise InstallError(lines[-1])
