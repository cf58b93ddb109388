"""Declaring triggers, task options, and tasks that call graphs."""

from datetime import UTC, date, datetime
from inspect import isawaitable
from typing import Any

import pytest

import tidemill as tm
from tidemill.annotations.codec import build_codec
from tidemill.workflows.spec import TaskEdge


def said(error: tm.DefinitionError) -> list[str]:
    assert all(problem.location is not None for problem in error.problems)
    assert all(problem.location.file == __file__ for problem in error.problems)
    return [problem.message for problem in error.problems]


# -- triggers


async def test_a_trigger_stays_callable() -> None:
    """api.md, "A workflow": async or not, called once by hand."""

    @tm.trigger(every="10s", timeout="5s", allow_concurrent=True)
    async def new_files() -> tm.Fire | None:
        return tm.Fire(path="a.csv")

    @tm.trigger(every=2)
    def quiet() -> tm.Fire | None:
        return None

    assert isinstance(new_files, tm.Trigger)
    assert (new_files.name, new_files.every, new_files.timeout, new_files.allow_concurrent) == (
        "new_files",
        10,
        5,
        True,
    )
    asked = new_files()
    assert isawaitable(asked)
    assert await asked == tm.Fire(path="a.csv")
    assert quiet() is None
    assert (quiet.timeout, quiet.allow_concurrent) == (2, False)
    assert quiet.location.file == __file__


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": "soon"}, "every: 'soon' is not a duration"),
        ({"every": 0}, "every: 0 is not a duration longer than zero"),
        ({"every": "1s", "timeout": -1}, "timeout: -1 is not a duration"),
        ({"every": "1s", "allow_concurrent": 1}, "allow_concurrent is True or False, not 1"),
    ],
)
def test_a_trigger_that_cannot_work_is_refused(options: dict[str, Any], message: str) -> None:
    """api.md: reported with the location of the declaration."""
    with pytest.raises(tm.DefinitionError) as caught:
        tm.trigger(**options)
    assert [one for one in said(caught.value) if one.startswith(message)]


def test_a_trigger_is_called_with_nothing() -> None:
    """api.md."""
    with pytest.raises(tm.DefinitionError, match=r"called without arguments, but 'greedy' takes \(path\)"):

        @tm.trigger(every="1s")
        def greedy(path: str) -> None: ...


def test_a_bare_trigger_says_what_it_needs() -> None:
    """api.md: with an example and the function's name."""

    def new_files() -> None: ...

    remedy = r'needs the interval at which it is polled: write @tm\.trigger\(every="10s"\)'
    for declare in (lambda: tm.trigger(new_files), lambda: tm.trigger(every=new_files)):
        with pytest.raises(tm.DefinitionError, match=f"trigger 'new_files': .*{remedy}"):
            declare()
    with pytest.raises(tm.DefinitionError, match=remedy):
        tm.trigger()


def test_on_firing_takes_a_reactor_or_its_name() -> None:
    """api.md: a declaration that `triggers=` accepts."""

    @tm.passthrough
    def orderbook(event: int) -> int:
        return event

    by_name = tm.on_firing("market", when="payload.orderbook.bid > 100.0")
    assert (by_name.reactor, by_name.when) == ("market", "payload.orderbook.bid > 100.0")
    assert tm.on_firing(tm.Reactor("market", [orderbook])).reactor == "market"
    assert tm.Workflow("w", triggers=[by_name]).triggers == (by_name,)
    with pytest.raises(tm.DefinitionError, match="takes a reactor, or its name, not 3"):
        tm.on_firing(3)
    with pytest.raises(tm.DefinitionError, match="when= is an expression"):
        tm.on_firing("market", when=" ")


# -- options


def test_everything_wrong_with_the_options_of_a_task_is_said_at_once() -> None:
    """api.md: a DefinitionError with a suggestion, never a TypeError."""
    options: dict[str, Any] = {
        "retries": 3,
        "retry": True,
        "timeout": "soon",
        "priority": "high",
        "pool": 7,
        "queue": "",
        "executor": 1,
        "labels": "gpu",
        "resources": "2 cores",
        "image": "two words",
        "pod": [],
        "rule": ["all_done"],
        "ignores": int,
        "after": [3],
        "each": 4,
    }
    with pytest.raises(tm.DefinitionError) as caught:

        @tm.Workflow("w").task(**options)
        def work() -> None: ...

    found = said(caught.value)
    assert len(found) == len(options)
    assert found[0].startswith("task 'work': a task has no option 'retries' (did you mean 'retry'?)")
    for name, message in zip(list(options)[1:], found[1:], strict=True):
        assert message.startswith(f"task 'work': {name}: ")
    assert "workflow 'w' has 15 problems" in str(caught.value)


def test_options_that_make_sense_are_kept() -> None:
    """api.md: numbers for Retry, one name for a list of one."""
    flow = tm.Workflow("w")

    @flow.task(retry=2, timeout="1m", priority=-1, pool="db", queue="big", executor="subprocess")
    def first() -> int:
        return 1

    @flow.task(after=first)
    def second() -> None: ...

    one, two = flow.wired().spec.tasks
    assert (one.tries, one.timeout, one.priority, one.pool, one.queue, one.executor) == (
        3,
        60.0,
        -1,
        "db",
        "big",
        "subprocess",
    )
    assert two.edges == (TaskEdge("first"),)


def test_labels_choose_among_workers() -> None:
    """http.md: a set of words, part of the version; with any other executor they would do nothing."""
    flow, bare, other = tm.Workflow("w"), tm.Workflow("w"), tm.Workflow("w")

    def work() -> None: ...

    flow.task(executor="worker", labels=["gpu", "eu", "gpu"])(work)
    bare.task(executor="worker", labels=())(work)
    other.task(executor="worker", labels=("gpu",))(work)
    assert [one.wired().spec.tasks[0].labels for one in (flow, bare, other)] == [("eu", "gpu"), (), ("gpu",)]
    assert len({one.wired().spec.version for one in (flow, bare, other)}) == 3
    for executor in (None, "subprocess"):
        with pytest.raises(tm.DefinitionError, match='labels: gpu would choose among workers; set executor="worker"'):
            tm.Workflow("w").task(executor=executor, labels=("gpu",))(work)
    with pytest.raises(tm.DefinitionError, match=r"labels: a label is a text of .*, not 'eu,gpu'"):
        tm.Workflow("w").task(executor="worker", labels=("eu,gpu",))(work)


def test_overrides_move_tasks_to_workers_and_back() -> None:
    """P-1: the labels of a task that runs elsewhere now are dropped; new ones need a worker too."""
    flow = tm.Workflow("w")

    @flow.task(executor="worker", labels=["gpu"])
    def work() -> None: ...

    def moved(**changes: Any) -> tuple[str | None, tuple[str, ...]]:
        (task,) = flow.with_overrides({"w.work": changes}).tasks
        return task.executor, task.labels

    assert moved(priority=1) == ("worker", ("gpu",))
    assert moved(labels=("eu",)) == ("worker", ("eu",))
    assert moved(executor="subprocess") == ("subprocess", ())
    with pytest.raises(tm.DefinitionError, match="settings of task 'work': labels: eu would choose among workers"):
        moved(executor="subprocess", labels=("eu",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "@daily"}, "schedule= takes tm.Cron"),
        ({"schedule": [tm.Cron("@daily"), tm.Every("1h")]}, "two schedules have the key 'default'"),
        ({"triggers": ["a", "a"]}, "trigger 'a' is there twice"),
        ({"tags": [3]}, "tags= takes words, each a text of 1 to 200 characters"),
        ({"tags": ["a\0b"]}, "tags= takes words"),
        ({"tags": "daily"}, "tags= takes a list, such as ['daily'], not 'daily'"),
        ({"triggers": "daily"}, "triggers= takes a list, such as ['daily'], not 'daily'"),
        ({"max_active_runs": 2**31}, "max_active_runs is a number of runs from 1 to 2147483647, not 2147483648"),
        ({"max_active_runs": 10**30}, "max_active_runs is a number of runs from 1 to 2147483647"),
        ({"schedul": tm.Cron("@daily")}, "a workflow has no option 'schedul' (did you mean 'schedule'?); it has "),
    ],
)
def test_a_workflow_that_cannot_work_is_refused(options: dict[str, Any], message: str) -> None:
    """W-13: two schedules with one key would take each other's slots."""
    with pytest.raises(tm.DefinitionError) as caught:
        tm.Workflow("w", **options)
    assert said(caught.value)[0].startswith(message)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 1000, "a\0b", "half \ud800", "a/b", None, 3])
def test_a_workflow_has_a_name_that_every_store_can_hold(name: Any) -> None:
    """W-5: rejected at the declaration, not when a run is stored."""
    with pytest.raises(tm.DefinitionError, match="a workflow needs a name, a text of 1 to 200 characters") as caught:
        tm.Workflow(name)
    str(caught.value).encode()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": 2**31}, "priority: it is an integer from -2147483647 to 2147483647"),
        ({"priority": -(10**30)}, "priority: it is an integer"),
        ({"retry": 10**30}, "retry: the first argument counts further tries"),
        ({"timeout": "100000000d"}, "timeout: '100000000d' is not a duration: it is finite"),
        ({"pool": ""}, "pool: it is a name"),
        ({"pool": "a\nb"}, "pool: it is a name"),
        ({"queue": "half \ud800"}, "queue: it is a name"),
        ({"executor": "x" * 201}, "executor: it is a name"),
    ],
)
def test_what_no_store_could_hold_is_refused_where_it_is_declared(options: dict[str, Any], message: str) -> None:
    """W-5: not when a run is stored."""

    def work() -> None: ...

    with pytest.raises(tm.DefinitionError) as caught:
        tm.Workflow("w").task(**options)(work)
    assert said(caught.value)[0].startswith(f"task 'work': {message}")


def test_a_task_has_a_name_that_every_store_can_hold() -> None:
    """W-5: functions have identifiers, of any length."""

    def work() -> None: ...

    work.__name__ = "x" * 201
    with pytest.raises(tm.DefinitionError, match="a task's name is an identifier of up to 200 characters"):
        tm.Workflow("w").task(work)


# -- schedules and params


class Daily(tm.Params):
    day: date
    limit: int = 1000


def scheduled(*schedules: Any) -> tm.Workflow:
    flow = tm.Workflow("w", schedule=schedules, params=Daily)

    @flow.task
    def work(params: Daily) -> None: ...

    return flow


def test_a_schedule_may_fill_the_params() -> None:
    """api.md: one schedule or several, each with a key."""
    scheduled().check()
    fills = tm.Cron("0 6 * * *", params=lambda slot: {"day": slot.date()})
    both = scheduled(fills, tm.Every("1h", key="hourly", params=lambda slot: {"day": slot.date(), "limit": 3}))
    both.check()
    assert [one.key for one in both.schedules] == ["default", "hourly"]
    alone = tm.Workflow("w", schedule=fills)
    assert alone.schedules == (fills,)


def test_a_schedule_that_leaves_params_unfilled_is_a_definition_error() -> None:
    """api.md: found at check, together with what is wrong with the wiring."""
    flow = scheduled(
        tm.Cron("@daily"),
        tm.Cron("@daily", key="typo", params=lambda slot: {"dya": slot}),
        tm.Cron("@daily", key="broken", params=lambda slot: {"day": slot.dya}),  # type: ignore[attr-defined]
        tm.Cron("@daily", key="over", end=datetime(2001, 1, 1, tzinfo=UTC)),
    )

    @flow.task(after=["missing"])
    def broken() -> None: ...

    with pytest.raises(tm.DefinitionError) as caught:
        flow.check()
    found = said(caught.value)
    assert found[0] == "task 'broken' comes after 'missing', which is not a task"
    assert found[1] == "schedule Cron('@daily') does not fill the params: invalid params: 'day' (date) is missing"
    assert "there is no param 'dya' (did you mean 'day'?)" in found[2]
    assert "'day' (date) is missing" in found[2]
    assert "params= of schedule Cron('@daily') fails for slot 2026-01-02" in found[3]
    assert "AttributeError" in found[3]
    assert "'day' (date) is missing" in found[4]
    assert len(found) == 5


# -- graphs


class Score(tm.Boundary):
    points: int


def scoring(*, is_async: bool = False) -> tm.Graph:
    graph = tm.Graph("scoring")

    @graph.node
    def doubled(rows: list[int], factor: int = 2) -> list[int]:
        return [factor * one for one in rows]

    if is_async:

        @graph.node
        async def score(doubled: list[int]) -> Score:
            return Score(sum(doubled))
    else:

        @graph.node
        def score(doubled: list[int]) -> Score:  # type: ignore[misc]
            return Score(sum(doubled))

    return graph


def calls(graph: Any, **options: Any) -> tm.Workflow:
    flow = tm.Workflow("w")

    @flow.task
    def rows() -> list[int]:
        return [1, 2]

    score = flow.call(graph, name="score", **options)

    @flow.task(after=[score])
    def tidy() -> None: ...

    @flow.task
    def report(score: dict[str, Any]) -> int:
        return len(score)

    return flow


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_graph_is_called_as_a_task(is_async: bool) -> None:
    """api.md: inputs wired by name, terminal outputs as a dict; an optional input without a source is left out."""
    flow = calls(scoring(is_async=is_async), retry=1, timeout="5s")
    wired = flow.wired()
    spec = wired.spec.by_name["score"]
    assert spec.edges == (TaskEdge("rows", "rows"),)
    assert (spec.tries, spec.timeout, spec.rule) == (2, 5.0, "all_success")
    assert wired.spec.by_name["tidy"].edges == (TaskEdge("score"),)
    assert wired.spec.by_name["report"].edges == (TaskEdge("score", "score"),)
    task = wired.tasks["score"].task
    assert task.function.is_async is is_async
    result = task.function.call(rows=[1, 2])
    output = await result if is_async else result
    assert output == {"score": Score(6)}
    codec = build_codec(wired.tasks["score"].signature.returns)
    assert codec.decode(codec.encode(output)) == {"score": Score(6)}


def test_a_graph_may_grow_after_it_was_called() -> None:
    """api.md: wiring is resolved when the workflow is first built."""
    graph = tm.Graph("late")
    flow = tm.Workflow("w")
    assert flow.call(graph).name == "late"

    @graph.node
    def answer() -> int:
        return 42

    assert flow.wired().tasks["late"].task.function.call() == {"answer": 42}


def test_what_a_node_of_a_called_graph_raises_is_what_the_task_raises() -> None:
    """api.md: `on=` of a retry sees the author's own error."""
    graph = tm.Graph("late")

    @graph.node
    def answer() -> int:
        raise ConnectionError("down")

    flow = tm.Workflow("w")
    flow.call(graph)
    with pytest.raises(ConnectionError, match="down"):
        flow.wired().tasks["late"].task.function.call()


def test_the_version_of_a_workflow_follows_the_graphs_that_it_calls() -> None:
    """W-19."""

    def version(number: int) -> str:
        graph = tm.Graph("g")
        if number == 1:

            @graph.node
            def answer() -> int:
                return 1
        else:

            @graph.node
            def answer() -> int:
                return 2

        flow = tm.Workflow("w")
        flow.call(graph)
        return flow.wired().spec.version

    assert version(1) == version(1) != version(2)


def test_a_graph_by_name_is_bound_before_it_is_wired() -> None:
    """api.md: by name across packages; the declaration stays as it was."""
    flow = calls("scoring")
    with pytest.raises(tm.DefinitionError, match="calls graph 'scoring', which is not loaded"):
        flow.check()
    bound = flow.with_graphs({"scoring": scoring()}.get)
    bound.check()
    assert bound.declaration is flow
    assert bound.wired().spec == calls(scoring()).wired().spec
    with pytest.raises(tm.DefinitionError, match="not loaded"):
        flow.check()
    direct = calls(scoring())
    assert direct.with_graphs({}.get) is direct


def test_calls_that_cannot_work_are_definition_errors() -> None:
    """api.md: with location."""
    flow = tm.Workflow("w")
    with pytest.raises(tm.DefinitionError, match=r"call takes a tm\.Graph, or the name of one, not 3"):
        flow.call(3)
    with pytest.raises(tm.DefinitionError, match=r"a task's name is an identifier.*not 'a b'"):
        flow.call("a b")
    with pytest.raises(tm.DefinitionError, match="did you mean 'retry'"):
        flow.call("a", retries=1)

    @tm.passthrough
    def rows(event: int) -> int:
        return event

    graph = tm.Graph("bound", reactor=tm.Reactor("r", [rows]))

    @graph.node
    def out(rows: int) -> int:
        return rows

    flow.call(graph)
    with pytest.raises(tm.DefinitionError) as caught:
        flow.check()
    assert "is bound to reactor 'r'" in said(caught.value)[0]
