"""The pages at the root of the repository that the site has too, and links to and from them."""

import posixpath
import re
from pathlib import PurePosixPath

ROOT_PAGES = {"CONTRIBUTING.md": "development/contributing.md", "CHANGELOG.md": "changelog.md"}
"""The path in the site of each page at the root. The README is the start page of the site."""
START_PAGE = "README.md"
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)(?P<target>[^)#\s]+)")


def site_path(folder: PurePosixPath, target: str) -> PurePosixPath:
    """Return the path in the site of what a page in `folder` of docs/ links to as `target`."""
    path = posixpath.normpath(posixpath.join("docs", folder, target))
    if path in ROOT_PAGES:
        return PurePosixPath(ROOT_PAGES[path])
    if path == START_PAGE:
        return PurePosixPath(START_PAGE)
    return PurePosixPath(posixpath.relpath(path, "docs"))


def adapt_links(markdown: str, folder: PurePosixPath) -> str:
    """Return a page of docs/ with its links to pages at the root leading to their copies in the site."""
    return LINK.sub(lambda link: posixpath.relpath(site_path(folder, link["target"]), folder), markdown)


def adapt_links_of_root_page(markdown: str, path: str) -> str:
    """Return a page at the root with the links that it needs at its path in the site."""
    folder = PurePosixPath(path).parent
    return LINK.sub(lambda link: posixpath.relpath(site_path(PurePosixPath(".."), link["target"]), folder), markdown)
