"""The manifest of a package, `package.toml`. It is read strictly, and all its problems are reported together."""

import keyword
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from tidemill.kernel.errors import DefinitionError, Location, Problem, RequestError
from tidemill.kernel.limits import MAX_INTEGER
from tidemill.kernel.settings import parse_toml
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.format.versions import Requirement, Version, running_python, running_tidemill
from tidemill.workflows.capabilities import DECLARED_KINDS, ENFORCED_KINDS, Grants
from tidemill.workflows.task_options import OPTION_READERS
from tidemill.workflows.task_overrides import TaskOverrides

MANIFEST_FILE = "package.toml"

_NAME_PATTERN = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
_CAPABILITY_PATTERN = re.compile(r"(?P<kind>[a-z]+):[A-Za-z0-9_*][A-Za-z0-9_.*-]{0,199}", re.ASCII)
_CAPABILITY_KINDS = (*ENFORCED_KINDS, *DECLARED_KINDS)
_MANIFEST_SIZE_LIMIT = 65_536
_LIST_ERROR_LIMIT = 20  # entries of one list
_LINE_LENGTH_LIMIT = 4_096  # the TOML parser takes a long time over a key of very many parts

TomlPath = tuple[str, ...]
T = TypeVar("T")


class ReactorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one reactor in the manifest."""

    shared: bool = False
    """Whether packages of other tenants may bind to it."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of `package.toml`."""

    name: str
    version: Version
    modules: tuple[str, ...]
    """The import names of the modules, dotted for submodules."""

    requires_python: Requirement | None = None
    requires_tidemill: Requirement | None = None
    capabilities: tuple[str, ...] | None = ()
    """What its tasks may ask of their node; None for a file without a manifest, which is not restricted."""
    reactors: Mapping[str, ReactorSettings] = {}
    tasks: Mapping[str, TaskOverrides] = {}
    """By workflow and task: "daily_report.large"."""

    @property
    def grants(self) -> Grants | None:
        """Return what its tasks may ask of their node; None if they are not restricted."""
        return None if self.capabilities is None else Grants(self.name, self.capabilities)

    @property
    def top_level_names(self) -> tuple[str, ...]:
        """Return the names of the files and folders that hold the modules."""
        return tuple(dict.fromkeys(module.partition(".")[0] for module in self.modules))

    def unmet_requirements(self, python: Version | None = None, tidemill: Version | None = None) -> list[str]:
        """Return the requirements that are not met by these versions, or by the running Python and Tidemill."""
        requirements = {
            "Python": (self.requires_python, python or running_python()),
            "Tidemill": (self.requires_tidemill, tidemill or running_tidemill()),
        }
        return [
            f"it requires {what} {requirement}, and this is {version}"
            for what, (requirement, version) in requirements.items()
            if requirement is not None and not requirement.admits(version)
        ]

    def check_requirements(self) -> None:
        """Raise RequestError unless the running Python and Tidemill meet the requirements."""
        if unmet := self.unmet_requirements():
            message = f"package '{self.name}' {self.version} cannot run here: {'; '.join(unmet)}"
            raise RequestError(message, code="unmet_requirement", status=409, package=self.name)


def read_manifest(content: bytes, file: str = MANIFEST_FILE) -> Manifest:
    """Parse a `package.toml`; raise DefinitionError with all its problems."""
    return _ManifestReader(_decode_text(content, file), file).read()


def _decode_text(content: bytes, file: str) -> str:
    start = Location(file, 1)
    if len(content) > _MANIFEST_SIZE_LIMIT:
        raise DefinitionError.single(MANIFEST_FILE, f"it has more than {_MANIFEST_SIZE_LIMIT:,} bytes", start)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DefinitionError.single(MANIFEST_FILE, "it is not text in UTF-8", Location(file, line)) from error
    if text.startswith("\ufeff"):
        raise DefinitionError.single(
            MANIFEST_FILE, "it begins with a byte order mark: save it as UTF-8 without one", start
        )
    for number, line_text in enumerate(text.split("\n"), 1):
        if len(line_text) > _LINE_LENGTH_LIMIT:
            message = f"a line has more than {_LINE_LENGTH_LIMIT:,} characters"
            raise DefinitionError.single(MANIFEST_FILE, message, Location(file, number))
    return text


def _line_numbers(text: str) -> dict[TomlPath, int]:
    """Return the line of each table and key, as far as single lines show it."""
    found: dict[TomlPath, int] = {}
    table: TomlPath = ()
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("["):
            path = _path_in_line(line)
            table = path or table
        else:
            key = _path_in_line(f"{line.partition('=')[0]} = 0") if "=" in line else ()
            path = (*table, *key) if key else ()
        for depth in range(1, len(path) + 1):
            found.setdefault(path[:depth], number)
    return found


def _path_in_line(line: str) -> TomlPath:
    """Return the path of the only table header or key in a line."""
    try:
        value: Any = tomllib.loads(line)
    except (ValueError, RecursionError):
        return ()
    path: list[str] = []
    while isinstance(value, dict) and value:
        ((key, value),) = value.items()
        path.append(key)
    return tuple(path)


class _ManifestReader:
    """Reads one manifest and collects its problems."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._content = parse_toml(text, file, MANIFEST_FILE)
        self._line_numbers = _line_numbers(text)
        self._problems: list[Problem] = []

    def read(self) -> Manifest:
        top = self._read_table((), self._content, ("package", "reactors", "tasks"))
        package = self._read_package_table(top.get("package"))
        reactors = self._read_tables(("reactors",), top.get("reactors"), self._read_reactor)
        tasks = self._read_tables(("tasks",), top.get("tasks"), self._read_task)
        if self._problems:
            raise DefinitionError(sorted(self._problems, key=_problem_line), MANIFEST_FILE)
        return Manifest(reactors=reactors, tasks=tasks, **package)

    def _report(self, path: TomlPath, message: str) -> None:
        known = [path[:depth] for depth in range(len(path), 0, -1) if path[:depth] in self._line_numbers]
        line = self._line_numbers[known[0]] if known else 1
        self._problems.append(Problem(message=message, location=Location(self._file, line)))

    def _read_table(self, path: TomlPath, value: Any, known: Iterable[str]) -> dict[str, Any]:
        """Return a table without its unknown keys, and report each of them."""
        if not isinstance(value, dict):
            self._report(path, f"'{_dotted_path(path)}' is a table, not {_printable_value(value)}")
            return {}
        place = f"[{_dotted_path(path)}]" if path else "the top"
        for key in value:
            if key not in known:
                message = f"unknown key {_printable_value(key)} in {place}{did_you_mean(key, known)}"
                self._report((*path, key), f"{message}; it may have {', '.join(known)}")
        return {key: value[key] for key in value if key in known}

    def _read_value(self, path: TomlPath, read: Callable[[Any], T], value: Any) -> T | None:
        """Return a parsed value, or report a problem and return None."""
        try:
            return read(value)
        except _ListError as error:
            for message in error.messages:
                self._report(path, f"{path[-1]}: {message}")
        except (TypeError, ValueError, OverflowError) as error:
            self._report(path, f"{path[-1]}: {error}")
        return None

    def _read_values(self, path: TomlPath, value: Any, readers: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
        table = self._read_table(path, value, readers)
        return {key: self._read_value((*path, key), readers[key], given) for key, given in table.items()}

    def _read_package_table(self, value: Any) -> dict[str, Any]:
        if value is None:
            self._report((), "there is no [package]: it needs at least name and version")
            return {}
        read = self._read_values(("package",), value, _PACKAGE_PARSERS)
        for key in ("name", "version"):
            if key not in read:
                self._report(("package",), f"[package] has no {key}")
        read.setdefault("modules", (read.get("name"),))
        return {key.replace("-", "_"): one for key, one in read.items()}

    def _read_tables(self, path: TomlPath, value: Any, read: Callable[[TomlPath, Any], T]) -> dict[str, T]:
        if value is None:
            return {}
        table = self._read_table(path, value, value if isinstance(value, dict) else ())
        return {key: read((*path, key), one) for key, one in table.items()}

    def _read_reactor(self, path: TomlPath, value: Any) -> ReactorSettings:
        if not _is_identifier(path[-1]):
            self._report(path, f"{_printable_value(path[-1])} cannot be the name of a reactor")
        return ReactorSettings(**self._read_values(path, value, {"shared": _parse_bool}))

    def _read_task(self, path: TomlPath, value: Any) -> TaskOverrides:
        workflow, _, task = path[-1].rpartition(".")
        if not workflow or not workflow.isprintable() or not _is_identifier(task):
            self._report(
                path,
                f'a task is named with its workflow, [tasks."daily_report.large"], not {_printable_value(path[-1])}',
            )
        return self._read_values(path, value, _TASK_PARSERS)


def _problem_line(problem: Problem) -> int:
    return problem.location.line if problem.location else 0


def _dotted_path(path: TomlPath) -> str:
    return ".".join(part if _is_identifier(part) else f'"{_printable_value(part)[1:-1]}"' for part in path)


def _printable_value(value: Any) -> str:
    """Return a value as short text on one line, without control characters."""
    text = repr(value) if not isinstance(value, dict | list) else f"a {'table' if isinstance(value, dict) else 'list'}"
    return text if len(text) <= 80 else f"{text[:79]}…"


def _is_identifier(name: str) -> bool:
    return name.isidentifier() and name.isprintable() and not keyword.iskeyword(name) and len(name) <= 200


# -- parsers of single values, which raise TypeError or ValueError


def check_package_name(value: Any) -> str:
    """Return a name that can be imported and hides no other module; raise ValueError for any other."""
    if not isinstance(value, str) or not _NAME_PATTERN.fullmatch(value):
        raise ValueError(
            "a name has small letters, digits and '_', begins with a letter, and is short: not "
            f"{_printable_value(value)}"
        )
    if keyword.iskeyword(value):
        raise ValueError(f"'{value}' is a keyword of Python")
    if value == "tidemill" or value in sys.stdlib_module_names:
        owner = "Tidemill" if value == "tidemill" else "a module of the standard library"
        raise ValueError(f"'{value}' would hide {owner}; choose another name")
    return value


def _parse_module(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a module is named, not {_printable_value(value)}")
    first, *rest = value.split(".")
    check_package_name(first)
    if len(value) > 200 or not all(_is_identifier(part) and part.isascii() for part in rest):
        raise ValueError(f"{_printable_value(value)} cannot be imported")
    return value


class _ListError(ValueError):
    """The problems of the entries of a list."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__(*messages)
        self.messages = messages


def _parse_list(value: Any, read: Callable[[Any], str]) -> tuple[str, ...]:
    """Parse the entries of a list; all their problems are one error."""
    if not isinstance(value, list):
        raise TypeError(f"it is a list, not {_printable_value(value)}")
    parsed, problems = [], []
    for index, one in enumerate(value):
        try:
            if one in value[:index]:
                raise ValueError(f"{_printable_value(one)} is in it twice")
            parsed.append(read(one))
        except (TypeError, ValueError) as error:
            problems.append(str(error))
    if problems:
        raise _ListError(problems[:_LIST_ERROR_LIMIT])
    return tuple(parsed)


def _parse_modules(value: Any) -> tuple[str, ...]:
    if not (read := _parse_list(value, _parse_module)):
        raise ValueError("it names no module")
    return read


def _parse_version(value: Any) -> Version:
    return Version.parse(_parse_word(value))


def _parse_requirement(value: Any) -> Requirement:
    return Requirement.parse(_parse_word(value))


def _parse_capabilities(value: Any) -> tuple[str, ...]:
    return _parse_list(value, _parse_capability)


def _parse_capability(value: Any) -> str:
    found = _CAPABILITY_PATTERN.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"a capability is a kind and a name, such as 'secret:shop_key', not {_printable_value(value)}")
    if found["kind"] not in _CAPABILITY_KINDS:
        hint = did_you_mean(found["kind"], _CAPABILITY_KINDS)
        raise ValueError(f"there is no capability '{found['kind']}'{hint}; there are {', '.join(_CAPABILITY_KINDS)}")
    return found[0]


def _parse_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"it is true or false, not {_printable_value(value)}")
    return value


def _parse_word(value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable() or len(value) > 200:
        raise TypeError(f"it is a short text, not {_printable_value(value)}")
    return value


def _parse_count(value: Any) -> int:
    if type(value) is not int or abs(value) > MAX_INTEGER:
        raise TypeError(f"it is a whole number, not {_printable_value(value)}")
    if value < 0:
        raise ValueError(f"it is not negative, not {value}")
    return value


_PACKAGE_PARSERS: dict[str, Callable[[Any], Any]] = {
    "name": check_package_name,
    "version": _parse_version,
    "modules": _parse_modules,
    "requires-python": _parse_requirement,
    "requires-tidemill": _parse_requirement,
    "capabilities": _parse_capabilities,
}
_TASK_PARSERS: dict[str, Callable[[Any], Any]] = {"retries": _parse_count, **OPTION_READERS}
