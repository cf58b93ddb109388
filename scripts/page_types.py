"""Check the types of what users copy: the Python blocks of the pages, the examples, and a new package.

Both type checkers read them as a user's code: mypy with `--strict`, pyright as it comes. Each page becomes a module
of `build/typed/` in which a line keeps its number, so that a finding names the page. Neither fetches anything.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from scripts.node_tools import node_programs
from tidemill.packages.format.template import write_skeleton

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "build/typed"
PACKAGE = FOLDER / "hello"
FILES = [*sorted(ROOT.glob("examples/*.py")), ROOT / "tests/unit/test_public_types.py"]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/tutorials/*.md")), *sorted(ROOT.glob("docs/how-to/*.md"))]

BLOCK = re.compile(
    r"(?P<excuse>^<!-- not run: \S[^\n]*-->\n\n?)?"  # an example that cannot run says why
    r"^```python\n(?P<source>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PARSING = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
AWAITS = (ast.Await, ast.AsyncWith, ast.AsyncFor)


def examples(page: Path) -> Iterator[str]:
    """Yield the Python blocks of a page that run, padded to keep its line numbers for messages."""
    text = page.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        if not block["excuse"]:
            yield "\n" * text.count("\n", 0, block.start("source")) + block["source"]


def as_module(page: Path) -> str:
    """Return the blocks of a page as one module: from the first that awaits on, they are the body of a coroutine."""
    lines: list[str] = []
    indent = ""
    for source in examples(page):
        if not indent and _awaits(compile(source, str(page), "exec", PARSING)):
            indent = "    "
            fence = len(source) - len(source.lstrip("\n")) - 1
            lines += [""] * (fence - len(lines)) + ["async def page() -> None:"]
        lines += [indent + line if line else line for line in source.splitlines()[len(lines) :]]
    return "\n".join(lines) + "\n"


def _awaits(node: ast.AST) -> bool:
    """Return whether code awaits outside its functions."""
    inner = (one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    return isinstance(node, AWAITS) or any(map(_awaits, inner))


def module_name(page: Path) -> str:
    """Return the name of the module that a page becomes: `docs_how_to_backfill`."""
    return re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))


def write_modules() -> Mapping[str, str]:
    """Write the modules of the pages, and a new package; return the page of each module, as the checkers name it."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    write_skeleton("hello", PACKAGE)
    pages = {FOLDER / f"{module_name(page)}.py": page for page in PAGES if any(examples(page))}
    for path, page in pages.items():
        path.write_text(as_module(page), encoding="utf-8")
    return {str(path.relative_to(ROOT)): str(page.relative_to(ROOT)) for path, page in pages.items()}


def name_pages(said: str, pages: Mapping[str, str]) -> str:
    """Return what a checker said, with the pages in place of their modules."""
    for module, page in pages.items():
        said = said.replace(f"{ROOT}/{module}", page).replace(module, page)
    return said.replace(f"{ROOT}/", "")


def mypy() -> Sequence[str]:
    """Return the command of mypy, which takes its options, and what it knows of our own code, from `make lint`."""
    return [sys.executable, "-m", "mypy", "--no-error-summary", str(FOLDER), *map(str, FILES)]


def pyright() -> Sequence[str]:
    """Return the command of pyright: the program in its wheel, on our Node.js, so that it fetches neither."""
    included = [os.path.relpath(one, FOLDER) for one in (FOLDER, *FILES)]
    paths = [str(one) for one in (ROOT / "src", ROOT, PACKAGE)]
    settings = {"include": included, "extraPaths": paths, "pythonVersion": "3.11"}
    project = FOLDER / "pyrightconfig.json"
    project.write_text(json.dumps(settings), encoding="utf-8")
    found = find_spec("pyright")
    assert found is not None, "requirements/dev.txt has pyright"
    assert found.origin is not None
    program = Path(found.origin).parent / "dist/index.js"
    return [str(node_programs() / "node"), str(program), "-p", str(project), "--pythonpath", sys.executable]


def main() -> int:
    """Run both checkers, and say what they find."""
    pages = write_modules()
    own_path = os.environ | {"MYPYPATH": str(PACKAGE)}
    with (
        subprocess.Popen(mypy(), cwd=ROOT, env=own_path, stdout=subprocess.PIPE, text=True) as one,
        subprocess.Popen(pyright(), cwd=ROOT, stdout=subprocess.PIPE, text=True) as other,
    ):
        for program in (one, other):
            assert program.stdout is not None
            said = name_pages(program.stdout.read(), pages)
            if program.wait():
                print(said, end="")
    return one.returncode or other.returncode


if __name__ == "__main__":
    sys.exit(main())
