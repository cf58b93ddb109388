"""Releases: metadata whose links work on a package index, and a changelog that describes the version."""

import json
import os
import re
import subprocess
import sys

import pytest

from scripts.metadata_hook import with_absolute_links
from scripts.release import changelog_problem, read_version
from tests.architecture.sources import ROOT
from tidemill import __version__

REPOSITORY = "https://code.example.org/mill/tidemill"


def metadata(repository: str) -> dict[str, object]:
    """Return the metadata of a build."""
    env = {**os.environ, "RELEASE_REPOSITORY": repository}
    command = [sys.executable, "-m", "hatchling", "metadata"]
    ended = subprocess.run(command, check=True, cwd=ROOT, env=env, capture_output=True, text=True)
    found: dict[str, object] = json.loads(ended.stdout)
    return found


def test_the_page_of_a_release_has_links_and_no_relative_ones() -> None:
    found = metadata(f"{REPOSITORY}/")
    assert found["version"] == __version__ == read_version()
    assert found["urls"] == {
        "Repository": REPOSITORY,
        "Documentation": f"{REPOSITORY}/tree/v{__version__}/docs",
        "Changelog": f"{REPOSITORY}/blob/v{__version__}/CHANGELOG.md",
        "Issues": f"{REPOSITORY}/issues",
        "Security": f"{REPOSITORY}/blob/v{__version__}/SECURITY.md",
    }
    text = str(found["readme"]["text"])  # type: ignore[index]
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) > 20
    assert all(one.startswith("https://") for one in targets), targets
    assert f"{REPOSITORY}/raw/v{__version__}/docs/images/home.png" in targets
    assert "workflow" in str(found["description"])


def test_a_build_without_a_repository_invents_no_links() -> None:
    found = metadata("")
    assert not found.get("urls")
    assert "](docs/images/home.png)" in str(found["readme"]["text"])  # type: ignore[index]


def test_links_with_a_scheme_and_within_the_page_stay() -> None:
    text = "[a](https://x.org/y) [b](#part) [c](docs/a.md#part) ![d](docs/d.png)"
    assert with_absolute_links(text, REPOSITORY, "1.0.0") == (
        f"[a](https://x.org/y) [b](#part) [c]({REPOSITORY}/blob/v1.0.0/docs/a.md#part) "
        f"![d]({REPOSITORY}/raw/v1.0.0/docs/d.png)"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("## [Unreleased]\n\n## [0.2.0] - 2026-11-19\n\n### Added\n", None),
        ("## [Unreleased]\n\n### Added\n\n* x\n\n## [0.2.0] - 2026-11-19\n", "has lines under"),
        ("## [Unreleased]\n\n## [0.1.0] - 2026-11-19\n", "is not [0.2.0] with a date"),
        ("## [0.2.0] - 2026-11-19\n", "has no section [Unreleased]"),
    ],
)
def test_a_release_needs_its_section_of_the_changelog(text: str, problem: str | None) -> None:
    found = changelog_problem(text, "0.2.0")
    assert found is None if problem is None else problem in str(found)
