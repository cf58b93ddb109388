"""The code map: every module of the code with the first sentence of its docstring.

It is a page of the documentation site, which derives it: the repository has no copy that a change of code could forget.
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tidemill"
PAGE, TITLE, PART = "development/code-map.md", "Code map", "Development"
"""The path of the page in the site, its title there, and the part of the navigation that lists it."""

HEAD = """# Code map

Every module, by folder, with the first sentence of its docstring.
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


def write_if_changed(path: Path, text: str) -> None:
    """Write a file unless it has this content, so that what is made from it stays up to date."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_if_changed(Path(sys.argv[1]), render_map())
