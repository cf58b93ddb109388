"""`run.logs(task)`: in order, as it is said, until the task ends."""

import asyncio

import pytest

import tidemill as tm
from tests.service.workflows.acting import Gate


async def said(run: object, task: str) -> list[str]:
    """Return what a task said."""
    return [record.message async for record in run.logs(task)]  # type: ignore[attr-defined]


async def test_everything_in_order(store: str | None) -> None:
    """api.md, ctx.log; leoflow.md 80: of every attempt, also after a restart."""
    flow = tm.Workflow("loud")

    @flow.task(retry=tm.Retry(1, delay="1s"))
    async def work(ctx: tm.Context) -> None:
        for number in range(5):
            ctx.log.info("%d.%d", ctx.attempt, number)
            await asyncio.sleep(0)
        if ctx.attempt == 1:
            raise ValueError("again")

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("loud")
        await node.advance("5s")
        expected = [f"{attempt}.{number}" for attempt in (1, 2) for number in range(5)]
        assert [one for one in await said(run, "work") if "." in one[:2]] == expected
        node = await node.crash()
        assert [one for one in await said(node.run_handle(run.id), "work") if "." in one[:2]] == expected


async def test_live(store: str | None) -> None:
    """api.md: an iterator that ends with the task; leoflow.md 80: live follow delivers in order."""
    flow = tm.Workflow("live")
    gate = Gate()

    @flow.task
    async def work(ctx: tm.Context) -> None:
        ctx.log.info("before")
        await gate.pass_through()
        ctx.log.info("after")

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("live")
        got: list[str] = []
        async with asyncio.timeout(10):
            async for record in run.logs("work"):
                got.append(record.message)
                gate.is_open.set()
        assert got == ["before", "after"]


async def test_a_silent_task_and_an_unknown_one() -> None:
    """api.md, errors."""
    flow = tm.Workflow("silent")

    @flow.task
    async def work() -> None: ...

    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("silent")
        await node.settle()
        assert await said(run, "work") == []
        with pytest.raises(tm.RequestError) as caught:
            await said(run, "wrok")
        assert caught.value.code == "unknown_task"
        assert "did you mean 'work'" in str(caught.value)


async def test_a_threads_log_with_its_level(store: str | None) -> None:
    """api.md, ctx.log: structured."""
    flow = tm.Workflow("thread")

    @flow.task
    def work(ctx: tm.Context) -> None:
        ctx.log.warning("careful")
        ctx.log.info("fine")

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("thread")
        await node.settle()
        records = [record async for record in run.logs("work")]
    assert [(record.level.upper(), record.message) for record in records] == [("WARNING", "careful"), ("INFO", "fine")]
