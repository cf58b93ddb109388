"""Gives the site the design tokens of the web UI, so that both look like one product."""

from pathlib import Path

TOKENS = Path("ui") / "src" / "design" / "tokens.css"
STYLE_SHEET = "tokens.css"
SELECTORS = {
    '[data-theme="light"]': '[data-md-color-scheme="default"]',
    '[data-theme="dark"]': '[data-md-color-scheme="slate"]',
}
"""How the theme of the site marks what the web UI marks: the chosen colours."""


def read_tokens(root: Path) -> str:
    """Return the style sheet of tokens for the site; raise if the web UI marks its colours in another way."""
    sheet = (root / TOKENS).read_text(encoding="utf-8")
    for selector, replacement in SELECTORS.items():
        if selector not in sheet:
            raise ValueError(f"{TOKENS} has no {selector}: adapt SELECTORS in {__name__}")
        sheet = sheet.replace(selector, replacement)
    return sheet
