"""`timeout=`: code that takes too long is ended, and that is a failure like any other."""

import asyncio
import threading

import tidemill as tm
from tests.service.workflows.acting import states


async def test_async_code_is_ended(store: str | None) -> None:
    """workflows.md, "Tasks"; cloacina.md 115: the attempt failed with a timeout error, the code was cancelled."""
    flow = tm.Workflow("slow")
    ended: list[str] = []

    @flow.task(timeout="10s")
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("slow")
        await node.advance("9s")
        assert (states(await run.state()), ended) == ({"work": "running"}, [])
        await node.advance("2s")
        result = await run.state()
    assert ended == ["cancelled"]
    assert states(result) == {"work": "failed"}
    assert result.tasks["work"].error is not None
    assert result.tasks["work"].error.type == "TimeoutError"
    assert "10" in result.tasks["work"].error.message


async def test_a_thread_is_given_up(store: str | None) -> None:
    """workflows.md, "Tasks": reported on time, also while the thread runs on; a later result is dropped."""
    flow = tm.Workflow("slow")
    release = threading.Event()

    @flow.task(timeout="10s")
    def work() -> int:
        release.wait(30)
        return 1

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("slow")
        await node.advance("11s")
        result = await run.state()
        release.set()
        assert states(result) == {"work": "failed"}
        assert result.tasks["work"].error is not None
        assert result.tasks["work"].error.type == "TimeoutError"
        await node.settle()
        assert await run.state() == result


async def test_a_timeout_is_retryable(store: str | None) -> None:
    """cloacina.md 115: each attempt has the whole time."""
    flow = tm.Workflow("second")

    @flow.task(timeout="10s", retry=tm.Retry(2, delay="5s"))
    async def work(ctx: tm.Context) -> int:
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return ctx.attempt

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("second")
        await node.advance("11s")
        assert states(await run.state()) == {"work": "up_for_retry"}
        await node.advance("5s")
        result = await run.state()
    assert result.ok
    assert result.outputs == {"work": 2}


async def test_a_timeout_is_tried_again_whatever_the_filter_says() -> None:
    """workflows.md, "Tasks"; api.md, on=: the filter is about what the author's code raises, and it raised nothing."""
    flow = tm.Workflow("thrice")
    tries: list[int] = []

    @flow.task(timeout="10s", retry=tm.Retry(2, delay="1s", on=(ConnectionError,)))
    async def work() -> None:
        tries.append(1)
        await asyncio.Event().wait()

    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("thrice")
        await node.advance("1m")
        assert states(await run.state()) == {"work": "failed"}
    assert len(tries) == 3


async def test_code_that_ends_in_time_is_left_alone(store: str | None) -> None:
    """cloacina.md 115, the other way round: nothing happens when the time is over."""
    flow = tm.Workflow("quick")

    @flow.task(timeout="10s")
    async def work() -> int:
        return 1

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("quick")
        await node.settle()
        result = await run.state()
        await node.advance("1m")
        assert result.ok
        assert await run.state() == result


async def test_code_that_ignores_its_end_is_reported_and_keeps_its_place() -> None:
    """W-11: what is known is reported; the code holds its place until it ends, so limits are never exceeded."""
    flow = tm.Workflow("stubborn")
    release = asyncio.Event()

    @flow.task(timeout="10s")
    async def work() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    other = tm.Workflow("other")

    @other.task
    async def wait_for_it() -> None: ...

    async with tm.testing.node(load=[flow, other], concurrency=1) as node:
        run = await node.start("stubborn")
        await node.advance("1m")
        assert states(await run.state()) == {"work": "failed"}
        behind = await node.start("other")
        await node.advance("5s")
        assert not (await behind.state()).state.is_terminal
        release.set()
        await node.settle()
        await node.advance("2s")
        assert (await behind.state()).ok


async def test_a_deferred_task_runs_out_of_no_time(store: str | None) -> None:
    """api.md, defer: waiting is not working."""
    flow = tm.Workflow("waits")

    @flow.task(timeout="10s")
    async def work(ctx: tm.Context) -> int:
        ctx.defer(for_="1h")
        return 1

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("waits")
        await node.advance("61m")
        assert (await run.state()).outputs == {"work": 1}
