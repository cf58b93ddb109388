"""The live event feed over WebSocket."""

from collections.abc import AsyncIterator

import pytest

import tidemill as tm
from tests.service.server.graph_samples import market
from tests.service.server.live_client import end_of, live, receive
from tests.service.server.serving_node import Served, create_tenant, served


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node with a market."""
    async with tm.Node(load=market()) as node, served(node) as one:
        yield one


async def test_events_are_sent_as_they_happen_and_filtered_by_type(server: Served) -> None:
    """http.md: frames `{"type", "at", "tenant", ...}`; `?types=` filters."""
    async with live(server, "/ws/events?types=dead_letter.*") as socket, live(server, "/ws/events") as everything:
        await server.node.push("orderbook", {"bid": "x"})
        event = await receive(socket)
        assert {"id", "type", "at", "tenant"} <= event.keys()
        assert (event["type"], event["tenant"], event["source"]) == ("dead_letter.added", "public", "orderbook")
        assert (await receive(everything))["id"] == event["id"]


async def test_a_reader_that_comes_back_continues_after_its_last_event(server: Served) -> None:
    """http.md: `?after=` resumes without a gap."""
    path = "/ws/events?types=dead_letter.added"
    async with live(server, path) as socket, live(server, path):
        await server.node.push("orderbook", {"bid": "one"})
        last = (await receive(socket))["id"]
        await socket.close()
        await server.node.push("orderbook", {"bid": "two"})
        async with live(server, f"{path}&after={last}") as again:
            event = await receive(again)
            assert (event["type"], event["id"] != last) == ("dead_letter.added", True)


async def test_an_empty_id_is_that_of_no_event(server: Served) -> None:
    """http.md: `?after=` resumes; a reader that has none yet begins now."""
    async with live(server, "/ws/events?after=&types=dead_letter.added") as socket:
        await server.node.push("orderbook", {"bid": "one"})
        assert (await receive(socket))["type"] == "dead_letter.added"


async def test_events_of_other_tenants_are_not_sent(server: Served) -> None:
    """S-5: a feed shows the events of its tenant."""
    headers = await create_tenant(server)
    async with live(server, "/ws/events?types=dead_letter.*", additional_headers=headers) as socket:
        await server.node.push("orderbook", {"bid": "x"})
        await server.node.load(market()[0], tenant="acme")
        await server.node.push("orderbook", {"bid": "y"}, tenant="acme")
        assert (await receive(socket))["tenant"] == "acme"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("types=rn.started", "did you mean 'run.started'"),
        ("after=yesterday", "not the id"),
        ("heartbeat=0", "at least 1"),
        ("heartbeat=nan", "at least 1"),
    ],
)
async def test_a_feed_that_cannot_be_had_says_why(server: Served, query: str, said: str) -> None:
    """http.md: 4400 with the reason."""
    async with live(server, f"/ws/events?{query}") as socket:
        code, reason = await end_of(socket)
        assert (code, said in reason) == (4400, True), reason


async def test_a_reader_that_asks_for_heartbeats_hears_that_the_server_is_there(server: Served) -> None:
    """S-9: a page notices a network that is gone; heartbeats are no events, and come only to those who ask."""
    async with live(server, "/ws/events?heartbeat=1") as socket, live(server, "/ws/events?types=*") as other:
        assert [await receive(socket) for _ in range(2)] == [{"type": "events.heartbeat"}] * 2
        await server.node.push("orderbook", {"bid": "x"})
        assert (await receive(other))["type"] == "dead_letter.added"


async def test_the_feed_takes_no_frames(server: Served) -> None:
    """http.md: events only go to the client."""
    async with live(server, "/ws/events") as socket:
        await socket.send("{}")
        assert (await end_of(socket))[0] == 4400
