"""What a task knows of where it runs."""

import asyncio
import logging
from datetime import UTC, datetime

import pytest

import tidemill as tm
from tests.service.workflows.acting import see_through, states


async def test_who_it_is(store: str | None) -> None:
    """api.md: run_id, attempt from 1, slot only of a schedule."""
    flow = tm.Workflow("known", schedule=tm.Cron("0 * * * *"))
    seen: list[tuple[str, int, datetime | None]] = []

    @flow.task
    async def work(ctx: tm.Context) -> None:
        seen.append((ctx.run_id, ctx.attempt, ctx.slot))

    async with tm.testing.node(store, load=[flow], start=datetime(2026, 1, 1, 0, 30, tzinfo=UTC)) as node:
        by_hand = await node.start("known")
        await node.settle()
        await node.advance("31m")
        runs = [run.id for run in await node.runs()]
    assert seen == [(by_hand.id, 1, None), (runs[0], 1, datetime(2026, 1, 1, 1, tzinfo=UTC))]


async def test_a_token_is_of_one_attempt(store: str | None) -> None:
    """api.md, ctx.token: no other attempt, element or run has it."""
    flow = tm.Workflow("fenced")
    tokens: list[str] = []

    @flow.task
    async def numbers() -> list[int]:
        return [1, 2, 3]

    @flow.task(each=numbers, retry=tm.Retry(2, delay="1s"))
    async def work(numbers: int, ctx: tm.Context) -> None:
        tokens.append(ctx.token)
        if ctx.attempt < 3:
            raise ValueError("again")

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("fenced")
        await node.advance("10s")
        await node.start("fenced")
        await node.advance("10s")
        await run.retry(from_="numbers")
        node = await node.crash()
        await node.advance("10s")
    assert all(isinstance(token, str) and token for token in tokens)
    assert len(tokens) >= 21
    assert len(set(tokens)) == len(tokens)


async def test_the_merged_context(store: str | None) -> None:
    """api.md, ctx["key"]; cloacina.md 113: params, then dicts in the order of the parameters, the last wins."""
    flow = tm.Workflow("merged")

    @flow.task
    async def first() -> dict[str, int]:
        return {"a": 1, "b": 1, "param": 1}

    @flow.task
    async def second() -> dict[str, int]:
        return {"b": 2, "c": 2}

    @flow.task
    async def number() -> int:
        return 5

    @flow.task
    async def forward(first: dict[str, int], number: int, second: dict[str, int], ctx: tm.Context) -> list[int]:
        return [ctx[key] for key in ("a", "b", "c", "param", "other")]

    @flow.task
    async def backward(ctx: tm.Context, second: dict[str, int], first: dict[str, int]) -> list[int]:
        return [ctx[key] for key in ("a", "b", "c", "param", "other")]

    @flow.task(after=[first, second])
    async def without(ctx: tm.Context) -> list[int]:
        return [ctx[key] for key in ("param", "other")]

    async with tm.testing.node(store, load=[flow]) as node:
        result = await see_through(node, "merged", param=0, other=0)
    assert result.outputs["forward"] == [1, 2, 2, 1, 0]
    assert result.outputs["backward"] == [1, 1, 2, 1, 0]
    assert result.outputs["without"] == [0, 0]


async def test_declared_params_are_in_the_context() -> None:
    """api.md: run params, by their names, defaults included."""

    class Some(tm.Params):
        size: int
        limit: int = 7

    flow = tm.Workflow("declared", params=Some)

    @flow.task
    async def work(ctx: tm.Context) -> list[int]:
        return [ctx["size"], ctx["limit"]]

    async with tm.testing.node(load=[flow]) as node:
        assert (await see_through(node, "declared", size=3)).outputs == {"work": [3, 7]}


async def test_an_unknown_key_says_which() -> None:
    """api.md, errors: what was found."""
    flow = tm.Workflow("unknown")

    @flow.task
    async def work(ctx: tm.Context) -> int:
        return ctx["absent"]

    async with tm.testing.node(load=[flow]) as node:
        result = await see_through(node, "unknown", another=1)
    assert states(result) == {"work": "failed"}
    assert result.tasks["work"].error is not None
    assert result.tasks["work"].error.type == "KeyError"
    assert "absent" in result.tasks["work"].error.message


async def test_what_belongs_to_graphs_is_not_there() -> None:
    """api.md: firing_id and consumed are of a firing."""
    flow = tm.Workflow("elsewhere")

    @flow.task
    async def work(ctx: tm.Context) -> str:
        return ctx.firing_id

    async with tm.testing.node(load=[flow]) as node:
        result = await see_through(node, "elsewhere")
    assert "ctx.firing_id is available only in a node of a graph" in str(result.tasks["work"].error)


async def test_the_log_goes_to_pythons_logging_too(caplog: pytest.LogCaptureFixture) -> None:
    """api.md, ctx.log: structured."""
    flow = tm.Workflow("loud")

    @flow.task
    async def work(ctx: tm.Context) -> None:
        ctx.log.info("publishing %d", 3)

    with caplog.at_level(logging.INFO):
        async with tm.testing.node(load=[flow]) as node:
            await see_through(node, "loud")
    assert "publishing 3" in [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_pushing_into_a_graph(store: str | None, kind: str) -> None:
    """workflows.md, `await ctx.push(accumulator, event) -> Receipt`: of the same node."""

    class Price(tm.Boundary):
        value: float

    @tm.passthrough
    def prices(event: Price) -> Price:
        return event

    market = tm.Reactor("market", [prices])
    graph = tm.Graph("graph", reactor=market)

    @graph.node
    def seen(prices: Price) -> float:
        return prices.value

    flow = tm.Workflow("pushes")

    if kind == "async":

        @flow.task
        async def work(ctx: tm.AsyncContext) -> list[object]:
            receipt = await ctx.push("prices", {"value": 2.5})
            return [receipt.accepted, receipt.sequence]

    else:

        @flow.task
        def work(ctx: tm.Context) -> list[object]:  # type: ignore[misc]
            receipt = asyncio.run(_pushed(ctx))
            return [receipt.accepted, receipt.sequence]

    async with tm.testing.node(store, load=[market, graph, flow]) as node:
        result = await see_through(node, "pushes")
        assert result.outputs == {"work": [True, 1]}
        firing = await node.reactor("market").next_firing(timeout=5)
    assert firing.results["graph"].outputs == {"seen": 2.5}


async def _pushed(ctx: tm.AsyncContext) -> tm.Receipt:
    return await ctx.push("prices", {"value": 2.5})


async def test_a_push_to_a_missing_accumulator_is_the_tasks_failure() -> None:
    """api.md, errors: a RequestError, in the task."""
    flow = tm.Workflow("pushes")

    @flow.task
    async def work(ctx: tm.AsyncContext) -> None:
        await ctx.push("absent", {})

    async with tm.testing.node(load=[flow]) as node:
        result = await see_through(node, "pushes")
    assert states(result) == {"work": "failed"}
    assert "absent" in str(result.tasks["work"].error)


async def test_decorated_tasks_stay_callable() -> None:
    """api.md."""
    flow = tm.Workflow("callable")

    @flow.task(retry=3)
    def double(number: int) -> int:
        return 2 * number

    assert double(4) == 8
