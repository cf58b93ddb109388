"""The rows of the failure matrix for remote attempts, on the virtual clock: where they differ from other executors."""

from typing import Any

import pytest
from msgspec.structs import replace

import tidemill as tm
from tests.remote.scripted_units import Cluster, RemoteTestNode, beat, begin, end, make_node_class
from tests.service.workflows.faults import breaking, store_of, troubles
from tidemill.api.handles import AsyncRun
from tidemill.engine.workflows.executors.remote.executor import RemoteExecutor
from tidemill.engine.workflows.executors.remote.interface import UnitStatus
from tidemill.engine.workflows.remote_reports import AttemptEndedError
from tidemill.kernel.errors import StoreError
from tidemill.workflows.attempt_results import Failed, Succeeded
from tidemill.workflows.records import AttemptKey, TaskError
from tidemill.workflows.states import RunState, TaskState

flow = tm.Workflow("flow")


@flow.task(executor="kubernetes")
def work() -> int:
    """Run in a unit, which tests play."""
    return 1


wide = tm.Workflow("wide")


@wide.task
async def numbers() -> list[int]:
    """Return what the other task is mapped over."""
    return list(range(50))


@wide.task(each="numbers", executor="kubernetes")
def one(numbers: int) -> int:
    """Run in a unit of its own."""
    return numbers


@pytest.fixture
def cluster() -> Cluster:
    """A cluster that outlives its nodes."""
    return Cluster()


@pytest.fixture(params=[None, "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str | None:
    """In memory, and in a file."""
    return None if request.param is None else f"sqlite:///{tmp_path_factory.mktemp('store')}/t.db"


def open_node(cluster: Cluster, store: str | None, **settings: Any) -> RemoteTestNode:
    """Return a node on a cluster."""
    return make_node_class(cluster)(store, load=[flow, wide], settings=settings)


async def start(node: RemoteTestNode) -> tuple[AsyncRun, AttemptKey]:
    """Start a run, and return it with the attempt whose unit was launched."""
    run = await node.start("flow")
    await node.advance("1s")
    key = AttemptKey(run.id, "work", -1, 1)
    assert node.cluster.launched[-1] == key
    return run, key


async def outcomes(node: RemoteTestNode, run: str) -> list[str]:
    """Return how the attempts of a run have ended."""
    return [row.outcome for row in await store_of(node).runs.read_attempts(run)]


@pytest.mark.parametrize("is_begun", [True, False])
async def test_scheduler_crash_mid_tick(cluster: Cluster, store: str | None, is_begun: bool) -> None:
    """F1, W-12: the node is killed; its successor adopts the unit, and launches no other one."""
    async with open_node(cluster, store) as node:
        run, key = await start(node)
        if is_begun:
            await begin(node, key)
        node = await node.crash()
        assert isinstance(node, RemoteTestNode)
        await node.advance("5s")
        assert node.metrics()["adopted_attempts_total"] == 1
        await begin(node, key)
        await end(node, key)
        await node.advance("1s")
        assert (await node.run_handle(run.id).state()).state is RunState.SUCCESS
        assert (cluster.launched, cluster.deleted) == ([key], [])
        assert troubles(node) == {}


async def test_scheduler_crash_mid_finalization(cluster: Cluster, store: str | None) -> None:
    """F2: the result is written by a server that plans nothing; the leader ends the run from the row."""
    async with open_node(cluster, store) as node:
        run, key = await start(node)
        await begin(node, key)
        coordinator, node._workflows.leader.coordinator = node._workflows.leader.coordinator, None
        await end(node, key)
        node._workflows.leader.coordinator = coordinator
        await node.advance("2s")
        assert (await run.state()).state is RunState.SUCCESS


async def test_agent_dies_mid_task(cluster: Cluster, store: str | None) -> None:
    """F3, W-11: heartbeats of the attempt keep it; without them it is lost after 90 s, its unit is deleted."""
    async with open_node(cluster, store) as node:
        run, key = await start(node)
        await begin(node, key)
        for _ in range(4):
            await node.advance("60s")
            await beat(node, key)
        assert troubles(node) == {}
        await node.advance("130s")
        assert troubles(node) == {"agent_lost_tasks_total": 1}
        assert cluster.deleted == [key]
        again = key._replace(attempt=2)
        assert cluster.launched == [key, again]
        await begin(node, again)
        await end(node, again)
        assert await outcomes(node, run.id) == ["lost", "success"]


async def test_slow_kubernetes_api(cluster: Cluster, store: str | None) -> None:
    """F4, W-7: 50 tasks, 500 ms per unit: ticks stay on time, and all of it drains."""
    cluster.delay = 0.5
    async with open_node(cluster, store) as node:
        await node.start("wide")
        await node.advance("1s")
        before, count = node.clock.monotonic(), node.metrics()["scheduler_ticks_total"]
        await node.advance("20s")
        ticks = node.metrics()["scheduler_ticks_total"] - count
        assert (node.clock.monotonic() - before) / ticks == pytest.approx(1.0, rel=0.1)
        await node.advance("10s")
        assert len(set(cluster.launched)) == len(cluster.launched) == 50


async def test_db_hiccup(cluster: Cluster, store: str | None) -> None:
    """F5: a report that cannot be written is answered with an error, and its repetition counts once."""
    async with open_node(cluster, store) as node:
        run, key = await start(node)
        await begin(node, key)
        with breaking(store_of(node).runs, "find_task"), pytest.raises(StoreError):
            await end(node, key)
        await end(node, key)
        await end(node, key)
        assert (await run.state()).state is RunState.SUCCESS
        assert await outcomes(node, run.id) == ["success"]
        assert node.metrics()["late_reports_total"] == 0


async def test_poison_run(cluster: Cluster, store: str | None) -> None:
    """F6, W-5: nothing of the run can be planned; the result is written all the same, and others go on."""
    async with open_node(cluster, store) as node:
        poisoned, key = await start(node)
        await begin(node, key)
        node.break_run(poisoned.id)
        healthy, other = await start(node)
        await begin(node, other)
        await end(node, key)
        await end(node, other)
        assert (await healthy.state()).state is RunState.SUCCESS
        assert (await poisoned.state()).tasks["work"].state is TaskState.SUCCESS
        node.repair_runs()
        await node.advance("1m")
        assert (await poisoned.state()).state is RunState.SUCCESS


async def test_poison_reap_candidate(cluster: Cluster, store: str | None) -> None:
    """F7, W-5: the order of one attempt is unreadable; the attempts of the other units are adopted."""
    async with open_node(cluster, store) as node:
        first, broken = await start(node)
        second, key = await start(node)
        stored = await node.store.attempt_orders.get(broken)
        assert stored is not None
        await node.store.attempt_orders.put(replace(stored, payload=b"\xc1"))
        node = await node.crash()
        assert isinstance(node, RemoteTestNode)
        await node.advance("5s")
        assert node.metrics()["adopted_attempts_total"] == 1
        await begin(node, key)
        await end(node, key)
        assert (await node.run_handle(second.id).state()).state is RunState.SUCCESS
        assert not (await node.run_handle(first.id).state()).state.is_terminal
        assert troubles(node) == {}


async def test_leader_connection_blip(cluster: Cluster, store: str | None) -> None:
    """F8: the leadership is lost and won again; the unit runs on, and nothing runs twice."""
    async with open_node(cluster, store) as node:
        run, key = await start(node)
        await begin(node, key)
        node.probe.workflows.election.step_down(node.probe.workflows.coordinator.term)
        await end(node, key)
        await node.advance("10s")
        assert (await run.state()).state is RunState.SUCCESS
        assert cluster.launched == [key]


async def test_leader_overlap(cluster: Cluster, store: str | None) -> None:
    """F9, W-1: a unit that was cut off reports late: it is refused and counted, and changes nothing."""
    async with open_node(cluster, store) as node:
        run, key = await start(node)
        await begin(node, key)
        await node.advance("130s")
        again = key._replace(attempt=2)
        with pytest.raises(AttemptEndedError):
            await beat(node, key)
        with pytest.raises(AttemptEndedError):
            await end(node, key, Failed(error=TaskError("ValueError", "late")))
        assert node.metrics()["late_reports_total"] == 1
        await begin(node, again)
        await end(node, again)
        assert (await run.state()).state is RunState.SUCCESS


async def test_a_result_in_flight_wins_over_the_end_of_its_unit(cluster: Cluster, store: str | None) -> None:
    """The unit ends at the moment at which its report is on its way."""
    async with open_node(cluster, store) as node:
        run, key = await start(node)
        await begin(node, key)
        cluster.report(key, UnitStatus(state="ended", cause="completed", exit=0))
        await node.advance("1s")
        await end(node, key, Succeeded(b"\x01"))
        await node.advance("5s")
        assert (await run.state()).state is RunState.SUCCESS
        assert await outcomes(node, run.id) == ["success"]
        assert troubles(node) == {}


async def test_nothing_is_remembered_of_units_that_are_gone(cluster: Cluster, store: str | None) -> None:
    """A node sees the units of all nodes, for years: it forgets those that the cluster has removed."""
    async with open_node(cluster, store) as node:
        _, key = await start(node)
        await begin(node, key)
        await end(node, key)
        foreign = key._replace(run="of another node")
        cluster.report(foreign, UnitStatus(state="running"))
        for gone in (key, foreign):
            cluster.report(gone, UnitStatus(state="missing"))
        await node.advance("1s")
        executor = node.probe.workflows.executors["kubernetes"]
        assert isinstance(executor, RemoteExecutor)
        assert (executor.known_units, executor.running()) == (0, set())


async def test_units_that_have_ended_are_forgotten_with_their_remains(cluster: Cluster) -> None:
    """A node that does not lead discards none of the others' units: it forgets them when the cluster has."""
    async with open_node(cluster, None) as node:
        executor = node.probe.workflows.executors["kubernetes"]
        assert isinstance(executor, RemoteExecutor)
        foreign = AttemptKey("of another node", "work", -1, 1)
        executor.on_unit(foreign, UnitStatus(state="ended", cause="completed"))
        executor.on_removed(foreign)
        assert executor.known_units == 0
        _, key = await start(node)
        await begin(node, key)
        cluster.report(key, UnitStatus(state="ended", cause="oom"))
        executor.on_removed(key)  # it is yet to be judged
        await node.advance("5s")
        assert await outcomes(node, key.run) == ["oom"]


async def test_a_unit_that_cannot_be_deleted_does_not_keep_the_others(cluster: Cluster) -> None:
    """Such as one in a namespace in which the server may not delete pods."""
    async with open_node(cluster, None) as node:
        stuck, other = (AttemptKey(run, "work", -1, 1) for run in ("stuck", "other"))
        cluster.undeletable.add(stuck)
        for key in (stuck, other):
            cluster.report(key, UnitStatus(state="running"))
        executor = node.probe.workflows.executors["kubernetes"]
        assert isinstance(executor, RemoteExecutor)
        await node.advance("11s")  # since the sweep at the start
        executor.request_sweep()
        await node.advance("1s")
        assert cluster.deleted == [other]
