"""Tries after a failure: how many, when, and for which errors."""

import asyncio
from itertools import pairwise

import pytest

import tidemill as tm
from tests.service.workflows.acting import START, see_through, states
from tidemill.kernel.clock import VirtualClock


class Failing(tm.Workflow):
    """A workflow whose task fails, and knows at which seconds it was tried."""

    __slots__ = ("clock", "tried")

    def __init__(self, retry: tm.Retry | int | None, error: BaseException | None = None) -> None:
        super().__init__("failing")
        self.clock = VirtualClock(START)
        self.tried: list[float] = []

        @self.task(retry=retry)
        async def bad() -> None:
            self.tried.append((self.clock.now() - START).total_seconds())
            raise error or ConnectionError("refused")

        @self.task(after=[bad])
        async def behind() -> None: ...


@pytest.mark.parametrize(
    ("retry", "times"),
    [
        (None, [0]),
        (tm.Retry(0), [0]),
        (2, [0, 1, 3]),
        (tm.Retry(3, delay="10s", backoff=1.0), [0, 10, 20, 30]),
        (tm.Retry(4, delay="10s", backoff=2.0), [0, 10, 30, 70, 150]),
        (tm.Retry(4, delay="10s", backoff=3.0, max_delay="1m"), [0, 10, 40, 100, 160]),
        (tm.Retry(2, delay="0s"), [0, 0, 0]),
        (tm.Retry(1, delay="10m", max_delay="5m"), [0, 300]),
        (tm.Retry(2, delay="20m"), [0, 1200, 2400]),
    ],
)
async def test_when_it_is_tried_again(store: str | None, retry: tm.Retry | int | None, times: list[float]) -> None:
    """api.md, tm.Retry(3): three more tries; cloacina.md 111: delay, back-off, cap; leoflow.md 13."""
    flow = Failing(retry)
    async with tm.testing.node(store, load=[flow], clock=flow.clock) as node:
        run = await node.start("failing")
        await node.advance("1h")
        result = await run.state()
    assert flow.tried == times
    assert states(result) == {"bad": "failed", "behind": "upstream_failed"}
    assert result.tasks["bad"].attempts == len(times)
    assert str(result.tasks["bad"].error) == "ConnectionError: refused"


async def test_jitter_stays_within_its_bounds(store: str | None) -> None:
    """api.md: a fraction of the delay, both ways; leoflow.md 13."""
    flow = Failing(tm.Retry(40, delay="100s", backoff=1.0, jitter=0.2))
    async with tm.testing.node(store, load=[flow], clock=flow.clock) as node:
        await node.start("failing")
        await node.advance("2h")
    waits = [later - sooner for sooner, later in pairwise(flow.tried)]
    assert len(waits) == 40
    assert all(80 <= wait <= 121 for wait in waits)  # it is looked for every second
    assert min(waits) < 100 < max(waits)


@pytest.mark.parametrize(
    ("error", "tries"),
    [(ConnectionError("refused"), 3), (ConnectionRefusedError("no"), 3), (TimeoutError(), 3), (ValueError("bad"), 1)],
)
async def test_only_some_errors_are_tried_again(error: Exception, tries: int) -> None:
    """api.md, on=; cloacina.md 111, 112: subclasses too."""
    flow = Failing(tm.Retry(2, delay="1s", on=(ConnectionError, TimeoutError)), error)
    async with tm.testing.node(load=[flow], clock=flow.clock) as node:
        run = await node.start("failing")
        await node.advance("1m")
        assert (await run.state()).tasks["bad"].attempts == len(flow.tried) == tries


async def test_fail_is_final(store: str | None) -> None:
    """api.md, tm.Fail: no retry, also with budget left; the reason is kept."""
    flow = Failing(tm.Retry(5, delay="1s"), tm.Fail("the file is empty"))
    async with tm.testing.node(store, load=[flow], clock=flow.clock) as node:
        run = await node.start("failing")
        await node.advance("1m")
        result = await run.state()
    assert flow.tried == [0]
    assert states(result) == {"bad": "failed", "behind": "upstream_failed"}
    assert "the file is empty" in str(result.tasks["bad"].error)


async def test_skip_is_no_failure(store: str | None) -> None:
    """api.md, tm.Skip: skipped, no retry, the reason is kept, the run succeeds."""
    flow = Failing(tm.Retry(5, delay="1s"), tm.Skip("nothing new"))
    async with tm.testing.node(store, load=[flow], clock=flow.clock) as node:
        run = await node.start("failing")
        await node.advance("1m")
        result = await run.state()
    assert flow.tried == [0]
    assert states(result) == {"bad": "skipped", "behind": "skipped"}
    assert (result.ok, result.tasks["bad"].reason, result.tasks["bad"].error) == (True, "nothing new", None)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
async def test_whatever_is_raised_is_the_tasks_own_failure(error: BaseException) -> None:
    """Q-2: author code may raise anything; the node continues."""
    flow = Failing(None, error)
    async with tm.testing.node(load=[flow], clock=flow.clock) as node:
        result = await see_through(node, "failing")
        assert result.tasks["bad"].error is not None
        assert result.tasks["bad"].error.type == type(error).__name__
        assert states(await see_through(node, "failing"))["bad"] == "failed"


async def test_the_wait_survives_a_crash(store: str | None) -> None:
    """leoflow.md 13: neither sooner nor later, and the budget is what it was."""
    flow = Failing(tm.Retry(2, delay="100s", backoff=1.0))
    async with tm.testing.node(store, load=[flow], clock=flow.clock) as node:
        run = await node.start("failing")
        await node.advance("60s")
        node = await node.crash()
        await node.advance("30s")
        assert flow.tried == [0]
        assert states(await node.run_handle(run.id).state())["bad"] == "up_for_retry"
        await node.advance("20s")
        assert flow.tried == [0, 100]
        node = await node.crash()
        await node.advance("10m")
        result = await node.run_handle(run.id).state()
    assert flow.tried == [0, 100, 200]
    assert result.tasks["bad"].attempts == 3


async def test_a_time_that_passed_while_no_node_ran_is_made_up_for(store: str | None) -> None:
    """leoflow.md 13: retries that became due during an outage start immediately."""
    flow = Failing(tm.Retry(1, delay="100s"))
    async with tm.testing.node(store, load=[flow], clock=flow.clock) as node:
        await node.start("failing")
        await node.settle()
        node.clock.advance_to(node.clock.monotonic() + 500)  # no task gets a turn in between
        node = await node.crash()
        await node.advance("2s")
    assert flow.tried == [0, 500]


async def test_the_budget_counts_again_after_a_retry_by_hand(store: str | None) -> None:
    """leoflow.md 8: attempts keep counting, retries are available again."""
    flow = Failing(tm.Retry(1, delay="10s"))
    async with tm.testing.node(store, load=[flow], clock=flow.clock) as node:
        run = await node.start("failing")
        await node.advance("20s")
        assert flow.tried == [0, 10]
        await run.retry()
        await node.advance("20s")
        result = await run.state()
    assert flow.tried == [0, 10, 20, 30]
    assert (result.tasks["bad"].attempts, str(result.tasks["bad"].state)) == (4, "failed")


async def test_an_error_is_shown_while_it_waits_and_gone_after_a_success(store: str | None) -> None:
    """W-16, TaskResult.error: of the newest try."""
    flow = tm.Workflow("repairs")
    attempts: list[int] = []

    @flow.task(retry=tm.Retry(3, delay="10s"))
    async def flaky(ctx: tm.Context) -> str:
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ConnectionError(f"try {ctx.attempt}")
        return "done"

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("repairs")
        await node.advance("1s")
        assert str((await run.state()).tasks["flaky"].error) == "ConnectionError: try 1"
        await node.advance("10s")
        assert str((await run.state()).tasks["flaky"].error) == "ConnectionError: try 2"
        await node.advance("20s")
        result = await run.state()
    assert attempts == [1, 2, 3]
    assert (result.ok, result.tasks["flaky"].error, result.outputs) == (True, None, {"flaky": "done"})


async def test_a_waiting_retry_holds_no_place(store: str | None) -> None:
    """leoflow.md 12: it is active, but others run meanwhile."""
    flow = Failing(tm.Retry(1, delay="1h"))
    other = tm.Workflow("other")

    @other.task
    async def work() -> int:
        return 1

    async with tm.testing.node(store, load=[flow, other], concurrency=1, clock=flow.clock) as node:
        waiting = await node.start("failing")
        await node.advance("1m")
        assert (await see_through(node, "other")).ok
        assert (await waiting.state()).state is tm.RunState.RUNNING


async def test_a_node_that_dies_costs_no_retry(store: str | None) -> None:
    """W-11, W-12; cloacina.md 117: recoveries are counted apart; a task that keeps dying is given up after three."""
    flow = tm.Workflow("deadly")
    attempts: list[int] = []

    @flow.task
    async def work(ctx: tm.Context) -> None:
        attempts.append(ctx.attempt)
        await asyncio.Event().wait()

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("deadly")
        await node.advance("1s")
        for lives in range(2, 5):
            node = await node.crash()
            await node.advance("1s")
            assert len(attempts) == lives
        node = await node.crash()
        await node.settle()
        result = await node.run_handle(run.id).state()
    assert attempts == [1, 2, 3, 4]
    assert states(result) == {"work": "failed"}
    assert "lost 4 times" in result.tasks["work"].reason
