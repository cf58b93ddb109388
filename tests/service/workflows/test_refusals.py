"""What cannot run is refused when it is loaded, with file and line, and nothing has changed."""

import re
from collections.abc import Callable
from typing import Any

import pytest

import tidemill as tm


def cyclic() -> tm.Workflow:
    """Return tasks that wait for each other."""
    flow = tm.Workflow("bad")

    @flow.task
    async def a(b: int) -> int:
        return b

    @flow.task
    async def b(a: int) -> int:
        return a

    return flow


def dangling() -> tm.Workflow:
    """Return a task that takes a value that no task returns."""
    flow = tm.Workflow("bad")

    @flow.task
    async def work(absent: int) -> None: ...

    return flow


def with_options(**options: object) -> Callable[[], tm.Workflow]:
    """Return a maker of a workflow whose task has these options."""

    def make() -> tm.Workflow:
        flow = tm.Workflow("bad")

        @flow.task(**options)
        async def work() -> None: ...

        return flow

    return make


def twice() -> tm.Workflow:
    """Return two tasks of one name."""
    flow = tm.Workflow("bad")
    for _ in range(2):

        @flow.task
        async def work() -> None: ...

    return flow


def unhandled() -> tm.Workflow:
    """Return a task that may run without its value, and does not say so."""
    flow = tm.Workflow("bad")

    @flow.task
    async def first() -> int:
        return 1

    @flow.task(rule="all_done")
    async def second(first: int) -> None: ...

    return flow


CASES: list[tuple[Callable[[], tm.Workflow], str]] = [
    (cyclic, "tasks form a cycle: a -> b -> a|tasks form a cycle: b -> a -> b"),
    (dangling, "parameter 'absent' of task 'work' names no task"),
    (with_options(after=["absent"]), "comes after 'absent', which is not a task"),
    (with_options(pool="warehose"), "there is no pool 'warehose'.*did you mean 'warehouse'"),
    (with_options(executor="subproces"), "there is no executor 'subproces'.*did you mean 'subprocess'"),
    (with_options(rule="sometimes"), "task 'work': rule is one of .*not 'sometimes'"),
    (with_options(each="absent"), "task 'work': each='absent' names no task of workflow"),
    (twice, "task 'work' is declared twice"),
    (unhandled, "can run task 'second' without a value for 'first'"),
]


@pytest.mark.parametrize(("make", "said"), CASES)
async def test_bad_workflows(store: str | None, make: Callable[[], tm.Workflow], said: str) -> None:
    """leoflow.md 15, 18; api.md: one DefinitionError, each problem with its place."""
    async with tm.testing.node(store, pools={"warehouse": 1}) as node:
        with pytest.raises(tm.DefinitionError, match=said) as caught:
            await node.load(make())
        assert all(problem.location is not None for problem in caught.value.problems)
        assert all(problem.location.file == __file__ for problem in caught.value.problems if problem.location)
        assert __file__ in str(caught.value)
        assert node.registry.workflows() == []


async def test_an_unknown_trigger(store: str | None) -> None:
    """api.md: at load."""
    flow = tm.Workflow("bad", triggers=["new_files"])

    @flow.task
    async def work() -> None: ...

    async with tm.testing.node(store) as node:
        with pytest.raises(tm.DefinitionError, match="no trigger 'new_files'") as caught:
            await node.load(flow)
        assert __file__ in str(caught.value)
        assert node.registry.workflows() == []


async def test_every_problem_is_reported_at_once() -> None:
    """api.md: all problems come in one error."""
    flow = tm.Workflow("bad")

    @flow.task(after=["absent"])
    async def work(another: int) -> None: ...

    @flow.task(rule="sometimes")
    async def more() -> None: ...

    with pytest.raises(tm.DefinitionError) as caught:
        flow.check()
    assert len(caught.value.problems) == 3


async def test_a_bad_version_leaves_the_good_one_in_place(store: str | None) -> None:
    """api.md: nothing has changed."""
    flow = tm.Workflow("bad")

    @flow.task
    async def work() -> int:
        return 1

    async with tm.testing.node(store, load=[flow]) as node:
        with pytest.raises(tm.DefinitionError):
            await node.load(cyclic())
        assert (await (await node.start("bad")).wait(5)).outputs == {"work": 1}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pools": ["warehouse"]}, "pools= takes slots by pool, such as {'warehouse': 2}, not ['warehouse']"),
        ({"pools": {"warehouse": "2"}}, "pool 'warehouse' is a whole number from 1 to 2147483647, not '2'"),
        ({"store": 3}, "store '3': an address looks like 'sqlite:///tidemill.db'"),
        (
            {"store": "mysql://h/db"},
            "there is no store 'mysql'; an address looks like 'sqlite:///tidemill.db' (SQLite)",
        ),
        ({"store": "sqllite:///a.db"}, "there is no store 'sqllite' (did you mean 'sqlite'?)"),
    ],
)
def test_a_node_says_what_is_wrong_with_its_arguments(options: dict[str, Any], words: str) -> None:
    """api.md, tm.Node."""
    with pytest.raises(tm.TidemillError, match=re.escape(words)):
        tm.Node(**options)


async def test_waiting_takes_durations_and_unknown_names_are_told_the_known() -> None:
    """api.md, RunHandle.wait and node.start."""
    flow = tm.Workflow("daily")

    @flow.task
    async def work(ctx: tm.Context) -> None:
        ctx.defer(for_="1h")

    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("daily")
        with pytest.raises(TimeoutError):
            await run.wait("10ms")
        with pytest.raises(tm.RequestError, match="'soon' is not a duration"):
            await run.wait("soon")
        with pytest.raises(tm.RequestError, match="workflow 'x' is not loaded; loaded: 'daily'"):
            await node.start("x")
