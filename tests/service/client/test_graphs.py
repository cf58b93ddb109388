"""Graphs, reactors and accumulators through the client."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import tidemill as tm
from tests.service.server.serving_node import Served, served
from tidemill.client import AsyncClient, Client


class Book(tm.Boundary):
    """A price."""

    bid: float


@tm.passthrough
def orderbook(event: Book) -> Book:
    """Pass prices on."""
    return event


market = tm.Reactor("market", [orderbook])
maker = tm.Graph("maker", reactor=market)


@maker.node
def double(orderbook: Book) -> float:
    """Double a price."""
    if orderbook.bid < 0:
        raise ValueError("negative price")
    return orderbook.bid * 2


scoring = tm.Graph("scoring")


@scoring.node
def score(points: int) -> int:
    """Score points."""
    return points + 1


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node with a reactor, and a graph without one."""
    async with tm.Node(load=[market, maker, scoring]) as node, served(node) as one:
        yield one


@pytest.fixture
async def client(server: Served) -> AsyncIterator[AsyncClient]:
    """A client of the server."""
    async with AsyncClient(server.url, retry=tm.Retry(2, delay="1ms")) as one:
        yield one


async def test_an_event_is_pushed(server: Served, client: AsyncClient) -> None:
    """http.md: `push` returns a tm.Receipt; what does not fit is a dead letter, not an exception."""
    assert await client.push("orderbook", {"bid": 1.0}) == tm.Receipt(True, 1, "emitted")
    assert (await client.push("orderbook", Book(bid=2.0))).sequence == 2
    assert (await client.push("orderbook", b'{"bid": 3}')).sequence == 3
    assert (await server.node.reactor("market").next_firing(timeout=5)).inputs == {"orderbook": Book(bid=1.0)}
    misfit = await client.push("orderbook", {"bid": "much"})
    assert (misfit.accepted, misfit.outcome) == (False, "dead_lettered")
    accumulator = client.accumulator("orderbook")
    (letter,) = await accumulator.dead_letters()
    assert (letter.kind, letter.event) == ("event", {"bid": "much"})
    assert (await client.dead_letter(letter.id[-12:])) == await accumulator.dead_letter(letter.id)
    assert (await accumulator.replay(letter.id)).receipt is not None
    assert [one.id for one in await client.dead_letters(source="orderbook")] == [letter.id]
    assert (await accumulator.replay(letter.id, {"bid": 4.0})).receipt == tm.Receipt(True, 4, "emitted")
    await client.push("orderbook", {"bid": "much"})
    for letter in await accumulator.dead_letters():
        await accumulator.drop(letter.id)
    assert await client.reactor("market").dead_letters() == []


async def test_many_events_are_pushed_in_one_request(client: AsyncClient) -> None:
    """http.md: NDJSON is answered with one receipt per event."""
    receipts = await client.push_many("orderbook", [{"bid": 1}, {"bid": None}, Book(bid=2.0)])
    assert [one.outcome for one in receipts] == ["emitted", "dead_lettered", "emitted"]


async def test_a_reactor_is_commanded(client: AsyncClient) -> None:
    """http.md: `client.reactor(name)` with the commands of an operator."""
    reactor = client.reactor("market")
    assert (await reactor.pause()).paused
    await client.push("orderbook", {"bid": 1.0})
    state = await reactor.state()
    assert isinstance(state, tm.ReactorState)
    assert (state.paused, state.dirty, state.fires) == (True, {"orderbook": True}, 0)
    firing = await reactor.force_fire()
    assert (firing.ok, firing.manual, firing.results["maker"].outputs) == (True, True, {"double": 2.0})
    assert not (await reactor.resume()).paused
    failed = await reactor.fire_with({"orderbook": {"bid": -1.0}})
    assert failed.results["maker"].error is not None
    assert failed.results["maker"].error.node == "double"
    assert [one.id for one in await reactor.firings(limit=2)] == [failed.id, firing.id]
    assert sum(await reactor.timeseries()) == 2
    assert len((await reactor.series(60)).firings) in (0, 60)
    assert (await reactor.restart()).name == "market"
    assert [one.action for one in await reactor.events()] == ["restarted"]


async def test_what_is_loaded_is_listed(client: AsyncClient) -> None:
    """http.md: graphs with their source, accumulators with the JSON Schema of their events."""
    assert [one.name for one in await client.graphs()] == ["maker", "scoring"]
    assert "def " in (await client.graph("maker")).source
    assert [one.name for one in await client.reactors()] == ["market"]
    assert [one.name for one in await client.accumulators()] == ["orderbook"]
    details = await client.accumulator("orderbook").state()
    assert details.event_schema is not None
    assert details.reactors == ["market"]
    assert (await client.accumulator("orderbook").restart()).health == tm.AccumulatorHealth.SOCKET_ONLY
    assert (await client.call_graph("scoring", points=41)).outputs == {"score": 42}


async def test_the_blocking_client_does_the_same(server: Served) -> None:
    """http.md: `client.push`, and `client.reactor("market").pause()`."""

    def work() -> tuple[tm.Receipt, bool]:
        with Client(server.url) as client:
            return client.push("orderbook", {"bid": 1.0}), client.reactor("market").pause().paused

    receipt, paused = await asyncio.to_thread(work)
    assert (receipt.accepted, paused) == (True, True)


async def test_errors_are_those_of_the_node(client: AsyncClient) -> None:
    """http.md: stable codes, and suggestions for unknown names."""
    with pytest.raises(tm.RequestError) as unknown:
        await client.push("ordrbook", {"bid": 1.0})
    assert (unknown.value.code, unknown.value.facts["suggestions"]) == ("accumulator_not_found", ["orderbook"])
    with pytest.raises(tm.RequestError) as unknown:
        await client.reactor("markt").pause()
    assert unknown.value.code == "reactor_not_found"
    with pytest.raises(tm.RequestError) as unnamed:
        await client.push("", {"bid": 1.0})
    assert unnamed.value.code == "invalid_name"
