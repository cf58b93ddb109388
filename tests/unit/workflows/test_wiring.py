"""Wiring: by parameter name, routed by type; all problems are reported together."""

import os
import subprocess
import sys
from collections.abc import Callable
from threading import Thread
from typing import Any, get_args

import pytest

import tidemill as tm
from tidemill.workflows.definition import Params
from tidemill.workflows.spec import TaskEdge, TaskSpec
from tidemill.workflows.workflow import Workflow


class Row(tm.Boundary):
    number: int


class Small(tm.Boundary):
    rows: int


class Large(tm.Boundary):
    rows: int


class Report(tm.Boundary):
    text: str


class Daily(Params):
    day: str
    limit: int = 1000


def problems(workflow: Workflow) -> list[str]:
    """Return what is wrong with a workflow, without the lines."""
    with pytest.raises(tm.DefinitionError) as caught:
        workflow.check()
    assert all(problem.location is not None for problem in caught.value.problems)
    return [problem.message for problem in caught.value.problems]


def spec(workflow: Workflow, task: str) -> TaskSpec:
    return workflow.wired().spec.by_name[task]


def daily_report() -> Workflow:
    """The example of the design: a mapping, a route, a join, and a clean-up task."""
    daily = Workflow("daily_report", params=Daily, tags=["finance"], max_active_runs=1)

    @daily.task(retry=tm.Retry(3, delay="10s"), timeout="10m")
    def extract(params: Daily) -> list[Row]:
        return [Row(number) for number in range(params.limit)]

    @daily.task(each="extract")
    def clean(extract: Row) -> Row:
        return extract

    @daily.task
    def choose(clean: list[Row]) -> Small | Large:
        return Small(len(clean)) if len(clean) < 10 else Large(len(clean))

    @daily.task
    def small(choose: Small) -> Report:
        return Report(str(choose.rows))

    @daily.task(queue="big", pool="warehouse", priority=10, executor="kubernetes")
    def large(choose: Large) -> Report:
        return Report(str(choose.rows))

    @daily.task
    def publish(small: Report | None, large: Report | None, ctx: tm.Context) -> str:
        return (small or large or Report("")).text

    @daily.task(after=[publish], rule="all_done")
    def tidy() -> None:
        return None

    return daily


def test_the_example_is_wired_as_its_parameters_say() -> None:
    """api.md, "A workflow": edges, variants, rules, and options end up in the plan."""
    daily = daily_report()
    assert [task.name for task in daily.wired().spec.topological_order] == [
        "extract",
        "clean",
        "choose",
        "small",
        "large",
        "publish",
        "tidy",
    ]
    assert (spec(daily, "extract").tries, spec(daily, "extract").timeout) == (4, 600.0)
    assert spec(daily, "clean").each == "extract"
    assert spec(daily, "small").edges == (TaskEdge("choose", "choose", ("Small",)),)
    assert spec(daily, "choose").edges == (TaskEdge("clean", "clean", None),)
    assert (spec(daily, "large").queue, spec(daily, "large").pool, spec(daily, "large").priority) == (
        "big",
        "warehouse",
        10,
    )
    assert spec(daily, "publish").rule == "none_failed"
    assert spec(daily, "tidy").edges == (TaskEdge("publish"),)
    assert daily.wired().spec.leaves == ("publish",)
    wired = daily.wired().tasks
    assert (wired["extract"].takes_params, wired["publish"].takes_context) == (("params",), ("ctx",))


def test_decorated_tasks_stay_callable() -> None:
    """api.md: a task is tested like any function."""
    workflow = Workflow("w")

    @workflow.task
    def double(number: int = 2) -> int:
        return 2 * number

    assert double(4) == 8


def chain(*functions: Callable[..., Any], **options: Any) -> Workflow:
    """Return a workflow of plain functions."""
    workflow = Workflow("w", **options)
    for function in functions:
        workflow.task(function)
    return workflow


def test_the_default_rule_follows_from_the_data_parameters() -> None:
    """api.md: all data parameters optional: none_failed, else all_success."""

    def first() -> int:
        return 1

    def strict(first: int) -> int:
        return first

    def loose(first: int | None, strict: int | None = None) -> int:
        return first or 0

    workflow = chain(first, strict, loose)
    assert [spec(workflow, name).rule for name in ("first", "strict", "loose")] == [
        "all_success",
        "all_success",
        "none_failed",
    ]


def test_a_rule_that_may_lack_a_value_wants_an_optional_parameter() -> None:
    """api.md: a rule that can run a task without a value requires `| None` there."""
    workflow = Workflow("w")

    @workflow.task
    def work() -> int:
        return 1

    @workflow.task(rule="one_failed")
    def repair(work: int) -> None:
        return None

    assert problems(workflow) == [
        "rule 'one_failed' can run task 'repair' without a value for 'work': annotate it 'int | None'"
    ]


def test_all_problems_come_at_once() -> None:
    """api.md: unknown names, impossible types, unknown rules, cycles: one error, each with its line."""
    workflow = Workflow("w")

    @workflow.task(rule="al_done", each="rows")
    def start(first: int, params: Daily) -> int:
        return first

    @workflow.task(after=["begin"])
    def second(start: str, third: int) -> int:
        return third

    @workflow.task
    def third(second: int) -> int:
        return second

    said = problems(workflow)
    assert said == [
        "parameter 'params' of task 'start' takes Daily, but workflow 'w' has no params: pass params=Daily",
        "parameter 'first' of task 'start' names no task of workflow 'w'; if each run is to be given it, declare it "
        "in a class of tm.Params, Workflow(..., params=CLASS)",
        said[2],
        "task 'start': each='rows' names no task of workflow 'w'",
        said[4],
        "task 'second' comes after 'begin', which is not a task",
        "tasks form a cycle: second -> third -> second",
    ]
    assert "did you mean 'all_done'" in said[2]
    assert "takes str, which can never arrive" in said[4]


def test_a_variant_that_no_task_takes_is_a_problem_unless_ignored() -> None:
    """api.md: `ignores=` makes it explicit."""

    def choose() -> Small | Large:
        return Small(1)

    def small(choose: Small) -> None:
        return None

    assert "may return Large, which no task takes" in problems(chain(choose, small))[0]
    workflow = Workflow("w")
    workflow.task(ignores=[Large])(choose)
    workflow.task(small)
    assert spec(workflow, "small").edges == (TaskEdge("choose", "choose", ("Small",)),)
    wrong = Workflow("w")
    wrong.task(ignores=[Report])(choose)
    wrong.task(small)
    assert problems(wrong)[0] == "task 'choose' ignores Report, which it never returns"


@pytest.mark.parametrize(
    ("returns", "each", "said"),
    [
        (int, "numbers", "task 'square': each='numbers' maps over a list, and task 'numbers' returns int"),
        (list[str], "numbers", "parameter 'numbers' of task 'square' takes int, which can never arrive"),
        (str | list[str], "numbers", "parameter 'numbers' of task 'square' takes int, which can never arrive"),
        (list[int | str], "numbers", "parameter 'numbers' of task 'square' takes int, but the elements of 'numbers'"),
        (list[int | None], "numbers", "parameter 'numbers' of task 'square' takes int, but the elements of 'numbers'"),
        (tuple[int, str], "numbers", "parameter 'numbers' of task 'square' takes int, but the elements of 'numbers'"),
        (list[int] | str, "numbers", "task 'numbers' may return str, which no task takes"),
    ],
)
def test_a_mapping_needs_a_list_of_what_its_parameter_takes(returns: Any, each: str, said: str) -> None:
    """api.md: one mapped task run per element."""
    workflow = Workflow("w")

    def numbers() -> Any:
        return []

    numbers.__annotations__["return"] = returns
    workflow.task(numbers)

    @workflow.task(each=each)
    def square(numbers: int) -> int:
        return numbers

    assert any(message.startswith(said) for message in problems(workflow))


@pytest.mark.parametrize(
    ("returns", "takes"),
    [
        (list[int], None),
        (list[bool], None),
        (tuple[int, ...], None),
        (tuple[int, bool], None),
        (list[int] | tuple[bool, ...], None),
        (list, None),
        (list[Any], None),
        (Any, None),
        (list[int] | None, ("list[int]",)),
        (list[int] | Small, ("list[int]",)),
        (list[int] | tuple[str, ...], ("list[int]",)),
    ],
)
def test_a_mapping_takes_the_branch_that_is_a_list(returns: Any, takes: tuple[str, ...] | None) -> None:
    """api.md: a union return type routes, also to a task that is mapped."""
    workflow = Workflow("w")

    def numbers() -> Any:
        return []

    numbers.__annotations__["return"] = returns
    workflow.task(ignores=[one for one in get_args(returns) if one in (Small, tuple[str, ...])])(numbers)

    @workflow.task(each="numbers")
    def square(numbers: int) -> int:
        return numbers

    workflow.check()
    assert spec(workflow, "square").edges == (TaskEdge("numbers", "numbers", takes),)


def routing(*, ignores: Any = ()) -> Workflow:
    """Return a workflow with a mapped task whose elements go two ways."""
    workflow = Workflow("w")

    @workflow.task
    def numbers() -> list[int]:
        return [1, 2]

    @workflow.task(each=numbers, ignores=ignores)
    def sort(numbers: int) -> Small | Large | None: ...

    @workflow.task(each=sort)
    def small(sort: Small) -> int:
        return sort.rows

    return workflow


def test_the_elements_of_a_mapped_task_are_routed_like_any_value() -> None:
    """api.md: the rest of the wiring rules are those of graphs; some task must take every variant, or a list of all."""
    assert problems(routing()) == [
        "task 'sort' may return Large, which no task takes: add a task with a parameter 'sort: Large', or declare "
        "ignores=[Large]"
    ]
    routing(ignores=[Large]).check()
    wide = routing()

    @wide.task
    def collect(sort: list[Small | Large | None]) -> int:
        return len(sort)

    wide.check()


def test_branches_of_a_mapped_task_may_all_be_needed() -> None:
    """api.md: one element goes one way, but there are others."""
    workflow = routing()

    @workflow.task(each="sort")
    def large(sort: Large) -> int:
        return sort.rows

    @workflow.task
    def both(small: list[int], large: list[int]) -> int:
        return len(small) + len(large)

    workflow.check()
    assert [edge.takes for edge in spec(workflow, "large").edges] == [("Large",)]


def test_what_consumes_a_mapped_task_gets_a_list() -> None:
    """api.md: "what consumes `clean` gets the list"."""
    workflow = Workflow("w")

    @workflow.task
    def numbers() -> list[int]:
        return [1, 2]

    @workflow.task(each=numbers)
    def square(numbers: int) -> int:
        return numbers**2

    @workflow.task
    def total(square: int) -> int:
        return square

    assert problems(workflow) == [
        "parameter 'square' of task 'total' takes int, which can never arrive: task 'square' gives list[int]"
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"params": int}, "params= takes a subclass of tm.Params"),
        ({"max_active_runs": 0}, "max_active_runs is a number of runs from 1 to 2147483647"),
        (
            {"triggers": [3]},
            "triggers= takes what @tm.trigger, tm.on_firing and tm.on_output return, or a trigger's name",
        ),
    ],
)
def test_a_workflow_that_cannot_work_is_refused_where_it_is_declared(options: Any, said: str) -> None:
    with pytest.raises(tm.DefinitionError, match=said):
        Workflow("w", **options)


def test_nothing_to_do_is_a_problem_too() -> None:
    with pytest.raises(tm.DefinitionError, match="at least one task"):
        Workflow("empty").check()


def test_the_version_follows_structure_and_code_and_nothing_else() -> None:
    """W-19: content hash over code and structure."""

    def build(answer: int, rule: str = "all_success") -> Workflow:
        workflow = Workflow("w")

        @workflow.task
        def first() -> int:
            return 1

        if answer == 1:

            @workflow.task(rule=rule)
            def second(first: int | None) -> int:
                return (first or 0) + 1
        else:

            @workflow.task(rule=rule)
            def second(first: int | None) -> int:
                return (first or 0) + 2

        return workflow

    versions = [build(*case).wired().spec.version for case in ((1,), (1,), (2,), (1, "all_done"))]
    assert versions[0] == versions[1]
    assert len(set(versions)) == 3


def test_a_version_is_the_same_in_every_process() -> None:
    """W-19: a set among the constants has another order in each process, and says nothing about the code."""
    program = (
        "import tidemill as tm\n"
        "w = tm.Workflow('w')\n"
        "@w.task\n"
        "def a() -> bool: return 'x' in {'x', 'y', 'z', 'long', 'longer'}\n"
        "print(w.wired().spec.version)\n"
    )
    versions = {
        subprocess.run(
            [sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(versions) == 1


# -- joins


class Left(tm.Boundary):
    number: int


class Right(tm.Boundary):
    number: int


def branching() -> Workflow:
    """A task that takes one of two branches, and one beside them."""
    workflow = Workflow("w")

    @workflow.task
    def d() -> Left | Right:
        return Left(1)

    @workflow.task
    def x(d: Left) -> int:
        return d.number

    @workflow.task
    def y(d: Right) -> int:
        return d.number

    @workflow.task
    def s() -> int:
        return 3

    return workflow


def test_without_a_rule_required_inputs_must_have_succeeded_and_optional_ones_must_not_have_failed() -> None:
    """W-4: a join of exclusive branches that takes something else besides is not skipped forever."""
    workflow = branching()

    @workflow.task
    def j(x: int | None, y: int | None, s: int) -> int:
        return (x or y or 0) + s

    @workflow.task(rule="all_success")
    def strict(x: int | None, s: int) -> int:
        return (x or 0) + s

    workflow.check()
    assert spec(workflow, "j").rule == "all_success"
    assert [edge.optional for edge in spec(workflow, "j").edges] == [True, True, False]
    assert not any(edge.optional for edge in spec(workflow, "strict").edges)


def test_the_list_of_a_mapping_is_never_optional() -> None:
    """W-4: `| None` speaks of an element there; without the list there is nothing to map over."""
    workflow = Workflow("w")

    @workflow.task
    def many() -> list[int | None]:
        return [1, None]

    @workflow.task
    def one() -> int:
        return 1

    @workflow.task(each=many)
    def each(many: int | None, one: int) -> int:
        return (many or 0) + one

    assert not any(edge.optional for edge in spec(workflow, "each").edges)


def test_a_task_that_needs_two_exclusive_branches_is_refused() -> None:
    """As in graphs: it could never run, and the run would say success."""
    workflow = branching()

    @workflow.task
    def j(x: int, y: int) -> int:
        return x + y

    @workflow.task
    def later(j: int, x: int) -> int:
        return j + x

    @workflow.task(after=["x", "y"])
    def behind(s: int) -> int:
        return s

    @workflow.task(rule="all_success")
    def strict(x: int | None, y: int | None) -> int:
        return (x or 0) + (y or 0)

    @workflow.task(rule="all_done")
    def tidy(x: int | None, y: int | None) -> None: ...

    never = "can never run: its inputs come from branches of 'd' that exclude each other;"
    assert problems(workflow) == [
        f"task 'j' {never} make them optional (`| None`) to join branches",
        f"task 'behind' {never} make them optional (`| None`) to join branches",
        f"task 'strict' {never} make them optional and leave rule= out to join branches",
    ]


# -- values


def test_what_can_never_be_stored_is_refused() -> None:
    """api.md, `check`: not when the task has done its work, and all of it is lost."""
    workflow = Workflow("w")

    @workflow.task
    def start() -> Thread:
        return Thread()

    @workflow.task
    def several() -> list[Thread] | None: ...

    @workflow.task
    def anything() -> object: ...

    found = problems(workflow)
    assert len(found) == 2
    assert found[0].startswith("task 'start' returns Thread, which cannot be stored: Thread is not a type that")
    assert "task 'several' returns list[threading.Thread] | None" in found[1]


def test_a_parameter_that_is_no_task_gets_a_suggestion() -> None:
    """api.md: context and params are known by their annotation, not by their name."""
    workflow, plain = Workflow("w", params=Daily), Workflow("p")

    @workflow.task
    def a(ctx, params, limit): ...

    @plain.task
    def b(params): ...

    assert [one.partition("names no task of workflow 'w'")[2] for one in problems(workflow)] == [
        ": for the context annotate it, `ctx: tm.Context`",
        ": for the run's params annotate it, `params: Daily`",
        ": for the run's params take `params: Daily`, and use `params.limit`",
    ]
    assert "declare a tm.Params class, or take `ctx: tm.Context`" in problems(plain)[0]
