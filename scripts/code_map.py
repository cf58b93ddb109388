"""Writes docs/development/code-map.md: every module of the code with the first sentence of its docstring.

`make map` runs it; `tests/architecture/test_map.py` fails while the page differs from the code.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tidemill"
PAGE = ROOT / "docs" / "development" / "code-map.md"

HEAD = """# Code map

Every module, by folder, with the first sentence of its docstring. `make map` writes this page.
[CONTRIBUTING.md](../../CONTRIBUTING.md) has the folders and layers on one screen.
"""


def render_map() -> str:
    """Return the page for the code as it is now."""
    folders: dict[Path, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        summary = _summary(path)
        if summary:
            folders.setdefault(path.parent, []).append(f"| `{path.stem}` | {summary} |")
    return HEAD + "".join(_section(folder, rows) for folder, rows in sorted(folders.items()))


def _summary(path: Path) -> str:
    """Return the first sentence of a module's docstring, on one line; "" for an empty `__init__`."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.partition("\n\n")[0].split()).replace("|", "\\|")


def _section(folder: Path, rows: list[str]) -> str:
    title = f"{folder.relative_to(SOURCE.parent).as_posix()}/"
    return f"\n## {title}\n\n| module | what it does |\n|---|---|\n" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render_map(), encoding="utf-8")
