"""The part of the build that hatchling asks for metadata: links, and a description whose pictures show elsewhere.

The variable RELEASE_REPOSITORY names the repository, as `make release` sets it: `https://host/owner/name`. A build
without it has no links.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "RELEASE_REPOSITORY"
_LINK = re.compile(r"(?P<start>!?\[[^\]]*\]\()(?P<target>[^)#:\s][^):\s]*)\)")
PAGES = {
    "Documentation": "tree/{tag}/docs",
    "Changelog": "blob/{tag}/CHANGELOG.md",
    "Issues": "issues",
    "Security": "blob/{tag}/SECURITY.md",
}


class ReleaseMetadata(MetadataHookInterface):
    """Adds the description and the links of the project."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add what `dynamic` of the project names, but for the version."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = os.environ.get(VARIABLE, "").rstrip("/")
        metadata["urls"] = links(repository, metadata["version"]) if repository else {}
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_absolute_links(text, repository, metadata["version"]) if repository else text,
        }


def links(repository: str, version: str) -> dict[str, str]:
    """Return the links of a version, by their names on the page of the project."""
    tag = f"v{version}"
    return {"Repository": repository, **{name: f"{repository}/{page.format(tag=tag)}" for name, page in PAGES.items()}}


def with_absolute_links(text: str, repository: str, version: str) -> str:
    """Return Markdown whose relative links and pictures name the files of a version in its repository."""

    def absolute(match: re.Match[str]) -> str:
        kind = "raw" if match["start"].startswith("!") else "blob"
        return f"{match['start']}{repository}/{kind}/v{version}/{match['target']})"

    return _LINK.sub(absolute, text)
