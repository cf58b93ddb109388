"""The context of a task, and deferral."""

import logging
from collections.abc import Awaitable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import tidemill as tm
from tidemill.graphs.context import ContextOrigin, FiringContext
from tidemill.workflows.context import Deferral, TaskContext
from tidemill.workflows.node_calls import PushCall, StartCall
from tidemill.workflows.records import AttemptKey

LOG = logging.LoggerAdapter(logging.getLogger("test"), {})
ORIGIN = ContextOrigin("g", (), lambda series, number: f"{series}-{number}")


def context(merged: Mapping[str, Any] | None = None, **options: Any) -> TaskContext:
    """Return the context of a second try."""
    values = {"number": 2, "slot": None, "deferrals": 0, "log": LOG, "merge": lambda: merged or {}}
    return TaskContext(AttemptKey("r1", "load", 3, 5), **(values | options))


def test_a_task_knows_its_attempt() -> None:
    """API: ctx.run_id, ctx.attempt, ctx.slot, ctx.token."""
    ctx = context()
    assert isinstance(ctx, tm.Context)
    assert (ctx.run_id, ctx.attempt, ctx.slot, ctx.token, ctx.log) == ("r1", 2, None, "r1/load[3]#5", LOG)


@pytest.mark.parametrize("name", ["graph", "firing_id", "consumed"])
def test_a_task_knows_no_firing(name: str) -> None:
    with pytest.raises(AttributeError, match=f"ctx.{name} is available only in a node of a graph"):
        getattr(context(), name)
    assert not hasattr(context(), name)


@pytest.mark.parametrize("name", ["run_id", "attempt", "slot", "token"])
def test_a_node_knows_no_attempt(name: str) -> None:
    ctx = FiringContext(ORIGIN, "s", 1, [])
    with pytest.raises(AttributeError, match=f"ctx.{name} is available only in a task of a workflow"):
        getattr(ctx, name)


async def test_a_node_can_do_nothing_of_a_task() -> None:
    ctx = FiringContext(ORIGIN, "s", 1, [])
    with pytest.raises(AttributeError, match="only in a task"):
        ctx["key"]
    with pytest.raises(AttributeError, match="only in a task"):
        assert "key" in ctx
    with pytest.raises(AttributeError, match="only in a task"):
        ctx.get("key")
    with pytest.raises(AttributeError, match="only in a task"):
        ctx.defer(for_="1s")
    with pytest.raises(AttributeError, match="only in a task"):
        ctx.push("a", 1)


def test_keys_are_looked_up_and_suggested() -> None:
    """API: ctx["key"]."""
    ctx = context({"limit": 1})
    assert ctx["limit"] == 1
    with pytest.raises(KeyError, match="did you mean 'limit'"):
        ctx["limmit"]


def test_a_key_may_be_missing() -> None:
    """API: ctx["key"], as of a dict; a value that is None is there all the same."""
    ctx = context({"limit": None})
    assert ("limit" in ctx, "limmit" in ctx) == (True, False)
    assert (ctx.get("limit", 5), ctx.get("limmit", 5), ctx.get("limmit")) == (None, 5, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"for_": "1s", "until": datetime(2026, 1, 1, tzinfo=UTC)},
        {"for_": "1s", "every": "1s"},
        {"until": datetime(2026, 1, 1)},
        {"until": "tomorrow"},
        {"poll": True},
        {"for_": "soon"},
        {"poll": bool, "every": 0},
    ],
)
def test_a_deferral_takes_exactly_one_reason(wrong: dict[str, Any]) -> None:
    """API: for_=, until=, or poll= with every=; also for a call whose deferral is over."""
    with pytest.raises((TypeError, ValueError)):
        context(deferrals=1).defer(**wrong)


@pytest.mark.parametrize("wait", [float("inf"), "10000000d", 10**30, timedelta.max])
def test_a_deferral_ends_some_day(wait: Any) -> None:
    """W-5: raised by the call."""
    for asked in ({"for_": wait}, {"poll": bool, "every": wait}):
        with pytest.raises(ValueError, match="it is finite, and at most a hundred years"):
            context().defer(**asked)


WEST, EAST = timezone(timedelta(hours=-12)), timezone(timedelta(hours=12))


@pytest.mark.parametrize("until", [datetime(9999, 12, 31, 23, 59, tzinfo=WEST), datetime(1, 1, 1, tzinfo=EAST)])
def test_a_moment_is_one_in_utc_too(until: datetime) -> None:
    """W-5: no store could hold another one; a valid one is kept in UTC."""
    with pytest.raises(ValueError, match="a moment in the years 1 to 9999 of UTC"):
        context().defer(until=until)
    with pytest.raises(Deferral) as caught:
        context().defer(until=until.replace(year=2026))
    assert caught.value.until == until.replace(year=2026)
    assert caught.value.until.tzinfo is UTC


def test_deferrals_that_are_over_are_passed() -> None:
    """API: when woken, the same call returns at once."""
    ctx = context(deferrals=2)
    ctx.defer(for_="1h")
    ctx.defer(poll=lambda: False)
    with pytest.raises(Deferral) as caught:
        ctx.defer(for_="2h")
    assert caught.value.delay == 7200.0
    assert not isinstance(caught.value, Exception)


def test_a_poll_is_called_once_before_the_task_is_deferred() -> None:
    """API: poll=fn."""
    asked: list[int] = []

    def is_ready() -> bool:
        asked.append(1)
        return len(asked) > 1

    ctx = context()
    with pytest.raises(Deferral) as caught:
        ctx.defer(poll=is_ready, every="10s")
    assert (caught.value.poll, caught.value.delay) == (is_ready, 10.0)
    ctx.defer(poll=is_ready, every="10s")
    assert len(asked) == 2


def test_a_poll_that_must_be_awaited_is_settled_where_that_is_possible() -> None:
    async def is_ready() -> bool:
        return True

    def settle(answer: Awaitable[bool]) -> bool:
        answer.close()  # type: ignore[attr-defined]
        return True

    context(wait_for=settle).defer(poll=is_ready)
    with pytest.raises(Deferral) as caught:
        context().defer(poll=is_ready)
    assert caught.value.pending_answer is not None
    caught.value.pending_answer.close()  # type: ignore[attr-defined]


def test_a_push_goes_where_the_engine_says() -> None:
    """API: ctx.push takes an accumulator, or its name."""

    @tm.passthrough
    def prices(event: int) -> int:
        return event

    ctx = context(call_node=lambda call: call)
    assert ctx.push("a", 1) == PushCall("a", 1)
    assert ctx.push(prices, b"1") == PushCall("prices", b"1")
    with pytest.raises(TypeError, match="a definition or its name, not 3"):
        ctx.push(3, 1)
    with pytest.raises(tm.OperationError, match="runs without one"):
        context().push("a", 1)


def test_starts_are_numbered_by_call() -> None:
    """API: ctx.start; the key is the same in every attempt of the task."""
    key = AttemptKey("r1", "load", 3, 5)
    ctx = context(call_node=lambda call: call)
    calls = [ctx.start("report", day=1), ctx.start(tm.Workflow("report"), {"tenant": "a"}, day=2)]
    assert calls == [StartCall("report", {"day": 1}, 1), StartCall("report", {"tenant": "a", "day": 2}, 2)]
    assert [call.key_for(key) for call in calls] == ["task:r1/load[3]:1", "task:r1/load[3]:2"]
    assert calls[0].key_for(key._replace(attempt=6)) == calls[0].key_for(key)
