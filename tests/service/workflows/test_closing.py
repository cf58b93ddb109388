"""How long a node takes to close when code does not end, and what is left of it for those who hold its runs."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.faults import breaking, plain_flow, store_of
from tidemill.engine.tasks import wait_until
from tidemill.kernel.errors import StoreError
from tidemill.telemetry.events import NODE_DEREGISTER_FAILED, RUN_CHANGE_FAILED


async def test_closing_takes_its_time_once() -> None:
    """W-14: a thread that cannot be stopped is waited for as long as is said, and not again by everybody."""
    flow, begun, over = tm.Workflow("flow"), threading.Event(), threading.Event()

    @flow.task
    def hangs() -> None:
        begun.set()
        over.wait(30)

    try:
        async with tm.Node(load=[flow], settings={"unload_timeout": "1s"}) as node:
            run = await node.start("flow")
            await asyncio.to_thread(begun.wait)
            await run.cancel()
            closing = time.monotonic()
        assert 0.9 < time.monotonic() - closing < 1.9
    finally:
        over.set()


async def test_patience_is_counted_in_seconds() -> None:
    """W-14: not in looks, which take as long as they take."""
    looks: list[float] = []

    def is_done() -> bool:
        looks.append(time.monotonic())
        threading.Event().wait(0.02)
        return False

    await wait_until(is_done, 0.1)
    assert 0.1 <= time.monotonic() - looks[0] < 0.5


async def test_a_store_that_fails_is_reported_by_what_it_failed_at(caplog: pytest.LogCaptureFixture) -> None:
    """Operators search for the event name: a failed change is no failed report, and no failed deregistration."""
    async with tm.testing.node(load=[plain_flow()]) as node:
        store = store_of(node)
        with breaking(store.runs, "apply", times=1):
            with pytest.raises(StoreError):
                await node.start("flow")
            await node.settle()
        assert [record.msg for record in caplog.records] == [RUN_CHANGE_FAILED]
        caplog.clear()
        with breaking(store.owners, "delete"):
            await node.probe.workflows.engine.deregister()
        assert [record.msg for record in caplog.records] == [NODE_DEREGISTER_FAILED]


async def refusal(asked: Awaitable[Any]) -> str:
    """Return the code with which a question is refused."""
    with pytest.raises(tm.RequestError) as caught:
        async with asyncio.timeout(10):
            await asked
    return caught.value.code


async def drained(asked: AsyncIterator[Any]) -> list[Any]:
    """Return all that an iterator yields."""
    return [one async for one in asked]


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_closed_node_refuses_what_is_asked_of_its_runs(store: str | None, is_killed: bool) -> None:
    """docs, Errors: `not_running`; also for callers that have waited since it ran, with any store."""
    flow = tm.Workflow("flow")

    @flow.task
    async def work() -> None:
        await asyncio.Event().wait()

    hasty = tm.testing.node(store, load=[flow], settings={"unload_timeout": "100ms"})
    async with asyncio.TaskGroup() as group, hasty as node:
        run = await node.start("flow")
        waiting = [run.wait(), drained(run.logs("work")), drained(run.watch()), drained(run.watch(every=0))]
        refused = [group.create_task(refusal(one)) for one in waiting]
        await node.advance("1s")
        if is_killed:
            await node.crash()
    assert [await one for one in refused] == ["not_running"] * len(refused)
    asked = [run.state(), run.wait(), run.wait("1s"), run.cancel(), run.retry(), run.clear("work"), run.why("work")]
    asked += [run.note("x"), run.notes(), drained(run.logs("work")), drained(run.watch())]
    assert [await refusal(one) for one in asked] == ["not_running"] * len(asked)


async def test_who_waits_for_a_run_that_ends_while_its_node_closes_hears_how(store: str | None) -> None:
    """W-14: closing lets running tasks end, and callers that wait get the result."""
    flow, begun, may_end = tm.Workflow("flow"), asyncio.Event(), asyncio.Event()

    @flow.task
    async def work() -> int:
        begun.set()
        await may_end.wait()
        return 1

    async with asyncio.TaskGroup() as group, tm.testing.node(store, load=[flow]) as node:
        run = await node.start("flow")
        waited = group.create_task(run.wait())
        await begun.wait()
        asyncio.get_running_loop().call_later(0.05, may_end.set)
    assert (await waited).outputs == {"work": 1}
