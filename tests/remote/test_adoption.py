"""Attempts of a node that is gone: those with a unit are adopted, the others are handed back. On the virtual clock."""

from importlib import import_module

import pytest

from tests.remote.scripted_units import Cluster, RemoteTestNode, begin, end
from tests.remote.test_failure_matrix import open_node, outcomes, start
from tests.service.workflows.faults import troubles
from tidemill.storage.workflow_ports import NodeRow
from tidemill.workflows.states import RunState


@pytest.fixture
def cluster() -> Cluster:
    """A cluster that outlives its nodes."""
    return Cluster()


async def crash(node: RemoteTestNode) -> RemoteTestNode:
    """Kill a node, and return its successor."""
    successor = await node.crash()
    assert isinstance(successor, RemoteTestNode)
    return successor


async def test_attempts_in_the_queue_of_a_dead_node_start_at_once(cluster: Cluster) -> None:
    """Nothing of them was launched: they cost neither a recovery nor the time of a lease."""
    cluster.delay = 5.0
    async with open_node(cluster, None) as node:
        run = await node.start("wide")
        await node.advance("1s")
        assert cluster.launched == []
        cluster.delay = 0.0
        node = await crash(node)
        await node.advance("20s")
        assert len({key.element for key in cluster.launched}) == 50
        assert set(await outcomes(node, run.id)) == {"success", "returned", ""}
        assert {one: count for one, count in troubles(node).items() if one != "dispatch_at_capacity"} == {}


async def test_an_order_without_a_unit_is_handed_back_once_the_cluster_is_seen(cluster: Cluster) -> None:
    """Its node died before the unit was created. Without sight of the cluster, that is not known."""
    async with open_node(cluster, None) as node:
        run, key = await start(node)
        cluster.units.clear()
        cluster.is_seen = False
        node = await crash(node)
        await node.advance("5m")
        assert (cluster.launched, troubles(node)) == ([key], {})
        cluster.is_seen = True
        await node.advance("3s")
        again = key._replace(attempt=2)
        assert cluster.launched == [key, again]
        await begin(node, again)
        await end(node, again)
        assert await outcomes(node, run.id) == ["returned", "success"]
        assert troubles(node) == {}


async def test_a_node_that_is_gone_from_another_host_leaves_its_pending_units(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-12: only its silence says that it is gone, and the lease of a unit that waits may run out before that."""
    monkeypatch.setattr(import_module("tidemill.testing.node")._CrashedNodes, "is_dead", _is_never_dead)
    cluster.is_full = True
    async with open_node(cluster, None) as node:
        run, key = await start(node)
        await node.advance("50s")
        owner = node.probe.workflows.owner
        await node.store.owners.upsert(owner)  # its last beat: later than the last one of the attempt
        await node.probe.workflows.election.resign()
        node = await crash(node)
        node._workflows.share_store()
        await node.advance("88s")
        assert node.metrics()["adopted_attempts_total"] == 1
        await begin(node, key)
        await end(node, key)
        await node.advance("1s")
        assert (await node.run_handle(run.id).state()).state is RunState.SUCCESS
        assert (cluster.launched, cluster.deleted, troubles(node)) == ([key], [], {})


def _is_never_dead(_liveness: object, _owner: NodeRow) -> bool:
    return False
