"""The steps that MkDocs runs while it builds the site; `mkdocs.yml` names this module."""

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

from scripts import code_map
from scripts.docs_site.design_tokens import STYLE_SHEET, read_tokens
from scripts.docs_site.embedded_drawings import embed_drawings
from scripts.docs_site.inline_scripts import extract_scripts
from scripts.docs_site.navigation import read_navigation
from scripts.docs_site.root_pages import ROOT_PAGES, START_PAGE, adapt_links

ROOT = Path(__file__).parents[2]
TABLE_CODE = re.compile(r"`[^`\n]*\\\|[^`\n]*`")
BACKGROUND = ("changelog", "design/", "development/")
"""Pages that a search finds last: they are about Tidemill's own code and its past."""
UNUSED = ("assets/javascripts/lunr/**/*.js", "assets/**/*.map", "assets/images/favicon.png", "sitemap.xml*")
"""What the theme brings and the site does not need, such as other languages, maps for debuggers, lists for crawlers."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the navigation, and name headings in links as code hosts do."""
    config.nav = read_navigation(Path(config.docs_dir))
    next(one[code_map.PART] for one in config.nav if code_map.PART in one).append({code_map.TITLE: code_map.PAGE})
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the code map, the pages at the root of the repository, and the design tokens of the web UI."""
    files.append(File.generated(config, code_map.PAGE, content=code_map.render_map()))
    files.append(File.generated(config, STYLE_SHEET, content=read_tokens(ROOT)))
    for source, target in ROOT_PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        adapted = adapt_links(text, PurePosixPath(".."), PurePosixPath(target).parent)
        files.append(File.generated(config, target, content=adapted))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Adapt what code hosts and the site read differently, and choose template and rank of the page."""
    if page.file.src_uri == START_PAGE:
        page.meta.update(template="start.html", hide=["navigation", "toc"])
    if page.file.src_uri.startswith(BACKGROUND):
        page.meta["search"] = {"boost": 0.2}
    if page.file.src_uri not in ROOT_PAGES.values():
        folder = PurePosixPath(page.file.src_uri).parent
        markdown = adapt_links(markdown, folder, folder)
    return TABLE_CODE.sub(lambda code: code[0].replace(r"\|", "|"), markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Embed drawings, so that they follow the colours of the page."""
    return embed_drawings(html, Path(config.docs_dir), page.file.src_uri)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Move inline scripts into files, and name the dialog of the search, which the theme does not."""
    depth = page.file.src_uri.count("/")
    named = output.replace('role="dialog"', 'role="dialog" aria-label="Search"')
    return extract_scripts(named, "/".join([".."] * depth) or ".", Path(config.site_dir))


def on_post_build(config: MkDocsConfig) -> None:
    """Remove what the site does not need."""
    site = Path(config.site_dir)
    for pattern in UNUSED:
        for path in list(site.glob(pattern)):
            path.unlink()
