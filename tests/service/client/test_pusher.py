"""The pusher: events over a WebSocket, in order, in batches, across reconnects."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest

import tidemill as tm
from tests.service.client.cutting_proxy import CuttingProxy, cutting_proxy
from tests.service.server.serving_node import Served, served
from tidemill.client import AsyncClient, Client

Result = TypeVar("Result")


class Tick(tm.Boundary):
    """A number."""

    number: int


def counting(**options: object) -> list[object]:
    """Return a reactor that keeps every tick in a window."""

    @tm.passthrough
    def ticks(event: Tick) -> Tick:
        return event

    reactor = tm.Reactor("counter", [ticks], strategy="sequential", **options)
    graph = tm.Graph("count", reactor=reactor)

    @graph.node
    def number(ticks: Tick) -> int:
        return ticks.number

    return [reactor, graph]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    """A served node whose accumulator loses and repeats nothing."""
    store = f"sqlite:///{tmp_path}/store.db"
    async with tm.Node(store, load=counting(durability="boundary")) as node, served(node) as one:
        yield one


@pytest.fixture
async def proxy(server: Served) -> AsyncIterator[CuttingProxy]:
    """A connection to the server that a test can cut."""
    async with cutting_proxy(server.url) as one:
        yield one


def fired(server: Served) -> list[int]:
    """Return the numbers of all firings, oldest first."""
    return [firing.inputs["ticks"].number for firing in reversed(server.node.reactor("counter").firings(limit=1000))]


async def test_events_arrive_in_order_and_are_acknowledged(server: Served) -> None:
    """http.md: `with client.pusher(...) as push`; the end of the block waits for every acknowledgement."""
    async with AsyncClient(server.url) as client:
        async with client.pusher("ticks", batch=16) as push:
            for number in range(100):
                await push({"number": number})
        assert push.counts == {"emitted": 100, "resumed": 0}
    await server.node.settle()
    assert fired(server) == list(range(100))


async def test_the_blocking_pusher_does_the_same(server: Served) -> None:
    """http.md: the example of the page; threads may share it."""

    def work() -> dict[str, int]:
        with Client(server.url) as client, client.pusher("ticks", batch=7) as push:
            for number in range(50):
                push(Tick(number=number))
            push.flush()
            assert push.counts["emitted"] == 50
            push({"number": 50})
        return push.counts

    assert (await asyncio.to_thread(work))["emitted"] == 51
    await server.node.settle()
    assert fired(server) == list(range(51))


async def test_a_slow_producer_waits_for_no_full_batch(server: Served) -> None:
    """An event is sent after the time to linger, however large the batch is."""
    async with AsyncClient(server.url) as client, client.pusher("ticks", batch=1000, linger="1ms") as push:
        await push({"number": 1})
        assert (await server.node.reactor("counter").next_firing(timeout=10)).inputs == {"ticks": Tick(number=1)}


async def test_nothing_is_lost_or_repeated_across_reconnects(server: Served, proxy: CuttingProxy) -> None:
    """G-31: the pusher continues after the last push that the server has taken."""
    retry = tm.Retry(20, delay="1ms")
    async with AsyncClient(proxy.url, retry=retry) as client, client.pusher("ticks", batch=2, window=4) as push:
        for number in range(60):
            await push({"number": number})
            if number % 10 == 5:
                proxy.lost_answers = number % 4
                proxy.cut()
    await server.node.settle()
    assert fired(server) == list(range(60))
    assert push.counts["emitted"] + push.counts["resumed"] == 60
    assert proxy.connections > 3


async def test_the_end_raises_what_was_not_accepted(server: Served) -> None:
    """An event that does not fit is a dead letter; the others count. `raises=False` only collects."""
    async with AsyncClient(server.url) as client:
        push = client.pusher("ticks")
        await push.__aenter__()
        for number in (0, None, 2):
            await push({"number": number})
        with pytest.raises(tm.RequestError, match="1 of the pushed events; event 1 was dead_lettered") as refused:
            await push.__aexit__(None, None, None)
        assert refused.value.code == "events_not_accepted"
        assert refused.value.facts["problems"] == push.problems
        async with client.pusher("ticks", raises=False) as push:
            await push({"nmber": 1})
        assert [one.index for one in push.problems] == [0]
    await server.node.settle()
    assert fired(server) == [0, 2]


async def test_an_unknown_accumulator_is_known_at_once(server: Served) -> None:
    """http.md: close code 4404 is the error that the node raises."""
    async with AsyncClient(server.url) as client:
        with pytest.raises(tm.RequestError) as unknown:
            async with client.pusher("tcks"):
                pass
        assert unknown.value.code == "accumulator_not_found"

    def work() -> None:
        with Client(server.url) as blocking, blocking.pusher("tcks"):
            pass

    with pytest.raises(tm.RequestError, match="tcks"):
        await asyncio.to_thread(work)


@pytest.mark.parametrize("options", [{"batch": 0}, {"window": 0}, {"linger": "soon"}])
def test_options_that_cannot_be_are_refused(options: dict[str, object]) -> None:
    """Where they are given, not in the middle of a stream."""
    with Client("http://127.0.0.1:9") as client, pytest.raises(tm.RequestError) as refused:
        client.pusher("ticks", **options)
    assert refused.value.code == "invalid_pusher"


async def test_an_event_that_cannot_be_sent_is_refused_where_it_is_pushed(server: Served) -> None:
    """The events before and after it are pushed."""
    async with AsyncClient(server.url) as client, client.pusher("ticks") as push:
        await push({"number": 0})
        with pytest.raises(tm.RequestError, match="cannot be sent"):
            await push({"number": object()})
        await push({"number": 1})
    assert push.counts["emitted"] == 2


async def test_a_server_that_is_gone_ends_the_pusher(server: Served, proxy: CuttingProxy) -> None:
    """http.md: `tm.OperationError` when the server is away, from the push or from the end of the block."""
    async with AsyncClient(proxy.url, retry=tm.Retry(1, delay="1ms")) as client:
        push = client.pusher("ticks")
        await push.__aenter__()
        await push({"number": 0})
        await push.flush()
        await proxy.stop()
        await push({"number": 1})
        with pytest.raises(tm.OperationError, match="cannot be reached"):
            await push.__aexit__(None, None, None)


async def test_a_reactor_is_watched(server: Served) -> None:
    """http.md: states come when something has changed."""
    async with AsyncClient(server.url) as client:
        states = client.reactor("counter").watch(every="50ms")
        assert (await anext(states)).fires == 0
        await client.push("ticks", {"number": 1})
        while (await anext(states)).fires == 0:
            pass
        with pytest.raises(tm.RequestError) as unknown:
            await anext(client.reactor("conter").watch())
        assert unknown.value.code == "reactor_not_found"


async def watch_blocking(server: Served, work: Callable[[Client], Result]) -> Result:
    """Do something with the blocking client, in a thread."""

    def do() -> Result:
        with Client(server.url) as client:
            return work(client)

    return await asyncio.to_thread(do)


async def test_the_blocking_client_watches_too(server: Served) -> None:
    """http.md: AsyncClient is the same as Client, with await."""
    state = await watch_blocking(server, lambda client: next(iter(client.reactor("counter").watch())))
    assert state.name == "counter"
