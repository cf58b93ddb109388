"""Recognizes the Python files that are packages by their source. Nothing is imported.

A package file imports Tidemill. A file that was a package and no longer does so was emptied or turned into a plain
module; or it was saved by mistake, and importing it would fail. Then it is still a package, with an error.
"""

import ast
import builtins
import symtable
from collections.abc import Iterator
from importlib.util import decode_source
from pathlib import Path

from tidemill.kernel.errors import TidemillError
from tidemill.packages.format.archive import read_python_file
from tidemill.packages.format.manifest import Manifest

_PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)  # the last two: code that is nested too deeply
_DEFINED_NAMES = frozenset(dir(builtins)) | {"__file__", "__path__"}


def is_package_file_name(name: str) -> bool:
    """Return whether a Python file of this name may be a package: not if it is a test, or private."""
    stem = name.removesuffix(".py")
    return not (stem.startswith(("_", "test_")) or stem.endswith("_test") or stem == "conftest")


def recognize_python_file(content: bytes, path: Path, *, was_package: bool) -> Manifest | bool:
    """Return the manifest of a Python file that is a package; True if it cannot be read, False if it is none."""
    if not (_imports_tidemill(content, path) or (was_package and _is_broken(content, path))):
        return False
    try:
        return read_python_file(path).manifest
    except TidemillError:
        return True


def _imports_tidemill(content: bytes, path: Path) -> bool:
    """Return whether a Python file imports Tidemill; True if it mentions it and cannot be parsed."""
    if b"tidemill" not in content:
        return False
    try:
        tree = ast.parse(content, str(path))
    except _PARSE_ERRORS:
        return True
    return any(name.partition(".")[0] == "tidemill" for name in _imported_modules(tree))


def _imported_modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def _is_broken(content: bytes, path: Path) -> bool:
    """Return whether a Python file cannot be parsed, or uses names at the top level that it does not define.

    `from x import *` may define any name.
    """
    try:
        symbols = symtable.symtable(decode_source(content), str(path), "exec").get_symbols()
    except _PARSE_ERRORS:
        return True
    if b"import *" in content:
        return False
    return any(
        one.is_referenced() and not (one.is_assigned() or one.is_imported() or one.get_name() in _DEFINED_NAMES)
        for one in symbols
    )
