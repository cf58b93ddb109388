"""Reads the definitions of a package from a module or a single definition, and imports modules for the CLI."""

import importlib
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from tidemill.annotations.variants import label
from tidemill.graphs.definition import Accumulator, Reactor
from tidemill.graphs.graph import Graph
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.kernel.errors import DefinitionError, Location, Problem, RequestError
from tidemill.kernel.import_guard import guarding_imports, import_file
from tidemill.workflows.definition import Trigger
from tidemill.workflows.workflow import Workflow

Definition = Reactor | Graph | Workflow | Trigger


class PackageOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a package comes from, and what follows from that."""

    name: str = ""
    """The folder or the registry; "" for the program itself."""

    allow_downgrade: bool = False
    """Whether a package may replace a newer version."""

    is_developer_code: bool = False
    """Whether packages are probed with the environment of this process."""


PROGRAM = PackageOrigin()
"""The program that runs the node."""

REGISTRY = "registry"
"""The origin of packages that are published in the store."""


PackageScope = Literal["all", "tasks", "partitions"]
"""What a node loads of a package: everything, what a worker needs for tasks, or what a host needs for partitions."""


class PackageParts(msgspec.Struct, frozen=True, kw_only=True):
    """Definitions of one version of a package."""

    version: str = ""
    """The version of its manifest; modules and definitions have none."""

    digest: str = ""
    """The digest of all its files, if it is a folder or an archive."""

    shared: frozenset[str] = frozenset()
    """Reactors that packages of other tenants may bind to."""

    reactors: tuple[Reactor, ...] = ()
    graphs: tuple[Graph, ...] = ()
    workflows: tuple[Workflow, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    """The triggers that it declares, and those that were passed to its workflows."""

    held_back: tuple[Graph, ...] = ()
    """Graphs that are not loaded, because another node owns their reactors. Workflows may follow them."""


class Package(PackageParts, frozen=True, kw_only=True):
    """Definitions that are loaded and unloaded together."""

    name: str

    def without_reactors(self, names: Collection[str]) -> "Package":
        """Return the package without some reactors, and without the graphs that are bound to them."""
        held_back = tuple(one for one in self.graphs if one.reactor_name in names)
        return replace(
            self,
            reactors=tuple(one for one in self.reactors if one.name not in names),
            graphs=tuple(one for one in self.graphs if one not in held_back),
            held_back=held_back,
        )

    def within(self, scope: PackageScope) -> "Package":
        """Return what a node with this scope loads."""
        match scope:
            case "tasks":
                return self._tasks_only()
            case "partitions":
                return self._partitions_only()
        return self

    @property
    def reactors_without_key(self) -> frozenset[str]:
        """The names of the reactors that it declares, or that its graphs are bound to, and that have no key."""
        bound = (one.reactor for one in self.graphs if isinstance(one.reactor, Reactor))
        return frozenset(one.name for one in (*self.reactors, *bound) if not one.is_keyed)

    def _partitions_only(self) -> "Package":
        """Return what partitions need: keyed reactors, the graphs that may bind to them, what their firings start."""
        others = self.reactors_without_key
        return replace(
            self,
            shared=self.shared - others,
            reactors=tuple(one for one in self.reactors if one.is_keyed),
            graphs=tuple(one for one in self.graphs if one.reactor_name not in others),
            workflows=tuple(one.started_by_firings() for one in self.workflows),
            triggers=(),
        )

    def _tasks_only(self) -> "Package":
        """Return what tasks need: the workflows without what starts them, and graphs that tasks may call."""
        return replace(
            self,
            shared=frozenset(),
            reactors=(),
            graphs=tuple(one for one in self.graphs if one.reactor_name is None),
            workflows=tuple(one.standalone() for one in self.workflows),
            triggers=(),
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to load."""
        return not (self.reactors or self.graphs or self.workflows or self.triggers)


def read_package(thing: Any) -> Package:
    """Return the package of a module or of a single definition."""
    if isinstance(thing, Reactor):
        return Package(name=f"reactor:{thing.name}", reactors=(thing,))
    if isinstance(thing, Graph):
        return Package(name=f"graph:{thing.name}", graphs=(thing,))
    if isinstance(thing, Workflow):
        return _check_unambiguous(_package_of(f"workflow:{thing.name}", [thing]))
    if isinstance(thing, Trigger):
        return Package(name=f"trigger:{thing.name}", triggers=(thing,))
    if isinstance(thing, ModuleType):
        return _check_unambiguous(read_module(thing))
    message = (
        f"cannot load {thing!r}: pass the path of a package or of a Python file, a module, "
        "a tm.Reactor, a tm.Graph, a tm.Workflow or a trigger"
    )
    raise RequestError(message, code="not_loadable")


def read_module(module: ModuleType) -> Package:
    """Return the definitions of a module; `duplicate_name_problems` finds duplicate names."""
    return _package_of(module.__name__, vars(module).values())


def _package_of(name: str, values: Iterable[Any]) -> Package:
    """Return a package of these values, with the triggers that were passed to its workflows."""
    definitions = _unique_by_identity(values)
    declared = [value for value in definitions if isinstance(value, Workflow)]
    workflows = tuple(one for workflow in declared for one in workflow.family)
    passed = [one for workflow in workflows for one in workflow.triggers]
    return Package(
        name=name,
        reactors=tuple(value for value in definitions if isinstance(value, Reactor)),
        graphs=tuple(value for value in definitions if isinstance(value, Graph)),
        workflows=workflows,
        triggers=tuple(value for value in _unique_by_identity([*definitions, *passed]) if isinstance(value, Trigger)),
    )


def _check_unambiguous(package: Package) -> Package:
    if problems := list(duplicate_name_problems(package)):
        raise DefinitionError(problems, f"package '{package.name}'")
    return package


def _unique_by_identity(values: Iterable[Any]) -> list[Any]:
    return list({id(value): value for value in values}.values())


def duplicate_name_problems(package: Package) -> Iterator[Problem]:
    """Yield a problem for each definition whose name another definition of its kind already has."""
    kinds: dict[str, Sequence[Definition]] = {
        "reactors": package.reactors,
        "graphs": package.graphs,
        "workflows": package.workflows,
        "triggers": package.triggers,
    }
    for kind, definitions in kinds.items():
        yield from _duplicates_of_kind(kind, definitions)


def _duplicates_of_kind(kind: str, definitions: Sequence[Definition]) -> Iterator[Problem]:
    first: dict[str, Definition] = {}
    for one in definitions:
        other = first.setdefault(one.name, one)
        if other is not one:
            message = f"two {kind} are named '{one.name}', the other at {other.location}; rename one of them"
            yield Problem(message=message, location=one.location)


def sort_for_loading(things: list[Any]) -> list[Any]:
    """Sort definitions so that each comes after those it may name: graphs after reactors, then workflows.

    What they refer to by object comes along. Two of one name are rejected. Loaded one after the other, the second would
    replace the first.
    """
    first: dict[str, Any] = {}
    things = with_references(things)
    for thing in things:
        if isinstance(thing, str | Path):
            continue  # the name of a package file is known when it is read
        name = read_package(thing).name
        other = first.setdefault(name, thing)
        if other is not thing:
            kind, _, own = name.rpartition(":")
            where = f" at {other.location}" if hasattr(other, "location") else ""
            message = f"{kind or 'module'} '{own}' is to be loaded twice, the other one is{where or ' another object'}"
            raise RequestError(f"{message}; rename one of them", code="name_taken", status=409, name=own)
    return sorted(things, key=lambda thing: 2 * isinstance(thing, Workflow) + isinstance(thing, Graph))


def with_references(things: Sequence[Any]) -> list[Any]:
    """Return definitions, and in front of them the reactors and graphs that they refer to and that are not among them.

    A definition that is given takes the place of another one of its name.
    Packages are left out: they refer to what others declare by name.
    """
    packages = [read_package(thing) for thing in things if not isinstance(thing, str | Path)]
    given: set[tuple[type, str]] = {(Reactor, one.name) for package in packages for one in package.reactors}
    given |= {(Graph, one.name) for package in packages for one in package.graphs}
    known: set[int] = set()
    missing: list[Any] = []
    waiting: list[Any] = [one for package in packages for one in (*package.graphs, *package.workflows)]
    while waiting:
        for one in _references(waiting.pop()):
            if id(one) not in known and (type(one), one.name) not in given:
                known.add(id(one))
                missing.append(one)
                waiting.append(one)
    return [*missing, *things]


def _references(definition: Any) -> Iterator[Reactor | Graph]:
    """Yield what a graph is bound to, what starts a workflow, and the graphs that its tasks call."""
    named: list[Any] = [definition.reactor] if isinstance(definition, Graph) else []
    if isinstance(definition, Workflow):
        named += [getattr(one, "source", None) for one in definition.triggers]
        named += [task.graph for task in definition.tasks]
    return (one for one in named if isinstance(one, Reactor | Graph))


MAIN_GUARD_HINT = 'keep what it does as a program behind `if __name__ == "__main__":`'
"""The advice for a module that ends the program that imports it."""


def _not_python_error(path: Path) -> RequestError:
    what = "a folder" if path.is_dir() else "not a Python file"
    module = path / f"{path.name}.py"
    example = f", such as {module}" if module.exists() else ""
    return RequestError(f"{path} is {what}: name a file that ends in .py{example}", code="no_file", status=404)


def import_module(path_or_name: str) -> ModuleType:
    """Import a Python file, or a module by name; an error names the line that failed."""
    path = Path(path_or_name)
    try:
        if path.suffix != ".py" and (not path.exists() or _is_local_package(path)):
            with _extended_sys_path():
                return importlib.import_module(path_or_name)
        if path.is_dir() or path.suffix != ".py":
            raise _not_python_error(path)
        if not path.exists():
            raise RequestError(f"there is no file {path_or_name}", code="no_file", status=404)
        folder = str(path.parent.resolve())
        with _extended_sys_path(folder), guarding_imports(folder):
            return import_file(path.stem, str(path))
    except RequestError:
        raise
    except Exception as error:  # author code: importing runs it
        if isinstance(error, DefinitionError) and all(one.location is not None for one in error.problems):
            raise DefinitionError(error.problems, path_or_name) from error  # its problems have their own locations
        if isinstance(error, ModuleNotFoundError) and error.name in (path_or_name, path_or_name.partition(".")[0]):
            message = f"there is neither a file nor a module {path_or_name}"
            raise RequestError(message, code="no_file", status=404) from error
        message = f"importing it failed: {type(error).__name__}: {error}"
        raise DefinitionError.single(path_or_name, message, _author_location(error)) from error
    except SystemExit as error:
        message = f"importing it ended the program, with SystemExit({error.code!r}): {MAIN_GUARD_HINT}"
        raise DefinitionError.single(path_or_name, message, _author_location(error)) from error


def _is_local_package(path: Path) -> bool:
    """Return whether a name is that of a Python package in the working folder."""
    return path.name.isidentifier() and str(path) == path.name and (path / "__init__.py").exists()


def _author_location(error: BaseException) -> Location | None:
    """Return the last line outside Tidemill that an error passed through."""
    own_folder = str(Path(__file__).parents[2])
    frames = [
        one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith((own_folder, "<"))
    ]
    return Location(frames[-1].filename, frames[-1].lineno or 0) if frames else None


@contextmanager
def _extended_sys_path(*folders: str) -> Iterator[None]:
    """Search some folders for modules first; keep entries that author code adds, and restore those it removes."""
    before = list(sys.path)
    sys.path[:0] = folders
    try:
        yield
    finally:
        for one in folders:
            if one in sys.path:
                sys.path.remove(one)
        sys.path += [one for one in before if one not in sys.path]


def find_line(file: Path, word: str) -> int | None:
    """Return the number of the first line of a file that contains a word.

    Raises OSError or UnicodeDecodeError if the file cannot be read.
    """
    lines = file.read_text("utf-8").splitlines()
    return next((number for number, line in enumerate(lines, 1) if word in line), None)


def initial_state_problems(reactor: Reactor) -> Iterator[Problem]:
    """Yield problems of accumulators whose events cannot be validated, or whose initial state cannot be made."""
    for one in reactor.accumulators:
        yield from one.signature.problems
        yield from _accumulator_state_problems(one)


def _accumulator_state_problems(accumulator: Accumulator) -> Iterator[Problem]:
    if accumulator.state is None:
        return
    try:
        accumulator.state()
    except AUTHOR_ERRORS as error:  # author code may raise anything, SystemExit included
        message = f"state= of accumulator '{accumulator.name}' begins as {label(accumulator.state)}()"
        yield Problem(message=f"{message}: {describe(error)}; give its fields defaults", location=accumulator.location)
