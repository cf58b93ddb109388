"""Reading a package: which definitions a module, or a single definition, brings."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from tidemill.graphs.definition import Reactor
from tidemill.graphs.graph import Graph
from tidemill.kernel.errors import DefinitionError, Problem, RequestError
from tidemill.workflows.definition import Trigger
from tidemill.workflows.workflow import Workflow

Definition = Reactor | Graph | Workflow | Trigger


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """What is loaded and unloaded as one."""

    name: str
    version: str = ""
    """Of its manifest; modules and definitions have none."""

    digest: str = ""
    """Of everything that it consists of, if it is a folder or an archive."""

    origin: str = ""
    """Who wants it, if that is not the program itself: a folder, or a registry."""

    allow_downgrade: bool = False
    """Whether it may be loaded in place of a newer version."""

    shared: frozenset[str] = frozenset()
    """Reactors that packages of other tenants may bind to."""

    reactors: tuple[Reactor, ...] = ()
    graphs: tuple[Graph, ...] = ()
    workflows: tuple[Workflow, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    """Those that it declares, and those that its workflows were given as declared."""


def read_package(thing: Any) -> Package:
    """Return the package that a module or a definition stands for."""
    if isinstance(thing, Reactor):
        return Package(name=f"reactor:{thing.name}", reactors=(thing,))
    if isinstance(thing, Graph):
        return Package(name=f"graph:{thing.name}", graphs=(thing,))
    if isinstance(thing, Workflow):
        return _unambiguous(_whole(f"workflow:{thing.name}", [thing]))
    if isinstance(thing, Trigger):
        return Package(name=f"trigger:{thing.name}", triggers=(thing,))
    if isinstance(thing, ModuleType):
        return _unambiguous(read_module(thing))
    message = (
        f"cannot load {thing!r}: pass the path of a package or of a Python file, a module, "
        "a tm.Reactor, a tm.Graph, a tm.Workflow or a trigger"
    )
    raise RequestError(message, code="not_loadable")


def read_module(module: ModuleType) -> Package:
    """Return everything that a module brings; what has the name of another is found by `namesakes`."""
    return _whole(module.__name__, vars(module).values())


def _whole(name: str, values: Iterable[Any]) -> Package:
    """Return a package of these values, and of the triggers that its workflows bring along."""
    found = _distinct(values)
    workflows = tuple(value for value in found if isinstance(value, Workflow))
    brought = [one for workflow in workflows for one in workflow.triggers]
    return Package(
        name=name,
        reactors=tuple(value for value in found if isinstance(value, Reactor)),
        graphs=tuple(value for value in found if isinstance(value, Graph)),
        workflows=workflows,
        triggers=tuple(value for value in _distinct([*found, *brought]) if isinstance(value, Trigger)),
    )


def _unambiguous(package: Package) -> Package:
    if problems := list(namesakes(package)):
        raise DefinitionError(problems, f"package '{package.name}'")
    return package


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list({id(value): value for value in values}.values())


def namesakes(package: Package) -> Iterator[Problem]:
    """Yield a problem for each definition of a package whose name another one of its kind has already."""
    kinds: dict[str, Sequence[Definition]] = {
        "reactors": package.reactors,
        "graphs": package.graphs,
        "workflows": package.workflows,
        "triggers": package.triggers,
    }
    for kind, definitions in kinds.items():
        yield from _namesakes(kind, definitions)


def _namesakes(what: str, definitions: Sequence[Definition]) -> Iterator[Problem]:
    first: dict[str, Definition] = {}
    for one in definitions:
        other = first.setdefault(one.name, one)
        if other is not one:
            message = f"two {what} are named '{one.name}', the other at {other.location}; rename one of them"
            yield Problem(message=message, location=one.location)


def in_load_order(things: list[Any]) -> list[Any]:
    """Return things to load so that each comes after those it may name: graphs after reactors, then workflows.

    Two of one name are refused: later, loading a name again swaps what it stands for, but nobody means that at once.
    """
    first: dict[str, Any] = {}
    for thing in things:
        if isinstance(thing, str | Path):
            continue  # what a path holds is found out when it is read
        name = read_package(thing).name
        other = first.setdefault(name, thing)
        if other is not thing:
            kind, _, own = name.rpartition(":")
            where = f" at {other.location}" if hasattr(other, "location") else ""
            message = f"{kind or 'module'} '{own}' is to be loaded twice, the other one is{where or ' another object'}"
            raise RequestError(f"{message}; rename one of them", code="name_taken", status=409, name=own)
    return sorted(things, key=lambda thing: 2 * isinstance(thing, Workflow) + isinstance(thing, Graph))
