"""The documentation builds as a site that is complete, searchable, and loads nothing from outside."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from scripts.docs_site.navigation import Items, read_navigation
from tests.architecture.sources import ROOT, listing

DOCS = ROOT / "docs"
BUILT = Path("src/tidemill/server/static/docs")
LOADED_BY = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data", "link": "href"}
UNLOADED_LINKS = {"canonical", "next", "prev"}
STYLE_ADDRESS = re.compile(r"(?:url\(|@import )[\"']?(?P<address>[^)\"';]+)")
UI_LINK = re.compile(r"[\"'`]/docs/(?P<path>[^\"'`#?]*)")
GLOSSARY_WORD = re.compile(r"^\| (?P<word>[A-Z][^|,]*?)(?:,[^|]*)? \|", re.MULTILINE)


class LoadedAddresses(HTMLParser):
    """Collects the addresses that a browser loads for a page, and the code that is in the page itself."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline_code: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect from one element."""
        given = {name: value or "" for name, value in attrs}
        address = given.get(LOADED_BY.get(tag, ""))
        if address is not None and given.get("rel") not in UNLOADED_LINKS:
            self.addresses.append(address)
        if tag == "script" and "src" not in given and given.get("type") != "application/json":
            self.inline_code.append(f"<script> in line {self.getpos()[0]}")
        self.inline_code += [f"{name}={value}" for name, value in given.items() if name.startswith("on")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. The strict build fails on a broken link, a missing heading, and a page that no index lists.

    `make test` has just built it, in the same way.
    """
    if subprocess.run(["make", "--question", BUILT / "index.html"], cwd=ROOT, capture_output=True).returncode == 0:
        return ROOT / BUILT
    folder = tmp_path_factory.mktemp("docs") / "site"
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    assert built.returncode == 0, built.stdout
    return folder


def test_pages_and_styles_load_only_files_of_the_site(site: Path) -> None:
    """Nothing comes from outside, and every script, style, font and image is in the site."""
    offenders = [
        f"{file.relative_to(site)} loads {address}" for file, address in loads(site) if not exists(file, address)
    ]
    assert not offenders, listing(offenders)


def loads(site: Path) -> Iterator[tuple[Path, str]]:
    """Yield every page and style sheet with each address that it loads."""
    for file in site.rglob("*.html"):
        yield from ((file, address) for address in LoadedAddresses(file.read_text(encoding="utf-8")).addresses)
    for file in site.rglob("*.css"):
        text = file.read_text(encoding="utf-8")
        yield from ((file, found["address"]) for found in STYLE_ADDRESS.finditer(text))


def exists(file: Path, address: str) -> bool:
    """Return whether a relative address leads to a file of the site; data is in the address itself."""
    parts = urlsplit(address)
    return parts.scheme == "data" or (not (parts.scheme or parts.netloc) and (file.parent / parts.path).is_file())


def test_pages_have_no_inline_code(site: Path) -> None:
    """The server's content security policy allows scripts of the server only."""
    offenders = [
        f"{file.relative_to(site)}: {code}"
        for file in site.rglob("*.html")
        for code in LoadedAddresses(file.read_text(encoding="utf-8")).inline_code
    ]
    assert not offenders, listing(offenders)


def test_the_search_finds_every_word_of_the_glossary(site: Path) -> None:
    """The index is in the site, and the browser searches it without the server."""
    entries = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    text = "\n".join(entry["text"] for entry in entries if entry["location"].startswith("reference/glossary.html"))
    words = GLOSSARY_WORD.findall((DOCS / "reference" / "glossary.md").read_text(encoding="utf-8"))
    assert len(words) > 50
    assert not (missing := [word for word in words if word not in text]), listing(missing)


def test_the_links_of_the_web_ui_lead_to_pages(site: Path) -> None:
    """The web UI names pages of the documentation by their address."""
    files = (file for file in sorted((ROOT / "ui" / "src").rglob("*")) if file.suffix in (".ts", ".tsx"))
    texts = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}
    links = [(name, link["path"]) for name, text in texts.items() for link in UI_LINK.finditer(text)]
    assert links
    missing = [f"{name} -> /docs/{path}" for name, path in links if not (site / (path or "index.html")).is_file()]
    assert not missing, listing(missing)


def test_the_site_has_a_map_of_the_modules(site: Path) -> None:
    """The repository has no copy of it that could be out of date."""
    shown = (site / "development" / "code-map.html").read_text(encoding="utf-8")
    assert "tidemill/kernel/" in shown
    assert 'href="code-map.html"' in (site / "development" / "recipes.html").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation_once(site: Path) -> None:
    """The indexes that readers on a code host use are the navigation of the site."""
    listed = list(pages(read_navigation(DOCS)))
    assert len(listed) == len(set(listed))
    assert {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} <= set(listed)
    names = (page.removesuffix(".md").replace("README", "index") for page in listed)
    assert not (missing := [name for name in names if not (site / f"{name}.html").is_file()]), listing(missing)


def pages(items: Items) -> Iterator[str]:
    """Yield the paths of all pages in a navigation."""
    for item in items:
        if isinstance(item, str):
            yield item
        else:
            (held,) = item.values()
            yield from pages([held] if isinstance(held, str) else held)
