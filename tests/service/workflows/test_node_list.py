"""The nodes of a store: what each is and does, which one leads, and which ones are gone."""

from datetime import timedelta

from msgspec.structs import replace

import tidemill as tm
from tests.service.workflows.faults import QUICK, Neighbour, blocked_flow, store_of
from tests.service.workflows.test_shared_stores import advance, gated
from tidemill.api.nodes import NodeSummary
from tidemill.storage.workflow_ports import NodeRow

TIMEOUT = 90  # seconds without a beat after which a node counts as silent


async def nodes_of(node: tm.testing.TestNode) -> dict[str, NodeSummary]:
    """Return the nodes that a node lists, by id."""
    return {load.owner.id: NodeSummary.of_load(load) for load in await node.probe.workflows.client.nodes.list_all()}


def stranger(node: tm.testing.TestNode, id: str) -> NodeRow:
    """Return an owner on another host, of which nothing is known but its beats."""
    return replace(node.probe.workflows.owner, id=id, host="elsewhere pid:[1]", kind="server", name=f"server-{id}")


async def test_a_node_lists_itself_with_what_it_does(store: str | None) -> None:
    """W-11: alone on its store it beats for no one; it knows that it lives all the same."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK, concurrency=3) as node:
        begun = node.clock.now()
        await node.start("flow")
        await node.advance("2m")
        (only,) = (await nodes_of(node)).values()
        assert (only.kind, only.state, only.leads, only.running, only.concurrency) == ("embedded", "alive", True, 1, 3)
        assert (only.started_at, only.last_beat) == (begun, node.clock.now())
        assert only.name.endswith(f"-{only.pid}")
        assert only.host == only.name.removesuffix(f"-{only.pid}")
        blocked.go.set()


async def test_one_of_several_nodes_leads_and_each_has_its_own_load(sqlite: str) -> None:
    """W-9, W-12: every node gives the same answer."""
    flow, gate, _ = gated()
    async with (
        tm.testing.node(sqlite, load=[flow], concurrency=1) as first,
        tm.testing.node(sqlite, load=[flow], concurrency=2) as second,
    ):
        await first.start("flow")
        await advance([first, second], 3)
        listed = [await nodes_of(node) for node in (first, second)]
        for nodes in listed:
            summaries = sorted((one.concurrency, one.leads, one.running, one.state) for one in nodes.values())
            assert summaries == [(1, True, 1, "alive"), (2, False, 1, "alive")]
        gate.set()
        await advance([first, second], 2)


async def test_a_node_that_shares_its_store_beats(sqlite: str) -> None:
    """W-11: the last beat is never older than a heartbeat interval."""
    async with Neighbour(sqlite) as node:
        await node.advance("40s")
        (beat,) = await store_of(node).owners.list_beats()
        assert node.clock.now() - beat.at <= timedelta(seconds=node.settings.heartbeat_interval)


async def test_a_node_that_falls_silent_is_not_called_dead(store: str | None) -> None:
    """W-11: nothing is certain about a process of another host; one of this host is seen to be gone."""
    async with tm.testing.node(store) as node:
        owners = store_of(node).owners
        await owners.upsert(stranger(node, "away"))
        await owners.upsert(replace(node.probe.workflows.owner, id="gone", started="before"))  # another had its pid
        nodes = await nodes_of(node)
        assert (nodes["away"].state, nodes["gone"].state, nodes["away"].host) == ("alive", "dead", "elsewhere")
        silent_since = nodes["away"].last_beat
        node.clock.advance_to(node.clock.monotonic() + TIMEOUT)
        away = (await nodes_of(node))["away"]
        assert (away.state, away.last_beat, away.leads) == ("silent", silent_since, False)


async def test_a_node_of_another_host_is_forgotten_after_a_day_of_silence(sqlite: str) -> None:
    """Hosts of a cluster come and go; one that beats stays, for as long as it does."""
    async with Neighbour(sqlite) as node:
        owners, steady = store_of(node).owners, stranger(node, "steady")
        await owners.upsert(stranger(node, "away"))
        await owners.upsert(steady)
        await node.advance("1m")
        for _ in range(2):
            assert {"away", "steady"} < set(await nodes_of(node))
            node.clock.advance_to(node.clock.monotonic() + 43_200)
            await owners.upsert(steady)
            await node.advance("2m")
        assert set(await nodes_of(node)) == {"steady", node.probe.workflows.owner.id}
