"""P-6: a version that was replaced is freed, although its firings, errors and dead letters can still be read."""

import gc
from pathlib import Path

import pytest
from hypothesis import settings

import tidemill as tm
from tests.service.package_folders import package, without_child_processes
from tests.simulation.test_reload_growth import resident

IS_LONG = settings().max_examples >= 10_000
RELOADS = 1_000 if IS_LONG else 30
WARM_UP = 10
ALIVE = 3
"""How many versions may exist: the current one, and those whose last task or firing has just ended."""
BALLAST = 2_000_000
"""Bytes of data in each version: pages of its own, which the system gets back with the version."""
GROWTH = 30_000_000
"""Bytes by which the process may grow, with a thousand dead letters, and a thousand runs in the store."""

CODE = """
import mmap

import tidemill as tm

BALLAST = mmap.mmap(-1, {ballast})
BALLAST.write(bytes({ballast}))

class Book(tm.Boundary):
    bid: int
    key: str = "k"

    def doubled(self) -> int:
        return 2 * self.bid

class Buy(tm.Boundary):
    bid: int

class Refused(Exception):
    pass

@tm.passthrough
def book(event: Book) -> Book:
    if not event.bid:
        raise Refused(event)
    return event

@tm.passthrough
def trade(event: Book) -> Book:
    return event

@tm.passthrough
def tick(event: Book) -> Book:
    return event

@tm.batch(every="1h", max_size=1)
def order(events: list[Book]) -> Book:
    return events[-1]

newest = tm.window("newest", Buy, capacity=2)
market = tm.Reactor("market", [book], durability="boundary")
floor = tm.Reactor("floor", [trade, newest])
desk = tm.Reactor("desk", [order])
keyed = tm.Reactor("keyed", [tick], key="key", partitions=2, durability="boundary")

decide = tm.Graph("decide", reactor=market)

@decide.node
def route(book: Book) -> Book | Buy:
    return Buy(book.bid) if book.bid > 0 else book

@decide.node
def bought(route: Buy) -> Buy:
    return route

@decide.node
def left(route: Book) -> int:
    raise Refused(route)

first = tm.Graph("first", reactor=floor)

@first.node(feeds=newest)
def fed(trade: Book) -> Buy:
    return Buy(trade.bid)

second = tm.Graph("second", reactor=floor)

@second.node
def all_of_it(trade: Book, newest: list[Buy]) -> list[Buy]:
    return newest

waiting = tm.Graph("waiting", reactor=desk)

@waiting.node
async def waited(order: Book) -> Book:
    return order

counting = tm.Graph("counting", reactor=keyed)

@counting.node
def counted(tick: Book) -> Book:
    return tick

flow = tm.Workflow("flow", triggers=[tm.on_firing("desk")])

@flow.task
def well() -> int:
    return {number}

@flow.task
def badly() -> int:
    raise Refused({number})
"""


def versions() -> int:
    """Return how many versions of the package exist: the dictionaries of their modules, which their functions hold."""
    for _ in range(3):  # what a finalizer has let go is found by the next
        gc.collect()
    return sum(type(one) is dict and "BALLAST" in one and "decide" in one for one in gc.get_objects())


async def work(node: tm.testing.TestNode, number: int) -> None:
    """Let the version fire, fail and run, and read what it did."""
    for bid in (number, -number, 0):
        await node.push("book", {"bid": bid})
    for source in ("trade", "order", "tick"):
        await node.push(source, {"bid": number})
    await node.settle()
    firings = {name: node.reactor(name).firings(limit=1)[0] for name in ("market", "floor", "desk", "keyed")}
    assert [type(one).__name__ for firing in firings.values() for one in firing.inputs.values()].count("Book") == 4
    assert len(firings["floor"].results["second"].outputs["all_of_it"]) == min(number - 1, 2)
    assert len(await node.reactor("market").dead_letters()) == min(2 * number, 2_000)


@pytest.mark.parametrize("store", ["sqlite", None])
async def test_replaced_versions_are_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str | None) -> None:
    """P-6: at most three versions exist, and memory is where it was; with `soak`, after 1,000 reloads."""
    without_child_processes(monkeypatch)
    async with tm.testing.node(store and f"sqlite:///{tmp_path}/tidemill.db") as node:
        memory = alive = 0
        for number in range(1, WARM_UP + RELOADS + 1):
            code = CODE.format(number=number, ballast=BALLAST)
            await node.load(package(tmp_path / "market", code, f"{number}.0.0"))
            await work(node, number)
            if number % WARM_UP == 0:
                alive = max(alive, versions())
                memory = memory or resident()
        grown = resident() - memory
        print(f"{store}: {RELOADS} reloads, {alive} versions at most, {grown / 1e6:.1f} MB more")
    assert alive <= ALIVE
    assert grown < GROWTH
