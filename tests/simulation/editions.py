"""Packages in many editions, made in memory: a publisher, a subscriber beside it, and one of another tenant."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal, NamedTuple

import msgspec

import tidemill as tm
from tidemill.packages.loading.reader import Package, read_package

Breakage = Literal["", "graph", "workflow", "trigger"]


class Publisher(NamedTuple):
    """An edition of package `publisher`: reactor `market`, a graph on it, and what workflows of others may name."""

    sources: tuple[str, ...] = ("book",)
    reactor: bool = True
    book: type = int
    shared: bool = True
    graph: str = "maker"
    scoring: str = "scoring"
    """What the graph without a reactor is called; "" for none, "bound" for one of the same name on the reactor."""
    takes: str = "count"
    trigger: str = "ticker"
    schedule: str = "early"
    """The key of its row."""
    breakage: Breakage = ""


class Subscriber(NamedTuple):
    """An edition of package `subscriber`, which needs these things of the publisher's."""

    binds: bool = True
    calls: bool = True
    polls: bool = True
    graph: str = "reader"
    breakage: Breakage = ""


class Guest(NamedTuple):
    """An edition of package `guest`, of another tenant, which binds to the shared reactor."""

    graph: str = "watcher"
    sources: tuple[str, ...] = ("book",)
    breakage: Breakage = ""


Edition = Publisher | Subscriber | Guest
Polled = Callable[[int], None]


def made(edition: Edition, mark: int, polled: Polled) -> Package:
    """Return a package in an edition; whatever it computes says which one it was, by its mark."""
    module = ModuleType(type(edition).__name__.lower())
    shared: frozenset[str] = frozenset()
    if isinstance(edition, Publisher):
        _publish(module, edition, mark, polled)
        shared = frozenset({"market"} if edition.shared and edition.reactor else ())
    elif isinstance(edition, Subscriber):
        _subscribe(module, edition, mark)
    else:
        vars(module)["graph"] = _graph(edition.graph, "public/market", edition.sources, mark)
    _break(module, edition.breakage)
    return msgspec.structs.replace(read_package(module), version=f"{mark}.0.0", digest=str(mark), shared=shared)


def _publish(module: ModuleType, edition: Publisher, mark: int, polled: Polled) -> None:
    sources = {name: _source(name, edition.book if name == "book" else int) for name in edition.sources}
    if edition.reactor:
        reactor = tm.Reactor("market", list(sources.values()))
        vars(module)["reactor"] = reactor
        if edition.graph:
            vars(module)["graph"] = _graph(edition.graph, reactor, ("book",), mark, edition.book)
    if edition.scoring:
        vars(module)["scoring"] = _scoring(edition, mark)
    if edition.trigger:

        async def ask() -> None:
            polled(mark)

        vars(module)["trigger"] = tm.trigger(every="10s")(_named(ask, edition.trigger))
    vars(module)["nightly"] = _flow("nightly", mark, schedule=tm.Every("1d", key=edition.schedule))


def _scoring(edition: Publisher, mark: int) -> tm.Graph:
    if edition.scoring == "bound" and edition.reactor:
        return _graph("scoring", "market", ("book",), mark, edition.book)
    graph = tm.Graph("scoring" if edition.scoring == "bound" else edition.scoring)

    def score(count: int) -> list[int]:
        return [mark, count]

    def score_amount(amount: int) -> list[int]:
        return [mark, amount]

    graph.node(score if edition.takes == "count" else _named(score_amount, "score"))
    return graph


def _subscribe(module: ModuleType, edition: Subscriber, mark: int) -> None:
    if edition.binds:
        vars(module)["graph"] = _graph(edition.graph, "market", ("book",), mark)
    flow = _flow("report", mark, triggers=["ticker"] if edition.polls else [])
    if edition.calls:

        @flow.task
        def count() -> int:
            return 7

        flow.call("scoring", name="scored")
    vars(module)["report"] = flow


def _source(name: str, kind: type) -> Any:
    def take(event: Any) -> Any:
        return event

    return tm.passthrough(_named(take, name, event=kind, **{"return": kind}))


def _graph(name: str, reactor: tm.Reactor | str, sources: tuple[str, ...], mark: int, book: type = int) -> tm.Graph:
    graph = tm.Graph(name, reactor=reactor)
    kinds = {"book": book, "return": list[Any]}

    def out(book: Any) -> Any:
        return [mark, book]

    def both(book: Any, limits: Any) -> Any:
        return [mark, book, limits]

    graph.node(_named(both, "out", limits=int | None, **kinds) if "limits" in sources else _named(out, "out", **kinds))
    return graph


def _named(function: Callable[..., Any], name: str, **annotations: Any) -> Callable[..., Any]:
    """Call a function, and annotate it, as an edition has it."""
    function.__name__ = name
    if annotations:
        function.__annotations__ = annotations
    return function


def _flow(name: str, mark: int, **options: Any) -> tm.Workflow:
    flow = tm.Workflow(name, **options)

    @flow.task
    def marked() -> int:
        return mark

    return flow


def _break(module: ModuleType, breakage: Breakage) -> None:
    """Give a package something that cannot be loaded."""
    if breakage == "graph":
        graph = vars(module)["broken"] = tm.Graph("broken")

        @graph.node
        def first(second: int) -> int:
            return second

        @graph.node
        def second(first: int) -> int:
            return first

    elif breakage == "workflow":
        flow = vars(module)["broken"] = tm.Workflow("broken")

        @flow.task
        def lost(absent: int) -> int:
            return absent

    elif breakage == "trigger":
        vars(module)["broken"] = _flow("broken", 0, triggers=["absent"])
