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

from tidemill.kernel.namespaces import load_key, mark_like, plain_name

NameSet = frozenset[str]
ModuleBindings = dict[str, list[ast.stmt]]
"""The statements of a module that give something to a name, by name."""


def referenced_definitions(functions: Iterable[FunctionType]) -> list[tuple[str, str, str]]:
    """Return the definitions that some functions use, beside themselves: module, name and text, in order."""
    found: set[tuple[str, str, str]] = set()
    for function in functions:
        module = function.__module__ or function.__globals__.get("__name__") or ""  # generated code may have none
        reach = _ReferenceWalker(module)
        reach.follow_names(module, names_used_by_code(function.__code__))
        found |= reach.definitions
    return sorted(found)


def names_used_by_code(code: CodeType) -> NameSet:
    """Return every name that some code uses: globals and attributes alike."""
    inner = (names_used_by_code(one) for one in code.co_consts if isinstance(one, CodeType))
    return frozenset(code.co_names).union(*inner)


class _ReferenceWalker:
    """What is reached from a function of one package."""

    def __init__(self, module: str) -> None:
        self.definitions: set[tuple[str, str, str]] = set()
        self._kinship = load_key(module)
        self._bindings_by_module: dict[str, ModuleBindings] = {}
        self._seen: set[tuple[str, str, NameSet]] = set()

    def follow_names(self, module: str, names: NameSet) -> None:
        """Follow those of some names that a module of the package defines, or has from another one."""
        page = self._bindings_of(module)
        for name in sorted(names & page.keys() | ({"*"} & page.keys())):
            for statement in page[name]:
                if isinstance(statement, ast.Import | ast.ImportFrom):
                    self._follow_import(module, name, statement, names)
                else:
                    self._follow_definition(module, name, statement)

    def _follow_definition(self, module: str, name: str, statement: ast.stmt) -> None:
        text = plain_name(module).partition(".")[2], name, ast.dump(statement)
        if text not in self.definitions:
            self.definitions.add(text)
            self.follow_names(module, _names_in_statement(statement))

    def _follow_import(self, module: str, name: str, statement: ast.Import | ast.ImportFrom, names: NameSet) -> None:
        """Follow a name to where it comes from. Of a module, whatever it has of the names used beside it counts."""
        if (module, name, names) in self._seen:
            return
        self._seen.add((module, name, names))
        for source, original in _import_origins(module, name, statement):
            if original is None or original == "*":
                self.follow_names(source, names)
            elif f"{source}.{original}" in sys.modules:
                self.follow_names(f"{source}.{original}", names)
            else:
                self.follow_names(source, frozenset({original}))

    def _bindings_of(self, name: str) -> ModuleBindings:
        """Return what a module defines; nothing if it is another package's, or has no source."""
        if name not in self._bindings_by_module:
            module = sys.modules.get(name)
            is_ours = module is not None and load_key(name) == self._kinship
            self._bindings_by_module[name] = _read_bindings(module) if is_ours and module is not None else {}
        return self._bindings_by_module[name]


def _read_bindings(module: ModuleType) -> ModuleBindings:
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError):  # typed in, or compiled: there is nothing to read
        return {}
    page: ModuleBindings = {}
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


def _names_in_statement(statement: ast.stmt) -> NameSet:
    found = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return frozenset(found | {node.attr for node in ast.walk(statement) if isinstance(node, ast.Attribute)})


def _import_origins(module: str, name: str, statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str | None]]:
    """Yield where an import has a name from: a module, and the name there, or None for the module itself."""
    if isinstance(statement, ast.ImportFrom):
        source = _absolute_name(module, "." * statement.level + (statement.module or ""))
        yield from ((source, one.name) for one in statement.names if (one.asname or one.name) == name)
        return
    for one in statement.names:
        if one.asname == name:
            yield _absolute_name(module, one.name), None
        elif one.asname is None and one.name.partition(".")[0] == name:
            yield _absolute_name(module, name), None
            yield _absolute_name(module, one.name), None


def _absolute_name(module: str, name: str) -> str:
    if not name.startswith("."):
        return mark_like(module, name)
    package = getattr(sys.modules[module], "__package__", None) or module.rpartition(".")[0]
    try:
        return resolve_name(name, package)
    except ImportError:  # beyond the top of the package: no module that could have been imported
        return name
