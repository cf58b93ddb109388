"""The documentation is correct: its Python examples run, and its links lead to pages and headings that exist."""

import ast
import asyncio
import inspect
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from scripts.page_types import examples
from tests.architecture.sources import ROOT, listing

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
MAIN = re.compile(r'^if __name__ == "__main__":', re.MULTILINE)
"""What the README runs as a program; the programs of other pages serve until they are stopped."""

PRINTS = re.compile(r"^ *print\(.*\)  # (?P<printed>.+)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!\w+:|#)(?P<target>[^)#\s]+)")
HEADING_LINK = re.compile(r"\]\((?!\w+:)(?P<target>[^)#\s]*)#(?P<heading>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)


def title(page: Path) -> str:
    """Name a page in test ids."""
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if any(examples(page))], ids=title)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-3; the blocks of a page follow one another in one namespace, and may await."""
    run_examples(page, tmp_path, monkeypatch)


def run_examples(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the blocks of a page in an empty folder."""
    monkeypatch.chdir(tmp_path)
    example = ModuleType("example")
    monkeypatch.setitem(sys.modules, example.__name__, example)
    with keeping_logging(), asyncio.Runner() as runner:
        for source in examples(page):
            source = MAIN.sub("if True:", source) if page == README else source
            code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(code, vars(example))
            if inspect.iscoroutine(result):
                runner.run(result)


@contextmanager
def keeping_logging() -> Iterator[None]:
    """Put the root logger back as it was: web frameworks configure it."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers


def test_the_readme_says_what_its_examples_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Q-3; the comment behind a `print`, in which `...` stands for anything."""
    run_examples(README, tmp_path, monkeypatch)
    expected = [found["printed"] for source in examples(README) for found in PRINTS.finditer(source)]
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(expected) > 0
    for line, comment in zip(printed, expected, strict=True):
        assert re.fullmatch(re.escape(comment).replace(r"\.\.\.", ".*"), line), comment


def test_every_link_between_pages_leads_somewhere() -> None:
    """A page that moved takes its links along."""
    pages = sorted({*PAGES, *ROOT.glob("*.md")})
    offenders = [
        f"{title(page)} -> {link['target']}"
        for page in pages
        for link in LINK.finditer(FENCED.sub("", page.read_text(encoding="utf-8")))
        if not (page.parent / link["target"]).exists()
    ]
    assert not offenders, listing(offenders)


def test_every_link_to_a_heading_leads_somewhere() -> None:
    """A heading that was renamed takes its links along."""
    pages = sorted({*PAGES, *ROOT.glob("*.md")})
    offenders = [
        f"{title(page)} -> {link['target']}#{link['heading']}"
        for page in pages
        for link in HEADING_LINK.finditer(FENCED.sub("", page.read_text(encoding="utf-8")))
        if link["heading"] not in anchors((page.parent / link["target"]).resolve() if link["target"] else page)
    ]
    assert not offenders, listing(offenders)


def anchors(page: Path) -> set[str]:
    """Return the headings of a page in the form in which links name them."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", found["title"].lower()).replace(" ", "-") for found in HEADING.finditer(text)}
