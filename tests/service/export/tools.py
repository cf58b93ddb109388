"""The tools that check exported files, and the files themselves."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tidemill import __version__
from tidemill.cli.export.export_files import read_files, write_files

WORDS = {"VERSION": __version__, "IMAGE": "registry.example.com/tidemill", "EXECUTABLE": sys.executable}


def find_tool(name: str) -> str:
    """Return the path of a tool: of this environment, or of the machine."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert found, (
        f"{name} is not installed: it is among the pinned requirements for Linux on x86_64, elsewhere install it"
    )
    return found


def exported(target: str, folder: Path) -> Path:
    """Write the files of a target into a folder, as `tidemill export` does; return the folder."""
    write_files(read_files(target, WORDS), folder, force=True)
    return folder


def run_tool(*words: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a tool of `find_tool`; its output is text."""
    name, *rest = map(str, words)
    return subprocess.run(
        [find_tool(name), *rest], input=given, capture_output=True, text=True, timeout=60, check=False
    )
