"""Texts name the component that acts: phrases without a subject do not come back."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.architecture.sources import ROOT, listing

ROOTS = ("src", "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples", "benchmarks", "scripts")
TESTS = ("tests/unit", "tests/service", "tests/system", "tests/simulation", "tests/browser")
SUFFIXES = (".md", ".py")
GENERATED = ROOT / "docs" / "development" / "code-map.md"
DROPPED = re.compile(
    r"\b(?:whoever|whomever|somebody|nobody|takes?\s+note|(?:is|are|was)\s+told|for\s+ever|mend(?:s|ed|ing)?|"
    r"stands?\s+against)\b",
    re.IGNORECASE,
)
BEGINNINGS = ("What ", "Who ", "Which ", "Whether ")


def test_no_text_uses_a_dropped_phrase() -> None:
    """docs/design, 0026: name the caller, the leader, the store; with `src` this includes the help of commands."""
    found = [offence for path in files(ROOTS + TESTS) for offence in offences(path)]
    assert not found, listing(found)


def test_no_module_docstring_begins_with_a_question_word() -> None:
    """A module docstring begins with a noun or a verb: it is the module's line in the code map."""
    found = [
        str(path.relative_to(ROOT))
        for path in files(ROOTS)
        if path.suffix == ".py" and docstring(path).startswith(BEGINNINGS)
    ]
    assert not found, listing(found)


def files(roots: Sequence[str]) -> Iterator[Path]:
    """Yield the texts below the roots; the generated code map repeats docstrings of `src`."""
    for root in roots:
        path = ROOT / root
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (file for file in found if file.suffix in SUFFIXES and file != GENERATED)


def offences(path: Path) -> Iterator[str]:
    """Yield each dropped phrase with its location; a phrase may continue on the next line."""
    text = path.read_text(encoding="utf-8")
    for match in DROPPED.finditer(text):
        yield f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1} {' '.join(match[0].split())}"


def docstring(path: Path) -> str:
    """Return the docstring of a module, or an empty text."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
