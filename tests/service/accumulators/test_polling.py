"""Polls that fail or hang: timeouts, back-off, one call at a time, and one log record for many failures."""

import asyncio
import logging
import threading
from typing import Any

import pytest

import tidemill as tm

Health = tm.AccumulatorHealth


def limits_state(node: tm.Node) -> tm.AccumulatorState:
    return node.reactor("r").state().accumulators["limits"]


@pytest.mark.parametrize(("every", "timeout", "seconds"), [("1s", None, 10), ("30s", None, 30), ("1s", "2s", 2)])
async def test_a_poll_that_hangs_is_disconnected_after_its_timeout(
    every: str, timeout: str | None, seconds: int
) -> None:
    """G-5: by default the interval, and at least 10 s; the call is cancelled, and the reactor degraded."""
    cancelled: list[float] = []

    @tm.polling(every=every, timeout=timeout)
    async def limits() -> int:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(node.clock.monotonic())
        return 1

    async with tm.testing.node(load=[tm.Reactor("r", [limits])]) as node:
        await node.advance(every)
        began = node.clock.monotonic()
        await node.advance(seconds - 0.5)
        assert limits_state(node).health is Health.LIVE
        await node.advance("500ms")
        assert cancelled == [began + seconds]
        assert limits_state(node).health is Health.DISCONNECTED
        assert limits_state(node).reason == f"TimeoutError: 'limits' did not answer within {seconds} s"
        assert node.reactor("r").state().health is tm.ReactorHealth.DEGRADED


async def test_failing_polls_back_off_to_the_longest_delay_and_recover_at_once() -> None:
    """G-20: the interval doubles with each failure in a row, up to `backoff_max`."""
    polled: list[float] = []
    is_down = True

    @tm.polling(every="5s")
    def limits() -> int:
        polled.append(node.clock.monotonic())
        if is_down:
            raise OSError("down")
        return 1

    async with tm.testing.node(load=[tm.Reactor("r", [limits])]) as node:
        await node.advance("5m")
        assert polled == [5, 10, 20, 40, 80, 140, 200, 260]
        is_down = False
        await node.advance("1m")
        assert limits_state(node).health is Health.LIVE
        polled.clear()
        await node.advance("20s")
    assert polled == [365, 370, 375, 380]


async def test_an_interval_beyond_the_longest_back_off_stays_as_it_is() -> None:
    """G-20: failures never make a poll come sooner."""
    polled: list[float] = []

    @tm.polling(every="2m")
    def limits() -> int:
        polled.append(node.clock.monotonic())
        raise OSError("down")

    async with tm.testing.node(load=[tm.Reactor("r", [limits])]) as node:
        await node.advance("6m")
    assert polled == [120, 240, 360]


@pytest.mark.parametrize("options", [{"thread": True}, {"timeout": "10s"}])
async def test_a_poll_that_hangs_on_a_thread_is_not_started_a_second_time(options: dict[str, Any]) -> None:
    """G-5: it is left behind; while it runs the function is not called again, also after a restart."""
    go_on, calls = threading.Event(), []

    @tm.polling(every="1s", **options)
    def limits() -> int:
        calls.append(threading.get_ident())
        go_on.wait(30)
        return len(calls)

    async with tm.testing.node(load=[tm.Reactor("r", [limits])]) as node:
        await node.advance("11s")
        assert limits_state(node).health is Health.DISCONNECTED
        await node.advance("2m")
        await node.restart_accumulator("limits")
        await node.advance("2m")
        assert len(calls) == 1
        assert "has not answered yet" in (limits_state(node).reason or "")
        go_on.set()
        while limits_state(node).health is not Health.LIVE:
            await node.advance("1m")
        assert node.reactor("r").state().cache == {"limits": len(calls)}


async def test_repeated_failures_are_logged_once_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Q-6: a source that is down for hours does not fill the log."""
    remaining = 250

    @tm.polling(every="1m")
    def limits() -> int:
        nonlocal remaining
        remaining -= 1
        if remaining >= 0:
            raise OSError("down")
        return 1

    with caplog.at_level(logging.INFO, "tidemill"):
        async with tm.testing.node(load=[tm.Reactor("r", [limits])]) as node:
            await node.advance("251m")
            assert limits_state(node).health is Health.LIVE
    records = [(one.msg, vars(one)["failures"]) for one in caplog.records if one.msg.startswith("accumulator.poll")]
    failed, recovered = "accumulator.poll_failed", "accumulator.poll_recovered"
    assert records == [(failed, 1), (failed, 100), (failed, 200), (recovered, 250)]


async def test_a_reload_calls_the_new_function_although_the_old_one_hangs() -> None:
    """P-6: saving the corrected file is the remedy."""

    def build(hangs: bool) -> tm.Reactor:
        @tm.polling(every="1s")
        async def limits() -> int:
            if hangs:
                await asyncio.Event().wait()
            return 7

        return tm.Reactor("r", [limits])

    async with tm.testing.node(load=[build(hangs=True)]) as node:
        await node.advance("30s")
        await node.load(build(hangs=False))
        await node.advance("1s")
        assert node.reactor("r").state().cache == {"limits": 7}
        assert limits_state(node).health is Health.LIVE


@pytest.mark.parametrize("timeout", ["0s", "-1s", "soon", 0])
def test_a_timeout_is_a_positive_duration(timeout: Any) -> None:
    """G-17: a definition error with its line."""
    with pytest.raises(tm.DefinitionError, match=r"polling\(timeout=...\).*test_polling.py"):
        tm.polling(every="1s", timeout=timeout)
