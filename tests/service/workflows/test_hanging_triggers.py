"""Triggers and polls that do not return: they block no other, and have one call in flight each."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import tidemill as tm
from tests.service.workflows.faults import until
from tidemill.engine.workflows.leader import scheduler
from tidemill.workflows.states import TaskState


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What code hangs at that hangs; at the end of the test it does no more."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
async def crowded(release: threading.Event) -> AsyncIterator[None]:
    """A loop whose own pool of threads is taken for as long as the test lasts."""
    pool = ThreadPoolExecutor(1)
    pool.submit(release.wait)
    asyncio.get_running_loop().set_default_executor(pool)
    yield
    release.set()  # before the loop ends, which waits for its threads


def asked_by(name: str, *triggers: tm.Trigger) -> tm.Workflow:
    """Return a workflow that triggers start."""
    flow = tm.Workflow(name, triggers=list(triggers))

    @flow.task
    async def work() -> None: ...

    return flow


def told(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    """Return the errors that an event reported."""
    return [vars(record)["error"] for record in caplog.records if record.message == name]


def threads_named(name: str) -> int:
    """Return how many threads of a name live."""
    return sum(thread.name == name for thread in threading.enumerate())


async def test_a_trigger_that_hangs_is_asked_once(release: threading.Event, caplog: pytest.LogCaptureFixture) -> None:
    """Triggers, contract 58: it costs one thread, is not called before it has returned, and others continue."""
    asked: list[str] = []

    @tm.trigger(every="1s", timeout="500ms")
    def hangs() -> tm.Fire | None:  # type: ignore[return]
        asked.append("hangs")
        release.wait()

    @tm.trigger(every="1s", timeout="500ms")
    def answers() -> tm.Fire | None:  # type: ignore[return]
        asked.append("answers")

    async with tm.testing.node(load=[asked_by("one", hangs), asked_by("two", answers)]) as node:
        await node.advance("20s")
        assert asked.count("answers") == 21
        assert asked.count("hangs") == threads_named("trigger 'hangs'") == 1
        assert node.metrics()["trigger_polls_total"] == 22
        release.set()
        await until(lambda: answered("trigger 'hangs'"))
        await node.advance("5s")
        assert asked.count("hangs") >= 4
    late, unanswered = told(caplog, "trigger.failed")
    assert late == "TimeoutError: trigger 'hangs' did not answer within 0.5 s"
    assert unanswered.startswith("StillRunningError: trigger 'hangs' has not answered yet, 1.5s after it was asked")


async def answered(thread: str) -> bool:
    """Return whether a thread has ended, and the loop has had a turn since."""
    return not threads_named(thread)


@pytest.mark.usefixtures("crowded")
async def test_nothing_waits_for_the_threads_of_the_loop(release: threading.Event) -> None:
    """W-5: author code may take all of them, and for long; the node asks, starts and closes all the same."""

    @tm.trigger(every="1s")
    def answers() -> tm.Fire | None:
        return tm.Fire()

    deferred = tm.Workflow("deferred")

    @deferred.task
    def work(ctx: tm.Context) -> str:
        ctx.defer(poll=lambda: True, every="10ms")
        return "done"

    async with tm.Node(load=[asked_by("asked", answers), deferred]) as node:
        result = await (await node.start("deferred")).wait(5)
        assert result.tasks["work"].state is TaskState.SUCCESS

        async def is_started() -> bool:
            return bool(await node.runs("asked"))

        await until(is_started)
        before = time.monotonic()
    assert time.monotonic() - before < 5
    assert not release.is_set()


async def test_a_trigger_that_does_not_heed_its_end_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    """Triggers, W-5: its time is up all the same, no phase waits for it, and neither does the node when it closes."""
    asked, release = [], asyncio.Event()

    @tm.trigger(every="1s", timeout="500ms")
    async def stays() -> tm.Fire | None:
        asked.append(1)
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return None

    other = tm.Workflow("other", schedule=tm.Every("1s"))

    @other.task
    async def work() -> None: ...

    settings = {"unload_timeout": "200ms"}
    async with tm.testing.node(load=[asked_by("flow", stays), other], settings=settings) as node:
        await node.advance("5s")
        assert asked == [1]
        assert node.metrics()["trigger_errors_total"] == 5
        await node.unload("workflow:flow")
        before = len(await node.runs("other"))
        await node.advance("5s")
        assert len(await node.runs("other")) == before + 5
        assert node.metrics()["scheduler_phase_errors_total"] == 0
    assert told(caplog, "trigger.failed")[0] == "TimeoutError: trigger 'stays' did not answer within 0.5 s"
    (left,) = [vars(one)["tasks"] for one in caplog.records if "swallow their cancellation" in one.message]
    assert left == ["trigger 'stays': call"]
    release.set()


async def test_a_poll_that_hangs_is_called_once_and_why_says_so(release: threading.Event) -> None:
    """W-17, Tasks: other deferred tasks continue; it continues too as soon as its poll returns."""
    flow, called = tm.Workflow("flow"), []

    def hang() -> bool:
        called.append(1)
        return release.wait()

    @flow.task
    def stuck(ctx: tm.Context) -> None:
        ctx.defer(poll=lambda: bool(called) and hang(), every="10s")

    @flow.task
    def fine(ctx: tm.Context) -> None:
        ctx.defer(poll=lambda: len(called) > 1, every="10s")

    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("flow")
        await node.advance("1s")
        called.append(0)
        await node.advance("60s")
        assert called == [0, 1]
        assert (await run.state()).tasks["fine"].state is TaskState.SUCCESS
        (why,) = await run.why("stuck")
        assert why.endswith(
            "its poll is called every 10s until it returns true; it was called 51s ago, and has not returned"
        )
        release.set()
        await node.settle()
        assert (await run.state()).tasks["stuck"].state is TaskState.SUCCESS


async def test_a_poll_that_cancels_itself_is_called_again() -> None:
    """Tasks: only the end that the engine asks for is one."""
    flow, called = tm.Workflow("flow"), []

    async def poll() -> bool:
        called.append(1)
        if len(called) == 2:
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        return len(called) > 3

    @flow.task
    async def work(ctx: tm.Context) -> None:
        ctx.defer(poll=poll, every="10s")

    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("flow")
        await node.advance("60s")
        assert (await run.state()).tasks["work"].state is TaskState.SUCCESS


async def test_a_phase_that_takes_too_long_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-5: every phase has a deadline; the error has a text."""
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(scheduler, "PHASE_TIMEOUT", 0.02)
    async with tm.testing.node(load=[asked_by("flow")]) as node:
        await node.probe.workflows.scheduler.run_phase(scheduler.Phase.PLAN, asyncio.Event().wait)
    assert told(caplog, "scheduler.phase_failed") == ["it took longer than 0.02 s"]
