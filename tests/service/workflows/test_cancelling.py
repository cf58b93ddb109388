"""`run.cancel()`: what has not ended never will, and running code is stopped."""

import asyncio
import threading
from contextlib import suppress

import pytest

import tidemill as tm
from tests.service.workflows.acting import Gate, states


async def test_running_code_is_reached(store: str | None) -> None:
    """workflows.md, "Tasks": cancel reaches the running code; leoflow.md 81."""
    flow = tm.Workflow("long")
    seen: list[str] = []

    @flow.task
    async def done() -> int:
        return 1

    @flow.task
    async def work(done: int) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("reached")
            raise

    @flow.task(after=[work], rule="all_done")
    async def behind() -> None:
        seen.append("behind")

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("long")
        await node.advance("1s")
        await run.cancel("not today")
        await node.settle()
        result = await run.wait(5)
    assert result.state is tm.RunState.CANCELLED
    assert states(result) == {"done": "success", "work": "cancelled", "behind": "cancelled"}
    assert seen == ["reached"]
    assert (result.ok, result.reason, result.outputs) == (False, "not today", {"done": 1})
    with pytest.raises(tm.OperationError, match="was cancelled: not today"):
        result.raise_for_status()


async def test_a_thread_that_returns_later_changes_nothing(store: str | None) -> None:
    """leoflow.md 5, 6: a late report is refused."""
    flow = tm.Workflow("thread")
    begun, release = threading.Event(), threading.Event()

    @flow.task
    def work() -> int:
        begun.set()
        release.wait(20)
        return 1

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("thread")
        await asyncio.to_thread(begun.wait, 10)
        await run.cancel()
        await node.advance("1s")
        result = await run.state()
        release.set()
        assert states(result) == {"work": "cancelled"}
        await node.settle()
        assert await run.state() == result


async def test_a_queued_run_never_begins(store: str | None) -> None:
    """workflows.md, States: queued -> cancelled; the next one takes its turn."""
    flow = tm.Workflow("one", max_active_runs=1)
    gate = Gate()

    @flow.task
    async def work(ctx: tm.Context) -> None:
        await gate.pass_through(ctx["number"])

    async with tm.testing.node(store, load=[flow]) as node:
        runs = [await node.start("one", number=number) for number in range(3)]
        await node.advance("1s")
        await runs[1].cancel()
        result = await runs[1].wait(5)
        assert (str(result.state), states(result), result.started_at) == ("cancelled", {"work": "cancelled"}, None)
        gate.is_open.set()
        await node.settle()
        assert (await runs[2].state()).ok
    assert gate.entered == [0, 2]


async def test_every_element_is_cancelled(store: str | None) -> None:
    """workflows.md, "Tasks": running ones are reached, waiting ones never begin."""
    flow = tm.Workflow("mapped")
    gate = Gate()

    @flow.task
    async def numbers() -> list[int]:
        return list(range(10))

    @flow.task(each=numbers)
    async def work(numbers: int) -> int:
        if numbers:
            await gate.pass_through(numbers)
        return numbers

    async with tm.testing.node(store, load=[flow], concurrency=4) as node:
        run = await node.start("mapped")
        await node.advance("1s")
        assert gate.inside == 4
        await run.cancel()
        await node.settle()
        result = await run.state()
    assert gate.inside == 0
    assert len(gate.entered) == 4
    assert [str(one.state) for one in result.tasks["work"].mapped] == ["success"] + ["cancelled"] * 9
    assert result.tasks["work"].state is tm.TaskState.CANCELLED


async def test_a_run_that_waits_for_a_retry_never_tries_again(store: str | None) -> None:
    """workflows.md, States: any active -> cancelled."""
    flow = tm.Workflow("waits")
    tries: list[int] = []

    @flow.task(retry=tm.Retry(3, delay="1m"))
    async def work() -> None:
        tries.append(1)
        raise ValueError("no")

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("waits")
        await node.advance("1s")
        await run.cancel()
        await node.advance("10m")
        assert states(await run.state()) == {"work": "cancelled"}
    assert len(tries) == 1


async def test_a_run_that_has_ended_is_not_cancelled(store: str | None) -> None:
    """leoflow.md 5: terminal rows do not change; a conflict says so."""
    flow = tm.Workflow("over")

    @flow.task
    async def work() -> int:
        return 1

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("over")
        result = await run.wait(5)
        with pytest.raises(tm.RequestError, match="has ended already: success") as caught:
            await run.cancel()
        assert (caught.value.code, caught.value.status) == ("run_ended", 409)
        assert await run.state() == result


async def test_cancelling_twice_is_a_conflict_and_harms_nothing() -> None:
    """leoflow.md 5."""
    flow = tm.Workflow("twice")
    gate = Gate()

    @flow.task
    async def work() -> None:
        await gate.pass_through()

    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("twice")
        await node.advance("1s")
        await run.cancel()
        with pytest.raises(tm.RequestError) as caught:
            await run.cancel()
        assert caught.value.code == "run_ended"
        assert (await run.wait(5)).state is tm.RunState.CANCELLED


async def test_code_that_swallows_its_end_changes_nothing(store: str | None) -> None:
    """leoflow.md 5: what it returns afterwards is dropped."""
    flow = tm.Workflow("swallows")

    @flow.task
    async def work() -> int:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return 1

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("swallows")
        await node.advance("1s")
        await run.cancel()
        await node.settle()
        result = await run.state()
    assert (states(result), result.outputs) == ({"work": "cancelled"}, {})


async def test_others_are_left_alone(store: str | None) -> None:
    """W-5: one run."""
    flow = tm.Workflow("two")
    gate = Gate()

    @flow.task
    async def work() -> int:
        await gate.pass_through()
        return 1

    async with tm.testing.node(store, load=[flow]) as node:
        first, second = await node.start("two"), await node.start("two")
        await node.advance("1s")
        await first.cancel()
        await node.advance("1s")
        assert gate.inside == 1
        gate.is_open.set()
        await node.settle()
        assert (await second.state()).ok
        assert (await first.state()).state is tm.RunState.CANCELLED


async def test_it_outlives_a_crash(store: str | None) -> None:
    """leoflow.md 5: nothing of it comes back."""
    flow = tm.Workflow("gone")
    gate = Gate()

    @flow.task
    async def work() -> None:
        await gate.pass_through()

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("gone")
        await node.advance("1s")
        await run.cancel()
        node = await node.crash()
        await node.advance("2m")
        assert states(await node.run_handle(run.id).state()) == {"work": "cancelled"}
    assert len(gate.entered) == 1


async def test_a_cancelled_run_can_be_retried(store: str | None) -> None:
    """api.md, run.retry(): everything that was cancelled runs."""
    flow = tm.Workflow("again")
    gate = Gate()

    @flow.task
    async def done() -> int:
        return 1

    @flow.task
    async def work(done: int) -> int:
        await gate.pass_through()
        return done + 1

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("again")
        await node.advance("1s")
        await run.cancel()
        await node.settle()
        assert (await run.retry()).reruns == ["work"]
        gate.is_open.set()
        await node.settle()
        result = await run.state()
    assert result.ok
    assert result.outputs == {"done": 1, "work": 2}
    assert [result.tasks[name].attempts for name in ("done", "work")] == [1, 2]
