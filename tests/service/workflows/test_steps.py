"""Steps of tasks: `ctx.step` does once what a task does that is called again."""

import asyncio
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows import stepping
from tests.service.workflows.acting import see_through, states
from tidemill.workflows import steps


class Page(tm.Params):
    """A page of a report."""

    number: int


class Worker:
    """Counts the calls of its functions."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.errors: list[Exception] = []

    def fetch(self, number: int) -> Page:
        self.calls.append(number)
        return Page(number=number)

    async def slow(self, name: str) -> str:
        self.calls.append(name)
        await asyncio.sleep(0)
        return name

    def fail(self) -> None:
        self.calls.append("fail")
        if self.errors:
            raise self.errors.pop(0)


async def run_of(node: tm.testing.node, flow: tm.Workflow, minutes: int = 10) -> Any:
    """Return a run of a workflow after some minutes."""
    run = await node.start(flow.name)
    for _ in range(minutes):
        await node.advance("1m")
    return run


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_what_was_done_is_not_done_again(store: str, kind: str) -> None:
    """L-1, L-2: after a deferral, a retry and a lost attempt; by number of the call, and by key in any order."""
    flow, worker = tm.Workflow("flow"), Worker()

    if kind == "async":

        @flow.task(retry=tm.Retry(3, delay="1s"))
        async def work(ctx: tm.AsyncContext) -> list[int]:
            first = [await ctx.step(worker.fetch, number) for number in (1, 2)]
            ctx.defer(for_="1m")
            if ctx.attempt == 1:
                await node.kill_worker()
            keys = (3, 4) if ctx.attempt == 2 else (4, 3)
            second = [await ctx.step(worker.fetch, number, key=number) for number in keys]
            if ctx.attempt == 2:
                raise ConnectionError
            return sorted(page.number for page in first + second)

    else:

        @flow.task(retry=tm.Retry(3, delay="1s"))
        def work(ctx: tm.Context) -> list[int]:  # type: ignore[misc]
            first = [ctx.step(worker.fetch, number) for number in (1, 2)]
            ctx.defer(for_="1m")
            keys = (3, 4) if ctx.attempt == 1 else (4, 3)
            second = [ctx.step(worker.fetch, number, key=number) for number in keys]
            if ctx.attempt < 3:
                raise ConnectionError
            return sorted(page.number for page in first + second)

    async with tm.testing.node(store, load=[flow]) as node:
        run = await run_of(node, flow)
        assert (await run.state()).outputs == {"work": [1, 2, 3, 4]}
        assert worker.calls == [1, 2, 3, 4]
        assert [(one.name, one.key, one.number, one.state) for one in await run.steps("work")] == [
            ("fetch", None, 1, "success"),
            ("fetch", None, 2, "success"),
            ("fetch", 3, None, "success"),
            ("fetch", 4, None, "success"),
        ]


async def test_steps_run_side_by_side(store: str) -> None:
    """L-1: names, not positions: in a gather and in a task group, and a new one between old ones breaks nothing."""
    flow, worker = tm.Workflow("flow"), Worker()

    @flow.task
    async def work(ctx: tm.AsyncContext) -> list[str]:
        found = await asyncio.gather(*(ctx.step(worker.slow, name, key=name) for name in "abc"))
        async with asyncio.TaskGroup() as group:
            others = [group.create_task(ctx.step(worker.slow, name, key=name)) for name in "de"]
        ctx.defer(for_="1m")
        return found + [await one for one in others]

    async with tm.testing.node(store, load=[flow]) as node:
        run = await run_of(node, flow)
        assert (await run.state()).outputs == {"work": list("abcde")}
    assert sorted(worker.calls) == list("abcde")


async def test_the_value_is_the_one_that_comes_back(store: str) -> None:
    """L-2: as its function declares it; None and large values too."""
    flow, seen = tm.Workflow("flow"), list[Any]()

    def pair() -> tuple[int, str]:
        return 1, "a"

    def large() -> str:
        return "x" * 100_000

    def untyped():
        return {"a": [1]}

    def nothing() -> None:
        return None

    @flow.task
    async def work(ctx: tm.AsyncContext) -> None:
        values = [await ctx.step(one) for one in (pair, large, untyped, nothing)]
        seen.append([*values, await ctx.step(partial(pow, 2), 3, key="cube")])
        ctx.defer(for_="1m")

    async with tm.testing.node(store, load=[flow]) as node:
        await run_of(node, flow)
    assert seen == [[(1, "a"), "x" * 100_000, {"a": [1]}, None, 8]] * 2


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (object(), "step 'badly' returned a value that cannot be stored"),
        ("text", "step 'badly' returned a value of class str, but declares int"),
    ],
)
async def test_a_value_that_cannot_be_stored_fails_the_task(store: str, returned: Any, problem: str) -> None:
    """L-2: without a retry, whatever the policy says."""
    flow, calls = tm.Workflow("flow"), list[int]()

    def badly():
        calls.append(1)
        return returned

    if isinstance(returned, str):
        badly.__annotations__["return"] = int

    @flow.task(retry=tm.Retry(5, delay="1s"))
    async def work(ctx: tm.AsyncContext) -> None:
        await ctx.step(badly)

    async with tm.testing.node(store, load=[flow]) as node:
        result = await (await run_of(node, flow, 1)).state()
    assert states(result) == {"work": "failed"}
    assert problem in result.tasks["work"].reason
    assert calls == [1]


async def test_a_failed_step_raises_the_same_in_every_call_of_a_try(store: str) -> None:
    """L-3: so a caught failure takes the same path after a deferral; a further try tries it anew."""
    flow, worker, caught = tm.Workflow("flow"), Worker(), list[Any]()
    worker.errors = [ValueError("bad")]

    @flow.task(retry=tm.Retry(1, delay="1s"))
    async def work(ctx: tm.AsyncContext) -> None:
        try:
            await ctx.step(worker.fail)
        except tm.StepError as error:
            caught.append((error.name, error.type, error.message, error.run, str(error)))
            ctx.defer(for_="1m")
            raise

    async with tm.testing.node(store, load=[flow]) as node:
        run = await run_of(node, flow)
        assert (await run.state()).ok
        (step,) = await run.steps("work")
        assert (step.state, step.error, step.try_number) == ("success", None, 2)
    assert caught == [("fail", "ValueError", "bad", None, "step 'fail' failed: ValueError: bad")] * 2
    assert worker.calls == ["fail", "fail"]


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize(("error", "retried"), [(TimeoutError("slow"), True), (KeyError("no"), False)])
async def test_an_uncaught_failure_counts_as_its_cause(
    store: str, error: Exception, retried: bool, deferred: bool
) -> None:
    """L-3: for `Retry(on=...)`, at first and where a deferral has come between."""
    flow, worker = tm.Workflow("flow"), Worker()
    worker.errors = [error]

    @flow.task(retry=tm.Retry(1, delay="1s", on=(TimeoutError,)))
    async def work(ctx: tm.AsyncContext) -> None:
        try:
            await ctx.step(worker.fail)
        except tm.StepError:
            if deferred:
                ctx.defer(for_="1m")
            raise

    async with tm.testing.node(store, load=[flow]) as node:
        result = await (await run_of(node, flow)).state()
        assert states(result) == {"work": "success" if retried else "failed"}
    assert len(worker.calls) == 1 + retried


@pytest.mark.parametrize(("error", "state"), [(tm.Fail("no use"), "failed"), (tm.Skip("not today"), "skipped")])
async def test_fail_and_skip_in_a_step_end_the_task(store: str, error: Exception, state: str) -> None:
    """L-3: as outside of it; nothing is recorded."""
    flow, worker = tm.Workflow("flow"), Worker()
    worker.errors = [error]

    @flow.task(retry=tm.Retry(3, delay="1s"))
    def work(ctx: tm.Context) -> None:
        ctx.step(worker.fail)

    async with tm.testing.node(store, load=[flow]) as node:
        run = await run_of(node, flow, 1)
        assert states(await run.state()) == {"work": state}
        assert await run.steps("work") == []
    assert worker.calls == ["fail"]


async def test_a_retry_of_the_run_keeps_what_succeeded_and_a_clear_forgets_it(store: str) -> None:
    """L-4: `retry()` keeps; `retry(from_=...)` and `clear` forget, of the task and of those after it."""
    flow, worker = tm.Workflow("flow"), Worker()
    worker.errors = [ValueError("once")]

    @flow.task
    def work(ctx: tm.Context) -> int:
        page = ctx.step(worker.fetch, 1)
        ctx.step(worker.fail)
        return page.number

    @flow.task
    def after(work: int, ctx: tm.Context) -> str:
        ctx.step(worker.fetch, 2)
        return "done"

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("flow")
        await node.settle()
        assert states(await run.state()) == {"work": "failed", "after": "upstream_failed"}
        for change in (run.retry, partial(run.clear, "after"), partial(run.retry, from_="work")):
            await change()
            await node.settle()
            assert (await run.state()).ok
    assert worker.calls == [1, "fail", "fail", 2, 2, 1, "fail", 2]


async def test_the_elements_of_a_mapped_task_have_their_own_steps(store: str) -> None:
    """L-1, L-4: (run, task, element); a retry of one element keeps its steps and those of the others."""
    flow, worker = tm.Workflow("flow"), Worker()
    worker.errors = [ValueError("once")]

    @flow.task
    def numbers() -> list[int]:
        return [1, 2]

    @flow.task(each="numbers")
    def work(numbers: int, ctx: tm.Context) -> int:
        page = ctx.step(worker.fetch, numbers)
        if numbers == 2:
            ctx.step(worker.fail)
        return page.number

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("flow")
        await node.settle()
        await run.retry()
        await node.settle()
        assert (await run.state()).outputs["work"] == [1, 2]
        assert [(one.index, one.name) for one in await run.steps("work")] == [(0, "fetch"), (1, "fetch"), (1, "fail")]
        assert [one.name for one in await run.steps("work", index=0)] == ["fetch"]
        assert [one.name for one in await run.steps("work[1]")] == ["fetch", "fail"]
        with pytest.raises(tm.RequestError, match="no task"):
            await run.steps("wrk")
    assert worker.calls.count(2) == 1


async def test_a_deferral_cancels_the_steps_that_still_run(store: str) -> None:
    """L-5: the execution ends, and with it the coroutines that it still has; alone or in a task group."""
    flow, ended = tm.Workflow("flow"), list[str]()

    async def hangs() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cancelled")

    async def waits(ctx: tm.AsyncContext) -> None:
        await asyncio.sleep(0)
        ctx.defer(for_="1m")

    @flow.task
    async def gathers(ctx: tm.AsyncContext) -> None:
        if not ended:
            await asyncio.gather(ctx.step(hangs), waits(ctx))
        ctx.defer(for_="1m")

    @flow.task
    async def groups(ctx: tm.AsyncContext, gathers: None) -> None:
        if len(ended) < 2:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.step(hangs))
                group.create_task(waits(ctx))
        ctx.defer(for_="1m")

    async with tm.testing.node(store, load=[flow]) as node:
        run = await run_of(node, flow)
        assert (await run.state()).ok
    assert ended == ["cancelled"] * 2


async def test_a_task_has_at_most_so_many_steps(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """L-6: then it fails, with the advice to use other runs."""
    monkeypatch.setattr(steps, "STEP_LIMIT", 3)
    flow, worker = tm.Workflow("flow"), Worker()

    @flow.task(retry=tm.Retry(2, delay="1s"))
    def work(ctx: tm.Context) -> None:
        for number in range(4):
            ctx.step(worker.fetch, number)

    async with tm.testing.node(store, load=[flow]) as node:
        result = await see_through(node, "flow")
    assert "at most 3 steps: give parts of the work to runs of another workflow" in result.tasks["work"].reason
    assert worker.calls == [0, 1, 2]


async def test_an_attempt_that_was_taken_away_and_wakes_up_records_nothing(store: str) -> None:
    """L-2: the commit is fenced, and the code is stopped at its next step, even code that catches every error."""
    flow, worker, reached = tm.Workflow("flow"), Worker(), list[str]()
    gate, inside = threading.Event(), threading.Event()

    @flow.task
    def work(ctx: tm.Context) -> int:
        ctx.step(worker.fetch, ctx.attempt)
        if ctx.attempt == 1:
            inside.set()
            gate.wait(20)
            try:
                ctx.step(worker.fetch, 7, key="late")
            except Exception:
                reached.append("caught")
            reached.append("went on")
        return 2

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("flow")
        await asyncio.to_thread(inside.wait, 20)
        await run.clear("work")
        await run.wait(20)
        gate.set()
        await node.settle()
        assert (await run.state()).outputs == {"work": 2}
        assert [(one.key, one.try_number) for one in await run.steps("work")] == [(None, 2)]
    assert (reached, worker.calls) == ([], [1, 2, 7])


async def test_a_process_that_dies_at_any_point_of_a_step(tmp_path: Path) -> None:
    """L-2: before the commit the function is called again, after it never; and the same on every executor."""
    store = f"sqlite:///{tmp_path}/store.db"
    async with tm.Node(store, load=[stepping.dying], executor="subprocess") as node:
        run = await node.start("dying", folder=str(tmp_path))
        result = (await run.wait(timeout=60)).raise_for_status()
        assert result.outputs == {"work": [1, 7, 1, 1]}
        assert node.metrics()["steps_total"] == 4
        assert node.metrics()["steps_reused_total"] == 1 + 3
    calls = {path.name: path.read_text().count("\n") for path in tmp_path.iterdir() if path.name[0] in "dfle"}
    assert calls == {"first": 1, "dies_before_its_commit": 2, "last": 1, "end": 1}


async def test_a_workflow_without_steps_reads_and_writes_none(store: str) -> None:
    """L, Storage: nothing is written or read for a task that uses nothing of it, not even when it is repeated."""
    flow, calls = tm.Workflow("flow"), list[int]()

    @flow.task(retry=tm.Retry(2, delay="1s"))
    async def work(ctx: tm.AsyncContext) -> None:
        calls.append(1)
        ctx.defer(for_="1m")
        if len(calls) < 4:
            raise ValueError("again")

    async with tm.testing.node(store, load=[flow]) as node:
        table, used = node.store.steps, list[str]()
        for name in ("add", "get", "list_of"):
            setattr(table, name, lambda *_, name=name: used.append(name))
        run = await run_of(node, flow)
        assert (await run.state()).ok
    assert used == []
