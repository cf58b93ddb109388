"""Tasks for workers, on a node that is none: accepted, scheduled, explained, and never run there."""

from msgspec.structs import replace

import tidemill as tm
from tests.service.workflows.faults import store_of
from tidemill.workflows.records import VersionKey
from tidemill.workflows.states import RunState, TaskState


def mixed_flow() -> tm.Workflow:
    """Return a workflow with a task of each kind: for a worker with a label, for any worker, and for the node."""
    flow = tm.Workflow("flow")

    @flow.task(executor="worker", labels=["gpu"])
    async def train() -> None: ...

    @flow.task(executor="worker")
    async def fetch() -> None: ...

    @flow.task
    async def here() -> int:
        return 1

    return flow


async def test_a_node_leaves_tasks_for_workers_alone(store: str | None) -> None:
    """W-1: they are scheduled, and keep no other task from running; W-17: `why` says what is missing."""
    async with tm.testing.node(store, load=[mixed_flow()], concurrency=1) as node:
        run = await node.start("flow")
        await node.advance("1m")
        states = {name: task.state for name, task in (await run.state()).tasks.items()}
        assert states == {"train": TaskState.SCHEDULED, "fetch": TaskState.SCHEDULED, "here": TaskState.SUCCESS}
        assert node.probe.workflows.waiting_task_count() == 0
        missing = "it is scheduled, and waits for a worker with the labels gpu; none is running"
        assert await run.why("train") == [missing]
        assert await run.why("fetch") == ["it is scheduled, and waits for a worker; none is running"]
        await run.cancel()
        await node.advance("1s")
        assert (await run.state()).state is RunState.CANCELLED


async def test_why_knows_the_workers_of_the_store(sqlite: str) -> None:
    """W-17: what they have loaded, and whether they still live."""
    flow = mixed_flow()
    async with tm.testing.node(sqlite, load=[flow]) as node:
        run = await node.start("flow")
        await node.advance("1s")
        owners, versions = store_of(node).owners, store_of(node).versions
        away = {"id": "w1", "host": "elsewhere", "kind": "worker", "labels": ("gpu", "eu"), "concurrency": 1}
        await owners.upsert(replace(node.probe.workflows.owner, **away))
        version = VersionKey("public", "flow", flow.wired().spec.version)
        assert f"that has version {version.version} of 'flow'" in (await run.why("train"))[0]
        stored = await versions.get(version)
        assert stored is not None
        await versions.upsert(stored, "w1")
        assert (await run.why("train"))[0].endswith("and waits to be claimed")
        node.clock.advance_to(node.clock.monotonic() + 100)
        assert (await run.why("train"))[0].endswith("none is running")
