"""Steps of the wall clock, both ways: what waits for seconds waits as long as before, and nothing alive is harmed."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

import tidemill as tm
from tests.service.workflows.faults import QUICK, Neighbour, miss_ends
from tidemill.testing import TestNode

START = datetime(2026, 1, 1, 11, 30, tzinfo=UTC)
STEPS = ["2h", "-1h"]
SHORT_LEASES = {"heartbeat_interval": "5s", "heartbeat_timeout": "30s"}
"""A third of the usual, for tests that outwait leases on several nodes."""

pytestmark = pytest.mark.parametrize("step", STEPS)


class Steps:
    """A workflow whose task is called twice, the second time after a wait; it records when."""

    def __init__(self, wait: Callable[[tm.Context], None], **options: tm.Retry) -> None:
        self.calls: list[float] = []
        self.flow = tm.Workflow("flow")

        @self.flow.task(**options)
        def waits(ctx: tm.Context) -> None:
            self.calls.append(self.node.clock.monotonic())
            wait(ctx)

    async def seconds_waited(self, store: str, step: str) -> float:
        """Step the clock two seconds into the wait, and return how long it lasted."""
        self.node = tm.testing.node(store, load=[self.flow], start=START)
        async with self.node as node:
            run = await node.start("flow")
            await node.advance("2s")
            node.clock.step(step)
            await node.advance("30s")
            assert (await run.state()).ok
        first, second = self.calls
        return second - first


async def test_a_retry_waits_for_its_delay(store: str, step: str) -> None:
    """W-4: a backward step of an hour does not make a retry of 6 s wait an hour, and a forward one not end it early."""

    def fails_once(ctx: tm.Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("down")

    steps = Steps(fails_once, retry=tm.Retry(1, delay="6s"))
    assert await steps.seconds_waited(store, step) == pytest.approx(6, abs=0.1)


async def test_a_deferral_waits_for_its_duration(store: str, step: str) -> None:
    """W-4: as a retry does."""
    steps = Steps(lambda ctx: ctx.defer(for_="6s"))
    assert await steps.seconds_waited(store, step) == pytest.approx(6, abs=0.1)


async def test_a_polled_deferral_is_polled_at_its_interval(store: str, step: str) -> None:
    """W-4: the interval counts seconds."""
    steps = Steps(lambda ctx: ctx.defer(poll=lambda: steps.node.clock.monotonic() >= 10, every="5s"))
    assert await steps.seconds_waited(store, step) == pytest.approx(10, abs=0.1)


async def test_a_wait_is_stored_as_the_time_that_it_ends_at_by_the_stepped_clock(store: str, step: str) -> None:
    """W-4: a crash after the step neither shortens nor prolongs the wait."""
    steps = Steps(lambda ctx: ctx.defer(for_="2m"))
    steps.node = Neighbour(store, load=[steps.flow], start=START, settings=QUICK)
    async with steps.node as node:
        run = await node.start("flow")
        await node.advance("24s")
        node.clock.step(step)
        await node.advance("2s")
        node = await node.crash()
        await node.advance("84s")
        assert len(steps.calls) == 1
        await node.advance("12s")
        assert (await node.run_handle(run.id).state()).ok


async def test_a_deferral_until_a_time_follows_the_wall_clock(store: str, step: str) -> None:
    """W-4: it names a time, not a number of seconds."""
    noon, calls = START + timedelta(minutes=30), list[datetime]()
    flow = tm.Workflow("flow")

    @flow.task
    def waits(ctx: tm.Context) -> None:
        calls.append(node.clock.now())
        ctx.defer(until=noon)

    async with tm.testing.node(store, load=[flow], start=START) as node:
        await node.start("flow")
        await node.advance("2s")
        node.clock.step(step)
        await node.advance("2s")
        assert len(calls) == (2 if step == "2h" else 1)
        await node.advance("2h")
        assert len(calls) == 2
        assert step == "2h" or calls[-1] == noon


@pytest.mark.parametrize("executor", ["in_process"])
async def test_a_timeout_counts_seconds(store: str, step: str, executor: str) -> None:
    """W-4: neither early nor late."""
    flow, never = tm.Workflow("flow"), asyncio.Event()

    @flow.task(timeout="10s", executor=executor)
    async def hangs() -> None:
        await never.wait()

    async with tm.testing.node(store, load=[flow], start=START) as node:
        run = await node.start("flow")
        await node.advance("2s")
        node.clock.step(step)
        await node.advance("7s")
        assert (await run.state()).state == "running"
        await node.advance("2s")
        assert (await run.state()).state == "failed"


async def test_a_living_attempt_is_not_lost(shared: str, step: str) -> None:
    """W-11: five steps under load; on every node of the host, the leases of all attempts seem to have expired."""
    flow, gate = tm.Workflow("flow"), asyncio.Event()

    @flow.task
    def elements() -> list[int]:
        return [1, 2]

    @flow.task(each="elements")
    async def works(elements: int) -> None:
        await gate.wait()

    async with (
        tm.testing.node(shared, load=[flow], start=START, concurrency=1, settings=SHORT_LEASES) as leader,
        tm.testing.node(shared, load=[flow], start=START, concurrency=1, settings=SHORT_LEASES) as follower,
    ):
        nodes = [leader, follower]
        run = await leader.start("flow")
        for _ in range(5):
            await advance(nodes, 11)  # more than the grace that follows a step, two heartbeats
            for node in nodes:
                node.clock.step(step)
        await advance(nodes, 34)  # more than a lease
        assert [len(node.probe.workflows.attempts.claimed) for node in nodes] == [1, 1]
        gate.set()
        await advance(nodes, 3)
        result = await run.state()
        assert (result.ok, [one.attempts for one in result.tasks["works"].mapped]) == (True, [1, 1])


async def test_a_silent_attempt_is_lost_in_time(store: str, step: str) -> None:
    """W-11: after the heartbeat timeout, plus the grace that follows a step, and not an hour later."""
    flow, gate = tm.Workflow("flow"), asyncio.Event()

    @flow.task
    async def works(ctx: tm.Context) -> None:
        if ctx.attempt == 1:
            await gate.wait()

    async with tm.testing.node(store, load=[flow], start=START, settings=QUICK) as node:
        run = await node.start("flow")
        await node.advance("60s")
        await node.kill_worker()
        await node.advance("10s")
        node.clock.step(step)
        await node.advance("20s")
        assert (await run.state()).tasks["works"].attempts == 1
        await node.advance("100s")
        result = await run.state()
        assert (result.ok, result.tasks["works"].attempts) == (True, 2)


async def test_an_orphaned_run_is_ended_after_its_threshold(
    store: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-10: neither when the clock is stepped, nor an hour later."""
    flow = tm.Workflow("flow")

    @flow.task
    def works() -> int:
        return 1

    async with Neighbour(store, load=[flow], start=START) as node:
        miss_ends(monkeypatch)
        run = await node.start("flow")
        await node.advance("2m")
        node.clock.step(step)
        await node.advance("2m")
        assert (await run.state()).state == "running"
        await node.advance("6m")
        assert (await run.state()).state.is_terminal
        assert node.metrics()["orphan_reaped"] == 1


async def test_a_leader_that_works_stays_the_leader(shared: str, step: str) -> None:
    """W-9: its lease seems to have expired, or to last for an hour, on every node of the host at the same time."""
    async with tm.testing.node(shared) as leader, tm.testing.node(shared) as candidate:
        for _ in range(5):
            leader.clock.step(step)
            candidate.clock.step(step)
            await advance([candidate, leader], 5)
            assert [is_leader(node) for node in (leader, candidate)] == [True, False]


async def test_a_frozen_leader_is_replaced_after_its_term(shared: str, step: str) -> None:
    """W-9: a lease that ends an hour later blocks no other node; one that seems to have expired is not taken early."""
    async with tm.testing.node(shared) as leader, tm.testing.node(shared) as candidate:
        await candidate.advance("1s")
        await leader.advance("1s")
        await candidate.advance("500ms")
        candidate.clock.step(step)
        await candidate.advance("2s")
        assert [is_leader(node) for node in (leader, candidate)] == [True, False]
        await candidate.advance("2s")
        assert is_leader(candidate)


async def test_schedules_follow_the_wall_clock(store: str, step: str) -> None:
    """W-13: a slot is due when the wall clock shows it, and gets one run however often that happens."""
    flow = tm.Workflow("flow", schedule=tm.Cron("0 12 * * *"))

    @flow.task
    def works() -> int:
        return 1

    async with tm.testing.node(store, load=[flow], start=START) as node:
        await node.advance("10m")
        node.clock.step(step)
        await node.advance("1s")
        assert len(await node.runs()) == (step == "2h")
        await node.advance("80m")
        assert len(await node.runs()) == 1
        node.clock.step("-3h")
        await node.advance("4h")
        assert len(await node.runs()) == 1


async def test_a_slot_that_cannot_be_started_is_retried_after_its_delay(store: str, step: str) -> None:
    """W-13: the delay counts seconds; a slot that lies ahead again is retried when the clock shows it again."""
    tries, nodes = list[float](), list[TestNode]()

    def fail(slot: datetime) -> dict[str, object]:
        if nodes:
            tries.append(nodes[0].clock.monotonic())
            raise ValueError(f"no params for {slot}")
        return {}

    flow = tm.Workflow("flow", schedule=tm.Cron("0 12 * * *", params=fail))

    @flow.task
    def works() -> int:
        return 1

    async with tm.testing.node(store, load=[flow], start=START) as node:
        nodes.append(node)
        await node.advance("30m")
        node.clock.step(step)
        await node.advance("1m")
        assert len(tries) == (5 if step == "2h" else 1)
        await node.advance("1h")
        first = 1 if step == "2h" else 3600
        delays = [after - before for before, after in pairwise(tries)]
        assert delays == pytest.approx([first, 2, 4, 8], abs=0.1)


async def test_triggers_are_polled_at_their_interval(store: str, step: str) -> None:
    """W-13: an interval counts seconds."""
    polls = list[float]()

    @tm.trigger(every="10s")
    async def polled() -> None:
        polls.append(node.clock.monotonic())

    flow = tm.Workflow("flow", triggers=[polled])

    @flow.task
    def works() -> int:
        return 1

    async with tm.testing.node(store, load=[flow], start=START) as node:
        await node.advance("15s")
        node.clock.step(step)
        await node.advance("30s")
    assert [after - before for before, after in pairwise(polls)] == pytest.approx([10] * 4)


async def test_retention_deletes_nothing_early(store: str, step: str) -> None:
    """W-18: what is deleted is gone, so a stepped clock is not believed for an hour; then runs expire as before."""
    flow = tm.Workflow("flow")

    @flow.task
    def works() -> int:
        return 1

    settings = {"retention": "90m", "tick_interval": "10s"}
    async with tm.testing.node(store, load=[flow], start=START, settings=settings) as node:
        await (await node.start("flow")).wait()
        await node.advance("59m")
        node.clock.step(step)
        await node.advance("10m")
        assert len(await node.runs()) == 1
        await node.advance("4h")
        assert await node.runs() == []


async def test_graphs_count_seconds(store: str, step: str) -> None:
    """G-5, G-20: polls, batches and the restarts of a crashed accumulator."""
    polls, batches = list[float](), list[float]()

    @tm.polling(every="10s")
    def polled() -> None:
        polls.append(node.clock.monotonic())

    @tm.batch(every="10s", max_size=100)
    def batched(events: list[int]) -> int:
        batches.append(node.clock.monotonic())
        return len(events)

    @tm.passthrough
    def plain(event: int) -> int:
        return event

    reactor = tm.Reactor("r", [polled, batched, plain])
    async with tm.testing.node(store, load=[reactor], start=START) as node:
        await node.push("batched", 1)
        await node.break_accumulator("plain")
        node.clock.step(step)
        await node.advance("900ms")
        assert node.reactor("r").state().accumulators["plain"].restarts == 0
        await node.advance("200ms")
        assert node.reactor("r").state().accumulators["plain"].restarts == 1
        await node.advance("20s")
    assert polls == pytest.approx([10, 20])
    assert batches == pytest.approx([10])


async def advance(nodes: list[TestNode], seconds: int) -> None:
    """Move the clocks of several nodes, a second at a time."""
    for _ in range(seconds):
        for node in nodes:
            await node.advance("1s")


def is_leader(node: TestNode) -> bool:
    """Return whether a node leads."""
    return node.metrics()["scheduler_leader"] == 1


@pytest.fixture(params=["memory", "sqlite"])
def shared(request: pytest.FixtureRequest, sqlite: str) -> str:
    """Return the address of a store whose leases end by the clock of the host."""
    return "memory://steps" if request.param == "memory" else sqlite
