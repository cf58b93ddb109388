"""Waiting for the end of a run: callers on the leader get it from memory, equal to what the store holds."""

import asyncio
import gc
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.acting import Gate
from tests.service.workflows.faults import breaking, store_of
from tidemill.engine.workflows.leader.active_runs import CACHED_OUTPUT_LIMIT

PATIENCE = 5  # seconds


class Gated:
    """Workflow `flow`, whose task `begin` waits for the test; `ends` says what its other tasks do."""

    def __init__(self, **ends: Any) -> None:
        self.gate = Gate()
        self.flow = flow = tm.Workflow("flow")

        @flow.task
        async def begin() -> list[int]:
            await self.gate.pass_through()
            return ends.get("items", [1, 2])

        @flow.task(each="begin")
        async def double(begin: int) -> int:
            return 2 * begin

        @flow.task
        async def big(begin: list[int]) -> bytes:
            return b"x" * ends.get("size", 3)

        @flow.task
        async def last(double: list[int], big: bytes) -> int:
            if "error" in ends:
                raise ends["error"]
            return sum(double)


@pytest.mark.parametrize(
    "ends",
    [
        {},
        {"items": []},
        {"size": CACHED_OUTPUT_LIMIT + 1},
        {"error": ValueError("no")},
        {"error": tm.Skip("not today")},
    ],
)
async def test_a_result_from_memory_is_the_one_from_the_store(store: str | None, ends: dict[str, Any]) -> None:
    """api.md, wait: who waited for the end, who came after it, and who comes after a crash see the same."""
    gated = Gated(**ends)
    async with tm.testing.node(store, load=[gated.flow]) as node:
        run = await node.start("flow")
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(run.wait(PATIENCE), name=f"waiter {number}") for number in range(2)]
            await asyncio.sleep(0)
            gated.gate.is_open.set()
        stored = await run.wait(PATIENCE)
        assert [one.result() for one in waits] == [stored, stored]
        assert await run.state() == stored
        node = await node.crash()
        assert await node.run_handle(run.id).wait(PATIENCE) == stored


async def test_who_waits_where_a_run_is_planned_reads_nothing(store: str | None) -> None:
    """The coordinator has just written everything that the result consists of."""
    gated = Gated()
    async with tm.testing.node(store, load=[gated.flow]) as node:
        run = await node.start("flow")
        runs = store_of(node).runs
        with breaking(runs, "load", times=0) as loads, breaking(runs, "read_outputs", times=0) as outputs:
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(run.wait(PATIENCE), name="waiter")
                await asyncio.sleep(0)
                gated.gate.is_open.set()
            assert (loads, outputs) == ([], [])
            assert waiting.result().outputs["last"] == 6
            await run.wait(PATIENCE)
            assert (len(loads), len(outputs)) == (1, 1)


async def test_what_was_kept_for_those_who_wait_goes_with_them(store: str | None) -> None:
    """A result is kept only as long as a waiter references it; without waiters it is not kept at all."""
    gated = Gated()
    async with tm.testing.node(store, load=[gated.flow]) as node:
        run = await node.start("flow")
        async with asyncio.TaskGroup() as group:
            group.create_task(run.wait(PATIENCE), name="waiter")
            await asyncio.sleep(0)
            assert node.probe.workflows.awaited_runs() == {run.id}
            gated.gate.is_open.set()
        gc.collect()
        assert node.probe.workflows.awaited_runs() == set()
        assert node.probe.workflows.active_runs == set()


async def test_one_who_waits_is_not_woken_by_every_task(store: str | None) -> None:
    """Only by the end."""
    gated = Gated()
    async with tm.testing.node(store, load=[gated.flow]) as node:
        run = await node.start("flow")
        end = node.probe.workflows.notifier.end_signal(run.id)
        news = node.probe.workflows.notifier.change_signal(run.id)
        await node.advance("0s")
        gated.gate.is_open.set()
        await run.wait(PATIENCE)
        assert news.is_set()
        assert news.finished is None
        assert end.finished is not None
        assert end.finished.record.run.state is tm.RunState.SUCCESS
