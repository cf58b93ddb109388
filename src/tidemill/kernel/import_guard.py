"""Keeps modules of author code apart from installed ones of the same name.

A file that a command names may import its neighbours, so its folder is on the import path, and first. A neighbour
`queue.py` or `cel.py` would then be imported in place of the module that Python or Tidemill means, at any later moment.
So the folder is not searched for the names of the standard library and of Tidemill's dependencies. The file itself
still gets its neighbour: it is imported in a namespace, under a name that no other code uses.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

from tidemill.kernel.namespaces import Namespace, PackageTree

DEPENDENCIES = frozenset(
    [
        *("annotated_doc", "anyio", "asyncpg", "cel", "certifi", "cffi", "click", "confluent_kafka"),
        *("cronsim", "cryptography", "h11", "h2", "hpack", "httpcore", "httpcore2", "httpx", "httpx2"),
        *("hyperframe", "idna", "joserfc", "lightkube", "litestar", "litestar_htmx", "markdown_it"),
        *("mdurl", "msgspec", "multidict", "multipart", "nats", "opentelemetry", "polyfactory"),
        *("prometheus_client", "pyarrow", "pycparser", "pygments", "ray", "redis", "rich", "shellingham"),
        *("sniffio", "tidemill", "typer", "typing_extensions", "tzdata", "uvicorn", "uvloop", "watchfiles"),
        *("websockets", "wsproto", "yaml"),
    ]
)
"""The modules that Tidemill imports, directly or through another one, at any time."""

_GUARDED_NAMES = sys.stdlib_module_names | DEPENDENCIES


class ImportGuard:
    """Finds guarded modules where they are installed, not in the folders of author code."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = frozenset(map(os.path.realpath, folders))

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the spec of a guarded module; None, without a search, for any other."""
        if path is not None or fullname not in _GUARDED_NAMES:
            return None
        installed = [one for one in sys.path if os.path.realpath(one) not in self._folders]
        return PathFinder.find_spec(fullname, installed, target)


def guard_imports(folder: str) -> ImportGuard:
    """Keep the modules of a folder from replacing installed ones, until the guard is removed from `sys.meta_path`."""
    guard = ImportGuard([folder])
    sys.meta_path.insert(0, guard)
    return guard


@contextmanager
def guarding_imports(folder: str) -> Iterator[None]:
    """Keep the modules of a folder from replacing installed ones within the context."""
    guard = guard_imports(folder)
    try:
        yield
    finally:
        sys.meta_path.remove(guard)


def import_file(name: str, file: str) -> ModuleType:
    """Import a Python file; it gets neighbours that have guarded names, and no other code does."""
    spec = spec_from_file_location(name, file, loader=SourceFileLoader(name, file))
    assert spec is not None, "the loader is given"
    assert spec.loader is not None, "as above"
    module = module_from_spec(spec)
    folder = os.path.dirname(os.path.abspath(file))
    if neighbours := _guarded_neighbours(folder, except_for=name):
        vars(module)["__builtins__"] = Namespace(PackageTree(folder, folder, neighbours)).builtins
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _guarded_neighbours(folder: str, except_for: str) -> tuple[str, ...]:
    """Return the modules of a folder that have the name of a guarded one."""
    with os.scandir(folder) as entries:
        names = {one.name.removesuffix(".py") for one in entries if one.name.endswith(".py") or one.is_dir()}
    return tuple(sorted(names & _GUARDED_NAMES - {except_for}))
