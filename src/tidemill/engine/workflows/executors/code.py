"""The location of a workflow's code, so that another process can import it; and caches per workflow version."""

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tidemill.graphs.graph import Graph
from tidemill.kernel.errors import OperationError
from tidemill.kernel.import_guard import guard_imports, import_file
from tidemill.kernel.namespaces import Namespace, PackageTree, find_namespace
from tidemill.workflows.records import VersionKey
from tidemill.workflows.task_overrides import TaskOverrides
from tidemill.workflows.workflow import Workflow

LoadedWorkflows = Mapping[VersionKey, Workflow]
"""The workflow versions that are loaded in this process; the mapping changes as packages come and go."""

MAIN = "__main__"
IMPORTED_MAIN = "__mp_main__"
"""The name under which a program is imported for its definitions, so that it does not run again."""

_files_importing: list[str] = []
"""The files that are being imported for their definitions."""


class CodeLocation(msgspec.Struct, frozen=True):
    """A module, or a package of several modules: its name, its file, and the import path."""

    module: str
    file: str
    path: tuple[str, ...]
    tree: PackageTree | None = None
    """The folder of a package. Its copy stays as long as a run may need it."""
    modules: tuple[str, ...] = ()
    """The modules of a package that this process has imported, in that order."""
    settings: dict[str, TaskOverrides] = {}
    """The task settings of its manifest."""

    def read_mtime_ns(self) -> int:
        """Return the time of the file's last change; 0 if it cannot be read."""
        try:
            return os.stat(self.file).st_mtime_ns
        except OSError:
            return 0


def locate_code(workflow: Workflow) -> CodeLocation:
    """Return where another process can import a workflow: at the top level of a module that has a file."""
    for namespace in _loaded_namespaces():
        values = (value for one in namespace.modules().values() for value in vars(one).values())
        if any(one is workflow.declaration for one in _iter_workflows(values)):
            return _locate_in_package(namespace, workflow)
    for names in _iter_globals(workflow):
        file = names.get("__file__")
        if file and any(one.name == workflow.name for one in _iter_workflows(names.values())):
            return CodeLocation(names["__name__"], os.path.abspath(file), tuple(sys.path))
    raise OperationError(
        f"workflow '{workflow.name}' ({workflow.location}) cannot run outside this process: another process could not "
        "import it. Define it at the top level of a module that is a file, not inside a function or a session"
    )


def _iter_workflows(values: Iterable[Any]) -> Iterator[Workflow]:
    """Yield the workflows among some values, each after those of its handlers."""
    return (one for value in values if isinstance(value, Workflow) for one in value.family)


def _loaded_namespaces() -> list[Namespace]:
    """Return the namespaces of the packages that are loaded in this process."""
    namespaces = [namespace for name in tuple(sys.modules) if (namespace := find_namespace(name)) is not None]
    return list(dict.fromkeys(namespaces))


def _locate_in_package(namespace: Namespace, workflow: Workflow) -> CodeLocation:
    own_values = [value for one in namespace.modules().values() for value in vars(one).values()]
    for declared, task in zip(workflow.declaration.tasks, workflow.tasks, strict=True):
        if isinstance(declared.graph, str) and not any(value is task.graph for value in own_values):
            raise OperationError(
                f"workflow '{workflow.name}' cannot run outside this process: task '{task.name}' calls graph "
                f"'{declared.graph}' of another package, which is not loaded there"
            )
    tree, modules = namespace.tree, tuple(namespace.modules())
    return CodeLocation(modules[0], tree.folder, tuple(sys.path), tree, modules, dict(workflow.task_overrides))


def _iter_globals(workflow: Workflow) -> Iterator[dict[str, Any]]:
    """Yield the globals of its functions, which outlive a module that is imported again, then those of its file."""
    for task in workflow.tasks:
        yield dict(getattr(inspect.unwrap(task.function.call), "__globals__", {}))
    for module in tuple(sys.modules.values()):
        if getattr(module, "__file__", None) == workflow.location.file:
            yield dict(vars(module))


def ensure_not_importing() -> None:
    """Raise OperationError while a module is imported for its definitions only: it must not start running again."""
    if _files_importing:
        raise OperationError(
            f"{_files_importing[-1]} runs a node or a workflow while it is imported: executor 'subprocess' imports it "
            'once more for its definitions. Put the code that runs it under `if __name__ == "__main__":`'
        )


def load_workflows(location: CodeLocation) -> dict[str, Workflow]:
    """Import a module or a package from its location, and return its runnable workflows by name.

    The code must not run a node during the import.
    """
    _files_importing.append(location.file)
    sys.path[:] = [*location.path, *(one for one in sys.path if one not in location.path)]
    try:
        values = [value for module in _import_modules(location) for value in vars(module).values()]
    finally:
        _files_importing.pop()
    graphs = {value.name: value for value in values if isinstance(value, Graph)}
    workflows = [one.with_overrides(location.settings).with_graphs(graphs.get) for one in _iter_workflows(values)]
    # A workflow that calls graphs of another package runs only where that package is loaded.
    return {one.name: one for one in workflows if not any(isinstance(task.graph, str) for task in one.tasks)}


def _import_modules(location: CodeLocation) -> list[ModuleType]:
    if location.tree is None:
        return [_import_module(location)]
    namespace = Namespace(location.tree)  # stays until this process ends
    return [namespace.import_module(name) for name in location.modules]


def _import_module(location: CodeLocation) -> ModuleType:
    guard_imports(os.path.dirname(location.file))  # stays until this process ends
    name = IMPORTED_MAIN if location.module == MAIN else location.module
    is_in_package = Path(location.file).stem != name and location.module != MAIN
    if is_in_package and _is_importable_as(name, location.file):
        return importlib.import_module(name)
    return import_file(name, location.file)


def _is_importable_as(name: str, file: str) -> bool:
    """Return whether `import name` would import this file."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin) == Path(file)


Value = TypeVar("Value")


class CodeLocations(Protocol):
    """Where the code of workflow versions is."""

    def get(self, tenant: str, workflow: str, version: str) -> CodeLocation:
        """Return the location of a version; OperationError if there is none."""

    def values(self) -> list[CodeLocation]:
        """Return all locations in use."""


class VersionCache(Generic[Value]):
    """Caches one value per workflow version, while the code it was built from is loaded.

    The same version may be loaded again from another location; then the value is built again.
    """

    def __init__(self, workflows: LoadedWorkflows, build: Callable[[Workflow], Value]) -> None:
        self._workflows = workflows
        self._build = build
        self._entries: dict[VersionKey, tuple[Workflow, Value]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, tenant: str, workflow: str, version: str) -> Value:
        """Return the value of a version, building it if needed; OperationError if the version is not loaded."""
        value = self.find(VersionKey(tenant, workflow, version))
        if value is None:
            raise OperationError(f"version {version} of workflow '{workflow}' is not loaded here")
        return value

    def find(self, key: VersionKey) -> Value | None:
        """Return the value of a version as `get` does; None if the version is not loaded."""
        code = self._workflows.get(key)
        if code is None:
            return None
        entry = self._entries.get(key)
        if entry is None or entry[0] is not code:
            self._evict_unloaded()  # here, because this branch is rare
            entry = self._entries[key] = code, self._build(code)
        return entry[1]

    def values(self) -> list[Value]:
        """Return the values whose code is still loaded."""
        self._evict_unloaded()
        return [value for _, value in self._entries.values()]

    def _evict_unloaded(self) -> None:
        for key, (code, _) in tuple(self._entries.items()):
            if self._workflows.get(key) is not code:
                del self._entries[key]
