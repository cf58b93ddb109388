"""Calls of `ctx` that an `async def` task does not await: the task fails, and the error names the line."""

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.acting import see_through

LINES = Path(__file__).read_text(encoding="utf-8").splitlines()


def line_of(text: str) -> str:
    """Return the location of the only line of this file that ends with a mark."""
    [number] = [number for number, line in enumerate(LINES, 1) if line.endswith(f"# {text}")]
    return f"{__file__}:{number}"


async def returns(ctx: tm.Context) -> str:
    """Return the call itself."""
    return ctx.secret("bank")  # returned


async def ignores(ctx: tm.Context) -> None:
    """Ignore the call."""
    ctx.push("numbers", 7)  # ignored


async def formats(ctx: tm.Context) -> str:
    """Write the call into a text."""
    return f"Bearer {ctx.secret('bank')}"  # formatted


async def uses(ctx: tm.Context) -> str:
    """Use the call as if it were the handle of a run."""
    return str(ctx.start("other").id)  # used


async def decides(ctx: tm.Context) -> bool:
    """Decide by the call."""
    return bool(ctx.variable("is_live"))  # decided


async def passes_on(ctx: tm.Context) -> int:
    """Give the call to a library, which raises an error that says little."""
    return len("Bearer " + ctx.secret("bank"))  # passed on


async def defers(ctx: tm.Context) -> None:
    """Ignore the call, and defer."""
    ctx.variable("region")  # deferred
    ctx.defer(for_="1h")


FORGETFUL = [
    (returns, "returned", "ctx.secret('bank')"),
    (ignores, "ignored", "ctx.push('numbers', ...)"),
    (formats, "formatted", "ctx.secret('bank')"),
    (uses, "used", "ctx.start('other')"),
    (decides, "decided", "ctx.variable('is_live')"),
    (passes_on, "passed on", "ctx.secret('bank')"),
    (defers, "deferred", "ctx.variable('region')"),
]


def flow_of(work: Callable[[tm.Context], Awaitable[Any]]) -> tm.Workflow:
    """Return a workflow with a single task."""
    flow = tm.Workflow("forgetful")
    flow.task(retry=tm.Retry(3))(work)
    return flow


@pytest.mark.parametrize(("work", "mark", "call"), FORGETFUL, ids=[mark for _, mark, _ in FORGETFUL])
async def test_a_forgotten_await_fails_the_task_at_its_line(work: Any, mark: str, call: str) -> None:
    """D10: also if its value is returned or used; it is not retried, and the log of the node has no warning."""
    given: Any = {"variables": {"region": "eu", "is_live": False}, "secrets": {"bank": "s3cret"}}
    async with tm.testing.node(load=[flow_of(work)], **given) as node:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            [task] = (await see_through(node, "forgetful")).tasks.values()
    assert (task.state, task.attempts) == ("failed", 1)
    assert task.error is not None
    assert f"{line_of(mark)}: {call} was not awaited: write `await {call}`" in task.error.message


async def test_calls_that_are_awaited_in_any_way_are_none_of_it() -> None:
    """D10: awaited later, gathered, as a task, and by a task that ends after this one."""
    flow, late = tm.Workflow("careful"), list[asyncio.Future[list[str]]]()

    @flow.task
    async def work(ctx: tm.Context) -> list[str]:
        later = ctx.variable("a")
        gathered = await asyncio.gather(ctx.variable("b"), ctx.secret("c"))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(ctx.variable("a"))
        late.extend([asyncio.gather(ctx.variable("b"))])
        return [await later, *gathered, task.result(), await asyncio.wait_for(ctx.variable("b"), 5)]

    given: Any = {"variables": {"a": "A", "b": "B"}, "secrets": {"c": "C"}}
    async with tm.testing.node(load=[flow], **given) as node:
        result = await see_through(node, "careful")
        assert result.output(work) == ["A", "B", "C", "A", "B"]
        assert await late[0] == ["B"]


forgetful = tm.Workflow("forgetful")
forgetful.task(returns)


async def test_a_forgotten_await_in_a_subprocess_fails_its_task() -> None:
    """D10: as in the node."""
    async with tm.Node(load=[forgetful], executor="subprocess", secrets={"bank": "s3cret"}) as node:
        [task] = (await (await node.start("forgetful")).wait(30)).tasks.values()
    assert task.error is not None
    assert line_of("returned") in task.error.message
