"""Importing an author's module from where it lies."""

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from tidemill.kernel.errors import DefinitionError, Location, RequestError


def import_module(place: str) -> ModuleType:
    """Import a Python file, or a module by name; say where it failed if it does."""
    path = Path(place)
    try:
        if path.suffix != ".py" and (not path.exists() or _is_package(path)):
            return importlib.import_module(place)
        if path.is_dir() or path.suffix != ".py":
            what = "a folder" if path.is_dir() else "not a Python file"
            raise RequestError(f"{place} is {what}: name a file that ends in .py", code="no_file", status=404)
        return _import_file(path)
    except RequestError:
        raise
    except FileNotFoundError as error:
        raise RequestError(f"there is no file {place}", code="no_file", status=404) from error
    except Exception as error:  # author code: importing runs it
        if isinstance(error, ModuleNotFoundError) and error.name in (place, place.partition(".")[0]):
            message = f"there is neither a file nor a module {place}"
            raise RequestError(message, code="no_file", status=404) from error
        message = f"importing it failed: {type(error).__name__}: {error}"
        raise DefinitionError.of(place, message, _authors_line(error)) from error
    except SystemExit as error:
        message = (
            f"importing it ended the program, with SystemExit({error.code!r}): "
            'keep what it does as a program behind `if __name__ == "__main__":`'
        )
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
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    finally:
        sys.path.remove(str(path.parent.resolve()))
    return module
