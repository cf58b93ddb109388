"""`run.logs(task)`: in order, as it is said, until the task ends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.acting import Gate
from tests.service.workflows.faults import breaking, replacing
from tests.service.workflows.pairs import PATIENCE, Pair, until
from tidemill.engine.workflows.worker import task_logs as logbook
from tidemill.kernel.errors import StoreError
from tidemill.testing.probes.workflows import WorkflowProbe


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
        assert caught.value.code == "task_not_found"
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


async def test_of_a_task_on_another_node(make_pair: Callable[..., Awaitable[Pair]]) -> None:
    """api.md, RunHandle.logs: as it says it, also if it runs elsewhere, and complete."""
    flow, go = tm.Workflow("flow"), asyncio.Event()

    async def speak(ctx: tm.Context) -> None:
        ctx.log.info("before")
        await go.wait()
        ctx.log.info("after")

    @flow.task
    async def a(ctx: tm.Context) -> None:
        await speak(ctx)

    @flow.task
    async def b(ctx: tm.Context) -> None:
        await speak(ctx)

    leader, follower = await make_pair(flow)
    run = await leader.start("flow")

    async def is_claimed() -> bool:
        return bool(WorkflowProbe.of(follower).attempts.running())

    await until(is_claimed)
    [other] = [key.task for key in WorkflowProbe.of(follower).attempts.claimed]
    got = []
    async with asyncio.timeout(PATIENCE):
        async for record in run.logs(other):
            got.append(record.message)
            go.set()
    assert got == ["before", "after"]


def loud() -> tm.Workflow:
    """Return a workflow whose task says something before it ends."""
    flow = tm.Workflow("loud")

    @flow.task
    async def work(ctx: tm.Context) -> None:
        ctx.log.info("last")

    return flow


async def test_the_log_is_written_before_the_end_is() -> None:
    """api.md, RunHandle.logs: a caller that sees the end finds all records, on any node."""
    async with tm.testing.node(load=[loud()]) as node:
        logs, came, go = node.probe.workflows.store.logs, asyncio.Event(), asyncio.Event()
        append = logs.append

        async def slow(chunks: Any) -> None:
            came.set()
            await go.wait()
            await append(chunks)

        with replacing(logs, "append", lambda _: slow):
            run = await node.start("loud")
            await came.wait()
            for _ in range(200):
                await asyncio.sleep(0)
            assert (await run.state()).tasks["work"].state == "running"
            go.set()
            await node.settle()
        assert (await run.state()).state == "success"
        assert await said(run, "work") == ["last"]


@pytest.mark.parametrize("error", [StoreError("away"), ValueError("a bug")])
async def test_a_log_that_cannot_be_written_keeps_no_task_from_its_end(store: str | None, error: Exception) -> None:
    """W-5: it is tried for a while, and the end is reported all the same."""
    async with tm.testing.node(store, load=[loud()]) as node:
        with breaking(node.probe.workflows.store.logs, "append", error):
            run = await node.start("loud")
            await node.advance("20s")
            assert (await run.state()).state == "success"
        await node.advance("20s")  # the log is written now: the node's end need not wait for it


async def test_what_there_is_no_room_for_leaves_a_line(store: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """W-16, contract 80: code that blocks the store logs more than may wait: the log says how much is missing."""
    monkeypatch.setattr(logbook, "PENDING_RECORD_LIMIT", 10)
    flow, spoken = tm.Workflow("flood"), asyncio.Event()

    @flow.task
    async def work(ctx: tm.Context) -> None:
        for number in range(25):
            ctx.log.info(str(number))
        await spoken.wait()
        ctx.log.info("after")

    @flow.task
    async def neighbour(ctx: tm.Context) -> None:
        ctx.log.info("here")

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("flood")
        await node.advance("1s")
        spoken.set()
        await node.settle()
        kept = [str(number) for number in range(10)]
        assert await said(run, "work") == [*kept, "[... 15 records left out ...]", "after"]
        assert (await said(run, "neighbour"))[0] in ("here", "[... 1 records left out ...]")


async def test_keywords_are_fields(store: str | None) -> None:
    """api.md, ctx.log: structured; what is logging's own stays so, and names are kept as every store can."""
    flow = tm.Workflow("fields")

    @flow.task
    def work(ctx: tm.Context) -> None:
        ctx.log.info("read %d", 3, rows=3, extra={"rows": 0, "file": "a.csv"}, level="low", stacklevel=2)
        ctx.log.warning("odd", **{"half \ud800": "half \ud800"})
        try:
            raise ValueError("no")
        except ValueError:
            ctx.log.exception("failed", row=7)

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("fields")
        await node.settle()
        first, odd, last = [record async for record in run.logs("work")]
    assert (first.message, first.level) == ("read 3", "info")
    assert first.fields == {"rows": 3, "file": "a.csv", "level": "low"}
    assert odd.fields == {"half ?": "'half \\ud800'"}
    assert (last.level, last.fields, "ValueError: no" in last.message) == ("error", {"row": 7}, True)
