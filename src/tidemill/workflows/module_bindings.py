"""Module bindings: the statements of a module that bind each of its names. The source of a module is parsed once.

The tasks of a package share its modules, so the bindings are kept as long as the module is. They are kept as text: a
syntax tree takes fifty times the memory of its source. Tasks use few of the statements; only those are parsed again.
"""

import ast
import inspect
from collections.abc import Iterator
from functools import cached_property
from types import ModuleType
from typing import NamedTuple
from weakref import WeakKeyDictionary


class Syntax(NamedTuple):
    """What counts of a statement: its syntax without the layout, and every name in it, attributes included."""

    text: str
    names: frozenset[str]


class Definition:
    """A top-level statement that binds a name, other than by an import."""

    def __init__(self, source: str) -> None:
        self._source = source

    @cached_property
    def syntax(self) -> Syntax:
        """The statement, parsed."""
        (statement,) = ast.parse(self._source).body
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        attributes = {node.attr for node in ast.walk(statement) if isinstance(node, ast.Attribute)}
        return Syntax(ast.dump(statement), frozenset(names | attributes))


Import = ast.Import | ast.ImportFrom
ModuleBindings = dict[str, list[Definition | Import]]
"""The statements of a module that bind a name, by name."""


class _ReadModule(NamedTuple):
    lines: list[str]
    bindings: ModuleBindings


_read_modules: WeakKeyDictionary[ModuleType, _ReadModule] = WeakKeyDictionary()
"""Modules belong to the process, and so does what was read of them. An entry lives as long as its module."""


def read_bindings(module: ModuleType) -> ModuleBindings:
    """Return the bindings of a module; none if it has no source."""
    try:
        lines, _ = inspect.findsource(module)  # which Python keeps: joined, they would be copied for every workflow
    except (OSError, TypeError):  # typed into a shell, or compiled
        return {}
    known = _read_modules.get(module)
    if known is None or known.lines != lines:  # a module that is reloaded by hand remains the same object
        known = _read_modules[module] = _ReadModule(lines, _parse("".join(lines)))
    return known.bindings


def _parse(source: str) -> ModuleBindings:
    bindings: ModuleBindings = {}
    lines = source.encode().splitlines(keepends=True)
    for statement in ast.parse(source).body:
        definition = Definition(_text_of(statement, lines))
        for name, binder in _iter_bound(statement):
            bindings.setdefault(name, []).append(binder if isinstance(binder, Import) else definition)
    return bindings


def _text_of(statement: ast.stmt, lines: list[bytes]) -> str:
    """Return the source of a statement from its first decorator on. Python counts columns in bytes of UTF-8."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(one.lineno for one in decorators)])
    text = lines[first - 1 : statement.end_lineno]
    text[-1] = text[-1][: statement.end_col_offset]
    text[0] = text[0][0 if decorators else statement.col_offset :]
    return b"".join(text).decode()


def _iter_bound(statement: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the names that a top-level statement binds, each with that statement; for a nested import, the import."""
    for node in _outside_functions(statement):
        match node:
            case ast.Import(names) | ast.ImportFrom(names=names):
                for alias in names:
                    yield alias.asname or alias.name.partition(".")[0], node
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                yield name, statement
            case ast.Name(name, ast.Store()):
                yield name, statement


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _outside_functions(child)
