"""Embeds drawings into pages: inside a page they take its colours, as files they follow the system."""

import posixpath
import re
from pathlib import Path

IMAGE = re.compile(r'<img alt="(?P<text>[^"]*)" src="(?P<source>[^"]*drawings/[\w-]+\.svg)" ?/?>')
STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)


def embed_drawings(html: str, docs: Path, page: str) -> str:
    """Return the content of a page with its drawings in line; the style sheet of the site has their colours."""

    def embed(image: re.Match[str]) -> str:
        path = docs / posixpath.normpath(posixpath.join(posixpath.dirname(page), image["source"]))
        drawing = STYLE.sub("", path.read_text(encoding="utf-8"))
        return f'<span class="drawing-frame" tabindex="0">{drawing}</span>'

    return IMAGE.sub(embed, html)
