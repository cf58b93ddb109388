"""Writes into docs/reference/contracts.md where each numbered contract is tested, from the docstrings of the tests.

`make map` runs it; `tests/architecture/test_contracts.py` fails while the page differs from the tests.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "reference" / "contracts.md"

ROW = re.compile(r"^\| ([GWLPSQI]-\d+|F?\d+) \| (.+) \| .*\|$", re.MULTILINE)
CITED = re.compile(r"\b([GWLPSQI]-\d+|F\d\d?)\b")
BEHAVIOURS = re.compile(r"\bbehaviours? (\d+(?:(?:, | and )\d+)*)", re.IGNORECASE)


def render_page(page: str) -> str:
    """Return the page with the folders of the tests as they are now."""
    folders = cited_folders()
    return ROW.sub(lambda row: f"| {row[1]} | {row[2]} | {', '.join(sorted(folders.get(row[1], ())))} |", page)


@cache
def cited_folders() -> dict[str, set[str]]:
    """Return the folders of the tests that name a number, by the number."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(TESTS.rglob("*.py")):
        folder = f"`{path.parent.relative_to(TESTS).as_posix()}`"
        for text in _docstrings(path):
            for number in cited_in(text):
                found[number].add(folder)
    return found


def _docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def cited_in(text: str) -> set[str]:
    """Return the numbers that a text names; a behaviour is a number without a letter."""
    behaviours = {number for match in BEHAVIOURS.finditer(text) for number in re.findall(r"\d+", match[1])}
    return set(CITED.findall(text)) | behaviours


if __name__ == "__main__":
    PAGE.write_text(render_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
