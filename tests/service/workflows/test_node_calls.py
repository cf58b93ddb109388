"""Tasks that push events and start runs: `ctx.push` and `ctx.start`."""

from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows import calling
from tests.service.workflows.acting import see_through, states


def called() -> tm.Workflow:
    """Return a workflow that returns its param."""
    flow = tm.Workflow("called")

    @flow.task
    def answer(ctx: tm.Context) -> int:
        return int(ctx["number"])

    return flow


def numbers() -> tm.Reactor:
    """Return a reactor that takes numbers."""

    @tm.passthrough
    def numbers(event: int) -> int:
        return event

    return tm.Reactor("counting", [numbers])


async def answers(node: tm.testing.node, **tenant: str) -> list[int]:
    """Return what the runs of the called workflow have answered, oldest first."""
    return [(await run.state()).outputs["answer"] for run in reversed(await node.runs("called", **tenant))]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_task_pushes_and_starts(store: str | None, kind: str) -> None:
    """api.md: with await in an `async def`, without it in any other; the handle and the receipt are the usual ones."""
    reactor, target, flow = numbers(), called(), tm.Workflow("calls")

    if kind == "async":

        @flow.task
        async def work(ctx: tm.AsyncContext) -> list[Any]:
            receipt = await ctx.push("numbers", 7)
            run = await ctx.start("called", number=8)
            return [receipt.outcome, (await run.wait(timeout=20)).outputs["answer"]]

    else:

        @flow.task
        def work(ctx: tm.Context) -> list[Any]:  # type: ignore[misc]
            receipt = ctx.push(reactor.accumulators[0], b"7")
            return [receipt.outcome, len(ctx.start(target, number=8).id) > 8]

    async with tm.testing.node(store, load=[reactor, target, flow]) as node:
        result = await see_through(node, "calls")
        assert result.outputs["work"] == ["emitted", 8 if kind == "async" else True]
        assert node.reactor("counting").state().cache == {"numbers": 7}
        assert await answers(node) == [8]
        (run,) = await node.runs("called")
        assert (await run.state()).ok


async def test_a_retried_task_starts_nothing_twice(store: str | None) -> None:
    """api.md: the start is keyed by (run, task, element, call)."""
    target, flow = called(), tm.Workflow("calls")
    ids: list[list[str]] = []

    @flow.task(retry=tm.Retry(3, delay="1s"))
    async def work(ctx: tm.AsyncContext) -> None:
        ids.append([(await ctx.start("called", number=number)).id for number in range(len(ids) + 1)])
        if len(ids) < 3:
            raise ConnectionError("not yet")

    async with tm.testing.node(store, load=[target, flow]) as node:
        run = await node.start("calls")
        await node.advance("1m")
        assert (await run.state()).ok
        assert await answers(node) == [0, 1, 2]
    assert ids[0] == ids[2][:1]
    assert ids[1] == ids[2][:2]
    assert len(set(ids[2])) == 3


async def test_each_element_and_each_run_starts_its_own() -> None:
    """api.md: and a deferral repeats no start."""
    target, flow = called(), tm.Workflow("calls")

    @flow.task
    def listed() -> list[int]:
        return [1, 2, 3]

    @flow.task(each="listed")
    async def work(listed: int, ctx: tm.AsyncContext) -> None:
        await ctx.start("called", number=listed)
        ctx.defer(for_="1h")
        await ctx.start("called", number=10 * listed)

    async with tm.testing.node(load=[target, flow]) as node:
        for _ in range(2):
            await node.start("calls")
            await node.advance("2h")
        assert sorted(await answers(node)) == [1, 1, 2, 2, 3, 3, 10, 10, 20, 20, 30, 30]


async def test_a_task_that_a_crash_repeats_starts_nothing_twice() -> None:
    """W-12: the attempt after the crash finds the run that the first one has started."""
    target, flow = called(), tm.Workflow("calls")
    started: list[str] = []

    @flow.task
    async def work(ctx: tm.AsyncContext) -> str:
        started.append((await ctx.start("called", number=1)).id)
        if len(started) == 1:
            await node.kill_worker()
        return started[-1]

    async with tm.testing.node("memory://", load=[target, flow]) as node:
        run = await node.start("calls")
        await node.advance("5m")
        assert (await run.state()).ok
        assert await answers(node) == [1]
    assert len(started) == 2
    assert len(set(started)) == 1


async def test_calls_stay_in_the_tenant_of_the_run() -> None:
    """G-30: also on a node whose own tenant is another."""
    flow = tm.Workflow("calls")

    @flow.task
    async def work(ctx: tm.AsyncContext) -> None:
        await ctx.push("numbers", 7)
        await ctx.start("called", number=8)

    async with tm.testing.node(load=[numbers(), called()]) as node:
        for one in (numbers(), called(), flow):
            await node.load(one, tenant="acme")
        run = await node.start("calls", tenant="acme")
        await node.settle()
        assert (await run.state()).ok
        assert await answers(node, tenant="acme") == [8]
        assert await node.runs("called") == []
        assert node.reactor("counting").state().cache == {}
        assert node.reactor("counting", tenant="acme").state().cache == {"numbers": 7}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ctx: ctx.push("number", 1), "accumulator 'number' not loaded (did you mean 'numbers'?)"),
        (lambda ctx: ctx.start("call", number=1), "call"),
        (lambda ctx: ctx.start("strict", numbr=1), "there is no param 'numbr' (did you mean 'number'?)"),
    ],
)
async def test_unknown_names_are_the_errors_that_a_caller_outside_gets(call: Any, message: str) -> None:
    """api.md: the same RequestErrors, in the task."""

    class Numbered(tm.Params):
        number: int

    strict, flow = tm.Workflow("strict", params=Numbered), tm.Workflow("calls")

    @strict.task
    def take(params: Numbered) -> int:
        return params.number

    @flow.task
    async def work(ctx: tm.Context) -> None:
        await call(ctx)

    async with tm.testing.node(load=[numbers(), called(), strict, flow]) as node:
        result = await see_through(node, "calls")
    assert states(result) == {"work": "failed"}
    assert result.tasks["work"].error.type in ("NotFoundError", "RequestError")
    assert message in result.tasks["work"].error.message


async def test_a_task_in_a_process_that_is_killed_starts_nothing_twice(tmp_path: Path) -> None:
    """W-12, api.md: calls go over the channel of the process to its node, with every executor."""
    store = f"sqlite:///{tmp_path}/store.db"
    load = [numbers(), calling.called, calling.caller]
    async with tm.Node(store, load=load, executor="subprocess") as node:
        run = await node.start("caller", marker=str(tmp_path / "marker"))
        result = await run.wait(timeout=60)
        result.raise_for_status()
        first, second = result.outputs["start_twice_and_die"]
        outcome, third = result.outputs["push_and_start"]
        assert result.tasks["start_twice_and_die"].attempts == 2
        assert outcome == "emitted"
        assert node.reactor("counting").state().cache == {"numbers": 7}
        results = {one.id: (await one.wait(timeout=60)).outputs["greet"] for one in await node.runs("called")}
    assert results == {first: "hello a", second: "hello b", third: "hello c"}
