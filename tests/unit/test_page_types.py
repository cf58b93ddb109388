"""What the type checkers say about the blocks of a page names the line of the page."""

from pathlib import Path

import pytest

from scripts import page_types
from scripts.page_types import PAGES, PARSING, as_module, module_name, name_pages

TEXT = """# A page

```python
total: int = "many"
```

<!-- not run: it needs a cluster -->
```python
left_out()
```

```python
async with open_node() as node:
    await node.settle()
```
"""


def test_a_line_of_a_page_keeps_its_number(tmp_path: Path) -> None:
    """From the first block that awaits on, the lines are the body of a coroutine, which begins in a fence."""
    page = tmp_path / "page.md"
    page.write_text(TEXT)
    lines = as_module(page).splitlines()
    assert lines[3] == 'total: int = "many"'
    assert lines[11:14] == [
        "async def page() -> None:",
        "    async with open_node() as node:",
        "        await node.settle()",
    ]
    assert "left_out()" not in lines


def test_what_a_checker_says_names_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both forms, that of mypy and that of pyright."""
    monkeypatch.setattr(page_types, "ROOT", Path("/project"))
    said = "build/typed/README.py:4: error: no\n  /project/build/typed/README.py:4:14 - error: no\n"
    named = name_pages(said, {"build/typed/README.py": "README.md"})
    assert named == "README.md:4: error: no\n  README.md:4:14 - error: no\n"


def test_every_page_becomes_a_module_of_its_name() -> None:
    """README, tutorials and guides."""
    names = [module_name(page) for page in PAGES]
    assert len(set(names)) == len(names)
    assert {"README", "docs_tutorials_first_steps", "docs_how_to_test_a_graph"} <= set(names)
    for page in PAGES:
        compile(as_module(page), str(page), "exec", PARSING)
