"""Launches that fail although the unit was started, or because the node closes. On the virtual clock."""

from pathlib import Path

from tests.remote.scripted_units import Cluster, begin, end
from tests.remote.test_failure_matrix import open_node, outcomes, start
from tests.service.workflows.faults import troubles
from tidemill.engine.workflows.executors.remote.interface import ClusterUnavailableError
from tidemill.workflows.records import AttemptKey
from tidemill.workflows.states import RunState


async def test_an_attempt_that_runs_is_kept_although_its_launch_has_failed() -> None:
    """W-1: the cluster started the unit, and its answer was lost. Handed back, the code would run twice at a time."""
    cluster = Cluster()
    async with open_node(cluster, None) as node:

        async def lose_answer(key: AttemptKey) -> None:
            await node.remote_reports.start(key, "p1")
            raise ClusterUnavailableError("no answer")

        cluster.answer = lose_answer
        run, key = await start(node)
        await node.advance("30s")
        assert cluster.launched == [key]
        await end(node, key)
        await node.advance("1s")
        assert (await run.state()).state is RunState.SUCCESS
        assert await outcomes(node, run.id) == ["success"]
        assert troubles(node) == {}


async def test_a_launch_that_the_closing_node_interrupts_fails_no_task(tmp_path: Path) -> None:
    """W-6: a client that is closed raises errors of its own; the attempt is handed back, and costs nothing."""
    cluster, store = Cluster(), f"sqlite:///{tmp_path}/store.db"

    async def wait_for_close(_: AttemptKey) -> None:
        await cluster.closed.wait()
        raise RuntimeError("Cannot send a request, as the client has been closed.")

    cluster.answer = wait_for_close
    async with open_node(cluster, store, unload_timeout="500ms") as node:
        run, key = await start(node)
        assert cluster.launched == [key]
    cluster.answer = None
    async with open_node(cluster, store) as node:
        await node.advance("20s")
        again = key._replace(attempt=2)
        assert cluster.launched == [key, again]
        await begin(node, again)
        await end(node, again)
        assert await outcomes(node, run.id) == ["returned", "success"]
