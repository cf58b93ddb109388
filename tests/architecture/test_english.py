"""Texts name the component that acts: phrases without a subject do not come back."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.architecture.sources import ROOT, listing

ROOTS = ("src", "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples", "benchmarks", "scripts")
TESTS = ("tests/unit", "tests/service", "tests/system", "tests/simulation", "tests/browser")
SUFFIXES = (".md", ".py")
DROPPED = re.compile(
    r"\b(?:whoever|whomever|somebody|nobody|takes?\s+note|(?:is|are|was)\s+told|for\s+ever|mend(?:s|ed|ing)?|"
    r"stands?\s+against)\b",
    re.IGNORECASE,
)
TICS = re.compile(
    r"(?<!instead )\bof\s+(?:its|their|our|your)\s+own\b(?=\s*(?:[^\w\s]|$|(?:and|or|so|that|which|where|when|while|"
    r"with|without|to|in|on|by|from|as|at|is|are|was|if|for|instead|has|have|because)\b))|"
    r"\bbeside\b|\bbegun\b|\banew\b|\bany\s+more\b(?=\W*[,.;:)\"`]|\s+(?:and|or|because|may|in|is))|"
    r"\bso\s+(?:many|long)\b(?!\s+as\b)|(?<!\bthere )\b(?:is|are|was|were)\s+no\s+(?!longer\b|more\b|less\b|such\b)\w|"
    r",\s+also\b",
    re.IGNORECASE,
)
"""Turns of phrase that the authors fell back on; the docstring of their test has the plain ones."""
PLAIN = ("src", "docs", "README.md", "CONTRIBUTING.md", "examples")
"""Where tics are dropped."""
WITH_TICS = (
    "docs/design",
    "docs/development/code-map.md",
    "docs/explanation/speed.md",
    "docs/reference/contracts.md",
    "docs/reference/python",
)
"""Records, and what is written from them or from tests and measurements. Nothing may be added here."""
BEGINNINGS = ("What ", "Who ", "Which ", "Whether ")


def test_no_text_uses_a_dropped_phrase() -> None:
    """docs/design, 0026: name the caller, the leader, the store; with `src` this includes the help of commands."""
    found = [offence for path in files(ROOTS + TESTS) for offence in offences(path)]
    assert not found, listing(found)


def test_no_text_falls_back_on_a_tic() -> None:
    """Plain words: "its own X", "next to", "started", "again", "no longer", "that many", "is not a X", "even if"."""
    found = [
        offence
        for path in files(PLAIN)
        if not str(path.relative_to(ROOT)).startswith(WITH_TICS)
        for offence in offences(path, TICS)
    ]
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
    """Yield the texts below the roots; the code map of the site repeats docstrings of `src`."""
    for root in roots:
        path = ROOT / root
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (file for file in found if file.suffix in SUFFIXES)


def offences(path: Path, dropped: re.Pattern[str] = DROPPED) -> Iterator[str]:
    """Yield each dropped phrase with its location; a phrase may continue on the next line."""
    text = path.read_text(encoding="utf-8")
    for match in dropped.finditer(text):
        yield f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1} {' '.join(match[0].split())}"


def docstring(path: Path) -> str:
    """Return the docstring of a module, or an empty text."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
