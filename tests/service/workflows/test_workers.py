"""Workers: they claim what they can run, run it in processes of their own, and do nothing else."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.postgres import PostgresServer
from tests.service.package_files import shop
from tests.service.workflows import worker_flows
from tests.service.workflows.pairs import PATIENCE, SETTINGS, until
from tidemill.api.handles import AsyncRun
from tidemill.api.nodes import NodeSummary
from tidemill.kernel.clock import SystemClock
from tidemill.packages.format.archive import parse_archive
from tidemill.packages.format.signature import TrustPolicy
from tidemill.packages.format.zip_format import build_zip
from tidemill.packages.publishing import Publisher
from tidemill.testing.probes.workflows import WorkflowProbe
from tidemill.worker import WorkerNode
from tidemill.workflows.states import RunState, TaskState

QUICK = {**SETTINGS, "package_poll_interval": "50ms"}


class Fleet:
    """A node, and the workers on its store."""

    def __init__(self, address: str, stack: AsyncExitStack) -> None:
        self.address = address
        self._stack = stack

    async def add_node(self, *load: Any, **options: Any) -> tm.Node:
        """Open a node."""
        return await self._stack.enter_async_context(tm.Node(self.address, load=load, settings=QUICK, **options))

    async def add_worker(self, *load: Any, **options: Any) -> WorkerNode:
        """Open a worker."""
        return await self._stack.enter_async_context(WorkerNode(self.address, load=load, settings=QUICK, **options))


@pytest.fixture(params=["sqlite", "postgres"])
async def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fleet]:
    """No process yet, on an empty database of each kind that processes share."""
    address = f"sqlite:///{tmp_path / 'tidemill.db'}"
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        address = await server.fresh_store()
    async with AsyncExitStack() as stack:
        yield Fleet(address, stack)


@pytest.fixture
async def on_file(tmp_path: Path) -> AsyncIterator[Fleet]:
    """No process yet, on an empty file: for what does not depend on the database."""
    async with AsyncExitStack() as stack:
        yield Fleet(f"sqlite:///{tmp_path / 'tidemill.db'}", stack)


async def nodes_of(node: tm.Node) -> list[NodeSummary]:
    """Return the nodes that the store lists."""
    return [NodeSummary.of_load(load) for load in await WorkflowProbe.of(node).client.nodes.list_all()]


async def until_began(folder: Path, count: int = 1) -> None:
    """Wait until so many tasks hold on."""

    async def have_begun() -> bool:
        return len(list(folder.glob("began-*"))) == count

    await until(have_begun)


def state_is(run: AsyncRun, task: str, state: str) -> Callable[[], Any]:
    """Return a condition: a task of a run is in a state."""

    async def is_so() -> bool:
        return (await run.state()).tasks[task].state == state

    return is_so


# -- claiming


async def test_a_tenant_does_not_wait_for_all_tasks_of_another(fleet: Fleet) -> None:
    """W-6: a worker with one slot takes turns between tenants, although the tasks of one are all older."""
    node, worker = await fleet.add_node(), await fleet.add_worker(concurrency=1, labels=["gpu"])
    for tenant in ("acme", "public"):
        await node.load(worker_flows.mixed, tenant=tenant)
    runs = [await node.start("mixed", tenant="acme") for _ in range(8)]
    own = await node.start("mixed")

    async def are_scheduled() -> bool:
        states = [(await run.state()).tasks["anywhere"].state for run in (*runs, own)]
        return all(state is TaskState.SCHEDULED for state in states)

    await until(are_scheduled)
    for tenant in ("acme", "public"):
        await worker.load(worker_flows.mixed, tenant=tenant)
    assert (await own.wait(PATIENCE)).ok
    assert not any([(await run.state()).state.is_terminal for run in runs[4:]])


async def test_a_worker_runs_what_it_has_the_labels_for(fleet: Fleet) -> None:
    """W-1, W-2: values go there and back; logs, attempts and states are those of any executor."""
    node = await fleet.add_node(worker_flows.mixed)
    plain = await fleet.add_worker(worker_flows.mixed, name="plain")
    run = await node.start("mixed")
    await until(state_is(run, "on_gpu", "scheduled"))
    (sentence,) = await run.why("on_gpu")
    assert sentence == "it is scheduled, and waits for a worker with the labels gpu; none is running"
    labelled = await fleet.add_worker(worker_flows.mixed, name="labelled", labels=["eu", "gpu"], concurrency=1)
    result = await run.wait(timeout=PATIENCE)
    assert (result.state, result.tasks["on_gpu"].output) == (RunState.SUCCESS, 2)
    node_pid, task_pid = result.tasks["anywhere"].output
    assert node_pid == os.getpid() != task_pid
    lines = [(record.message, record.stream) async for record in run.logs("anywhere")]
    assert sorted(lines) == [("logged there", "log"), ("printed there", "stdout")]
    attempts = await WorkflowProbe.of(node).store.runs.read_attempts(run.id)
    ran = {one.key.task: (one.executor, one.worker) for one in attempts}
    owners = {name: WorkflowProbe.of(one).owner.id for name, one in (("plain", plain), ("labelled", labelled))}
    assert ran["on_gpu"] == ("worker", owners["labelled"])
    assert ran["anywhere"] == ("worker", owners["plain"])
    assert ran["here"] == ("in_process", WorkflowProbe.of(node).owner.id)


async def test_a_worker_neither_leads_nor_plans(fleet: Fleet) -> None:
    """W-8: without a node nothing is planned; the store lists it as what it is."""
    worker = await fleet.add_worker(worker_flows.mixed, name="alone", labels=["gpu"], concurrency=2)
    assert await WorkflowProbe.of(worker).store.leases.current("scheduler") is None
    (only,) = await nodes_of(worker)
    assert (only.kind, only.name, only.labels, only.concurrency) == ("worker", "alone", ("gpu",), 2)
    assert (only.leads, only.state, only.running) == (False, "alive", 0)
    node = await fleet.add_node(worker_flows.mixed)
    assert {one.kind: one.leads for one in await nodes_of(worker)} == {"worker": False, "embedded": True}
    assert (await (await node.start("mixed")).wait(timeout=PATIENCE)).state is RunState.SUCCESS


async def test_a_worker_runs_as_many_as_it_has_slots(on_file: Fleet, tmp_path: Path) -> None:
    """W-1: the others wait, and `nodes` shows the load."""
    node = await on_file.add_node(worker_flows.held)
    await on_file.add_worker(worker_flows.held, concurrency=2)
    runs = [await node.start("held", folder=str(tmp_path)) for _ in range(5)]
    await until_began(tmp_path, 2)
    loads = {one.kind: one.running for one in await nodes_of(node)}
    assert loads == {"embedded": 0, "worker": 2}
    reasons = [(await run.why("hold"))[0] for run in runs]
    assert reasons.count("it is scheduled, and waits for a worker: the only one is busy") == 3
    (tmp_path / "gate").touch()
    assert {(await run.wait(timeout=PATIENCE)).state for run in runs} == {RunState.SUCCESS}


async def test_a_worker_without_the_version_of_a_run_leaves_it_alone(on_file: Fleet) -> None:
    """W-19: the code of another version would be another task."""
    node = await on_file.add_node(worker_flows.mixed)
    other = tm.Workflow("mixed")
    other.task(executor="worker")(worker_flows.anywhere)
    other.task(worker_flows.here)
    await on_file.add_worker(other, labels=["gpu"])
    run = await node.start("mixed")
    await until(state_is(run, "anywhere", "scheduled"))
    (sentence,) = await run.why("anywhere")
    assert "a worker that has version" in sentence
    await run.cancel()


async def test_a_worker_makes_no_old_version_the_newest(on_file: Fleet) -> None:
    """W-19: a worker that is started late with older code changes nothing for those who ask for the newest."""
    node = await on_file.add_node(worker_flows.mixed)
    newer = tm.Workflow("mixed")
    newer.task(worker_flows.here)
    await node.load(newer)
    await on_file.add_worker(worker_flows.mixed)
    versions = await WorkflowProbe.of(node).store.versions.for_tenant("public")
    expected = [flow.wired().spec.version for flow in (worker_flows.mixed, newer)]
    assert [one.key.version for one in versions] == expected


async def test_elements_of_a_mapped_task_run_on_several_workers(on_file: Fleet) -> None:
    """W-1: each element is claimed by one worker."""
    node = await on_file.add_node(worker_flows.wide)
    for _ in range(2):
        await on_file.add_worker(worker_flows.wide, concurrency=2)
    run = await node.start("wide")
    result = await run.wait(timeout=PATIENCE)
    assert [one.output for one in result.tasks["square"].mapped] == [number * number for number in range(12)]
    attempts = await WorkflowProbe.of(node).store.runs.read_attempts(run.id)
    assert len(attempts) == 13


# -- ends


async def test_failures_are_retried_and_timeouts_kill(on_file: Fleet, tmp_path: Path) -> None:
    """Tasks: with the retry budget and the timeout that the task declares."""
    node = await on_file.add_node(worker_flows.shaky)
    await on_file.add_worker(worker_flows.shaky)
    result = await (await node.start("shaky", folder=str(tmp_path))).wait(timeout=PATIENCE)
    assert (result.tasks["fails_once"].output, result.tasks["fails_once"].attempts) == ("at last", 2)
    assert result.tasks["too_slow"].state is TaskState.FAILED
    assert result.tasks["too_slow"].reason == "TimeoutError: it ran longer than 0.1 s"


async def test_cancel_reaches_the_code_on_a_worker(on_file: Fleet, tmp_path: Path) -> None:
    """Tasks: the process of the attempt ends, and its slot is free again."""
    node = await on_file.add_node(worker_flows.held)
    worker = await on_file.add_worker(worker_flows.held, concurrency=1)
    run = await node.start("held", folder=str(tmp_path))
    await until_began(tmp_path)
    (pid,) = [int(file.name.removeprefix("began-")) for file in tmp_path.glob("began-*")]
    await run.cancel()

    async def has_ended() -> bool:
        return worker.running_count == 0 and not Path(f"/proc/{pid}").exists()

    await until(has_ended)
    assert (await run.state()).state is RunState.CANCELLED


async def test_a_worker_that_drains_ends_what_it_runs_and_claims_no_more(fleet: Fleet, tmp_path: Path) -> None:
    """W-6, executors: nothing is lost, and nothing runs twice."""
    node = await fleet.add_node(worker_flows.held)
    worker = await fleet.add_worker(worker_flows.held, concurrency=2)
    runs = [await node.start("held", folder=str(tmp_path)) for _ in range(3)]
    await until_began(tmp_path, 2)
    async with asyncio.TaskGroup() as group:
        drained = group.create_task(worker.drain(), name="drain")
        (tmp_path / "gate").touch()
        await asyncio.wait_for(drained, PATIENCE)
    assert worker.running_count == 0
    states = [(await run.state()).tasks["hold"].state for run in runs]
    assert sorted(states) == [TaskState.SCHEDULED, TaskState.SUCCESS, TaskState.SUCCESS]
    await fleet.add_worker(worker_flows.held)
    results = [await run.wait(timeout=PATIENCE) for run in runs]
    assert [result.tasks["hold"].attempts for result in results] == [1, 1, 1]


async def test_a_worker_that_closes_returns_what_it_runs(on_file: Fleet, tmp_path: Path) -> None:
    """Executors: the attempt ends without a failure, and another worker gets the task at once."""
    node = await on_file.add_node(worker_flows.held)
    async with WorkerNode(on_file.address, load=[worker_flows.held], settings={**QUICK, "unload_timeout": "500ms"}):
        run = await node.start("held", folder=str(tmp_path))
        await until_began(tmp_path)
    assert [one.kind for one in await nodes_of(node)] == ["embedded"]
    (tmp_path / "gate").touch()
    await on_file.add_worker(worker_flows.held)
    result = await run.wait(timeout=PATIENCE)
    assert (result.state, result.tasks["hold"].output) == (RunState.SUCCESS, "held")


async def test_a_worker_goes_on_while_the_leader_changes(fleet: Fleet, tmp_path: Path) -> None:
    """W-9: it reports to the store; the next leader plans what follows, and nothing runs again."""
    async with tm.Node(fleet.address, load=[worker_flows.held], settings=QUICK) as first:
        follower = await fleet.add_node(worker_flows.held)
        await fleet.add_worker(worker_flows.held)
        run = await first.start("held", folder=str(tmp_path))
        await until_began(tmp_path)
    (tmp_path / "gate").touch()
    result = await follower.run_handle(run.id).wait(timeout=PATIENCE)
    assert (result.state, result.tasks["hold"].attempts) == (RunState.SUCCESS, 1)


# -- calls of tasks


async def test_a_task_on_a_worker_starts_runs_and_pushes_events(fleet: Fleet) -> None:
    """api.md: the leader plans the run, and the node that owns the reactor takes the event."""
    flows = worker_flows.calling, worker_flows.mixed
    node = await fleet.add_node(*flows, worker_flows.till, worker_flows.totals)
    worker = await fleet.add_worker(*flows, worker_flows.till, worker_flows.totals)
    result = await (await node.start("calling")).wait(timeout=PATIENCE)
    assert [run.id for run in await node.runs("mixed")] == [result.tasks["starts"].output]
    assert result.tasks["pushes"].output == "emitted"
    (firing,) = node.reactor("till").firings()
    assert firing.results["totals"].outputs == {"total": 7}
    error = result.tasks["pushes_astray"].error
    assert error is not None
    assert "accumulator 'order'" in error.message
    assert worker.registry.reactors("public") == []


# -- packages


async def publish(node: tm.Node, version: str, number: int) -> None:
    """Publish a package with reactors, triggers, schedules, and a workflow that calls a graph."""
    flows = f"""\
import tidemill as tm

daily = tm.Workflow("daily", schedule=tm.Every("1h", key="hourly"), triggers=["new_files"])

@daily.task(executor="worker")
def count() -> int:
    return {number}

daily.call("scoring", name="scored", executor="worker")
"""
    contents = parse_archive(build_zip(shop(version, number, flows=flows)), "shop.tidemill")
    store = WorkflowProbe.of(node).store
    await Publisher(store.packages, TrustPolicy(), SystemClock()).publish(contents, "public")


async def test_a_worker_loads_of_published_packages_what_their_tasks_need(fleet: Fleet) -> None:
    """P-10, W-19: no reactor, trigger or schedule; a run gets the code of its own version, old or new."""
    settings = {**QUICK, "load_published": True}
    async with tm.Node(fleet.address, settings=settings) as node:
        worker = await fleet.add_worker()
        for version, number in (("1.0.0", 3), ("1.1.0", 5)):
            await publish(node, version, number)

            async def is_loaded(version: str = version) -> bool:
                found = [{one.name: one.version for one in place.packages()} for place in (node, worker)]
                return found == [{"shop": version}] * 2

            await until(is_loaded)
            result = await (await node.start("daily")).wait(timeout=PATIENCE)
            assert (result.state, result.tasks["count"].output) == (RunState.SUCCESS, number), result
            assert result.tasks["scored"].output == {"score": number * 10}
        assert (worker.registry.reactors("public"), worker.registry.triggers("public")) == ([], [])
        await Publisher(WorkflowProbe.of(node).store.packages, TrustPolicy(), SystemClock()).withdraw("public", "shop")

        async def is_unloaded() -> bool:
            return not worker.packages() and not node.packages()

        await until(is_unloaded)


# -- arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": ["a,b"]}, "worker: a label is a text of .*, not 'a,b'"),
        ({"name": ""}, "worker: a worker has a name, .*, not ''"),
        ({"concurrency": 0}, "concurrency is a whole number from 1"),
    ],
)
def test_a_worker_that_cannot_work_is_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Bad input: where it is given, with the rule."""
    with pytest.raises(tm.DefinitionError, match=message):
        WorkerNode(f"sqlite:///{tmp_path / 'tidemill.db'}", **options)
