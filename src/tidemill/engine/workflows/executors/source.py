"""Where the code of a workflow comes from, so that another process can find it again."""

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from tidemill.graphs.graph import Graph
from tidemill.kernel.errors import OperationError
from tidemill.kernel.namespaces import Namespace, Tree, namespace_of
from tidemill.workflows.settings import TaskSettings
from tidemill.workflows.workflow import Workflow

Lookup = Callable[[str, str, str], Workflow]
"""(tenant, name, version) -> the workflow; OperationError for one that is not loaded here."""

MAIN = "__main__"
MAIN_AGAIN = "__mp_main__"
"""What a program is called when it is imported for its definitions: it must not begin to run again."""


_imported: list[str] = []
"""The files that are being imported for their definitions."""


class Source(msgspec.Struct, frozen=True):
    """A module, or a package of several: its name, its file, and where Python looks for what it imports."""

    module: str
    file: str
    path: tuple[str, ...]
    tree: Tree | None = None
    """Where a package lies, all of which is imported; its copy stays as long as a run may need it."""
    modules: tuple[str, ...] = ()
    """The modules of a package that are imported here, in that order."""
    settings: dict[str, TaskSettings] = {}
    """What its manifest sets for tasks."""

    def stamp(self) -> int:
        """Return what changes when the file does."""
        try:
            return os.stat(self.file).st_mtime_ns
        except OSError:
            return 0


def source_of(workflow: Workflow) -> Source:
    """Return where a workflow can be found again: at the top level of a module that has a file."""
    for namespace in _packages():
        if any(value is workflow.declared for one in namespace.modules().values() for value in vars(one).values()):
            return _source_in(namespace, workflow)
    for names in _namespaces(workflow):
        file = names.get("__file__")
        if file and any(isinstance(value, Workflow) and value.name == workflow.name for value in names.values()):
            return Source(names["__name__"], os.path.abspath(file), tuple(sys.path))
    raise OperationError(
        f"workflow '{workflow.name}' ({workflow.location}) cannot run outside this process: another one could not find "
        "it again. Define it at the top level of a module that is a file, not inside a function or a session"
    )


def _packages() -> list[Namespace]:
    """Return the namespaces of the packages that are loaded in this process."""
    found = [namespace for name in tuple(sys.modules) if (namespace := namespace_of(name)) is not None]
    return list(dict.fromkeys(found))


def _source_in(namespace: Namespace, workflow: Workflow) -> Source:
    held = [value for one in namespace.modules().values() for value in vars(one).values()]
    for declared, task in zip(workflow.declared.tasks, workflow.tasks, strict=True):
        if isinstance(declared.graph, str) and not any(value is task.graph for value in held):
            raise OperationError(
                f"workflow '{workflow.name}' cannot run outside this process: task '{task.name}' calls graph "
                f"'{declared.graph}' of another package, which would not be there"
            )
    tree, modules = namespace.tree, tuple(namespace.modules())
    return Source(modules[0], tree.folder, tuple(sys.path), tree, modules, dict(workflow.settings))


def _namespaces(workflow: Workflow) -> Iterator[dict[str, Any]]:
    """Yield the names around its functions, which outlive a module that was imported anew, then those of its file."""
    for task in workflow.tasks:
        yield dict(getattr(inspect.unwrap(task.function.call), "__globals__", {}))
    for module in tuple(sys.modules.values()):
        if getattr(module, "__file__", None) == workflow.location.file:
            yield dict(vars(module))


def refuse_while_importing() -> None:
    """Raise an OperationError while a module is imported for its definitions only: it must not begin to run again."""
    if _imported:
        raise OperationError(
            f"{_imported[-1]} runs a node, or a workflow, while it is imported: executor 'subprocess' imports it once "
            "more for its definitions. Put what only the program itself should do under "
            '`if __name__ == "__main__":`'
        )


def load(source: Source) -> dict[str, Workflow]:
    """Import a module, or a package, from where it came from, and return its workflows by name, as they are run.

    It may run no node while that lasts.
    """
    _imported.append(source.file)
    sys.path[:] = [*source.path, *(one for one in sys.path if one not in source.path)]
    try:
        found = [value for module in _load(source) for value in vars(module).values()]
    finally:
        _imported.pop()
    graphs = {value.name: value for value in found if isinstance(value, Graph)}
    workflows = [one.configured(source.settings).bound(graphs.get) for one in found if isinstance(one, Workflow)]
    # Those that call graphs of other packages can be run only where these are loaded.
    return {one.name: one for one in workflows if not any(isinstance(task.graph, str) for task in one.tasks)}


def _load(source: Source) -> list[ModuleType]:
    if source.tree is None:
        return [_load_module(source)]
    namespace = Namespace(source.tree)  # for as long as this process lives
    return [namespace.import_module(name) for name in source.modules]


def _load_module(source: Source) -> ModuleType:
    name = MAIN_AGAIN if source.module == MAIN else source.module
    if source.module != MAIN and _finds(name, source.file):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, source.file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{source.file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _finds(name: str, file: str) -> bool:
    """Return whether Python itself would import this file under that name."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin) == Path(file)
