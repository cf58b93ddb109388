"""Derives the navigation of the site from the index pages that readers on a code host use.

`docs/README.md` has a heading for each part, and a list of its pages. A list item that links to the index of a folder,
such as `reference/README.md`, stands for the sections and pages of that index. So a page is listed once, and the strict
build fails for a page that no index lists.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any

from scripts.docs_site.root_pages import site_path

HEADING = re.compile(r"^(?P<marks>##|###) (?P<title>.+)$")
ENTRY = re.compile(r"^(?:\* |\| )\[(?P<title>[^\]]+)\]\((?P<target>[^)#\s]+\.md)\)")
INDEX = "README.md"

Items = list[Any]
"""Paths of pages, and a dictionary from a title to a path or to further items, as MkDocs reads them."""


def read_navigation(docs: Path) -> Items:
    """Return the navigation in the form of `nav` in mkdocs.yml: the start page, then one item for each part."""
    return [{"Start": INDEX}, *read_index(docs, PurePosixPath(INDEX))]


def read_index(docs: Path, index: PurePosixPath) -> Items:
    """Return the sections of an index page that list pages, with their groups and pages."""
    parts: Items = []
    section: Items = []  # what the nearest heading of level two holds
    group = section  # what the nearest heading of any level holds
    for line in (docs / index).read_text(encoding="utf-8").splitlines():
        heading, entry = HEADING.match(line), ENTRY.match(line)
        if heading and heading["marks"] == "##":
            section = group = []
            parts.append({heading["title"]: section})
        elif heading:
            group = []
            section.append({heading["title"]: group})
        elif entry:
            target = site_path(index.parent, entry["target"])
            assert target, f"{index} lists {entry['target']}, which is no page of the site"
            group += _expand(docs, target) if target.name == INDEX else [{entry["title"]: str(target)}]
    return [part for part in parts if any(part.values())]


def _expand(docs: Path, index: PurePosixPath) -> Items:
    return [str(index), *read_index(docs, index)]
