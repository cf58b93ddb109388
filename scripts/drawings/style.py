"""The style sheet inside each drawing: the look of drawings, with the colours of the web UI in light and in dark."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOOK = ROOT / "docs" / "theme" / "drawings.css"
TOKENS = ROOT / "ui" / "src" / "design" / "tokens.css"
USED = re.compile(r"var\((--[\w-]+)\)")
BLOCK = re.compile(r"^(?P<selector>[^{}]+) \{(?P<body>[^}]*)\}", re.MULTILINE)
TOKEN = re.compile(r"(?P<name>--[\w-]+): (?P<value>[^;]+);")


def render_style() -> str:
    """Return the style sheet: a drawing that is opened as a file follows the colours of the system."""
    look = LOOK.read_text(encoding="utf-8").partition("*/\n\n")[2]
    used = sorted(set(USED.findall(look)))
    light, dark = _tokens("light"), _tokens("dark")
    fixed = _tokens("")
    return (
        f".drawing {{ {_declare(used, fixed | light)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ .drawing {{ {_declare(used, dark)} }} }}\n{look}"
    )


def _tokens(theme: str) -> dict[str, str]:
    """Return the tokens of a theme, or those of all."""
    text = TOKENS.read_text(encoding="utf-8")
    wanted = f'data-theme="{theme}"' if theme else ":root"
    blocks = [block for block in BLOCK.finditer(text) if wanted in block["selector"]]
    return {token["name"]: token["value"] for block in blocks for token in TOKEN.finditer(block["body"])}


def _declare(names: list[str], tokens: dict[str, str]) -> str:
    return " ".join(f"{name}: {tokens[name]};" for name in names if name in tokens)
