"""The dispatch pool: bounded, in order, without a busy loop; and nothing of what waits in it is ever lost."""

import asyncio
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.faults import QUICK, blocked_flow, only_task, replacing, store_of, troubles
from tidemill.engine.workflows.executors.interface import AttemptRequest, Executor
from tidemill.kernel.errors import OperationError
from tidemill.workflows.records import AttemptKey
from tidemill.workflows.states import RunState, TaskState


def spread_flow(size: int) -> tuple[tm.Workflow, list[int]]:
    """Return workflow `flow` with a mapped task `one` of so many elements, and the elements that began, in order."""
    flow, begun = tm.Workflow("flow"), []

    @flow.task
    async def numbers() -> list[int]:
        return list(range(size))

    @flow.task(each="numbers")
    async def one(numbers: int) -> int:
        begun.append(numbers)
        return numbers

    return flow, begun


async def states(node: tm.testing.TestNode, run: str) -> list[str]:
    """Return the states of the elements of `one`."""
    (record,) = await store_of(node).runs.load([run])
    return [str(row.state) for row in sorted(record.tasks, key=lambda row: row.index) if row.task == "one"]


async def test_a_full_queue_leaves_the_rest_scheduled_and_in_order(store: str | None) -> None:
    """W-6, contract 33: one in hand, one in the queue, all others scheduled; and they come as they waited."""
    flow, begun = spread_flow(12)
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        node.slow_executor("500ms")
        run = await node.start("flow")
        await node.advance("700ms")
        found = await states(node, run.id)
        assert found[:2] == ["queued", "queued"]
        assert found[2:] == ["scheduled"] * 10
        await node.advance("10s")
        assert set(troubles(node)) == {"dispatch_at_capacity"}
        assert begun == list(range(12))
        assert (await run.state()).state is RunState.SUCCESS


async def test_waiting_is_not_a_busy_loop(store: str | None) -> None:
    """W-6: while the queue is full, places are looked for when one becomes free and at ticks, not all the time."""
    flow, _ = spread_flow(12)
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        node.slow_executor("10s")
        await node.start("flow")
        await node.advance("11s")
        slots, given = node.probe.workflows.coordinator.slots, []
        with replacing(slots, "assign", lambda give: _noting(give, given)):
            await node.advance("9s")
        assert len(given) <= 2 * 9 + 4  # twice a tick, and a few for the one that was handed over


def _noting(call: Any, calls: list[Any]) -> Any:
    def noted(*args: Any, **options: Any) -> Any:
        calls.append(args)
        return call(*args, **options)

    return noted


async def test_a_crash_with_a_full_queue_loses_nothing(store: str | None) -> None:
    """W-6, contract 36, fault 22: the queue is not stored; the next leader finds everything in the store."""
    flow, begun = spread_flow(12)
    async with tm.testing.node(store, load=[flow], settings={"edition": "pro"}, concurrency=10) as node:
        node.slow_executor("10s")
        run = await node.start("flow")
        await node.advance("11s")
        assert (await states(node, run.id)).count("queued") == 10, "what waits to be handed over takes a place too"
        node = await node.crash()
        await node.advance("1s")
        assert sorted(begun) == list(range(12))
        assert (await node.run_handle(run.id).state()).state is RunState.SUCCESS


async def test_what_waits_is_handed_back_when_the_node_closes(sqlite: str) -> None:
    """W-6, contract 36: what was claimed and never begun is scheduled again, and costs no try."""
    flow, begun = spread_flow(5)
    settings = {"dispatch_queue": 4, "unload_timeout": "100ms"}
    async with tm.testing.node(sqlite, load=[flow], settings=settings) as node:
        run = await node.start("flow")
        await asyncio.sleep(0)  # the first task is launched in the turn after the answer
        node.slow_executor("1h")
        await node.advance("1s")
        assert "queued" in await states(node, run.id)
    async with tm.testing.node(sqlite, load=[flow]) as later:
        await later.settle()
        assert sorted(begun) == list(range(5))
        result = await later.run_handle(run.id).state()
        assert result.state is RunState.SUCCESS
        assert {one.attempts for one in result.tasks["one"].mapped} == {1}
        assert later.metrics()["agent_lost_tasks_total"] == 0


async def test_a_launch_never_overwrites_what_a_worker_reported(store: str | None) -> None:
    """Contract 37, W-2: instant tasks behind a queue: every one of 200 ends as it said, each after one handshake."""
    flow, begun = spread_flow(200)
    async with tm.testing.node(store, load=[flow], settings={"edition": "pro"}) as node:
        node.slow_executor("1ms")
        run = await node.start("flow")
        await node.advance("5s")
        assert (await run.state()).state is RunState.SUCCESS
        assert sorted(begun) == list(range(200))
        attempts = await store_of(node).runs.read_attempts(run.id)
        assert all(one.started_at is not None and one.outcome == "success" for one in attempts)
        assert len(attempts) == 201


async def test_running_begins_with_the_handshake(store: str | None) -> None:
    """W-2: until the executor has it, an attempt is queued, however long that takes."""
    flow, _blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        node.slow_executor("30s")
        run = await node.start("flow")
        await node.advance("29s")
        row = await only_task(node, run.id)
        assert (row.state, row.started_at) == (TaskState.QUEUED, None)
        await node.advance("2s")
        row = await only_task(node, run.id)
        assert row.state is TaskState.RUNNING
        assert row.started_at is not None
        assert troubles(node) == {}


async def test_an_attempt_that_is_cancelled_while_it_waits_never_begins(store: str | None) -> None:
    """I-20: it is asked whether it may begin, and it may not."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        node.slow_executor("30s")
        run = await node.start("flow")
        await node.advance("5s")
        await run.cancel()
        await node.advance("1m")
        assert blocked.begun == []
        assert (await run.state()).state is RunState.CANCELLED
        assert not node.probe.workflows.attempts.claimed


class Slow(Executor):
    """An executor that takes its time."""

    name = "slow"
    is_immediate = False


def test_only_who_is_immediate_takes_an_order_at_once() -> None:
    """W-6: what takes its time goes through the queue."""
    key = AttemptKey("r1", "work", -1, 1)
    order = AttemptRequest(
        key=key, tenant="t", workflow="w", version="v", executor="slow", number=1, deferrals=0, params=b"", inputs={}
    )
    with pytest.raises(OperationError, match="executor 'slow' cannot accept r1/work#1 without waiting"):
        Slow().submit_now(order)
