"""Reading a package: which definitions a module, or a single definition, brings."""

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import msgspec

from tidemill.graphs.definition import Reactor
from tidemill.graphs.graph import Graph
from tidemill.kernel.errors import DefinitionError, Problem, RequestError


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """What is loaded and unloaded as one."""

    name: str
    reactors: tuple[Reactor, ...] = ()
    graphs: tuple[Graph, ...] = ()


def read_package(thing: Any) -> Package:
    """Return the package that a module or a definition stands for."""
    if isinstance(thing, Reactor):
        return Package(name=f"reactor:{thing.name}", reactors=(thing,))
    if isinstance(thing, Graph):
        return Package(name=f"graph:{thing.name}", graphs=(thing,))
    if isinstance(thing, ModuleType):
        return _read_module(thing)
    message = f"cannot load {thing!r}: pass a module, a tm.Reactor or a tm.Graph"
    raise RequestError(message, code="not_loadable")


def _read_module(module: ModuleType) -> Package:
    found = list({id(value): value for value in vars(module).values()}.values())
    reactors = tuple(value for value in found if isinstance(value, Reactor))
    graphs = tuple(value for value in found if isinstance(value, Graph))
    if problems := [*_namesakes("reactors", reactors), *_namesakes("graphs", graphs)]:
        raise DefinitionError(problems, f"package '{module.__name__}'")
    return Package(name=module.__name__, reactors=reactors, graphs=graphs)


def _namesakes(what: str, definitions: Sequence[Reactor | Graph]) -> Iterator[Problem]:
    """Yield a problem for each definition whose name another one has already."""
    first: dict[str, Reactor | Graph] = {}
    for one in definitions:
        other = first.setdefault(one.name, one)
        if other is not one:
            message = f"two {what} are named '{one.name}', the other at {other.location}; rename one of them"
            yield Problem(message=message, location=one.location)


def in_load_order(things: list[Any]) -> list[Any]:
    """Return things to load so that bare reactors come before the graphs that may bind to them."""
    return sorted(things, key=lambda thing: isinstance(thing, Graph))
