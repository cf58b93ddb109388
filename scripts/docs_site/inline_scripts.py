"""Moves inline scripts of pages into files, so that a content security policy need not allow inline scripts."""

import re
from hashlib import sha256
from pathlib import Path

INLINE = re.compile(r"<script>(?P<code>.+?)</script>", re.DOTALL)
FOLDER = "assets/javascripts/inline"


def extract_scripts(page: str, base: str, site: Path) -> str:
    """Return a page that loads its inline scripts from files of the site, which this function writes.

    `base` is the relative address of the site's root. A script without attributes runs where it stands, and so does the
    file: the order of execution stays the same.
    """
    folder = site / FOLDER

    def move(script: re.Match[str]) -> str:
        name = f"{sha256(script['code'].encode()).hexdigest()[:12]}.js"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(script["code"], encoding="utf-8")
        return f'<script src="{base}/{FOLDER}/{name}"></script>'

    return INLINE.sub(move, page)
