"""The graph client: graphs, reactors, accumulators and dead letters as plain values, for callers of one tenant."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tidemill as tm
from tests.service.package_folders import package, without_child_processes
from tests.service.samples import single
from tidemill.access.principal import Caller
from tidemill.graphs.outcomes import Rejection

PUBLIC = Caller("public", "test")


class Low(tm.Boundary):
    """A routed value."""

    value: int


class High(tm.Boundary):
    """Another routed value."""

    value: int


def routed() -> list[Any]:
    """Return reactor `market` with graph `maker`, whose first node routes by class, and fails on 13."""

    @tm.passthrough
    def price(event: int) -> int:
        if event == 7:
            raise ValueError("unlucky")
        return event

    market = tm.Reactor("market", [price])
    maker = tm.Graph("maker", reactor=market)

    @maker.node
    def split(price: int) -> Low | High:
        return Low(price) if price < 10 else High(price)

    @maker.node
    def low(split: Low) -> int:
        return split.value

    @maker.node
    async def high(split: High) -> int:
        if split.value == 13:
            raise RuntimeError("too high")
        return split.value

    return [market, maker]


def triggerless() -> tm.Graph:
    """Return graph `double`, which is only called."""
    double = tm.Graph("double")

    @double.node
    def out(number: int) -> int:
        if number == 13:
            raise ValueError("unlucky")
        return 2 * number

    return double


async def test_a_graph_is_described_with_nodes_routes_edges_and_source() -> None:
    """S-1: inputs, returns and routes of nodes, edges, and the generated source; all of it is JSON."""
    async with tm.testing.node(load=[*routed(), triggerless()]) as node:
        client = node.graph_client
        listed = await client.list_graphs(PUBLIC)
        assert [(one.name, one.reactor) for one in listed] == [("double", None), ("maker", "market")]
        graph = json.loads(msgspec.json.encode(await client.graph(PUBLIC, "maker")))
    nodes = {one["name"]: one for one in graph["nodes"]}
    assert nodes["split"]["routes"] == {"Low": ["low"], "High": ["high"]}
    assert nodes["split"]["returns"] == "Low | High"
    assert nodes["low"]["inputs"] == [
        {"parameter": "split", "type": "Low", "origin": "node", "source": "split", "optional": False}
    ]
    assert (nodes["high"]["is_async"], nodes["high"]["is_terminal"], nodes["split"]["is_terminal"]) == (
        True,
        True,
        False,
    )
    assert {(edge["source"], edge["target"]): edge["classes"] for edge in graph["edges"]} == {
        ("price", "split"): None,
        ("split", "low"): ["Low"],
        ("split", "high"): ["High"],
    }
    assert graph["inputs"] == [{"name": "price", "type": "int", "required": True, "is_window": False}]
    assert "split(" in graph["source"]


async def test_a_graph_without_a_reactor_is_called_and_one_with_is_not() -> None:
    """http.md: POST /graphs/{name}/call; the error of a node is part of the result."""
    async with tm.testing.node(load=[*routed(), triggerless()]) as node:
        client = node.graph_client
        assert (await client.call_graph(PUBLIC, "double", {"number": 4})).outputs == {"out": 8}
        failed = await client.call_graph(PUBLIC, "double", {"number": 13})
        assert failed.error is not None
        assert (failed.ok, failed.error.node) == (False, "out")
        for name, inputs, code in (
            ("double", {"number": "x"}, "invalid_input"),
            ("double", {"nmber": 1}, "unknown_input"),
            ("maker", {"price": 1}, "graph_bound"),
            ("doubel", {}, "graph_not_found"),
        ):
            with pytest.raises(tm.RequestError) as refused:
                await client.call_graph(PUBLIC, name, inputs)
            assert refused.value.code == code
        assert refused.value.facts["suggestions"] == ["double"]


async def test_commands_return_the_firing_and_the_state() -> None:
    """S-3: every operator command, with typed answers that are JSON."""
    async with tm.testing.node(load=routed()) as node:
        client = node.graph_client
        paused = await client.command(PUBLIC, "market", "pause")
        assert (paused.firing, paused.state.paused) == (None, True)
        fired = await client.command(PUBLIC, "market", "fire_with", {"price": 13})
        assert fired.firing is not None
        assert (fired.firing.manual, fired.firing.ok) == (True, False)
        error = fired.firing.results["maker"].error
        assert error is not None
        assert (error.node, "too high" in error.message) == ("high", True)
        assert "in high" in error.traceback
        assert "graph_caller" not in error.traceback
        forced = await client.command(PUBLIC, "market", "force_fire")
        assert forced.firing is not None
        assert forced.state.fires == 2
        firings = await client.firings(PUBLIC, "market")
        assert [one.id for one in firings.firings] == [forced.firing.id, fired.firing.id]
        resumed = await client.command(PUBLIC, "market", "resume")
        restarted = await client.command(PUBLIC, "market", "restart")
        assert (resumed.state.paused, restarted.state.health) == (False, "live")
        assert sum(await client.timeseries(PUBLIC, "market")) == 2
        assert [one.action for one in await client.recoveries(PUBLIC, "market")] == ["restarted"]
        msgspec.json.encode([paused, fired, forced, firings])
        with pytest.raises(tm.RequestError, match="takes no inputs"):
            await client.command(PUBLIC, "market", "pause", {"price": 1})


async def test_an_accumulator_shows_its_state_and_what_it_takes() -> None:
    """http.md: the fields of tm.AccumulatorState, and the event's JSON Schema."""

    class Quote(tm.Boundary):
        bid: float

    @tm.passthrough
    def orderbook(event: Quote) -> Quote:
        return event

    async with tm.testing.node(load=tm.Reactor("market", [orderbook])) as node:
        client = node.graph_client
        await client.push(PUBLIC, "orderbook", b'{"bid": 1.5}')
        details = await client.accumulator(PUBLIC, "orderbook")
        assert (details.emitted, details.reactors) == (1, ["market"])
        assert details.event_schema is not None
        assert details.event_schema["$defs"]["Quote"]["properties"] == {"bid": {"type": "number"}}
        (state,) = await client.list_accumulators(PUBLIC)
        assert state == node.reactor("market").state().accumulators["orderbook"]
        restarted = await client.restart_accumulator(PUBLIC, "orderbook")
        assert restarted.health == "socket_only"


async def test_dead_letters_are_listed_replayed_and_dropped() -> None:
    """G-20: events of accumulators and firings of reactors, as plain values, newest first."""
    async with tm.testing.node(load=routed()) as node:
        client = node.graph_client
        await client.push(PUBLIC, "price", b"[not json")
        await client.push(PUBLIC, "price", 7)
        await client.push(PUBLIC, "price", 13)
        await node.settle()
        firing, event, garbage = await client.dead_letters.list_of(PUBLIC, "reactor", "market")
        assert (firing.kind, firing.inputs) == ("firing", {"price": 13})
        assert (event.event, garbage.event) == (7, "[not json")
        assert [one.id for one in await client.dead_letters.list_of(PUBLIC, "accumulator", "price")] == [
            event.id,
            garbage.id,
        ]
        again = await client.dead_letters.replay(PUBLIC, "accumulator", "price", event.id)
        assert again.receipt is not None
        assert again.receipt.outcome == "dead_lettered"
        refired = await client.dead_letters.replay(PUBLIC, "reactor", "market", firing.id)
        assert refired.firing is not None
        assert (refired.firing.attempt, refired.firing.ok) == (2, False)
        await client.dead_letters.drop(PUBLIC, "reactor", "market", garbage.id)
        await client.dead_letters.drop(PUBLIC, "reactor", "market", firing.id)
        left = await client.dead_letters.list_of(PUBLIC, "reactor", "market")
        assert [(one.id, one.attempts) for one in left] == [(event.id, 2)]
        for missing in (client.dead_letters.replay, client.dead_letters.drop):
            with pytest.raises(tm.RequestError) as refused:
                await missing(PUBLIC, "accumulator", "price", garbage.id)
            assert (refused.value.code, refused.value.status) == ("dead_letter_not_found", 404)


async def test_a_rejection_says_why_for_programs() -> None:
    """http.md: rejected receipts have a stable code; G-14: overflow="reject"."""
    async with tm.testing.node(load=single(strategy="sequential", capacity=1, overflow="reject").load) as node:
        client = node.graph_client
        await client.command(PUBLIC, "r", "pause")
        receipts = (await client.push_many(PUBLIC, "a", [1, 2])).receipts
        assert receipts[0] == tm.Receipt(True, 1, "emitted")
        assert isinstance(receipts[1], Rejection)
        assert (receipts[1].outcome, receipts[1].code) == ("rejected", "queue_full")
        await node.break_accumulator("a")
        down = await client.push(PUBLIC, "a", 3)
        assert isinstance(down, Rejection)
        assert down.code == "accumulator_down"


async def test_patience_ends_where_a_paused_or_busy_reactor_keeps_the_queue_full() -> None:
    """G-14: a caller that gave up can be sure that its event had no effect."""
    sample = single(strategy="sequential", capacity=2)
    async with tm.testing.node(load=sample.load) as node:
        client = node.graph_client
        await client.command(PUBLIC, "r", "pause")
        async with asyncio.TaskGroup() as group:
            pushing = group.create_task(client.push_many(PUBLIC, "a", [1, 2, 3, 4], patience=5), name="push")
            await node.settle()
            await node.advance(6)
        summary = await pushing
        assert summary.counts == {"emitted": 2, "rejected": 2}
        assert [getattr(one, "code", None) for one in summary.receipts] == [None, None, "paused", "paused"]
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(client.push(PUBLIC, "a", 5, patience=5), name="push")
            await node.advance(1)
            await client.command(PUBLIC, "r", "resume")
        assert (await waiting).accepted
        await node.settle()
    assert sample.seen == [1, 2, 5]


async def test_a_shared_reactor_is_read_by_others_and_commanded_by_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-30, S-5: only what is shared resolves across tenants, as `tenant/name`; the rest is unknown there."""
    code = (
        "import tidemill as tm\n\n"
        "@tm.passthrough\ndef tick(event: int) -> int:\n    return event\n\n"
        "market = tm.Reactor('market', [tick])\nsecret = tm.Reactor('secret', [tick])\n"
    )
    without_child_processes(monkeypatch)
    beta = Caller("beta", "test")
    async with tm.testing.node() as node:
        client = node.graph_client
        await node.load(
            package(tmp_path / "market", code, manifest="[reactors.market]\nshared = true\n"), tenant="acme"
        )
        assert (await client.reactor_state(beta, "acme/market")).name == "market"
        assert (await client.firings(beta, "acme/market")).firings == []
        assert (await client.command(Caller("acme", "test"), "acme/market", "pause")).state.paused
        with pytest.raises(tm.RequestError) as refused:
            await client.command(beta, "acme/market", "resume")
        assert (refused.value.code, refused.value.status) == ("not_allowed", 403)
        for unknown in ("acme/secret", "acme/nothing", "market"):
            with pytest.raises(tm.RequestError) as missing:
                await client.reactor_state(beta, unknown)
            assert (missing.value.code, missing.value.status) == ("reactor_not_found", 404)
        with pytest.raises(tm.RequestError) as missing:
            await client.push(beta, "acme/tick", 1)
        assert (missing.value.code, missing.value.status) == ("accumulator_not_found", 404)
        assert await client.list_reactors(beta) == []


@pytest.mark.parametrize("read", ["health_reports", "list_reactors", "list_accumulators"])
async def test_what_is_unloaded_while_all_are_read_is_left_out(read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-8: the overview and the lists do not fail for it."""
    async with tm.testing.node(load=single().load) as node:
        client = node.graph_client
        assert len(await getattr(client, read)(PUBLIC)) == 1

        async def unload_meanwhile(tenant: str, kind: str) -> list[str]:
            await node.unload("graph:g")
            await node.unload("reactor:r")
            return []

        monkeypatch.setattr(node._parts.router, "owned_names", unload_meanwhile)
        assert not await getattr(client, read)(PUBLIC)
