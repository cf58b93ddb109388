"""Importing an author's module from where it lies."""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from tidemill.kernel.errors import DefinitionError, Location, RequestError

KEEP_BEHIND_MAIN = 'keep what it does as a program behind `if __name__ == "__main__":`'
"""What to do about a module that ends the program that imports it."""


def import_module(place: str) -> ModuleType:
    """Import a Python file, or a module by name; say where it failed if it does."""
    path = Path(place)
    try:
        if path.suffix != ".py" and (not path.exists() or _is_package(path)):
            with _path_kept():
                return importlib.import_module(place)
        if path.is_dir() or path.suffix != ".py":
            what = "a folder" if path.is_dir() else "not a Python file"
            raise RequestError(f"{place} is {what}: name a file that ends in .py", code="no_file", status=404)
        if not path.exists():
            raise RequestError(f"there is no file {place}", code="no_file", status=404)
        with _path_kept(str(path.parent.resolve())):
            return _import_file(path)
    except RequestError:
        raise
    except Exception as error:  # author code: importing runs it
        if isinstance(error, DefinitionError) and all(one.location is not None for one in error.problems):
            raise DefinitionError(error.problems, place) from error  # it has its own places
        if isinstance(error, ModuleNotFoundError) and error.name in (place, place.partition(".")[0]):
            message = f"there is neither a file nor a module {place}"
            raise RequestError(message, code="no_file", status=404) from error
        message = f"importing it failed: {type(error).__name__}: {error}"
        raise DefinitionError.of(place, message, _authors_line(error)) from error
    except SystemExit as error:
        message = f"importing it ended the program, with SystemExit({error.code!r}): {KEEP_BEHIND_MAIN}"
        raise DefinitionError.of(place, message, _authors_line(error)) from error


def _is_package(path: Path) -> bool:
    """Return whether a name that is also a folder is that of a package right here."""
    return path.name.isidentifier() and str(path) == path.name and (path / "__init__.py").exists()


def _authors_line(error: BaseException) -> Location | None:
    """Return the last line outside this package that an error passed through."""
    ours = str(Path(__file__).parents[1])
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith((ours, "<"))]
    return Location(frames[-1].filename, frames[-1].lineno or 0) if frames else None


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None, "its name ends in .py"
    assert spec.loader is not None, "as above"
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(path.stem, None)
        raise
    return module


@contextmanager
def _path_kept(*first: str) -> Iterator[None]:
    """Look for modules in some folders first; what author code adds stays, and what it takes away comes back."""
    before = list(sys.path)
    sys.path[:0] = first
    try:
        yield
    finally:
        for one in first:
            if one in sys.path:
                sys.path.remove(one)
        sys.path += [one for one in before if one not in sys.path]
