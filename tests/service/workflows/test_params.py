"""What a run is started with."""

from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.acting import see_through


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


class Limits(tm.Boundary):
    low: float
    high: float = 1.0


class Daily(tm.Params):
    day: date
    limit: int = 1000
    side: Side = Side.BUY
    limits: Limits | None = None
    every: timedelta = timedelta(hours=1)


def daily() -> tuple[tm.Workflow, list[Daily]]:
    """Return a workflow with declared params, and what its task was given."""
    flow = tm.Workflow("daily", params=Daily)
    given: list[Daily] = []

    @flow.task
    async def work(params: Daily) -> None:
        given.append(params)

    return flow, given


async def test_declared_params_are_converted_and_filled(store: str | None) -> None:
    """api.md, tm.Params; cloacina.md 120: defaults applied; leoflow.md 29: what was given reaches the tasks."""
    flow, given = daily()
    async with tm.testing.node(store, load=[flow]) as node:
        await see_through(node, "daily", day="2026-01-02")
        await see_through(node, "daily", day=date(2026, 1, 3), limit=5, side="sell", limits={"low": 0.5})
        await see_through(node, "daily", day=date(2026, 1, 4), side=Side.SELL, limits=Limits(low=2.0))
    assert given == [
        Daily(day=date(2026, 1, 2)),
        Daily(day=date(2026, 1, 3), limit=5, side=Side.SELL, limits=Limits(low=0.5)),
        Daily(day=date(2026, 1, 4), side=Side.SELL, limits=Limits(low=2.0)),
    ]


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, "'day'"),
        ({"day": "not a day"}, "day"),
        ({"day": "2026-01-01", "limit": "many"}, "limit"),
        ({"day": "2026-01-01", "limit": 1.5}, "limit"),
        ({"day": "2026-01-01", "lmit": 1}, "lmit"),
        ({"day": "2026-01-01", "side": "neither"}, "side"),
        ({"day": "2026-01-01", "limits": {"high": 1.0}}, "low"),
    ],
)
async def test_wrong_params_are_refused_before_anything_runs(
    store: str | None, params: dict[str, object], said: str
) -> None:
    """cloacina.md 120: a RequestError, and there is no run."""
    flow, given = daily()
    async with tm.testing.node(store, load=[flow]) as node:
        with pytest.raises(tm.RequestError, match=said) as caught:
            await node.start("daily", **params)
        await node.settle()
        assert (caught.value.code, await node.runs()) == ("invalid_params", [])
    assert given == []


async def test_everything_wrong_with_params_is_reported_at_once() -> None:
    """api.md, errors: what was found, where, what to do."""
    flow, _ = daily()
    async with tm.testing.node(load=[flow]) as node:
        with pytest.raises(tm.RequestError) as caught:
            await node.start("daily", limit="many", dya="2026-01-01")
    assert all(part in str(caught.value) for part in ("limit", "dya", "'day'"))


async def test_without_a_class_any_keywords_do(store: str | None) -> None:
    """api.md: they come back as JSON would give them, a date as text."""
    flow = tm.Workflow("free")

    @flow.task
    async def work(ctx: tm.Context) -> list[Any]:
        return [ctx[name] for name in ("number", "nested", "day", "nothing")]

    async with tm.testing.node(store, load=[flow]) as node:
        given = {"number": 1.5, "nested": {"a": [1, None]}, "day": date(2026, 1, 1), "nothing": None}
        result = await see_through(node, "free", **given)
    assert result.outputs["work"] == [1.5, {"a": [1, None]}, "2026-01-01", None]


async def test_a_param_that_cannot_be_stored_is_refused() -> None:
    """api.md: any keywords that can be stored."""
    flow = tm.Workflow("free")

    @flow.task
    async def work() -> None: ...

    async with tm.testing.node(load=[flow]) as node:
        with pytest.raises(tm.RequestError) as caught:
            await node.start("free", thing=object())
        assert (caught.value.code, await node.runs()) == ("invalid_params", [])


async def test_params_named_like_the_apis_own(store: str | None) -> None:
    """api.md, `node.start(workflow, **params)`: a param may be called workflow."""
    flow = tm.Workflow("named")

    @flow.task
    async def work(ctx: tm.Context) -> list[str]:
        return [ctx["workflow"], ctx["self"]]

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("named", workflow="a", self="b")
        await node.settle()
        result = await run.state()
    assert result.outputs["work"] == ["a", "b"]


async def test_params_outlive_a_crash_and_a_retry(store: str | None) -> None:
    """leoflow.md 29: the run keeps what it was started with."""
    flow, given = daily()
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("daily", day="2026-01-02", limit=7)
        await node.settle()
        node = await node.crash()
        await node.run_handle(run.id).retry(from_="work")
        await node.settle()
    assert given == [Daily(day=date(2026, 1, 2), limit=7)] * 2


async def test_values_given_to_start_may_change_afterwards() -> None:
    """leoflow.md 29: what counts is what was given."""
    flow = tm.Workflow("free")
    seen: list[list[int]] = []

    @flow.task
    async def work(ctx: tm.Context) -> None:
        seen.append(ctx["numbers"])

    async with tm.testing.node(load=[flow]) as node:
        numbers = [1, 2]
        await node.start("free", numbers=numbers)
        numbers.append(3)
        await node.settle()
    assert seen == [[1, 2]]


async def test_a_schedule_gives_its_params(store: str | None) -> None:
    """api.md, tm.Cron(params=): from the slot."""
    flow = tm.Workflow("daily", params=Daily, schedule=tm.Cron("0 6 * * *", params=lambda slot: {"day": slot.date()}))
    seen: list[tuple[date, datetime | None]] = []

    @flow.task
    async def work(params: Daily, ctx: tm.Context) -> None:
        seen.append((params.day, ctx.slot))

    async with tm.testing.node(store, load=[flow], start=datetime(2026, 1, 1, tzinfo=UTC)) as node:
        await node.advance("7h")
    assert seen == [(date(2026, 1, 1), datetime(2026, 1, 1, 6, tzinfo=UTC))]


async def test_an_unknown_workflow_is_refused_with_a_hint() -> None:
    """api.md, errors."""
    flow, _ = daily()
    async with tm.testing.node(load=[flow]) as node:
        with pytest.raises(tm.RequestError, match=r"'daly' is not loaded \(did you mean 'daily'\?\)") as caught:
            await node.start("daly")
        assert (caught.value.code, caught.value.status) == ("workflow_not_found", 404)


async def test_a_param_may_be_called_like_the_keyword_of_start(store: str | None) -> None:
    """api.md: `tenant=` of start overrides the node's, so a param of that name comes in a mapping."""

    class Owned(tm.Params):
        tenant: str
        limit: int = 1

    flow = tm.Workflow("owned", params=Owned)

    @flow.task
    async def work(params: Owned) -> list[object]:
        return [params.tenant, params.limit]

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("owned", {"tenant": "acme", "limit": 2}, limit=3)
        await node.settle()
        assert (await run.state()).outputs == {"work": ["acme", 3]}
        with pytest.raises(tm.RequestError, match="params are keywords, or a mapping by their names, not 'acme'"):
            await node.start("owned", "acme")
