"""Reading a package: which definitions a module, or a single definition, brings."""

from types import ModuleType
from typing import Any

import msgspec

from tidemill.graphs.definition import Reactor
from tidemill.graphs.graph import Graph
from tidemill.kernel.errors import RequestError


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
        found = list({id(value): value for value in vars(thing).values()}.values())
        return Package(
            name=thing.__name__,
            reactors=tuple(value for value in found if isinstance(value, Reactor)),
            graphs=tuple(value for value in found if isinstance(value, Graph)),
        )
    message = f"cannot load {thing!r}: pass a module, a tm.Reactor or a tm.Graph"
    raise RequestError(message, code="not_loadable")


def in_load_order(things: list[Any]) -> list[Any]:
    """Return things to load so that bare reactors come before the graphs that may bind to them."""
    return sorted(things, key=lambda thing: isinstance(thing, Graph))
