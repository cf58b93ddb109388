"""The tools that check exported files, and the files themselves."""

import os
import shutil
import subprocess
import sys
import warnings
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


def has_tool(name: str) -> bool:
    """Return whether a tool of the machine is there, which no requirement brings; the summary says it if not."""
    if shutil.which(name):
        return True
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(f"{name} is not installed: what it checks is only parsed", stacklevel=2)
    return False


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
