"""Names tell what is inside, and imports stand where a reader looks for them."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import ROOT, SRC, Module, listing, modules

BANNED = {"utils", "helpers", "common", "misc", "base"}
FOLDERS = ("src", "tests", "examples", "benchmarks")
COMMANDS = SRC / "tidemill" / "cli" / "commands"
EXTRA = "# extra:"


def test_no_module_or_folder_has_an_empty_name() -> None:
    """Q-1: a name such as `utils` says nothing about what it holds."""
    offenders = [
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in python_paths(ROOT / folder)
        if BANNED & set(path.stem.split("_"))
    ]
    assert not offenders, listing(offenders)


def test_no_import_hides_in_a_function() -> None:
    """Q-1: imports stand at the top, save in CLI commands and for extras, marked `# extra: name`."""
    offenders = [
        f"{module.where(node.lineno)} {ast.unparse(node)}"
        for module in modules()
        if COMMANDS not in module.path.parents
        for node in deferred_imports(module)
        if not is_extra(module, node)
    ]
    assert not offenders, listing(offenders)


def python_paths(top: Path) -> Iterator[Path]:
    """Yield the Python files below a folder, and the folders that hold them."""
    files = set(top.rglob("*.py"))
    folders = {parent for file in files for parent in file.parents if top in parent.parents}
    yield from sorted(files | folders)


def deferred_imports(module: Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports inside functions, each once however deep it stands."""
    inside = {
        node
        for function in module.functions
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    yield from sorted(inside, key=lambda node: node.lineno)


def is_extra(module: Module, node: ast.Import | ast.ImportFrom) -> bool:
    """Tell whether the import is marked as one of an optional extra."""
    return EXTRA in module.lines[node.lineno - 1]
