"""Waits of tasks: `ctx.wait_for` asks, and holds nothing until there is an answer."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.acting import states


class Approve(tm.Boundary):
    """It may be published."""

    limit: int = 0


class Reject(tm.Boundary):
    """It may not."""

    why: str


def asking(**options: Any) -> tuple[tm.Workflow, list[Any]]:
    """Return a workflow whose task asks once, and the answers that it has had."""
    flow, had = tm.Workflow("asking"), list[Any]()

    @flow.task(retry=tm.Retry(1, delay="1s"))
    async def work(ctx: tm.AsyncContext) -> str:
        value = await ctx.wait_for("approve", Approve | Reject, text="Publish 3 rows?", **options)
        had.append((ctx.answers, ctx.attempt))
        return type(value).__name__

    return flow, had


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_task_asks_and_gets_the_answer(store: str, kind: str) -> None:
    """L-7: it is deferred until then, without a slot; `why` says for what, since when and who may answer."""
    flow = tm.Workflow("flow")

    if kind == "async":

        @flow.task
        async def work(ctx: tm.AsyncContext) -> list[Any]:
            first = await ctx.wait_for("count", int, text="How many?")
            second = await ctx.wait_for("count", int, by="account:ada")
            return [first, second, [one.value for one in ctx.answers]]

    else:

        @flow.task
        def work(ctx: tm.Context) -> list[Any]:  # type: ignore[misc]
            first = ctx.wait_for("count", int, text="How many?")
            second = ctx.wait_for("count", int, by="account:ada")
            return [first, second, [one.value for one in ctx.answers]]

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("flow")
        await node.settle()
        assert states(await run.state()) == {"work": "deferred"}
        (wait,) = await node.waits()
        assert (wait.run, wait.workflow, wait.task, wait.index) == (run.id, "flow", "work", None)
        assert (wait.name, wait.text, wait.schema, wait.variants) == ("count", "How many?", {"type": "integer"}, [])
        assert (wait.state, wait.answer, wait.expires_at) == ("open", None, None)
        assert isinstance(wait, tm.Wait)
        assert await run.why("work") == [
            "it waits for an answer since 2026-01-01 00:00:00+00:00; 'count' takes answers from role:write"
        ]
        closed = await node.answer(wait.id, 3, comment="a few", by="account:bob")
        assert (closed.state, closed.answer.value, closed.answer.by) == ("answered", 3, "account:bob")
        await node.settle()
        assert "takes answers from account:ada" in (await run.why("work"))[0]
        await run.answer("count", 4)
        await node.settle()
        assert (await run.state()).outputs == {"work": [3, 4, [3, 4]]}
        assert [(one.state, one.answer.value) for one in await run.waits()] == [("answered", 3), ("answered", 4)]
        assert await node.waits() == []
        assert len(await node.waits(state=None)) == 2
        assert (await run.state()).tasks["work"].attempts == 1


async def test_a_union_is_answered_by_a_variant(store: str) -> None:
    """L-9: by name, by an instance, or by the only one that fits."""
    flow, had = asking()
    async with tm.testing.node(store, load=[flow]) as node:
        for value, variant in (
            ({"limit": 3}, "Approve"),
            (Approve(limit=3), None),
            ({"why": "no"}, None),
            (Reject(why="no"), "Reject"),
        ):
            run = await node.start("asking")
            await node.settle()
            wait = await run.answer("approve", value, variant=variant)
            assert wait.variants == ["Approve", "Reject"]
            await node.settle()
            assert (await run.state()).outputs == {"work": wait.answer.variant}
    assert [answers[0].value for answers, _ in had] == [Approve(limit=3)] * 2 + [Reject(why="no")] * 2
    assert {answers[0].source for answers, _ in had} == {"answer"}


@pytest.mark.parametrize(
    ("value", "variant", "path"),
    [
        ({"limit": "many"}, "Approve", "limit"),
        ({"limit": 1, "limt": 2}, "Approve", "limt"),
        ({}, "Reject", "why"),
        ({"why": 3}, "Reject", "why"),
        ({"other": 3}, None, "variant"),
        ({}, "Aprove", "variant"),
        (object(), None, ""),
    ],
)
async def test_an_answer_that_does_not_fit_is_refused(store: str, value: Any, variant: str | None, path: str) -> None:
    """L-9: invalid_answer with the path of each error; the wait stays open."""
    flow, _ = asking()
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("asking")
        await node.settle()
        with pytest.raises(tm.RequestError) as refused:
            await run.answer("approve", value, variant=variant)
        assert (refused.value.code, refused.value.status) == ("invalid_answer", 400)
        assert [one["path"] for one in refused.value.facts["errors"]] == [path]
        assert [one.state for one in await run.waits()] == ["open"]


async def test_a_name_must_be_open_and_one(store: str) -> None:
    """L-10: wait_not_found with the names of the open ones; ambiguous_wait with the indexes of a mapped task."""
    flow = tm.Workflow("flow")

    @flow.task
    def numbers() -> list[int]:
        return [1, 2]

    @flow.task(each="numbers")
    def work(numbers: int, ctx: tm.Context) -> int:
        return numbers * ctx.wait_for("factor", int)

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("flow")
        await node.settle()
        with pytest.raises(tm.RequestError) as missing:
            await run.answer("fator", 1)
        assert (missing.value.code, missing.value.facts["suggestions"]) == ("wait_not_found", ["factor"])
        with pytest.raises(tm.RequestError) as ambiguous:
            await run.answer("factor", 1)
        assert (ambiguous.value.code, ambiguous.value.facts["indexes"]) == ("ambiguous_wait", [0, 1])
        for index in (1, 0):
            await run.answer("factor", 10 + index, index=index)
        await node.settle()
        assert (await run.state()).outputs["work"] == [10, 22]
        with pytest.raises(tm.RequestError, match="there is no wait"):
            await node.answer("missing", 1)


async def test_the_time_of_a_wait_ends(store: str) -> None:
    """L-12: without a default TimeoutError in the task; a further try asks anew, with its own time."""
    flow, had = asking(timeout="2h")
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("asking")
        await node.advance("119m")
        assert states(await run.state()) == {"work": "deferred"}
        await node.advance("2m")
        assert [one.state for one in await run.waits()] == ["expired", "open"]
        with pytest.raises(tm.RequestError) as closed:
            await node.answer((await run.waits())[0].id, {"limit": 1}, variant="Approve")
        assert (closed.value.code, closed.value.facts["state"]) == ("wait_closed", "expired")
        await run.answer("approve", {"limit": 1}, variant="Approve")
        await node.settle()
        assert (await run.state()).ok
        assert (await run.state()).tasks["work"].attempts == 2
    assert [attempt for _, attempt in had] == [2]


async def test_a_default_is_the_answer_after_the_time(store: str) -> None:
    """L-12: by `timeout`, with its type; also after a crash, and however the wall clock is stepped."""
    flow, had = asking(timeout="2h", default=Reject(why="no answer"))
    async with tm.testing.node(store, load=[flow]) as first:
        run = await first.start("asking")
        await first.settle()
        node = await first.crash()
        await node.advance("1h")
        node.clock.step("5h")
        await node.advance("50m")
        run = node.run_handle(run.id)
        assert states(await run.state()) == {"work": "deferred"}
        await node.advance("11m")
        assert (await run.state()).outputs == {"work": "Reject"}
        (wait,) = await run.waits()
        assert (wait.state, wait.answer.by, wait.answer.source) == ("expired", "timeout", "timeout")
    assert [answers[0].value for answers, _ in had] == [Reject(why="no answer")]


async def test_several_waits_are_open_at_once(store: str) -> None:
    """L-5: each answer wakes the task, in any order; also what is registered and not awaited yet."""
    flow, calls = tm.Workflow("flow"), list[int]()

    @flow.task
    async def work(ctx: tm.AsyncContext) -> list[int]:
        calls.append(1)
        later = ctx.wait_for("c", int)
        both = await asyncio.gather(ctx.wait_for("a", int), ctx.wait_for("b", int))
        async with asyncio.TaskGroup() as group:
            more = group.create_task(ctx.wait_for("d", int))
        return [*both, await later, await more]

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("flow")
        await node.settle()
        assert sorted(one.name for one in await run.waits()) == ["a", "b", "c"]
        for number, name in enumerate("cbad"):
            await run.answer(name, number)
            await node.settle()
        assert (await run.state()).outputs == {"work": [2, 1, 0, 3]}
    assert len(calls) == 5


async def test_an_answer_that_comes_while_the_task_runs_wakes_it_at_once(store: str) -> None:
    """L-8: between the wake-up by one answer and the next deferral another answer is not lost."""
    flow, entered, is_open = tm.Workflow("flow"), asyncio.Event(), asyncio.Event()

    @flow.task
    async def work(ctx: tm.AsyncContext) -> list[int]:
        second = ctx.wait_for("b", int)
        first = await ctx.wait_for("a", int)
        entered.set()
        await is_open.wait()
        return [first, await second]

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("flow")
        await node.settle()
        await run.answer("a", 1)
        await entered.wait()
        await run.answer("b", 2)
        is_open.set()
        await node.settle()
        assert (await run.state()).outputs == {"work": [1, 2]}


@pytest.mark.parametrize("order", ["answer first", "other first"])
@pytest.mark.parametrize("other", ["answer", "cancel", "clear"])
async def test_exactly_one_of_two_ends_wins(store: str, other: str, order: str) -> None:
    """L-8, L-13: the loser gets wait_closed, which says who, when and how; a cancel closes the wait."""
    flow, _ = asking()
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("asking")
        await node.settle()
        (wait,) = await node.waits()

        async def act(what: str) -> None:
            if what == "answer":
                await node.answer(wait.id, {"limit": 1}, variant="Approve", by="account:ada")
            elif what == "cancel":
                await run.cancel()
            else:
                await run.clear("work")

        first, second = ("answer", other) if order == "answer first" else (other, "answer")
        await act(first)
        if second == "answer":
            with pytest.raises(tm.RequestError) as closed:
                await act(second)
            state = "answered" if first == "answer" else "cancelled"
            assert (closed.value.code, closed.value.status) == ("wait_closed", 409)
            assert closed.value.facts["state"] == state
            assert closed.value.facts["by"] == ("account:ada" if first == "answer" else "")
        else:
            with suppress(tm.RequestError):  # the run may have ended
                await act(second)
        await node.settle()
        waits = await run.waits()
        assert waits[0].state == ("answered" if first == "answer" else "cancelled")
        assert [one.state for one in waits[1:]] == (["open"] if "clear" in (first, second) else [])


async def test_an_answer_is_found_after_a_crash(store: str) -> None:
    """Crash points: after the deferral nothing is asked again; after the answer the next leader calls the task."""
    flow, had = asking()
    async with tm.testing.node(store, load=[flow]) as first:
        run = await first.start("asking")
        await first.settle()
        second = await first.crash()
        await second.settle()
        await second.run_handle(run.id).answer("approve", {"limit": 1}, variant="Approve")
        third = await second.crash()
        await third.advance("1m")
        assert (await third.run_handle(run.id).state()).ok
        assert len(await third.run_handle(run.id).waits()) == 1
    assert {answers[0].value.limit for answers, _ in had} == {1}


async def test_two_nodes_answer_at_the_same_time(sqlite: str) -> None:
    """L-8: exactly one wins, on any nodes."""
    flow, _ = asking()
    async with tm.Node(sqlite, load=[flow]) as one, tm.Node(sqlite, load=[flow]) as other:
        run = await one.start("asking")
        async for _ in run.watch(every=0.01):
            if waits := await one.waits():
                break
        answers = [node.answer(waits[0].id, {"limit": 1}, variant="Approve") for node in (one, other) for _ in range(3)]
        found = await asyncio.gather(*answers, return_exceptions=True)
        assert sum(isinstance(answer, tm.Wait) for answer in found) == 1
        assert {getattr(answer, "code", "") for answer in found} == {"", "wait_closed"}
        assert (await run.wait(20)).ok


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"default": Approve()}, "default= is the answer after timeout="),
        ({"timeout": "1h", "default": 5}, "the answer does not fit 'approve'"),
        ({"by": "everybody"}, "by= takes role:read, role:write or role:admin"),
        ({"timeout": "soon"}, "duration"),
    ],
)
async def test_what_cannot_be_asked_fails_the_task(store: str, options: dict[str, Any], error: str) -> None:
    """Errors: where the author wrote it."""
    flow, _ = asking(**options)
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("asking")
        await node.advance("1m")
        assert error in (await run.state()).tasks["work"].reason


async def test_waits_are_of_their_tenant(store: str) -> None:
    """G-30: another tenant neither sees nor answers them."""
    flow, _ = asking()
    async with tm.testing.node(store, load=[flow]) as node:
        await node.load(flow, tenant="acme")
        run = await node.start("asking", tenant="acme")
        await node.settle()
        assert await node.waits() == []
        (wait,) = await node.waits(tenant="acme")
        with pytest.raises(tm.RequestError, match="there is no wait"):
            await node.answer(wait.id, {"limit": 1}, variant="Approve")
        assert (await node.answer(wait.id, {"limit": 1}, variant="Approve", tenant="acme")).run == run.id
