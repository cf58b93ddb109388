"""`package.toml`: what a package is called, holds, needs and changes. Read strictly, and every problem told at once."""

import keyword
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from tidemill.kernel.durations import parse_positive
from tidemill.kernel.errors import DefinitionError, Location, Problem, RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.kernel.toml import read_toml
from tidemill.packages.versions import Requirement, Version, running_python, running_tidemill
from tidemill.workflows.settings import TaskSettings

MANIFEST = "package.toml"

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
_CAPABILITY = re.compile(r"(?P<kind>[a-z]+):[A-Za-z0-9*][A-Za-z0-9_.*-]{0,199}", re.ASCII)
_KINDS = ("executor", "network", "secret")
_LONGEST_MANIFEST = 65_536
_MOST_WRONG = 20  # entries of one list
_LONGEST_LINE = 4_096  # the TOML parser takes a long time over a key of very many parts

Path = tuple[str, ...]
T = TypeVar("T")


class ReactorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a package says about one of its reactors."""

    shared: bool = False
    """Whether packages of other tenants may bind to it."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What `package.toml` says."""

    name: str
    version: Version
    modules: tuple[str, ...]
    """The import names to read, dotted if they lie deeper."""

    requires_python: Requirement | None = None
    requires_tidemill: Requirement | None = None
    capabilities: tuple[str, ...] = ()
    reactors: Mapping[str, ReactorSettings] = {}
    tasks: Mapping[str, TaskSettings] = {}
    """By workflow and task: "daily_report.large"."""

    @property
    def tops(self) -> tuple[str, ...]:
        """Return the names of the files and folders that hold the modules."""
        return tuple(dict.fromkeys(module.partition(".")[0] for module in self.modules))

    def unmet(self, python: Version | None = None, tidemill: Version | None = None) -> list[str]:
        """Return what the package requires and does not find: of the Python and the Tidemill that run, unless given."""
        found = {
            "Python": (self.requires_python, python or running_python()),
            "Tidemill": (self.requires_tidemill, tidemill or running_tidemill()),
        }
        return [
            f"it requires {what} {requirement}, and this is {version}"
            for what, (requirement, version) in found.items()
            if requirement is not None and not requirement.admits(version)
        ]

    def check_requirements(self) -> None:
        """Raise RequestError unless this Python and this Tidemill are what the package requires."""
        if unmet := self.unmet():
            message = f"package '{self.name}' {self.version} cannot run here: {'; '.join(unmet)}"
            raise RequestError(message, code="unmet_requirement", status=409, package=self.name)


def read_manifest(content: bytes, file: str = MANIFEST) -> Manifest:
    """Return what the bytes of a `package.toml` say; DefinitionError with everything that is wrong with them."""
    return _Reader(_text(content, file), file).manifest()


def _text(content: bytes, file: str) -> str:
    start = Location(file, 1)
    if len(content) > _LONGEST_MANIFEST:
        raise DefinitionError.of(MANIFEST, f"it has more than {_LONGEST_MANIFEST:,} bytes", start)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DefinitionError.of(MANIFEST, "it is not text in UTF-8", Location(file, line)) from error
    if text.startswith("\ufeff"):
        raise DefinitionError.of(MANIFEST, "it begins with a byte order mark: save it as UTF-8 without one", start)
    for number, line_text in enumerate(text.split("\n"), 1):
        if len(line_text) > _LONGEST_LINE:
            message = f"a line has more than {_LONGEST_LINE:,} characters"
            raise DefinitionError.of(MANIFEST, message, Location(file, number))
    return text


def _lines(text: str) -> dict[Path, int]:
    """Return the line of each table and key, as well as can be told from single lines."""
    found: dict[Path, int] = {}
    table: Path = ()
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("["):
            path = _path(line)
            table = path or table
        else:
            key = _path(f"{line.partition('=')[0]} = 0") if "=" in line else ()
            path = (*table, *key) if key else ()
        for depth in range(1, len(path) + 1):
            found.setdefault(path[:depth], number)
    return found


def _path(line: str) -> Path:
    """Return the path that the only header or key in a line names."""
    try:
        value: Any = tomllib.loads(line)
    except (ValueError, RecursionError):
        return ()
    path: list[str] = []
    while isinstance(value, dict) and value:
        ((key, value),) = value.items()
        path.append(key)
    return tuple(path)


class _Reader:
    """Reads one manifest, and gathers what is wrong with it."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._content = read_toml(text, file, MANIFEST)
        self._lines = _lines(text)
        self._problems: list[Problem] = []

    def manifest(self) -> Manifest:
        top = self._table((), self._content, ("package", "reactors", "tasks"))
        package = self._package(top.get("package"))
        reactors = self._each(("reactors",), top.get("reactors"), self._reactor)
        tasks = self._each(("tasks",), top.get("tasks"), self._task)
        if self._problems:
            raise DefinitionError(sorted(self._problems, key=_line), MANIFEST)
        return Manifest(reactors=reactors, tasks=tasks, **package)

    def _report(self, path: Path, message: str) -> None:
        known = [path[:depth] for depth in range(len(path), 0, -1) if path[:depth] in self._lines]
        line = self._lines[known[0]] if known else 1
        self._problems.append(Problem(message=message, location=Location(self._file, line)))

    def _table(self, path: Path, value: Any, known: Iterable[str]) -> dict[str, Any]:
        """Return a table without the keys that it should not have, each of which is a problem."""
        if not isinstance(value, dict):
            self._report(path, f"'{_dotted(path)}' is a table, not {_shown(value)}")
            return {}
        place = f"[{_dotted(path)}]" if path else "the top"
        for key in value:
            if key not in known:
                message = f"unknown key {_shown(key)} in {place}{did_you_mean(key, known)}"
                self._report((*path, key), f"{message}; it may have {', '.join(known)}")
        return {key: value[key] for key in value if key in known}

    def _value(self, path: Path, read: Callable[[Any], T], value: Any) -> T | None:
        """Return a value as it is kept, or None if it is wrong, which is a problem."""
        try:
            return read(value)
        except _EntriesError as error:
            for message in error.messages:
                self._report(path, f"{path[-1]}: {message}")
        except (TypeError, ValueError, OverflowError) as error:
            self._report(path, f"{path[-1]}: {error}")
        return None

    def _values(self, path: Path, value: Any, readers: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
        table = self._table(path, value, readers)
        return {key: self._value((*path, key), readers[key], given) for key, given in table.items()}

    def _package(self, value: Any) -> dict[str, Any]:
        if value is None:
            self._report((), "there is no [package]: it needs at least name and version")
            return {}
        read = self._values(("package",), value, _PACKAGE)
        for key in ("name", "version"):
            if key not in read:
                self._report(("package",), f"[package] has no {key}")
        read.setdefault("modules", (read.get("name"),))
        return {key.replace("-", "_"): one for key, one in read.items()}

    def _each(self, path: Path, value: Any, read: Callable[[Path, Any], T]) -> dict[str, T]:
        if value is None:
            return {}
        table = self._table(path, value, value if isinstance(value, dict) else ())
        return {key: read((*path, key), one) for key, one in table.items()}

    def _reactor(self, path: Path, value: Any) -> ReactorSettings:
        if not _is_identifier(path[-1]):
            self._report(path, f"{_shown(path[-1])} cannot be the name of a reactor")
        return ReactorSettings(**self._values(path, value, {"shared": _flag}))

    def _task(self, path: Path, value: Any) -> TaskSettings:
        workflow, _, task = path[-1].rpartition(".")
        if not workflow or not workflow.isprintable() or not _is_identifier(task):
            self._report(
                path, f'a task is named with its workflow, [tasks."daily_report.large"], not {_shown(path[-1])}'
            )
        return TaskSettings(**self._values(path, value, _TASK))


def _line(problem: Problem) -> int:
    return problem.location.line if problem.location else 0


def _dotted(path: Path) -> str:
    return ".".join(part if _is_identifier(part) else f'"{_shown(part)[1:-1]}"' for part in path)


def _shown(value: Any) -> str:
    """Return a value as it may be printed: in one line, without control characters, and not too long."""
    text = repr(value) if not isinstance(value, dict | list) else f"a {'table' if isinstance(value, dict) else 'list'}"
    return text if len(text) <= 80 else f"{text[:79]}…"


def _is_identifier(name: str) -> bool:
    return name.isidentifier() and name.isprintable() and not keyword.iskeyword(name) and len(name) <= 200


# -- one value each: what is wrong is a TypeError or a ValueError


def package_name(value: Any) -> str:
    """Return a name that can be imported and hides nothing; ValueError for any other."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(
            f"a name has small letters, digits and '_', begins with a letter, and is short: not {_shown(value)}"
        )
    if keyword.iskeyword(value):
        raise ValueError(f"'{value}' is a word of Python")
    if value == "tidemill" or value in sys.stdlib_module_names:
        owner = "Tidemill" if value == "tidemill" else "a module of the standard library"
        raise ValueError(f"'{value}' would hide {owner}; take another name")
    return value


def _module(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a module is named, not {_shown(value)}")
    first, *rest = value.split(".")
    package_name(first)
    if len(value) > 200 or not all(_is_identifier(part) and part.isascii() for part in rest):
        raise ValueError(f"{_shown(value)} cannot be imported")
    return value


class _EntriesError(ValueError):
    """What is wrong with the entries of a list."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__(*messages)
        self.messages = messages


def _list(value: Any, read: Callable[[Any], str]) -> tuple[str, ...]:
    """Return what is read of the entries of a list; everything that is wrong with them is one error."""
    if not isinstance(value, list):
        raise TypeError(f"it is a list, not {_shown(value)}")
    found, wrong = [], []
    for index, one in enumerate(value):
        try:
            if one in value[:index]:
                raise ValueError(f"{_shown(one)} is in it twice")
            found.append(read(one))
        except (TypeError, ValueError) as error:
            wrong.append(str(error))
    if wrong:
        raise _EntriesError(wrong[:_MOST_WRONG])
    return tuple(found)


def _modules(value: Any) -> tuple[str, ...]:
    if not (read := _list(value, _module)):
        raise ValueError("it names no module")
    return read


def _version(value: Any) -> Version:
    return Version.parse(_word(value))


def _requirement(value: Any) -> Requirement:
    return Requirement.parse(_word(value))


def _capabilities(value: Any) -> tuple[str, ...]:
    return _list(value, _capability)


def _capability(value: Any) -> str:
    found = _CAPABILITY.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"a capability is a kind and a name, such as 'secret:shop_key', not {_shown(value)}")
    if found["kind"] not in _KINDS:
        hint = did_you_mean(found["kind"], _KINDS)
        raise ValueError(f"there is no capability '{found['kind']}'{hint}; there are {', '.join(_KINDS)}")
    return found[0]


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"it is true or false, not {_shown(value)}")
    return value


def _word(value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable() or len(value) > 200:
        raise TypeError(f"it is a short text, not {_shown(value)}")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or abs(value) >= 2**31:
        raise TypeError(f"it is a whole number, not {_shown(value)}")
    return value


def _count(value: Any) -> int:
    if _whole(value) < 0:
        raise ValueError(f"it is not negative, not {value}")
    return int(value)


def _length(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(f"it is a duration such as '10m', not {_shown(value)}")
    return parse_positive(value)


_PACKAGE: dict[str, Callable[[Any], Any]] = {
    "name": package_name,
    "version": _version,
    "modules": _modules,
    "requires-python": _requirement,
    "requires-tidemill": _requirement,
    "capabilities": _capabilities,
}
_TASK: dict[str, Callable[[Any], Any]] = {
    "retries": _count,
    "timeout": _length,
    "pool": _word,
    "queue": _word,
    "priority": _whole,
    "executor": _word,
}
