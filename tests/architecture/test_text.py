"""No file depends on, or mentions, the machine on which it was written."""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from tests.architecture.sources import ROOT, listing

MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:home|root|work|Users)/")
REGISTRY = re.compile(r"\b(?:pypi\.org|pythonhosted\.org|npmjs\.org|yarnpkg\.com)\b")


def test_no_file_names_a_path_of_a_machine() -> None:
    """A path outside the repository works on one machine only."""
    assert not (found := list(matches(MACHINE_PATH))), listing(found)


def test_no_file_names_a_registry() -> None:
    """The installer decides where packages come from; see docs/design, 0001."""
    assert not (found := list(matches(REGISTRY))), listing(found)


def matches(pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield each line in the repository that matches."""
    for path in text_files(ROOT, ignored()):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, start=1):
            if pattern.search(line):
                yield f"{path.relative_to(ROOT)}:{number} {line.strip()}"


def ignored() -> list[str]:
    """Return the patterns of .gitignore; a call of git would require its installation."""
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    return [".git", *(line.rstrip("/") for line in lines if line and not line.startswith("#"))]


def text_files(folder: Path, patterns: list[str]) -> Iterator[Path]:
    """Yield the files below a folder that no pattern ignores."""
    for path in sorted(folder.iterdir()):
        known = {path.name, path.relative_to(ROOT).as_posix()}
        if any(fnmatch(name, pattern) for pattern in patterns for name in known):
            continue
        if path.is_dir():
            yield from text_files(path, patterns)
        else:
            yield path
