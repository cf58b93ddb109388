"""Units that do not start: who gives them up, and when. On the virtual clock."""

from typing import Any

import pytest

from tests.remote.scripted_units import Cluster, begin, end
from tests.remote.test_failure_matrix import open_node, outcomes, start
from tests.service.workflows.faults import store_of, troubles
from tidemill.engine.workflows.executors.remote.interface import UnitCause, UnitStatus
from tidemill.workflows.records import AttemptKey
from tidemill.workflows.states import RunState, TaskState


@pytest.fixture
def cluster() -> Cluster:
    """A cluster without a free machine."""
    cluster = Cluster()
    cluster.is_full = True
    return cluster


async def test_a_unit_that_waits_for_too_long_fails_and_is_deleted(cluster: Cluster) -> None:
    """It must not begin later, when its attempt has failed long ago."""
    async with open_node(cluster, None) as node:
        run, key = await start(node)
        await node.advance("9m")
        assert (await run.state()).tasks["work"].state is TaskState.QUEUED
        cluster.report(key, UnitStatus(state="pending", reason="0/3 nodes are available"))
        await node.advance("70s")
        (attempt,) = await node.store.runs.read_attempts(run.id)
        assert attempt.outcome == "not_started"
        assert attempt.error is not None
        assert attempt.error.message == "it did not start within 10m: 0/3 nodes are available"
        assert cluster.deleted == [key]
        assert troubles(node) == {}


@pytest.mark.parametrize(
    ("problem", "outcome"), [("image_pull", "not_started"), ("error", "not_started"), ("deleted", "lost")]
)
async def test_a_problem_that_stays_ends_a_unit_sooner(cluster: Cluster, problem: UnitCause, outcome: str) -> None:
    """An image that cannot be pulled fails; a Secret that its node did not store costs a recovery."""
    async with open_node(cluster, None) as node:
        run, key = await start(node)
        cluster.report(key, UnitStatus(state="pending", problem=problem, reason="no such thing"))
        await node.advance("50s")
        assert await outcomes(node, run.id) == [""]
        await node.advance("15s")
        assert (await outcomes(node, run.id))[0] == outcome


async def test_an_attempt_that_has_begun_unseen_is_not_given_up(cluster: Cluster) -> None:
    """W-11, do no harm: the unit still looks pending, but its attempt has reported its start."""
    async with open_node(cluster, None) as node:
        run, key = await start(node)
        await begin(node, key)
        for _ in range(20):
            await node.advance("1m")
            await node.remote_reports.renew(key)
        await end(node, key)
        await node.advance("1s")
        assert (await run.state()).state is RunState.SUCCESS
        assert (cluster.deleted, troubles(node)) == ([], {})


async def test_an_attempt_that_has_begun_unseen_renews_its_own_lease(cluster: Cluster) -> None:
    """W-11: once the node knows that it has begun, silence is a sign again."""
    async with open_node(cluster, None) as node:
        run, key = await start(node)
        await begin(node, key)
        await node.advance("15m")
        assert (await outcomes(node, run.id))[0] == "lost"


async def test_no_unit_is_given_up_while_the_cluster_is_away(cluster: Cluster) -> None:
    """W-11, do no harm: a unit that was pending long ago may run by now."""
    async with open_node(cluster, None) as node:
        run, key = await start(node)
        cluster.is_seen = False
        await node.advance("20m")
        assert (await run.state()).tasks["work"].state is TaskState.QUEUED
        cluster.is_seen = True
        cluster.report(key, UnitStatus(state="running"))
        await node.advance("5s")
        await begin(node, key)
        await end(node, key)
        assert (cluster.launched, cluster.deleted, troubles(node)) == ([key], [], {})


async def test_an_attempt_that_dies_while_the_cluster_is_away_is_lost(cluster: Cluster) -> None:
    """W-11: it has begun, so its own silence counts, and the node does not renew its lease."""
    async with open_node(cluster, None) as node:
        run, key = await start(node)
        cluster.is_seen = False
        await node.advance("5m")
        assert (await run.state()).tasks["work"].state is TaskState.QUEUED
        await begin(node, key)
        await node.advance("150s")
        assert (await outcomes(node, run.id))[0] == "lost"


async def test_a_unit_that_runs_does_not_wait_again(cluster: Cluster) -> None:
    """A launcher that connects anew may call it pending at first. Its attempt renews its lease, not the node."""
    async with open_node(cluster, None) as node:
        run, key = await start(node)
        for state in ("running", "pending"):
            cluster.report(key, UnitStatus(state=state))
        await begin(node, key)
        await node.advance("3m")
        assert (await outcomes(node, run.id))[0] == "lost"


async def test_a_node_gives_up_no_unit_of_another_one(cluster: Cluster) -> None:
    """Two servers see the same units: only the one that has an attempt decides on it."""
    async with open_node(cluster, None) as node:
        foreign = AttemptKey("of another node", "work", -1, 1)
        cluster.report(foreign, UnitStatus(state="pending", problem="image_pull"))
        executor: Any = node.probe.workflows.executors["kubernetes"]
        executor.request_sweep = lambda: None
        await node.advance("20m")
        assert (cluster.deleted, list(cluster.units)) == ([], [foreign])


async def test_a_unit_out_of_sight_is_judged_by_its_lease(cluster: Cluster) -> None:
    """W-11: another cluster has replaced the one of the unit. The node forgets it: no sweep ends it again and again."""
    async with open_node(cluster, None) as node:
        run, key = await start(node)
        await begin(node, key)
        cluster.report(key, UnitStatus(state="running"))
        del cluster.units[key]
        for observer in cluster.observers:
            observer.on_removed(key)
        executor: Any = node.probe.workflows.executors["kubernetes"]
        assert (executor.known_units, executor.self_renewing()) == (0, {key})
        await node.advance("3m")
        assert (await outcomes(node, run.id))[0] == "lost"


async def test_what_a_cluster_shows_of_a_unit_is_masked(cluster: Cluster) -> None:
    """Secrets: the end of the output comes from the cluster, past the masks of the attempt."""
    async with open_node(cluster, None) as node:
        run, key = await start(node)
        node.access.secrets.mask.add("open-sesame")
        text = "the key is open-sesame"
        cluster.report(key, UnitStatus(state="ended", cause="error", exit=1, reason=text, log_tail=text))
        await node.advance("5s")
        chunks = await store_of(node).logs.read(key.task_key)
        shown = [*(str(chunk.payload) for chunk in chunks), str(await store_of(node).runs.read_attempts(run.id))]
        assert ("open-sesame" in "".join(shown), "***" in shown[0], "***" in shown[-1]) == (False, True, True)
