"""The glossary is sorted, names only code that exists, and uses no private metaphor."""

import ast
import re
from collections.abc import Iterator

from tests.architecture.sources import ROOT, listing, modules

PAGE = ROOT / "docs" / "reference" / "glossary.md"
ROW = re.compile(r"^\| (?P<word>[A-Z][^|]*) \| (?P<meaning>[^|]+) \| (?P<code>`[^|]+) \|$", re.MULTILINE)
CODE = re.compile(r"`(?:tm\.)?(?P<name>\w+)`")
METAPHORS = (
    "allotment|bench|bequeath|board|caretaker|circle|crew|debt|depot|desk|goodbye|heir|holdings|housing|keeper|keepsake|"
    "lane|ledger|letters?(?<!dead letter)|lifeline|logbook|loom|office|onlooker|outlook|owed|place|places|room|tidy|"
    "wheel|wish|witness|workshop"
)


def test_the_words_are_in_alphabetical_order() -> None:
    """Case, hyphens and commas do not count; each word is listed once, for users or for developers."""
    tables = [[row["word"] for row in ROW.finditer(part)] for part in text().split("\n## ")[1:]]
    assert len(tables) == 2
    for words in tables:
        assert words == sorted(set(words), key=lambda word: re.sub(r"[^\w ]", "", word).casefold())
    assert len({word for words in tables for word in words}) == len(rows())


def test_every_name_in_code_style_exists_in_the_code() -> None:
    """A name that was renamed in `src` is renamed here too."""
    defined = set(defined_names())
    missing = [name["name"] for name in CODE.finditer(text()) if name["name"] not in defined]
    assert not missing, listing(missing)


def test_every_word_names_some_code() -> None:
    """The third column tells a contributor where to start reading."""
    lines = [line for line in text().splitlines() if line.startswith("| ") and not line.startswith("| word ")]
    assert [line for line in lines if not ROW.match(line)] == []
    assert len(lines) == len(rows())


def test_no_metaphor_stands_in_the_glossary() -> None:
    """docs/design, 0026: the field has words for these."""
    found = re.findall(rf"\b(?:{METAPHORS})\b", text(), re.IGNORECASE)
    assert not found, listing(found)


def text() -> str:
    """Return the text of the page."""
    return PAGE.read_text(encoding="utf-8")


def rows() -> list[re.Match[str]]:
    """Return the rows of the table."""
    return list(ROW.finditer(text()))


def defined_names() -> Iterator[str]:
    """Yield every name that the code defines: modules, classes, functions, parameters, attributes, variables."""
    for module in modules():
        yield from module.name.split(".")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name
            elif isinstance(node, ast.arg):
                yield node.arg
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield node.attr
