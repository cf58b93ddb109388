"""Values go from task to task by the names of parameters, and unions route them."""

import asyncio

import pytest

import tidemill as tm
from tests.service.workflows.acting import Gate, see_through, states


class Small(tm.Boundary):
    size: int


class Large(tm.Boundary):
    size: int


class Huge(Large, frozen=True):
    pass


async def test_a_chain_hands_its_values_on(store: str | None) -> None:
    """api.md, "A workflow": a parameter names the task before it."""
    flow = tm.Workflow("chain")

    @flow.task
    def first() -> int:
        return 1

    @flow.task
    async def second(first: int) -> int:
        return first + 1

    @flow.task
    def third(first: int, second: int) -> list[int]:
        return [first, second]

    async with tm.testing.node(store, load=[flow]) as node:
        result = await see_through(node, "chain")
    assert result.ok
    assert result.outputs == {"first": 1, "second": 2, "third": [1, 2]}
    assert list(result.tasks) == ["first", "second", "third"]
    assert result.tasks["third"].attempts == 1


async def test_independent_tasks_run_at_the_same_time(store: str | None) -> None:
    """cloacina.md 107: up to the limit; what depends on them waits for both."""
    flow = tm.Workflow("diamond")
    meet = asyncio.Barrier(2)
    joined: list[int] = []

    @flow.task
    async def left() -> int:
        await meet.wait()
        return 1

    @flow.task
    async def right() -> int:
        await meet.wait()
        return 2

    @flow.task
    async def join(left: int, right: int) -> int:
        joined.append(left)
        return left + right

    async with tm.testing.node(store, load=[flow]) as node:
        result = await see_through(node, "diamond")
    assert result.outputs["join"] == 3
    assert joined == [1]


async def test_order_without_data(store: str | None) -> None:
    """api.md, `after=`: a task by name or as declared; it gets no value of it."""
    flow = tm.Workflow("order")
    said: list[str] = []

    @flow.task
    async def one() -> int:
        await asyncio.sleep(0)
        said.append("one")
        return 1

    @flow.task(after=[one])
    async def two() -> None:
        said.append("two")

    @flow.task(after=["two", one])
    async def three() -> None:
        said.append("three")

    async with tm.testing.node(store, load=[flow]) as node:
        result = await see_through(node, "order")
    assert result.ok
    assert said == ["one", "two", "three"]
    assert result.outputs == {"one": 1, "two": None, "three": None}


def routing() -> tm.Workflow:
    """Return a workflow with two ways and a join."""
    flow = tm.Workflow("routing")

    @flow.task
    async def choose(ctx: tm.Context) -> Small | Large:
        size = ctx["size"]
        return Small(size=size) if size < 10 else Large(size=size) if size < 100 else Huge(size=size)

    @flow.task
    async def small(choose: Small) -> str:
        return f"small {choose.size}"

    @flow.task
    async def large(choose: Large) -> str:
        return f"large {choose.size}"

    @flow.task
    async def behind(large: str) -> str:
        return large

    @flow.task
    async def publish(small: str | None, behind: str | None) -> str:
        return f"{small} or {behind}"

    @flow.task
    async def either(choose: Small | Large) -> int:
        return choose.size

    return flow


@pytest.mark.parametrize(
    ("size", "skipped", "said"),
    [
        (1, {"large", "behind"}, "small 1 or None"),
        (50, {"small"}, "None or large 50"),
        (500, {"small"}, "None or large 500"),  # a subclass goes where its class goes
    ],
)
async def test_a_union_routes(store: str | None, size: int, skipped: set[str], said: str) -> None:
    """api.md: the way that is not taken, and all behind it, is skipped; a join of optional values runs."""
    async with tm.testing.node(store, load=[routing()]) as node:
        result = await see_through(node, "routing", size=size)
    assert result.ok
    assert {name for name, state in states(result).items() if state == "skipped"} == skipped
    assert result.outputs["publish"] == said
    assert result.outputs["either"] == size
    assert skipped.isdisjoint(result.outputs)


async def test_an_optional_value_of_a_union_goes_nowhere() -> None:
    """api.md, corners: None needs no consumer; a consumer of plain X is skipped by it."""
    flow = tm.Workflow("perhaps")
    seen: list[object] = []

    @flow.task
    async def ask(ctx: tm.Context) -> Small | None:
        return None if ctx["nothing"] else Small(size=1)

    @flow.task
    async def strict(ask: Small) -> None:
        seen.append(ask)

    @flow.task
    async def lax(ask: Small | None) -> None:
        seen.append(ask)

    async with tm.testing.node(load=[flow]) as node:
        nothing = await see_through(node, "perhaps", nothing=True)
        assert seen == [None]
        something = await see_through(node, "perhaps", nothing=False)
    assert states(nothing) == {"ask": "success", "strict": "skipped", "lax": "success"}
    assert states(something) == {"ask": "success", "strict": "success", "lax": "success"}
    assert nothing.ok
    assert something.ok


async def test_all_ways_skipped_skips_a_strict_join() -> None:
    """api.md, corners: a join whose inputs were all skipped is skipped, and the run is a success."""
    flow = tm.Workflow("nothing")

    @flow.task
    async def left() -> int:
        raise tm.Skip("not today")

    @flow.task
    async def right() -> int:
        raise tm.Skip("nor tomorrow")

    @flow.task
    async def join(left: int, right: int) -> int:
        return left + right

    async with tm.testing.node(load=[flow]) as node:
        result = await see_through(node, "nothing")
    assert states(result) == {"left": "skipped", "right": "skipped", "join": "skipped"}
    assert result.ok
    assert result.tasks["left"].reason == "not today"


async def test_a_value_of_the_wrong_class_fails_its_task_for_good() -> None:
    """api.md: the annotation says where it can go; another try would not help."""
    flow = tm.Workflow("wrong")
    tries: list[int] = []

    @flow.task(retry=tm.Retry(3, delay="1s"))
    async def choose() -> Small | Large:
        tries.append(1)
        return "neither"

    @flow.task
    async def take(choose: Small | Large) -> None: ...

    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("wrong")
        await node.advance("1m")
        result = await run.state()
    assert states(result) == {"choose": "failed", "take": "upstream_failed"}
    assert len(tries) == 1
    assert result.tasks["choose"].error is not None
    assert "returned a value of class str, but declares Small | Large" in result.tasks["choose"].error.message


async def test_a_failure_stops_what_depends_on_it_and_nothing_else(store: str | None) -> None:
    """cloacina.md 108: the dependents are upstream_failed, their bodies not called; others continue."""
    flow = tm.Workflow("broken")
    called: list[str] = []

    @flow.task
    async def bad() -> int:
        raise ValueError("no")

    @flow.task
    async def next_one(bad: int) -> int:
        called.append("next_one")
        return bad

    @flow.task
    async def last(next_one: int) -> None:
        called.append("last")

    @flow.task
    async def other() -> int:
        return 1

    async with tm.testing.node(store, load=[flow]) as node:
        result = await see_through(node, "broken")
    behind = {"next_one": "upstream_failed", "last": "upstream_failed"}
    assert states(result) == {"bad": "failed", **behind, "other": "success"}
    assert result.state is tm.RunState.FAILED
    assert called == []
    error = result.tasks["bad"].error
    assert error is not None
    assert (error.type, error.message) == ("ValueError", "no")
    assert 'raise ValueError("no")' in error.traceback


async def test_a_run_ends_with_its_last_task(store: str | None) -> None:
    """W-3: the outcome is written with the last task's end, leoflow.md 14: once, with its time."""
    flow = tm.Workflow("ends")
    gate = Gate()

    @flow.task
    async def quick() -> None: ...

    @flow.task
    async def slow() -> None:
        await gate.pass_through()

    async with tm.testing.node(store, load=[flow]) as node:
        begun = node.clock.now()
        run = await node.start("ends")
        await node.advance("5s")
        now = await run.state()
        assert (str(now.state), states(now)) == ("running", {"quick": "success", "slow": "running"})
        assert (now.created_at, now.started_at, now.ended_at) == (begun, begun, None)
        gate.is_open.set()
        await node.settle()
        result = await run.state()
        assert result.state is tm.RunState.SUCCESS
        assert result.ended_at == result.tasks["slow"].ended_at == node.clock.now()
        assert result.tasks["quick"].ended_at == begun
        await node.advance("10m")
        assert await run.state() == result


async def test_a_graph_is_called_as_a_task(store: str | None) -> None:
    """api.md, `daily.call`; cloacina.md 119: its terminal outputs by node; a failing graph fails the task."""
    scoring = tm.Graph("scoring")

    @scoring.node
    def doubled(number: int) -> int:
        return 2 * number

    @scoring.node
    def halved(number: int) -> float:
        return 1 / number

    flow = tm.Workflow("scored")

    @flow.task
    async def number(ctx: tm.Context) -> int:
        return ctx["number"]

    flow.call(scoring, name="score")

    @flow.task
    async def use(score: dict[str, float]) -> float:
        return score["doubled"]

    async with tm.testing.node(store, load=[flow]) as node:
        good = await see_through(node, "scored", number=4)
        bad = await see_through(node, "scored", number=0)
    assert good.outputs == {"number": 4, "score": {"doubled": 8, "halved": 0.25}, "use": 8}
    assert states(bad) == {"number": "success", "score": "failed", "use": "upstream_failed"}
    assert "division by zero" in str(bad.tasks["score"].error)


async def test_a_wide_and_deep_workflow_runs_each_task_once(store: str | None) -> None:
    """leoflow.md 37: instant tasks, and no launch overwrites what was reported."""
    flow = tm.Workflow("wide")
    calls: list[int] = []

    def add(number: int) -> None:
        async def task() -> int:
            calls.append(number)
            return number

        task.__name__ = f"task_{number}"
        flow.task(after=[f"task_{number - 10}"] if number >= 10 else [])(task)

    for number in range(100):
        add(number)
    async with tm.testing.node(store, load=[flow]) as node:
        result = await see_through(node, "wide")
    assert result.ok
    assert sorted(calls) == list(range(100))
    assert all(calls.index(number - 10) < calls.index(number) for number in range(10, 100))
    assert {task.attempts for task in result.tasks.values()} == {1}
