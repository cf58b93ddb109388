"""Where the code of a workflow comes from, so that another process can find it again."""

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

import msgspec

from tidemill.graphs.graph import Graph
from tidemill.kernel.errors import OperationError
from tidemill.kernel.namespaces import Namespace, PackageTree, find_namespace
from tidemill.workflows.task_overrides import TaskOverrides
from tidemill.workflows.workflow import Workflow

WorkflowLookup = Callable[[str, str, str], Workflow]
"""(tenant, name, version) -> the workflow; OperationError for one that is not loaded here."""

MAIN = "__main__"
IMPORTED_MAIN = "__mp_main__"
"""What a program is called when it is imported for its definitions: it must not begin to run again."""


_files_importing: list[str] = []
"""The files that are being imported for their definitions."""


class CodeLocation(msgspec.Struct, frozen=True):
    """A module, or a package of several: its name, its file, and where Python looks for what it imports."""

    module: str
    file: str
    path: tuple[str, ...]
    tree: PackageTree | None = None
    """Where a package lies, all of which is imported; its copy stays as long as a run may need it."""
    modules: tuple[str, ...] = ()
    """The modules of a package that are imported here, in that order."""
    settings: dict[str, TaskOverrides] = {}
    """What its manifest sets for tasks."""

    def read_mtime_ns(self) -> int:
        """Return what changes when the file does."""
        try:
            return os.stat(self.file).st_mtime_ns
        except OSError:
            return 0


def locate_code(workflow: Workflow) -> CodeLocation:
    """Return where a workflow can be found again: at the top level of a module that has a file."""
    for namespace in _loaded_namespaces():
        if any(value is workflow.declaration for one in namespace.modules().values() for value in vars(one).values()):
            return _locate_in_package(namespace, workflow)
    for names in _iter_globals(workflow):
        file = names.get("__file__")
        if file and any(isinstance(value, Workflow) and value.name == workflow.name for value in names.values()):
            return CodeLocation(names["__name__"], os.path.abspath(file), tuple(sys.path))
    raise OperationError(
        f"workflow '{workflow.name}' ({workflow.location}) cannot run outside this process: another one could not find "
        "it again. Define it at the top level of a module that is a file, not inside a function or a session"
    )


def _loaded_namespaces() -> list[Namespace]:
    """Return the namespaces of the packages that are loaded in this process."""
    found = [namespace for name in tuple(sys.modules) if (namespace := find_namespace(name)) is not None]
    return list(dict.fromkeys(found))


def _locate_in_package(namespace: Namespace, workflow: Workflow) -> CodeLocation:
    held = [value for one in namespace.modules().values() for value in vars(one).values()]
    for declared, task in zip(workflow.declaration.tasks, workflow.tasks, strict=True):
        if isinstance(declared.graph, str) and not any(value is task.graph for value in held):
            raise OperationError(
                f"workflow '{workflow.name}' cannot run outside this process: task '{task.name}' calls graph "
                f"'{declared.graph}' of another package, which would not be there"
            )
    tree, modules = namespace.tree, tuple(namespace.modules())
    return CodeLocation(modules[0], tree.folder, tuple(sys.path), tree, modules, dict(workflow.task_overrides))


def _iter_globals(workflow: Workflow) -> Iterator[dict[str, Any]]:
    """Yield the names around its functions, which outlive a module that was imported anew, then those of its file."""
    for task in workflow.tasks:
        yield dict(getattr(inspect.unwrap(task.function.call), "__globals__", {}))
    for module in tuple(sys.modules.values()):
        if getattr(module, "__file__", None) == workflow.location.file:
            yield dict(vars(module))


def ensure_not_importing() -> None:
    """Raise an OperationError while a module is imported for its definitions only: it must not begin to run again."""
    if _files_importing:
        raise OperationError(
            f"{_files_importing[-1]} runs a node, or a workflow, while it is imported: executor "
            "'subprocess' imports it once "
            "more for its definitions. Put what only the program itself should do under "
            '`if __name__ == "__main__":`'
        )


def load_workflows(location: CodeLocation) -> dict[str, Workflow]:
    """Import a module, or a package, from where it came from, and return its workflows by name, as they are run.

    It may run no node while that lasts.
    """
    _files_importing.append(location.file)
    sys.path[:] = [*location.path, *(one for one in sys.path if one not in location.path)]
    try:
        found = [value for module in _import_modules(location) for value in vars(module).values()]
    finally:
        _files_importing.pop()
    graphs = {value.name: value for value in found if isinstance(value, Graph)}
    workflows = [
        one.with_overrides(location.settings).with_graphs(graphs.get) for one in found if isinstance(one, Workflow)
    ]
    # Those that call graphs of other packages can be run only where these are loaded.
    return {one.name: one for one in workflows if not any(isinstance(task.graph, str) for task in one.tasks)}


def _import_modules(location: CodeLocation) -> list[ModuleType]:
    if location.tree is None:
        return [_import_module(location)]
    namespace = Namespace(location.tree)  # for as long as this process lives
    return [namespace.import_module(name) for name in location.modules]


def _import_module(location: CodeLocation) -> ModuleType:
    name = IMPORTED_MAIN if location.module == MAIN else location.module
    if location.module != MAIN and _is_importable_as(name, location.file):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, location.file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{location.file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _is_importable_as(name: str, file: str) -> bool:
    """Return whether Python itself would import this file under that name."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin) == Path(file)


Made = TypeVar("Made")

Key = tuple[str, str, str]


class VersionCache(Generic[Made]):
    """By tenant, workflow and version: made when first asked for, and kept while that very code is loaded.

    The same version may be loaded again, from another place: then what was made of the code before is of no use.
    """

    def __init__(self, lookup: WorkflowLookup, build: Callable[[Workflow], Made]) -> None:
        self._lookup = lookup
        self._build = build
        self._entries: dict[Key, tuple[Workflow, Made]] = {}

    def get(self, tenant: str, workflow: str, version: str) -> Made:
        """Return what was made for a version, made now if need be; OperationError for what is not loaded here."""
        key = tenant, workflow, version
        code = self._lookup(*key)
        found = self._entries.get(key)
        if found is None or found[0] is not code:
            self._evict_unloaded()  # here, as this does not happen often
            found = self._entries[key] = code, self._build(code)
        return found[1]

    def values(self) -> list[Made]:
        """Return what is kept for code that is still loaded."""
        self._evict_unloaded()
        return [made for _, made in self._entries.values()]

    def _evict_unloaded(self) -> None:
        for key, (code, _) in tuple(self._entries.items()):
            if not self._is_loaded(key, code):
                del self._entries[key]

    def _is_loaded(self, key: Key, code: Workflow) -> bool:
        try:
            return self._lookup(*key) is code
        except OperationError:
            return False
