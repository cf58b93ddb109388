"""What the code of a task is made of: its own function, and whatever of the same package that uses.

A run goes on with the version that it began with, so a version has to change with a helper or a constant too; but not
with a comment, nor with what only stands beside it. So names are followed from function to function through the
sources of the package's modules. It is the text that counts, without its layout: what a name stands for may differ
from process to process, as an address from the environment does.

What only Python knows when it runs (`getattr`, a registry), and what other packages do, is not seen.
"""

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from importlib.util import resolve_name
from types import CodeType, FunctionType, ModuleType

from tidemill.kernel.namespaces import kinship, marked_like, plain_name

Names = frozenset[str]
Page = dict[str, list[ast.stmt]]
"""The statements of a module that give something to a name, by name."""


def texts_of(functions: Iterable[FunctionType]) -> list[tuple[str, str, str]]:
    """Return the definitions that some functions use, beside themselves: module, name and text, in order."""
    found: set[tuple[str, str, str]] = set()
    for function in functions:
        module = function.__module__ or function.__globals__.get("__name__") or ""  # generated code may have none
        reach = _Reach(module)
        reach.follow(module, names_in(function.__code__))
        found |= reach.texts
    return sorted(found)


def names_in(code: CodeType) -> Names:
    """Return every name that some code uses: globals and attributes alike."""
    inner = (names_in(one) for one in code.co_consts if isinstance(one, CodeType))
    return frozenset(code.co_names).union(*inner)


class _Reach:
    """What is reached from a function of one package."""

    def __init__(self, module: str) -> None:
        self.texts: set[tuple[str, str, str]] = set()
        self._kinship = kinship(module)
        self._pages: dict[str, Page] = {}
        self._seen: set[tuple[str, str, Names]] = set()

    def follow(self, module: str, names: Names) -> None:
        """Follow those of some names that a module of the package defines, or has from another one."""
        page = self._page(module)
        for name in sorted(names & page.keys() | ({"*"} & page.keys())):
            for statement in page[name]:
                if isinstance(statement, ast.Import | ast.ImportFrom):
                    self._follow_import(module, name, statement, names)
                else:
                    self._follow_definition(module, name, statement)

    def _follow_definition(self, module: str, name: str, statement: ast.stmt) -> None:
        text = plain_name(module).partition(".")[2], name, ast.dump(statement)
        if text not in self.texts:
            self.texts.add(text)
            self.follow(module, _names_in(statement))

    def _follow_import(self, module: str, name: str, statement: ast.Import | ast.ImportFrom, names: Names) -> None:
        """Follow a name to where it comes from. Of a module, whatever it has of the names used beside it counts."""
        if (module, name, names) in self._seen:
            return
        self._seen.add((module, name, names))
        for source, original in _origins(module, name, statement):
            if original is None or original == "*":
                self.follow(source, names)
            elif f"{source}.{original}" in sys.modules:
                self.follow(f"{source}.{original}", names)
            else:
                self.follow(source, frozenset({original}))

    def _page(self, name: str) -> Page:
        """Return what a module defines; nothing if it is another package's, or has no source."""
        if name not in self._pages:
            module = sys.modules.get(name)
            is_ours = module is not None and kinship(name) == self._kinship
            self._pages[name] = _read(module) if is_ours and module is not None else {}
        return self._pages[name]


def _read(module: ModuleType) -> Page:
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError):  # typed in, or compiled: there is nothing to read
        return {}
    page: Page = {}
    for statement in tree.body:
        for name, binder in _bindings(statement):
            page.setdefault(name, []).append(binder)
    return page


def _bindings(statement: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the names that a statement of a module gives something to, each with what does; an import by itself."""
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


def _names_in(statement: ast.stmt) -> Names:
    found = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return frozenset(found | {node.attr for node in ast.walk(statement) if isinstance(node, ast.Attribute)})


def _origins(module: str, name: str, statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str | None]]:
    """Yield where an import has a name from: a module, and the name there, or None for the module itself."""
    if isinstance(statement, ast.ImportFrom):
        source = _absolute(module, "." * statement.level + (statement.module or ""))
        yield from ((source, one.name) for one in statement.names if (one.asname or one.name) == name)
        return
    for one in statement.names:
        if one.asname == name:
            yield _absolute(module, one.name), None
        elif one.asname is None and one.name.partition(".")[0] == name:
            yield _absolute(module, name), None
            yield _absolute(module, one.name), None


def _absolute(module: str, name: str) -> str:
    if not name.startswith("."):
        return marked_like(module, name)
    package = getattr(sys.modules[module], "__package__", None) or module.rpartition(".")[0]
    try:
        return resolve_name(name, package)
    except ImportError:  # beyond the top of the package: no module that could have been imported
        return name
