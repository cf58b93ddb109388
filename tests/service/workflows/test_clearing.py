"""`run.retry(from_=..., preview=...)`: what reruns, and what is kept."""

import asyncio
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.acting import Gate, states


class Chain(tm.Workflow):
    """a -> b -> c, and d beside them; each counts its calls, and fails while it is in `bad`."""

    __slots__ = ("bad", "calls")

    def __init__(self) -> None:
        super().__init__("chain")
        self.bad: set[str] = set()
        self.calls: list[str] = []

        @self.task
        async def a() -> int:
            return self._act("a", 1)

        @self.task
        async def b(a: int) -> int:
            return self._act("b", a + 1)

        @self.task
        async def c(b: int) -> int:
            return self._act("c", b + 1)

        @self.task
        async def d() -> int:
            return self._act("d", 9)

    def _act(self, name: str, value: int) -> int:
        self.calls.append(name)
        if name in self.bad:
            raise ValueError(name)
        return value


async def test_everything_that_failed(store: str | None) -> None:
    """api.md, run.retry(): what failed and what could not run; the rest keeps its values."""
    flow = Chain()
    flow.bad = {"b"}
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("chain")
        await node.settle()
        assert states(await run.state()) == {"a": "success", "b": "failed", "c": "upstream_failed", "d": "success"}
        flow.bad.clear()
        flow.calls.clear()
        assert (await run.retry()).reruns == ["b", "c"]
        result = await run.wait(5)
    assert flow.calls == ["b", "c"]
    assert result.outputs == {"a": 1, "b": 2, "c": 3, "d": 9}
    assert {name: task.attempts for name, task in result.tasks.items()} == {"a": 1, "b": 2, "c": 1, "d": 1}


@pytest.mark.parametrize(("task", "reruns"), [("a", ["a", "b", "c"]), ("b", ["b", "c"]), ("c", ["c"]), ("d", ["d"])])
async def test_from_a_task(store: str | None, task: str, reruns: list[str]) -> None:
    """api.md, from_; leoflow.md 8: it and all that comes after it, also if it succeeded."""
    flow = Chain()
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("chain")
        await node.settle()
        before = await run.state()
        flow.calls.clear()
        assert (await run.retry(from_=task, preview=True)).reruns == reruns
        assert await run.state() == before
        assert flow.calls == []
        assert (await run.retry(from_=task)).reruns == reruns
        await node.settle()
        result = await run.state()
    assert flow.calls == reruns
    assert {name: one.attempts for name, one in result.tasks.items()} == {
        name: 2 if name in reruns else 1 for name in "abcd"
    }
    assert result.outputs == before.outputs


async def test_from_several(store: str | None) -> None:
    """workflows.md, "Tasks": clear."""
    flow = Chain()
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("chain")
        await node.settle()
        flow.calls.clear()
        assert (await run.clear(["c", "d"])).reruns == ["c", "d"]
        await node.settle()
        assert (await run.state()).ok
    assert sorted(flow.calls) == ["c", "d"]


async def test_a_cleared_run_begins_anew(store: str | None) -> None:
    """leoflow.md 17: queued -> running -> terminal, with a fresh start time; outputs of what reruns are gone."""
    flow = Chain()
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("chain")
        await node.settle()
        first = await run.state()
        await node.advance("1h")
        await node.pause("chain")
        await run.retry(from_="b")
        await node.advance("1s")
        waiting = await run.state()
        assert (str(waiting.state), waiting.started_at, waiting.ended_at) == ("queued", None, None)
        assert states(waiting) == {"a": "success", "b": "none", "c": "none", "d": "success"}
        assert waiting.outputs == {"a": 1, "d": 9}
        await node.resume("chain")
        await node.settle()
        second = await run.state()
    assert second.ok
    assert second.created_at == first.created_at
    assert second.started_at is not None
    assert first.started_at is not None
    assert second.started_at > first.started_at
    assert second.ended_at is not None


async def test_a_run_counts_as_active_again(store: str | None) -> None:
    """leoflow.md 20: max_active_runs holds for cleared runs too."""
    flow = tm.Workflow("one", max_active_runs=1)
    gate = Gate()

    @flow.task
    async def work(ctx: tm.Context) -> None:
        if ctx["waits"]:
            await gate.pass_through()

    async with tm.testing.node(store, load=[flow]) as node:
        old = await node.start("one", waits=False)
        await node.settle()
        await node.start("one", waits=True)
        await node.advance("1s")
        await old.retry(from_="work")
        await node.advance("2s")
        assert (await old.state()).state is tm.RunState.QUEUED
        gate.is_open.set()
        await node.settle()
        assert (await old.state()).ok


async def test_while_it_runs(store: str | None) -> None:
    """leoflow.md 8: what was running is ended, and a late word of it counts for nothing; W-1."""
    flow = tm.Workflow("running")
    seen: list[str] = []
    gate = Gate()

    @flow.task
    async def work(ctx: tm.Context) -> int:
        if ctx.attempt == 1:
            try:
                await gate.pass_through()
            except asyncio.CancelledError:
                seen.append("ended")
                return 99  # too late
        return ctx.attempt

    @flow.task
    async def behind(work: int) -> int:
        return work

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("running")
        await node.advance("1s")
        assert (await run.retry(from_="work")).reruns == ["work"]
        await node.settle()
        result = await run.state()
    assert seen == ["ended"]
    assert result.outputs == {"work": 2, "behind": 2}


async def test_a_task_that_is_done_while_others_run(store: str | None) -> None:
    """workflows.md, "Tasks": clearing one branch leaves the other alone."""
    flow = tm.Workflow("branches")
    gate = Gate()
    calls: list[str] = []

    @flow.task
    async def quick() -> None:
        calls.append("quick")

    @flow.task
    async def slow() -> None:
        calls.append("slow")
        await gate.pass_through()

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("branches")
        await node.advance("1s")
        await run.retry(from_="quick")
        await node.advance("1s")
        gate.is_open.set()
        await node.settle()
        assert (await run.state()).ok
    assert sorted(calls) == ["quick", "quick", "slow"]


async def test_unknown_tasks_are_refused(store: str | None) -> None:
    """api.md, errors: with a hint, and nothing has changed."""
    flow = Chain()
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("chain")
        await node.settle()
        before = await run.state()
        for preview in (True, False):
            with pytest.raises(tm.RequestError, match="has no task 'x'") as caught:
                await run.retry(from_="x", preview=preview)
            assert (caught.value.code, caught.value.status) == ("task_not_found", 404)
        assert await run.state() == before


async def test_nothing_to_retry_is_said() -> None:
    """api.md, errors: a conflict."""
    flow = Chain()
    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("chain")
        await node.settle()
        with pytest.raises(tm.RequestError, match="none of its tasks has failed") as caught:
            await run.retry()
        assert (caught.value.code, caught.value.status) == ("nothing_to_retry", 409)


@pytest.mark.parametrize("wrong", [3, [], (), {}, [3], [None], b"load", object()])
async def test_what_names_no_task_is_refused(wrong: Any) -> None:
    """api.md, errors: the error says what is expected, and nothing has changed."""
    async with tm.testing.node(load=[Chain()]) as node:
        run = await node.start("chain")
        await node.settle()
        before = await run.state()
        for again in (run.retry, run.clear):
            with pytest.raises(tm.RequestError, match="a task is named, or several in a list, not ") as caught:
                await again(wrong)
            assert (caught.value.code, caught.value.status) == ("invalid_tasks", 400)
        assert await run.state() == before


async def test_a_skipped_branch_may_be_taken_the_second_time(store: str | None) -> None:
    """leoflow.md 8: the planner decides again on all tasks after it."""

    class Left(tm.Boundary):
        pass

    class Right(tm.Boundary):
        pass

    flow = tm.Workflow("turns")
    ways: list[Left | Right] = [Left(), Right()]

    @flow.task
    async def choose() -> Left | Right:
        return ways.pop(0)

    @flow.task
    async def left(choose: Left) -> None: ...

    @flow.task
    async def right(choose: Right) -> None: ...

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("turns")
        await node.settle()
        assert states(await run.state()) == {"choose": "success", "left": "success", "right": "skipped"}
        assert (await run.retry(from_="choose")).reruns == ["choose", "left", "right"]
        await node.settle()
        assert states(await run.state()) == {"choose": "success", "left": "skipped", "right": "success"}


async def test_again_and_again(store: str | None) -> None:
    """leoflow.md 7: attempts keep counting, earlier ones stay."""
    flow = Chain()
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("chain")
        await node.settle()
        for number in range(2, 6):
            await run.retry(from_="a")
            await node.settle()
            result = await run.state()
            assert (result.ok, result.tasks["c"].attempts) == (True, number)


async def test_after_a_crash(store: str | None) -> None:
    """leoflow.md 8, 46: the successor knows what is to rerun."""
    flow = Chain()
    flow.bad = {"b"}
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("chain")
        await node.settle()
        node = await node.crash()
        flow.bad.clear()
        assert (await node.run_handle(run.id).retry()).reruns == ["b", "c"]
        node = await node.crash()
        await node.settle()
        assert (await node.run_handle(run.id).state()).outputs == {"a": 1, "b": 2, "c": 3, "d": 9}
