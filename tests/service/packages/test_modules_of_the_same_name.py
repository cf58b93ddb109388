"""API, G-30: packages that carry the same module; a graph of one, on the reactor of another, gets its own classes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.package_folders import package, without_child_processes

COMMON = """\
import tidemill as tm

class Level(tm.Boundary):
    price: float

class Book(tm.Boundary):
    bid: Level

class Quote(tm.Boundary):
    price: float
"""
MARKET = """\
import tidemill as tm
from common import Book, Level, Quote

@tm.passthrough
def feed(event: dict) -> Book | Quote:
    return Book(Level(event["bid"])) if "bid" in event else Quote(event["price"])

@tm.passthrough
def tick(event: int) -> int:
    return event

market = tm.Reactor("market", [feed, tick])
"""
LISTS = """\
import tidemill as tm
from common import Quote

@tm.batch(every=3600)
def traded(events: list[Quote]) -> list[Quote]:
    return list(events)

newest = tm.window("newest", Quote, capacity=3)
market = tm.Reactor("market", [traded, newest], strategy="sequential")
"""
LISTENER = """\
import tidemill as tm
from common import Quote

reader = tm.Graph("reader", reactor="market")

def kinds(values):
    return [type(one) is Quote for one in values]

@reader.node
def seen(newest: list[Quote], traded: list[Quote] | None) -> list[bool]:
    return kinds([*newest, *(traded or [])])

@reader.node
def led(newest: list[Quote], ctx: tm.Context) -> list[bool]:
    return kinds(one for _, values in ctx.consumed for one in values)
"""
DESK = """\
import tidemill as tm
from common import Book, Level, Quote

reader = tm.Graph("reader", reactor="{owner}market")

def kinds(*values):
    return [type(one) in (Book, Level, Quote) for one in values]

@reader.node
def first(feed: Book | Quote) -> Book | Quote:
    return feed

@reader.node
def book(first: Book) -> tuple[str, list[bool]]:
    return f"book {{first.bid.price}}", kinds(first, first.bid)

@reader.node
def quote(first: Quote) -> tuple[str, list[bool]]:
    return f"quote {{first.price}}", kinds(first)
"""
OWN = ("book 1.0", [True, True])


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    without_child_processes(monkeypatch)


@pytest.fixture
async def node() -> AsyncIterator[tm.testing.TestNode]:
    """A node that has nothing loaded."""
    async with tm.testing.node("memory://") as started:
        yield started


def carrying(folder: Path, name: str, code: str, *, version: int = 1, common: str = COMMON, manifest: str = "") -> Path:
    """Write a package that carries the common module."""
    modules = f'modules = ["{name}", "common"]\n'
    made = package(folder / name, code, f"{version}.0.0", manifest=modules + manifest)
    (made / "common.py").write_text(common)
    return made


def market(folder: Path, code: str = MARKET, **changed: Any) -> Path:
    """Write the package with the reactor."""
    return carrying(folder, "market", code, **changed)


def desk(folder: Path, code: str = DESK, owner: str = "", **changed: Any) -> Path:
    """Write the package with a graph on it."""
    return carrying(folder, "desk", code.format(owner=owner), **changed)


async def outputs(node: tm.testing.TestNode, event: Any, source: str = "feed") -> Any:
    """Return what the graph made of an event."""
    await node.push(source, event)
    (result,) = node.reactor("market").firings(1)[0].results.values()
    assert result.error is None, result.error
    return result.outputs


async def test_a_graph_gets_values_of_its_own_classes(node: tm.testing.TestNode, tmp_path: Path) -> None:
    """API: equal by qualified name and schema; unions are routed, and what is inside is the graph's own too."""
    await node.load(market(tmp_path))
    await node.load(desk(tmp_path))
    assert await outputs(node, {"bid": 1.0}) == {"book": OWN}
    assert await outputs(node, {"price": 2.0}) == {"quote": ("quote 2.0", [True])}


async def test_pushes_through_the_fast_lane_are_the_graphs_own(node: tm.testing.TestNode, tmp_path: Path) -> None:
    """API: whichever way an event takes; the log shows what the reactor's package emitted."""
    await node.load(market(tmp_path))
    await node.load(desk(tmp_path, DESK.replace("def first(feed", "def first(tick: int | None, feed")))
    push = node.handle("feed")
    for number in range(50):
        push({"bid": float(number)})
    firings = node.reactor("market").firings(50)
    assert [one.results["reader"].outputs["book"] for one in firings] == [
        (f"book {float(number)}", [True, True]) for number in reversed(range(50))
    ]
    assert {type(one.inputs["feed"]).__module__.partition("@")[0] for one in firings} == {"common"}
    assert len({type(one.inputs["feed"]) for one in firings}) == 1
    assert await outputs(node, 5, "tick") == {"book": ("book 49.0", [True, True])}


async def test_a_newer_version_of_either_side_is_bound_anew(node: tm.testing.TestNode, tmp_path: Path) -> None:
    """P-6: the cache continues as the newer version's classes, and the graph still has its own."""
    await node.load(market(tmp_path))
    await node.load(desk(tmp_path))
    await node.push("feed", {"bid": 1.0})
    for version in (2, 3):
        await node.load(market(tmp_path, version=version))
        assert (await node.reactor("market").force_fire()).results["reader"].outputs == {"book": OWN}
        await node.load(desk(tmp_path, version=version))
        assert (await node.reactor("market").force_fire()).results["reader"].outputs == {"book": OWN}
        assert (await node.reactor("market").dead_letters()) == []


async def test_a_firing_from_before_a_reload_is_tried_again_with_the_graphs_own(
    node: tm.testing.TestNode, tmp_path: Path
) -> None:
    """P-6: a dead letter holds values of the older version."""
    await node.load(market(tmp_path))
    await node.load(desk(tmp_path, DESK.replace("    return feed", "    raise ValueError('not yet')")))
    await node.push("feed", {"bid": 1.0})
    (letter,) = await node.reactor("market").dead_letters()
    await node.load(market(tmp_path, version=2))
    await node.load(desk(tmp_path, version=2))
    firing = await node.reactor("market").replay(letter.id)
    assert isinstance(firing, tm.Firing)
    assert firing.results["reader"].outputs == {"book": OWN}


async def test_windows_batches_and_what_was_consumed_are_the_graphs_own(
    node: tm.testing.TestNode, tmp_path: Path
) -> None:
    """API: lists hold the graph's own, and so does `ctx.consumed`."""
    await node.load(market(tmp_path, LISTS))
    await node.load(carrying(tmp_path, "desk", LISTENER))
    for price in (1.0, 2.0, 3.0, 4.0):
        await node.push("newest", {"price": price})
        await node.push("traded", {"price": price})
    await node.advance(3600)
    found = [one.results["reader"].outputs for one in node.reactor("market").firings()]
    assert max(len(one["seen"]) for one in found) == 4  # three in the window, one in the batch
    assert {len(one["led"]) for one in found} == {1, 2, 3}
    assert all(all([*one["seen"], *one["led"]]) for one in found)


async def test_another_tenants_graph_gets_its_own_classes(node: tm.testing.TestNode, tmp_path: Path) -> None:
    """G-30: a shared reactor."""
    shared = "[reactors.market]\nshared = true\n"
    await node.load(market(tmp_path, manifest=shared), tenant="acme")
    await node.load(desk(tmp_path, owner="acme/"), tenant="beta")
    await node.load(market(tmp_path, manifest=shared, version=2), tenant="acme")
    await node.push("feed", {"bid": 1.0}, tenant="acme")
    (firing,) = node.reactor("market", tenant="acme").firings()
    assert firing.results["beta/reader"].outputs == {"book": OWN}


async def test_graphs_of_both_packages_each_get_their_own(node: tm.testing.TestNode, tmp_path: Path) -> None:
    """API: the publisher's object is handed on as it is where the class is the same."""
    inside = """
inside = tm.Graph("inside", reactor=market)
LAST = []

@inside.node
def out(feed: Book | Quote) -> bool:
    LAST.append(feed)
    return type(feed) in (Book, Quote)
"""
    await node.load(market(tmp_path, MARKET + inside))
    await node.load(desk(tmp_path))
    await node.push("feed", {"bid": 1.0})
    (firing,) = node.reactor("market").firings()
    assert firing.results["inside"].outputs == {"out": True}
    assert firing.results["reader"].outputs == {"book": OWN}


async def test_a_value_of_another_package_can_be_pushed_and_called_with(
    node: tm.testing.TestNode, tmp_path: Path
) -> None:
    """API: what flows the other way becomes the accumulator's, or the called graph's."""
    maker = """
import tidemill as tm
from common import Book, Level, Quote

@tm.passthrough
def taken(event: Book) -> Book:
    return event

desk = tm.Reactor("desk", [taken])
mine = tm.Graph("mine", reactor=desk)

@mine.node
def out(taken: Book) -> list[bool]:
    return [type(taken) is Book, type(taken.bid) is Level]
"""
    await node.load(market(tmp_path))
    await node.load(carrying(tmp_path, "desk", maker))
    await node.push("feed", {"bid": 1.0})
    foreign = node.reactor("market").firings()[0].inputs["feed"]
    receipt = await node.push("taken", foreign)
    assert (receipt.outcome, receipt.reason) == ("emitted", None)
    await node.reactor("desk").fire_with({"taken": foreign})
    assert [one.results["mine"].outputs["out"] for one in node.reactor("desk").firings()] == [[True, True]] * 2


async def test_a_workflow_hands_its_values_to_another_packages_graph(node: tm.testing.TestNode, tmp_path: Path) -> None:
    """API: a graph that is called by name gets its own classes."""
    scoring = """
import tidemill as tm
from common import Book, Quote

scoring = tm.Graph("scoring")

@scoring.node
def scored(book: Book) -> Quote:
    return Quote(book.bid.price if type(book) is Book else -1.0)
"""
    flow = """
import tidemill as tm
from common import Book, Level, Quote

report = tm.Workflow("report")

@report.task
def book() -> Book:
    return Book(Level(2.0))

report.call("scoring", name="outcome")

"""
    await node.load(carrying(tmp_path, "market", scoring))
    await node.load(carrying(tmp_path, "desk", flow))
    run = await node.start("report")
    ended = (await run.wait("1h")).raise_for_status()
    assert ended.outputs["outcome"]["scored"].price == 2.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("bid: Level", "bid: float", "common.Book .*: field 'bid' is common.Level there and float here"),
        ("    price: float\n\nclass Book", "    price: str\n\nclass Book", "field 'bid' is a Level, in which field"),
        ("    bid: Level\n", "    bid: Level\n    at: int = 0\n", "field 'at' is only here"),
    ],
)
async def test_types_that_differ_are_refused_and_told_apart(
    node: tm.testing.TestNode, tmp_path: Path, old: str, new: str, message: str
) -> None:
    """API: checked at load, also if something else could still arrive; and for the other side as well."""
    assert COMMON.count(old) == 1
    await node.load(market(tmp_path))
    with pytest.raises(tm.DefinitionError, match=message):
        await node.load(desk(tmp_path, common=COMMON.replace(old, new)))
    await node.load(desk(tmp_path, version=2))
    with pytest.raises(tm.RequestError, match=r"bound subscriber.*\n.*common\.Book is not the same on both sides"):
        await node.load(market(tmp_path, version=2, common=COMMON.replace(old, new)))
    assert await outputs(node, {"bid": 1.0}) == {"book": OWN}


async def test_a_value_that_cannot_become_the_graphs_own_is_that_graphs_failure(
    node: tm.testing.TestNode, tmp_path: Path
) -> None:
    """G-14: the author's class may refuse; the reactor's own graphs, and the next value, are not concerned."""
    fussy = COMMON.replace(
        "    bid: Level", "    bid: Level\n\n    def __post_init__(self) -> None:\n        check(self)"
    )
    loose, strict = (f"{fussy}\ndef check(book):\n    {does}\n" for does in ("pass", "assert book.bid.price > 0, 'no'"))
    await node.load(market(tmp_path, common=loose))
    await node.load(desk(tmp_path, common=strict))
    await node.push("feed", {"bid": -1.0})
    (letter,) = await node.reactor("market").dead_letters()
    assert letter.error == "node 'reader' failed: AssertionError: no"
    assert await outputs(node, {"bid": 1.0}) == {"book": OWN}
