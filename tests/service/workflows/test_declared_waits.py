"""Declared waits: `@workflow.wait_for`, a question as a task of its workflow."""

import asyncio
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.acting import states


class Order(tm.Params):
    """An order."""

    rows: int = 3


class Approve(tm.Boundary):
    """It may be published."""

    limit: int = 0


class Reject(tm.Boundary):
    """It may not."""

    why: str


def ordering(kind: str = "def", **options: Any) -> tuple[tm.Workflow, list[int]]:
    """Return a workflow that asks between two tasks, and how often its question was made."""
    flow, made = tm.Workflow("ordering", params=Order), list[int]()

    @flow.task
    def prepare(params: Order) -> int:
        return params.rows

    if kind == "async def":

        @flow.wait_for(Approve | Reject, **options)
        async def approve(prepare: int, params: Order) -> str:
            await asyncio.sleep(0)
            made.append(prepare)
            return f"Publish {prepare} of {params.rows} rows?"

    else:

        @flow.wait_for(Approve | Reject, **options)
        def approve(prepare: int, params: Order, ctx: tm.Context) -> Any:  # type: ignore[misc]
            made.append(ctx.attempt)
            return Approve(limit=0) if prepare == 0 else f"Publish {prepare} of {params.rows} rows?"

    @flow.task
    def publish(approve: Approve, prepare: int) -> str:
        return f"{prepare} up to {approve.limit}"

    @flow.task
    def drop(approve: Reject) -> str:
        return approve.why

    return flow, made


@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_the_answer_is_the_output_of_the_task_and_routes(store: str, kind: str) -> None:
    """L-7: the function says what is asked, once; the options are those of a task."""
    flow, made = ordering(kind, by="role:read", retry=2)
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("ordering")
        await node.settle()
        (wait,) = await node.waits()
        assert (wait.name, wait.task, wait.text, wait.by) == (
            "approve",
            "approve",
            "Publish 3 of 3 rows?",
            ["role:read"],
        )
        await run.answer("approve", {"why": "too many"})
        await node.settle()
        result = await run.state()
        assert states(result) == {"prepare": "success", "approve": "success", "publish": "skipped", "drop": "success"}
        assert result.outputs["drop"] == "too many"
    assert len(made) == 1


async def test_a_value_is_the_answer_and_nothing_is_asked(store: str) -> None:
    """API: an automatic approval."""
    flow, _ = ordering()
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("ordering", rows=0)
        await node.settle()
        assert (await run.state()).outputs["publish"] == "0 up to 0"
        assert await run.waits() == []


async def test_a_declared_wait_without_an_answer_fails_its_task(store: str) -> None:
    """L-12: and says for how long it has waited; with a default that is the answer."""
    flow, _ = ordering(timeout="2d")
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("ordering")
        await node.advance("2d")
        assert "no answer to 'approve' within 2d" in (await run.state()).tasks["approve"].reason
    flow, _ = ordering(timeout="2d", default=Reject(why="no answer"))
    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("ordering")
        await node.advance("2d")
        assert (await run.state()).outputs["drop"] == "no answer"


async def test_elements_of_a_mapped_wait_are_answered_one_by_one(store: str) -> None:
    """API: `each=`, as of a task."""
    flow = tm.Workflow("flow")

    @flow.task
    def numbers() -> list[int]:
        return [1, 2]

    @flow.wait_for(bool, each="numbers")
    def check(numbers: int) -> str:
        return f"Is {numbers} right?"

    @flow.task
    def count(check: list[bool]) -> int:
        return sum(check)

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("flow")
        await node.settle()
        for wait in await run.waits():
            await run.answer("check", wait.index == 0, index=wait.index)
        await node.settle()
        assert (await run.state()).outputs["count"] == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"default": Approve()}, "default= is the answer after timeout="),
        ({"timeout": "1h", "default": 5}, "the answer does not fit 'approve'"),
        ({"by": "everybody"}, "by= takes role:read"),
        ({"timeout": "soon"}, "wait 'approve'"),
        ({"retries": 3}, "a task has no option 'retries'"),
    ],
)
def test_what_does_not_fit_is_a_definition_error(options: dict[str, Any], problem: str) -> None:
    """Errors: with file and line."""
    with pytest.raises(tm.DefinitionError) as found:
        ordering(**options)
    assert problem in str(found.value)
    assert "test_declared_waits.py:" in str(found.value)


def test_a_route_of_the_answer_that_no_task_takes_is_a_definition_error() -> None:
    """API: its type is checked against its consumers, as that of a task is."""
    flow = tm.Workflow("flow")

    @flow.wait_for(Approve | Reject)
    def approve() -> str:
        return "Publish?"

    @flow.task
    def publish(approve: Approve) -> int:
        return approve.limit

    with pytest.raises(tm.DefinitionError, match="task 'approve' may return Reject, which no task takes"):
        flow.check()


async def test_a_script_does_not_wait_for_an_answer_that_cannot_come() -> None:
    """API: `workflow.run()` says how to answer; a question with a time limit is waited for."""
    flow, _ = ordering()
    result = await asyncio.to_thread(flow.run)
    assert str(result.state) == "cancelled"
    assert "task 'approve' asks for 'approve'" in result.reason
    flow, _ = ordering(timeout="600ms", default=Reject(why="no answer"))
    assert (await asyncio.to_thread(flow.run)).outputs["drop"] == "no answer"
