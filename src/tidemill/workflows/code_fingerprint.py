"""The fingerprint of a workflow's code: of the task functions, and of the definitions of their package that they use.

A run keeps the version that it started with. So the version has to change with a helper or a constant as well; but not
with a comment, nor with an unrelated definition in the same file. For this, names are followed from function to
function through the sources of the package's modules. The text counts, without its layout: the value of a name may
differ from process to process, as an address read from the environment does.

Not seen: names that only Python knows at run time (`getattr`, a registry), and the code of other packages.
"""

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from importlib.util import resolve_name
from types import CodeType, FunctionType
from typing import Any

from tidemill.annotations.signatures import AuthorFunction
from tidemill.kernel.namespaces import load_key, mark_like, plain_name
from tidemill.workflows.definition import Task
from tidemill.workflows.module_bindings import Definition, Import, ModuleBindings, Syntax, read_bindings

NameSet = frozenset[str]


def fingerprint(tasks: Sequence[Task]) -> str:
    """Return a hash that changes with the code of the tasks or of a definition they use, and not with its layout."""
    functions = [[inspect.unwrap(one.call) for one in _author_functions(task)] for task in tasks]
    codes = [[_code_key(getattr(function, "__code__", None)) for function in group] for group in functions]
    used = _referenced_definitions(one for group in functions for one in group if isinstance(one, FunctionType))
    return sha256(repr((codes, used)).encode()).hexdigest()[:16]


def _author_functions(task: Task) -> Sequence[AuthorFunction]:
    return [task.function] if task.graph is None or isinstance(task.graph, str) else task.graph.functions()


def _code_key(code: CodeType | None) -> Any:
    """Return the contents of a code object, without its position in the file."""
    if code is None:
        return None
    return code.co_code.hex(), code.co_names, code.co_varnames, [_constant_key(one) for one in code.co_consts]


def _constant_key(value: Any) -> Any:
    """Return a constant in a form that is the same in every process: the order of a set is not."""
    if isinstance(value, CodeType):
        return _code_key(value)
    if isinstance(value, frozenset):
        return "frozenset", sorted(repr(_constant_key(one)) for one in value)
    return tuple(_constant_key(one) for one in value) if isinstance(value, tuple) else value


def _referenced_definitions(functions: Iterable[FunctionType]) -> list[tuple[str, str, str]]:
    """Return the definitions that some functions use, without the functions: module, name and text, sorted."""
    walkers: dict[str, _ReferenceWalker] = {}
    for function in functions:
        module = function.__module__ or function.__globals__.get("__name__") or ""  # generated code may have none
        walker = walkers.setdefault(load_key(module), _ReferenceWalker(load_key(module)))
        walker.follow_names(module, _names_used_by_code(function.__code__))
    return sorted({definition for walker in walkers.values() for definition in walker.definitions})


def _names_used_by_code(code: CodeType) -> NameSet:
    """Return every name that some code uses, globals and attributes alike."""
    nested = (_names_used_by_code(one) for one in code.co_consts if isinstance(one, CodeType))
    return frozenset(code.co_names).union(*nested)


class _ReferenceWalker:
    """Collects the definitions of one package that functions reach. What several of them reach is followed once."""

    def __init__(self, package: str) -> None:
        self.definitions: set[tuple[str, str, str]] = set()
        self._package = package
        self._bindings_by_module: dict[str, ModuleBindings] = {}
        self._seen: set[tuple[str, str, str | NameSet]] = set()

    def follow_names(self, module: str, names: NameSet) -> None:
        """Follow the names that a module of the package defines or imports; ignore the others."""
        bindings = self._bindings_of(module)
        for name in sorted(names & bindings.keys() | ({"*"} & bindings.keys())):
            for statement in bindings[name]:
                if isinstance(statement, Definition):
                    self._follow_definition(module, name, statement.syntax)
                else:
                    self._follow_import(module, name, statement, names)

    def _follow_definition(self, module: str, name: str, syntax: Syntax) -> None:
        if self._is_new(module, name, syntax.text):
            self.definitions.add((plain_name(module).partition(".")[2], name, syntax.text))
            self.follow_names(module, syntax.names)

    def _follow_import(self, module: str, name: str, statement: Import, names: NameSet) -> None:
        """Follow an imported name to its module. For an imported module, follow every name used next to it."""
        if not self._is_new(module, name, names):
            return
        for source, original in _import_origins(module, name, statement):
            if original is None or original == "*":
                self.follow_names(source, names)
            elif f"{source}.{original}" in sys.modules:
                self.follow_names(f"{source}.{original}", names)
            else:
                self.follow_names(source, frozenset({original}))

    def _is_new(self, module: str, name: str, use: str | NameSet) -> bool:
        """Return whether a name was not yet followed for this text, or for these names used next to it."""
        count = len(self._seen)
        self._seen.add((module, name, use))
        return len(self._seen) > count

    def _bindings_of(self, name: str) -> ModuleBindings:
        """Return the bindings of a module; none if it belongs to another package or has no source."""
        if name not in self._bindings_by_module:
            module = sys.modules.get(name)
            is_ours = module is not None and load_key(name) == self._package
            self._bindings_by_module[name] = read_bindings(module) if is_ours and module is not None else {}
        return self._bindings_by_module[name]


def _import_origins(module: str, name: str, statement: Import) -> Iterator[tuple[str, str | None]]:
    """Yield the origins of an imported name: a module, and the name there, or None for the module itself."""
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
    except ImportError:  # above the top of the package: no module can have been imported from there
        return name
