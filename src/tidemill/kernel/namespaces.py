"""Modules in a separate namespace: the modules of a package are visible only inside it.

Python keeps one module per name and process, in `sys.modules`. That is not enough for packages: two versions of one are
loaded together while the older still has work to do, two tenants may have packages of one name, two nodes may live in
one process, and an unloaded package has to be gone. So each load has a number, and the first part of a module's name is
marked with it:

    market@7          market@7.model         the names that Python knows: in sys.modules, `__name__`, `__module__`
    market            market.model           the names that the author writes, and `plain_name` gives back

An `@` is in no name that can be written in Python, so these names never clash with others. Three parts make it work.

* Each module gets its own `__builtins__`, in which `__import__` adds the mark to names of the package itself. All code
  that runs with the module's globals, now or years later in a thread, finds it there: `import market.model as m`, `from
  market import model`, `exec("import market")`. Everything else is imported as usual. A relative import needs no help,
  because `__package__` has the mark already. A module with the name of an installed one hides that one inside the
  package only.
* One finder, first on `sys.meta_path` as long as any namespace is open, finds marked names in the namespace's own
  folder and nowhere else.
* Its loader compiles from the source every time: bytecode is neither read nor written, so a folder that changes twice
  in a second is never mistaken for its older content. Code objects carry the author's path of the file, so that it is
  `shown` in tracebacks and locations; `__file__` is that of the copy, next to which its data lies.

As a marked name is an ordinary name, everything that finds a class by its module works while the namespace is open:
pickle in this process, `get_type_hints`, dataclasses and structs with annotations as text, `inspect.getsource`.

`importlib.import_module("market.model")` works inside the package, which sees a proxy of `importlib`. Other functions
that take the name of a module as a text (`importlib.util.find_spec`, `importlib.resources.files`, `runpy`) need
`__package__` or `__name__` in it: `files(__package__)`. So does `sys.modules[...]`. A name that is added to Python's
builtins later is not seen. A logger is named with the mark too, as `getLogger(__name__)` says.

Modules are a matter of the whole process, so the namespaces that are open are too: that is the only state here.
"""

import builtins
import importlib
import inspect
import io
import itertools
import linecache
import logging
import os
import re
import sys
import threading
import typing
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import decode_source, spec_from_file_location
from types import CodeType, ModuleType
from typing import Any

import msgspec

_MARK = "@"
_MARKED_NAME = re.compile(rf"\b(\w+){_MARK}(\d+)\b")

_load_numbers = itertools.count(1)
_open_namespaces: "dict[str, Namespace]" = {}
_lock = threading.Lock()


class PackageTree(msgspec.Struct, frozen=True):
    """The folders of a package's modules."""

    folder: str
    """The copy that is imported, which never changes."""

    shown: str
    """The author's own folder, shown in tracebacks and locations."""

    tops: tuple[str, ...]
    """The first parts of its modules' names."""


def plain_name(module: str) -> str:
    """Return the name of a module as its author writes it, without the mark."""
    top, dot, rest = module.partition(".")
    return f"{top.partition(_MARK)[0]}{dot}{rest}"


def mark_like(module: str, name: str) -> str:
    """Return the marked name of a module that `module`, itself a marked name, imports by its plain name."""
    namespace = find_namespace(module)
    return name if namespace is None else namespace.mark_name(name)


def plain_text(text: str) -> str:
    """Return a text, such as a traceback, with the names of modules as their authors write them."""
    for number, namespace in tuple(_open_namespaces.items()) if _MARK in text else ():
        if f"{_MARK}{number}" in text:
            text = namespace.plain_text(text)
    return text


def find_namespace(module: str) -> "Namespace | None":
    """Return the namespace of a module by its marked name; None for an ordinary or unloaded module."""
    return _open_namespaces.get(_load_number_of(module))


def load_key(module: str) -> str:
    """Return a key that exactly the modules of one load share; for ordinary modules, the first part of the name."""
    return _load_number_of(module) or module.partition(".")[0]


def _load_number_of(module: str) -> str:
    return module.partition(".")[0].partition(_MARK)[2]


class Namespace:
    """The modules of one load of a package. Any thread may import from it."""

    def __init__(self, tree: PackageTree) -> None:
        self.tree = tree
        self._load_number = str(next(_load_numbers))
        self._is_open = True
        self._linecache_entries: dict[str, tuple[int, None, list[str], str]] = {}
        self._importlib = _ImportlibProxy(self._import_by_name)
        self.builtins = {**vars(builtins), "__import__": self._import}
        """The builtins of its modules; a plain dict, so that lookups are as fast as usual."""
        with _lock:
            _open_namespaces[self._load_number] = self
            if _FINDER not in sys.meta_path:
                sys.meta_path.insert(0, _FINDER)

    def import_module(self, name: str) -> ModuleType:
        """Import a module of the package by its plain name; errors of its code are raised."""
        return self._import_by_name(name)

    def modules(self) -> dict[str, ModuleType]:
        """Return its modules by plain name, in the order in which their imports started."""
        return {plain_name(name): module for name, module in tuple(sys.modules.items()) if self._owns(name)}

    def close(self) -> None:
        """Remove its modules, and all that Python caches for them, from this process. May be called again.

        Functions and classes that are still referenced keep working, but can import nothing of the package.
        """
        with _lock:
            if not self._is_open:
                return
            self._is_open = False  # first: an import that starts now sees this, and fails
            del _open_namespaces[self._load_number]
            if not _open_namespaces:
                with suppress(ValueError):  # other code has removed it already
                    sys.meta_path.remove(_FINDER)
        self._purge_from_process()

    def plain_text(self, text: str) -> str:
        """Return a text with plain names and the author's paths."""
        return _MARKED_NAME.sub(self._unmark, text).replace(self.tree.folder, self.tree.shown)

    def _unmark(self, match: re.Match[str]) -> str:
        return match[1] if match[1] in self.tree.tops and match[2] == self._load_number else match[0]

    # -- importing

    def mark_name(self, name: str) -> str:
        """Return the marked name of one of the package's modules; other names are unchanged."""
        top, dot, rest = name.partition(".")
        if top not in self.tree.tops:
            return name
        self._check_open()
        return f"{top}{_MARK}{self._load_number}{dot}{rest}"

    def _check_open(self) -> None:
        if not self._is_open:
            raise ImportError(f"cannot import from {self.tree.shown}: the package was unloaded")

    def _import(
        self,
        name: str,
        globals: MutableMapping[str, Any] | None = None,
        locals: MutableMapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Replace `__import__` in the modules of the namespace."""
        marked = self.mark_name(name) if level == 0 else name
        try:
            module = builtins.__import__(marked, globals, locals, fromlist or (), level)
        except ImportError as error:
            self._unmark_import_error(error)
            raise
        return self._importlib if module is importlib else module

    def _import_by_name(self, name: str, package: str | None = None) -> ModuleType:
        """Replace `importlib.import_module`."""
        try:
            return importlib.import_module(self.mark_name(name), None if package is None else self.mark_name(package))
        except ImportError as error:
            self._unmark_import_error(error)
            raise

    def _unmark_import_error(self, error: ImportError) -> None:
        if error.name is not None:
            error.name = plain_name(error.name)
        if isinstance(error.msg, str):
            error.msg = self.plain_text(error.msg)
            error.args = (error.msg,)

    # -- finding and loading, for Python's import system

    def find_spec(self, name: str) -> ModuleSpec | None:
        """Return the spec of a module by its marked name; None if the package does not have it."""
        parts = plain_name(name).split(".")
        if parts[0] not in self.tree.tops:
            return None
        path = os.path.join(self.tree.folder, *parts)
        inside = os.path.join(path, "__init__.py")
        if os.path.isfile(inside):
            loader = _Loader(self, name, inside)
            return spec_from_file_location(name, inside, loader=loader, submodule_search_locations=[path])
        if os.path.isfile(f"{path}.py"):
            return spec_from_file_location(name, f"{path}.py", loader=_Loader(self, name, f"{path}.py"))
        if os.path.isdir(path):  # a folder of modules without code
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [path]
            return spec
        return None

    def compile_file(self, path: str) -> CodeType:
        """Return the code of a file, with the author's path in it."""
        self._check_open()  # the module is in sys.modules already: either `close` finds it there, or this fails
        with open(path, "rb") as file:
            content = file.read()
        shown = os.path.join(self.tree.shown, os.path.relpath(path, self.tree.folder))
        try:
            lines = io.StringIO(decode_source(content)).readlines()
            code: CodeType = compile(content, shown, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            if getattr(error, "filename", None) and getattr(error, "lineno", None):
                raise
            raise _undecodable_source_error(content, shown, error) from error
        # Not left to linecache: it would read the author's file, which may have changed. None means "do not check".
        self._linecache_entries[shown] = linecache.cache[shown] = len(content), None, lines, shown
        return code

    # -- closing

    def _owns(self, name: object) -> bool:
        return isinstance(name, str) and _load_number_of(name) == self._load_number

    def _purge_from_process(self) -> None:
        names = [name for name in tuple(sys.modules) if self._owns(name)]
        for name in names:
            sys.modules.pop(name, None)
        loggers = logging.root.manager.loggerDict
        for name in tuple(loggers):
            if self._owns(name):
                loggers.pop(name, None)
        for file, entry in self._linecache_entries.items():
            if linecache.cache.get(file) is entry:  # else it belongs to another load
                del linecache.cache[file]
        self._linecache_entries.clear()
        for cache in (sys.path_importer_cache, linecache.cache):
            for path in tuple(cache):
                if _is_below(path, self.tree.folder):
                    cache.pop(path, None)
        _clear_class_caches(names)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}{os.sep}")


def _clear_class_caches(modules: Iterable[str]) -> None:
    """Clear what the standard library caches for modules and classes; it is computed again when needed.

    These caches are private, so each one is cleared only if it exists.
    """
    files: dict[str, str] = getattr(inspect, "_filesbymodname", {})
    modules_by_file: dict[str, str] = getattr(inspect, "modulesbyfile", {})
    for name in modules:
        file = files.pop(name, None)
        for path in {file, os.path.realpath(file)} if file is not None else ():
            modules_by_file.pop(path, None)
    cleanups: list[Callable[[], None]] = getattr(typing, "_cleanups", [])
    for clear in cleanups:  # `Optional[Book]` would keep Book alive, and with it its whole module
        clear()


class _ImportlibProxy(ModuleType):
    """`importlib` as a package sees it: `import_module` finds the package's own modules."""

    def __init__(self, import_module: Callable[..., ModuleType]) -> None:
        super().__init__("importlib")
        self.import_module = import_module

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib, name)


def _undecodable_source_error(content: bytes, author_path: str, error: Exception) -> SyntaxError:
    """Return the error for a file that cannot be read as text, with the line number that Python's error lacks."""
    message, offset = f"it cannot be read as text: {error.args[0] if error.args else error}", 0
    try:
        content.decode()
    except UnicodeDecodeError as failure:
        offset = failure.start
        message = f"byte 0x{content[offset]:02x} is not UTF-8: save the file as UTF-8, or name its encoding in line 1"
    if b"\0" in content:
        offset = content.index(b"\0")
        message = "there is a NUL character, which is in no text: save the file as text in UTF-8"
    return SyntaxError(message, (author_path, content.count(b"\n", 0, offset) + 1, None, None))


class _Loader(SourceFileLoader):
    """Loads one module of a namespace."""

    def __init__(self, namespace: Namespace, name: str, path: str) -> None:
        super().__init__(name, path)
        self._namespace = namespace

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return an empty module with the builtins of its namespace."""
        module = ModuleType(spec.name)
        vars(module)["__builtins__"] = self._namespace.builtins
        return module

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the loader is of one module
        """Return the module's code, compiled from the source."""
        return self._namespace.compile_file(os.fspath(self.path))


class _Finder:
    """Finds the modules of all open namespaces."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - where a module lies follows from its name
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the spec of a marked module; None, without a search, for any other."""
        namespace = find_namespace(fullname)
        return None if namespace is None else namespace.find_spec(fullname)


_FINDER = _Finder()
