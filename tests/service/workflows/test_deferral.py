"""`ctx.defer`: the slot is freed, no attempt is spent, and nothing is forgotten."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

import tidemill as tm
from tests.service.workflows.acting import START, see_through, states


def deferring(defer: Callable[[tm.Context], None], **options: object) -> tuple[tm.Workflow, list[int]]:
    """Return a workflow whose task defers, and the attempts in which it was called."""
    flow = tm.Workflow("deferring")
    calls: list[int] = []

    @flow.task(**options)
    async def work(ctx: tm.Context) -> str:
        calls.append(ctx.attempt)
        defer(ctx)
        return "done"

    return flow, calls


async def test_for_a_while(store: str | None) -> None:
    """api.md, for_: called again from the top, the same call returns immediately."""
    flow, calls = deferring(lambda ctx: ctx.defer(for_="2h"))
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("deferring")
        await node.advance("119m")
        now = await run.state()
        assert (states(now), str(now.state), len(calls)) == ({"work": "deferred"}, "running", 1)
        await node.advance("2m")
        result = await run.state()
    assert result.outputs == {"work": "done"}
    assert len(calls) == 2
    assert result.tasks["work"].attempts == 1


async def test_until_a_moment(store: str | None) -> None:
    """api.md, until: an aware datetime, in any zone."""
    until = datetime(2026, 1, 1, 2, tzinfo=UTC).astimezone()
    flow, calls = deferring(lambda ctx: ctx.defer(until=until))
    async with tm.testing.node(store, load=[flow], start=START) as node:
        run = await node.start("deferring")
        await node.advance("119m")
        assert len(calls) == 1
        await node.advance("1m")
        result = await run.state()
    assert (result.ok, len(calls)) == (True, 2)
    assert result.ended_at == START + timedelta(hours=2)


async def test_a_moment_that_is_over_defers_nothing_for_long() -> None:
    """api.md, until: of the past."""
    flow, _ = deferring(lambda ctx: ctx.defer(until=START - timedelta(days=1)))
    async with tm.testing.node(load=[flow], start=START) as node:
        run = await node.start("deferring")
        await node.advance("2s")
        assert (await run.state()).ok


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_until_a_poll_says_yes(store: str | None, kind: str) -> None:
    """api.md, poll=fn, every="30s": asked without the task, until it says yes."""
    polls: list[bool] = []
    answers = [False, False, False, True]

    def ask() -> bool:
        polls.append(True)
        return answers.pop(0) if answers else True

    async def ask_async() -> bool:
        return ask()

    poll: Callable[[], bool | Awaitable[bool]] = ask if kind == "sync" else ask_async
    flow, calls = deferring(lambda ctx: ctx.defer(poll=poll, every="30s"))
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("deferring")
        await node.advance("1s")
        assert (states(await run.state()), len(calls)) == ({"work": "deferred"}, 1)
        await node.advance("60s")
        assert (states(await run.state()), len(calls), len(polls)) == ({"work": "deferred"}, 1, 3)
        await node.advance("31s")
        result = await run.state()
    assert result.outputs == {"work": "done"}
    assert len(polls) == 4
    assert result.tasks["work"].attempts == 1


async def test_a_poll_that_says_yes_at_once_defers_nothing(store: str | None) -> None:
    """api.md: there is nothing to wait for."""
    flow, _ = deferring(lambda ctx: ctx.defer(poll=lambda: True, every="30s"))
    async with tm.testing.node(store, load=[flow]) as node:
        assert (await see_through(node, "deferring")).outputs == {"work": "done"}


async def test_a_poll_that_raises_fails_the_attempt() -> None:
    """api.md, Retry: author code failed, so the budget decides."""

    def ask() -> bool:
        raise ConnectionError("gone")

    flow, _ = deferring(lambda ctx: ctx.defer(poll=ask, every="30s"))
    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("deferring")
        await node.advance("1m")
        result = await run.state()
    assert states(result) == {"work": "failed"}
    assert str(result.tasks["work"].error) == "ConnectionError: gone"


async def test_two_in_a_row(store: str | None) -> None:
    """api.md: the same call returns immediately, the next one defers again."""

    def defer(ctx: tm.Context) -> None:
        ctx.defer(for_="1h")
        ctx.defer(for_="30m")

    flow, calls = deferring(defer)
    async with tm.testing.node(store, load=[flow], start=START) as node:
        run = await node.start("deferring")
        await node.advance("61m")
        assert (states(await run.state()), len(calls)) == ({"work": "deferred"}, 2)
        await node.advance("30m")
        result = await run.state()
    assert (result.ok, len(calls)) == (True, 3)
    assert result.tasks["work"].attempts == 1


async def test_from_a_thread(store: str | None) -> None:
    """api.md: tasks may be `def`."""
    flow = tm.Workflow("threaded")
    calls: list[int] = []

    @flow.task
    def work(ctx: tm.Context) -> int:
        calls.append(1)
        ctx.defer(for_="10s")
        return len(calls)

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("threaded")
        await node.advance("5s")
        assert states(await run.state()) == {"work": "deferred"}
        await node.advance("6s")
        await node.settle()
        assert (await run.state()).outputs == {"work": 2}


async def test_it_survives_a_crash(store: str | None) -> None:
    """workflows.md, "Tasks": and is neither shortened nor prolonged."""
    flow, calls = deferring(lambda ctx: ctx.defer(for_="2h"))
    async with tm.testing.node(store, load=[flow], start=START) as node:
        run = await node.start("deferring")
        await node.advance("1h")
        node = await node.crash()
        await node.advance("59m")
        assert len(calls) == 1
        await node.advance("2m")
        result = await node.run_handle(run.id).state()
    assert (result.ok, len(calls), result.tasks["work"].attempts) == (True, 2, 1)


async def test_a_poll_survives_a_crash(store: str | None) -> None:
    """workflows.md, "Tasks": the successor asks again, by calling the task."""
    ready: list[bool] = []
    flow, _ = deferring(lambda ctx: ctx.defer(poll=lambda: bool(ready), every="30s"))
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("deferring")
        await node.advance("1m")
        node = await node.crash()
        run = node.run_handle(run.id)
        await node.advance("2m")
        assert states(await run.state()) == {"work": "deferred"}
        ready.append(True)
        await node.advance("31s")
        result = await run.state()
    assert result.outputs == {"work": "done"}
    assert result.tasks["work"].attempts == 1


async def test_its_place_is_free(store: str | None) -> None:
    """cloacina.md 116: with one slot, a second task completes while the first defers; its pool's place is free too."""
    flow, _ = deferring(lambda ctx: ctx.defer(for_="1h"), pool="narrow")
    other = tm.Workflow("other")

    @other.task(pool="narrow")
    async def work() -> int:
        return 1

    async with tm.testing.node(store, load=[flow, other], concurrency=1, pools={"narrow": 1}) as node:
        waiting = await node.start("deferring")
        await node.advance("1s")
        assert (await see_through(node, "other")).ok
        assert states(await waiting.state()) == {"work": "deferred"}


async def test_it_does_not_spend_retries(store: str | None) -> None:
    """api.md: without spending an attempt; failures after it count as ever."""
    flow = tm.Workflow("both")
    seen: list[int] = []

    @flow.task(retry=tm.Retry(1, delay="10s"))
    async def work(ctx: tm.Context) -> None:
        seen.append(ctx.attempt)
        ctx.defer(for_="1m")
        ctx.defer(for_="1m")
        raise ValueError("no")

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("both")
        await node.advance("10m")
        result = await run.state()
    assert states(result) == {"work": "failed"}
    assert result.tasks["work"].attempts == 2
    assert set(seen) == {1, 2}


async def test_elements_defer_apart(store: str | None) -> None:
    """api.md, each: every element is a task run of its own."""
    flow = tm.Workflow("apart")

    @flow.task
    async def minutes() -> list[int]:
        return [1, 3]

    @flow.task(each=minutes)
    async def work(minutes: int, ctx: tm.Context) -> int:
        ctx.defer(for_=f"{minutes}m")
        return minutes

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("apart")
        await node.advance("2m")
        assert [str(one.state) for one in (await run.state()).tasks["work"].mapped] == ["success", "deferred"]
        await node.advance("2m")
        assert (await run.state()).outputs["work"] == [1, 3]


async def test_it_can_be_cancelled(store: str | None) -> None:
    """workflows.md, States: deferred -> cancelled, and it never wakes."""
    flow, calls = deferring(lambda ctx: ctx.defer(for_="1h"))
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("deferring")
        await node.advance("1m")
        await run.cancel()
        await node.advance("2h")
        assert states(await run.state()) == {"work": "cancelled"}
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "for_="),
        ({"for_": "1h", "until": START}, "for_="),
        ({"until": datetime(2026, 1, 1)}, "until= takes an aware datetime"),
        ({"for_": "1h", "every": "1s"}, "every="),
        ({"for_": "soon"}, "soon"),
    ],
)
async def test_wrong_arguments_fail_the_task(arguments: dict[str, object], said: str) -> None:
    """api.md: for_, or until (aware), or poll, with every."""
    flow, _ = deferring(lambda ctx: ctx.defer(**arguments))
    async with tm.testing.node(load=[flow]) as node:
        result = await see_through(node, "deferring")
    assert states(result) == {"work": "failed"}
    assert result.tasks["work"].error is not None
    assert said in result.tasks["work"].error.message
