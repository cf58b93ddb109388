"""The pages at the root of the repository that the site has too, and links to and from them."""

import posixpath
import re
from pathlib import PurePosixPath

ROOT_PAGES = {
    "CONTRIBUTING.md": "development/contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
"""The path in the site of each page at the root. The README is the start page of the site."""
START_PAGE = "README.md"
LINK = re.compile(
    r"(?P<code>^```.*?^```$)|"
    r"(?<!!)\[(?P<text>[^\]]+)\]\((?!\w+:|#)(?P<target>[^)#\s]+)(?P<heading>#[^)\s]+)?\)",
    re.MULTILINE | re.DOTALL,
)


def site_path(folder: PurePosixPath, target: str) -> PurePosixPath | None:
    """Return the path in the site of what a page in `folder` of docs/ links to; None for a file that is no page."""
    path = posixpath.normpath(posixpath.join("docs", folder, target))
    if path in ROOT_PAGES:
        return PurePosixPath(ROOT_PAGES[path])
    if path == START_PAGE:
        return PurePosixPath(START_PAGE)
    return PurePosixPath(path).relative_to("docs") if path.startswith("docs/") else None


def adapt_links(markdown: str, written_in: PurePosixPath, shown_in: PurePosixPath) -> str:
    """Return a page with the links that it needs in another folder; a link to a file outside the site is only its text.

    Both folders are relative to docs/.
    """

    def adapt(link: re.Match[str]) -> str:
        if link["code"]:
            return link["code"]
        path = site_path(written_in, link["target"])
        if path is None:
            return link["text"]
        return f"[{link['text']}]({posixpath.relpath(path, shown_in)}{link['heading'] or ''})"

    return LINK.sub(adapt, markdown)
