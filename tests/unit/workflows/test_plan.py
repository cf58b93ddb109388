"""The planner, case by case: a run in, commands out."""

from datetime import UTC, datetime, timedelta
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.workflows.plan import (
    UNMAPPED,
    Command,
    Expand,
    Finish,
    PlannedRun,
    TaskRun,
    Transition,
    mapped_state,
    plan,
    run_outcome,
    upstream_view,
)
from tidemill.workflows.rules import RULES, Verdict
from tidemill.workflows.spec import TaskEdge, TaskSpec, WorkflowSpec
from tidemill.workflows.states import TASK_TRANSITIONS, RunState, TaskState

NOW = datetime(2026, 1, 1, 6, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ENDED = [one for one in TaskState if one.is_terminal]


def task(name: str, *sources: str | TaskEdge, rule: str = "all_success", each: str | None = None) -> TaskSpec:
    """Return a task after others; a name stands for an edge that takes every variant."""
    edges = tuple(TaskEdge(one, one) if isinstance(one, str) else one for one in sources)
    return TaskSpec(name=name, edges=edges, rule=rule, each=each)


def takes(source: str, *variants: str) -> TaskEdge:
    """Return an edge that takes some variants."""
    return TaskEdge(source, source, variants)


def workflow(*tasks: TaskSpec) -> WorkflowSpec:
    """Return a workflow."""
    return WorkflowSpec(name="w", tasks=tasks)


def row(name: str, state: str = "none", **more: object) -> TaskRun:
    """Return a task run."""
    return TaskRun(task=name, state=TaskState(state), **more)


def elements(name: str, *states: str) -> list[TaskRun]:
    """Return the task runs of a mapped task."""
    return [row(name, state, index=number) for number, state in enumerate(states)]


def planned(spec: WorkflowSpec, *rows: TaskRun, now: datetime = NOW, state: str = "running") -> list[Command]:
    """Plan a run; tasks without a row are undecided."""
    known = {one.task for one in rows}
    rest = [row(one.name) for one in spec.tasks if one.name not in known]
    commands = plan(PlannedRun(spec=spec, state=RunState(state), tasks=[*rows, *rest]), now)
    for one in commands:
        assert not isinstance(one, Transition) or (
            one.before is not one.after and TASK_TRANSITIONS.is_allowed(one.before, one.after)
        )
    return commands


def brief(commands: list[Command]) -> list[str]:
    """Return commands as words: `a: scheduled`, `a[1]: skipped`, `a x 3`, `end: success`."""
    return [_word(one) for one in commands]


def _word(one: Command) -> str:
    if isinstance(one, Finish):
        return f"end: {one.state}"
    if isinstance(one, Expand):
        return f"{one.task} x {one.size}"
    return f"{one.task}: {one.after}" if one.index == UNMAPPED else f"{one.task}[{one.index}]: {one.after}"


CHAIN = workflow(task("a"), task("b", "a"), task("c", "b"))


# -- beginning and end


@pytest.mark.parametrize("rule", RULES)
def test_roots_are_scheduled_on_the_first_pass(rule: str) -> None:
    """leoflow 11: root tasks schedule on the first tick, under any rule, in the order of their declaration."""
    spec = workflow(task("a", rule=rule), task("b", "a"), task("c", rule=rule))
    assert planned(spec) == [
        Transition("a", UNMAPPED, TaskState.NONE, TaskState.SCHEDULED),
        Transition("c", UNMAPPED, TaskState.NONE, TaskState.SCHEDULED),
    ]


@pytest.mark.parametrize("state", [one for one in RunState if one is not RunState.RUNNING])
def test_a_run_that_waits_or_has_ended_gets_nothing(state: RunState) -> None:
    """States: a queued run has not begun, and an ended one is over, in any state of its tasks."""
    retry = row("b", "up_for_retry", wake_at=NOW - SECOND)
    assert planned(CHAIN, state=state) == []
    assert planned(CHAIN, row("a", "success"), retry, state=state) == []
    assert planned(CHAIN, row("a", "failed"), row("b", "upstream_failed"), row("c", "success"), state=state) == []


@pytest.mark.parametrize("state", [one for one in TaskState if one.is_active])
def test_nothing_is_done_while_a_task_is_on_its_way(state: TaskState) -> None:
    """leoflow 12, W-10: the run does not end while a task is active."""
    assert planned(CHAIN, row("a", state)) == []
    assert planned(CHAIN, row("a", "success"), row("b", "success"), row("c", state)) == []


def test_a_run_ends_with_its_last_task() -> None:
    """W-3: the end is planned in the pass that sees the last task's end."""
    done = [row("a", "success"), row("b", "success")]
    assert brief(planned(CHAIN, *done)) == ["c: scheduled"]
    assert brief(planned(CHAIN, *done, row("c", "success"))) == ["end: success"]


def test_a_run_without_tasks_ends_at_once() -> None:
    """No run gets stuck, not even one of nothing."""
    assert brief(planned(workflow())) == ["end: success"]


# -- what travels


def test_a_failure_travels_through_the_whole_run_in_one_pass() -> None:
    """cloacina 108, leoflow 9: those behind a failure are upstream_failed, and the run ends in the same pass."""
    commands = planned(CHAIN, row("a", "failed"))
    assert brief(commands) == ["b: upstream_failed", "c: upstream_failed", "end: failed"]
    assert [one.reason for one in commands[:2]] == ["because of 'a'", "because of 'b'"]


def test_a_skip_travels_through_the_whole_run_in_one_pass() -> None:
    """cloacina 109: those behind a skip are skipped, and a run of skips is a success."""
    commands = planned(CHAIN, row("a", "skipped"))
    assert brief(commands) == ["b: skipped", "c: skipped", "end: success"]
    assert [one.reason for one in commands[:2]] == ["because of 'a'", "because of 'b'"]


def test_what_travels_meets_rules_on_its_way() -> None:
    """leoflow 9: failure, handler, and what is skipped for want of a failure, all decided in one pass."""
    spec = workflow(
        task("tidy", "ok", "handle", rule="all_done"),
        task("handle", "b", rule="one_failed"),
        task("ok", "b", rule="none_skipped"),
        task("b", "a"),
        task("a"),
    )
    assert brief(planned(spec, row("a", "failed"))) == ["b: upstream_failed", "handle: scheduled", "ok: scheduled"]
    assert brief(planned(spec, row("a", "skipped"))) == [
        *("b: skipped", "handle: skipped", "ok: skipped"),
        "tidy: scheduled",
    ]


def test_a_reason_names_only_those_that_matter() -> None:
    """W-17: why a task was skipped or failed, from the rule that decided it."""
    spec = workflow(task("a"), task("b"), task("c"), task("join", "a", "b", "c"))
    rows = [row("a", "failed"), row("b", "skipped"), row("c", "cancelled")]
    assert planned(spec, *rows)[0] == Transition(
        "join", -1, TaskState.NONE, TaskState.UPSTREAM_FAILED, "because of 'a', 'c'"
    )
    rows = [row("a", "success"), row("b", "skipped"), row("c", "success")]
    assert planned(spec, *rows)[0] == Transition("join", -1, TaskState.NONE, TaskState.SKIPPED, "because of 'b'")


@pytest.mark.parametrize(
    ("rule", "state"), [("one_success", "success"), ("one_failed", "failed"), ("one_done", "failed")]
)
def test_a_rule_that_needs_one_fires_while_others_run(rule: str, state: str) -> None:
    """leoflow 10: one_success and its kind do not wait; the run does."""
    spec = workflow(task("a"), task("b"), task("first", "a", "b", rule=rule))
    assert brief(planned(spec, row("a", state), row("b", "running"))) == ["first: scheduled"]
    assert planned(spec, row("a", state), row("b", "running"), row("first", "success")) == []
    assert brief(planned(spec, row("a", state), row("b", "success"), row("first", "success"))) == ["end: success"]


# -- routing

ROUTER = workflow(
    task("choose"),
    task("small", takes("choose", "Small")),
    task("large", takes("choose", "Large")),
    task("behind", "large"),
    task("both", takes("choose", "Small", "Large")),
    task("publish", "small", "behind", rule="none_failed"),
    task("strict", "small", "behind"),
)


def test_an_untaken_branch_and_all_behind_it_is_skipped() -> None:
    """api.md: a union return type routes; untaken branches are skipped, joins with optional inputs run."""
    commands = planned(ROUTER, row("choose", "success", variant="Small"))
    assert brief(commands) == [
        "small: scheduled",
        *("large: skipped", "behind: skipped"),
        "both: scheduled",
        "strict: skipped",
    ]
    assert next(one.reason for one in commands if one.task == "large") == "because of 'choose'"
    done = [row("choose", "success", variant="Small"), row("small", "success"), row("both", "success")]
    assert "publish: scheduled" in brief(planned(ROUTER, *done))


def test_the_other_branch_is_the_other_way_round() -> None:
    """api.md: the variant decides, nothing else."""
    commands = planned(ROUTER, row("choose", "success", variant="Large"))
    assert brief(commands) == ["small: skipped", "large: scheduled", "both: scheduled", "strict: skipped"]


@pytest.mark.parametrize("variant", ["None", None])
def test_a_variant_that_no_task_takes_skips_every_branch(variant: str | None) -> None:
    """api.md: with `ignores=` a task may return what no task takes; as in Airflow none_failed runs all the same."""
    commands = planned(ROUTER, row("choose", "success", variant=variant))
    assert brief(commands) == [
        *("small: skipped", "large: skipped", "behind: skipped", "both: skipped"),
        *("publish: scheduled", "strict: skipped"),
    ]


def test_a_router_that_failed_routes_nowhere() -> None:
    """api.md: no variant counts but that of a success."""
    commands = planned(ROUTER, row("choose", "failed", variant="Small"))
    assert {one.after for one in commands if isinstance(one, Transition)} == {TaskState.UPSTREAM_FAILED}


def test_waiting_for_the_end_of_a_router_is_no_branch() -> None:
    """api.md, `after=`: order without data takes every variant, unless the value is taken too."""
    spec = workflow(
        task("choose"),
        task("next", TaskEdge("choose")),
        task("either", takes("choose", "A"), TaskEdge("choose")),
        task("other", TaskEdge("choose"), takes("choose", "A")),
    )
    found = brief(planned(spec, row("choose", "success", variant="B")))
    assert found == ["next: scheduled", "either: skipped", "other: skipped"]
    found = brief(planned(spec, row("choose", "success", variant="A")))
    assert found == ["next: scheduled", "either: scheduled", "other: scheduled"]


def test_one_task_named_twice_counts_once() -> None:
    """leoflow 9: a rule counts tasks, not edges: a success that went elsewhere is no success."""
    spec = task("b", takes("a", "A"), TaskEdge("a"), rule="one_success")
    found = upstream_view(spec, {"a": TaskState.SUCCESS}, lambda _: False)
    assert found.verdict is Verdict.SKIP
    assert [state for _, state in found.sources] == [TaskState.SKIPPED, TaskState.SUCCESS]


# -- mapping

MAPPED = workflow(task("a"), task("m", "a", each="a"), task("z", "m"))


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_a_mapped_task_is_expanded_once(size: int) -> None:
    """Tasks, mapped tasks: one task run per element, made when the list is known."""
    source = row("a", "success", size=size)
    assert planned(MAPPED, source) == [Expand("m", size)]
    assert planned(MAPPED, source, *elements("m", *["scheduled"] * size)) == []


def test_elements_made_undecided_are_scheduled_together() -> None:
    """W-4: the tick re-derives everything, also from an expansion that stopped half way."""
    found = planned(MAPPED, row("a", "success", size=2), *elements("m", "none", "none"))
    assert brief(found) == ["m[0]: scheduled", "m[1]: scheduled"]


def test_mapping_over_an_empty_list_is_a_success() -> None:
    """api.md: mapping over an empty list is a success with [], and those behind it run."""
    commands = planned(MAPPED, row("a", "success", size=0))
    assert brief(commands) == ["m: success", "z: scheduled"]
    assert commands[0].reason == "'a' returned an empty list"


def test_mapping_over_something_else_fails() -> None:
    """Tasks, mapped tasks: what is no list cannot be mapped over, and the reason says so."""
    commands = planned(MAPPED, row("a", "success"))
    assert brief(commands) == ["m: upstream_failed", "z: upstream_failed", "end: failed"]
    assert commands[0].reason == "'a' returned no list to map over"


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("state", [one for one in TaskState if not one.is_terminal])
def test_no_rule_maps_over_a_list_that_is_not_there_yet(rule: str, state: TaskState) -> None:
    """Tasks, mapped tasks: even `always`, or one that another upstream satisfies, waits for its list."""
    spec = workflow(task("a"), task("b"), task("c"), task("m", "a", "b", "c", rule=rule, each="a"))
    others = [row("b", "success"), row("c", "failed")]
    found = [one for one in planned(spec, row("a", state), *others) if one.task == "m"]
    settled = {"all_success": "m: upstream_failed", "none_failed": "m: upstream_failed", "all_failed": "m: skipped"}
    settled |= {"none_failed_min_one_success": "m: upstream_failed", "all_skipped": "m: skipped"}
    assert brief(found) == ([settled[rule]] if rule in settled else [])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("state", [one for one in ENDED if one is not TaskState.SUCCESS])
def test_a_list_that_never_comes_settles_the_mapping(rule: str, state: TaskState) -> None:
    """Tasks, mapped tasks: without its list nothing is mapped, under any rule: skipped if it was, else failed."""
    spec = workflow(task("a"), task("m", "a", rule=rule, each="a"))
    first = planned(spec, row("a", state))[0]
    assert first.after in (TaskState.SKIPPED, TaskState.UPSTREAM_FAILED)
    if upstream_view(spec.by_name["m"], {"a": state}, lambda _: True).verdict is Verdict.RUN:
        assert first.after is (TaskState.SKIPPED if state is TaskState.SKIPPED else TaskState.UPSTREAM_FAILED)
        assert first.reason == "because of 'a'"


def test_a_list_that_went_to_another_branch_is_not_mapped_over() -> None:
    """api.md: union routes here too; a mapping with optional inputs is skipped with its list."""
    spec = workflow(task("a"), task("m", takes("a", "list"), rule="none_failed", each="a"))
    assert brief(planned(spec, row("a", "success", variant="Other"))) == ["m: skipped", "end: success"]
    assert planned(spec, row("a", "success", variant="list", size=2)) == [Expand("m", 2)]


NESTED = workflow(task("a"), task("m", "a", each="a"), task("n", "m", each="m"), task("z", "n"))


def test_a_mapping_over_a_mapping_has_as_many_elements() -> None:
    """api.md: a task that takes a mapped one gets the list, and so does one that is mapped over it."""
    rows = [row("m", "success", index=number, size=9) for number in range(3)]
    assert planned(NESTED, row("a", "success", size=3), *rows) == [Expand("n", 3)]


def test_a_mapping_over_an_empty_mapping_is_a_success() -> None:
    """api.md: mapping over an empty list is a success with [], all the way down, in one pass."""
    found = planned(NESTED, row("a", "success", size=0))
    assert brief(found) == ["m: success", "n: success", "z: scheduled"]
    found = planned(NESTED, row("a", "success", size=0), row("m", "success"))
    assert brief(found) == ["n: success", "z: scheduled"]


def test_a_mapping_over_a_mapping_leaves_out_what_was_skipped() -> None:
    """api.md leaves it open; as in Airflow an element that was skipped is not in the list."""
    rows = elements("m", "success", "skipped", "success")
    assert planned(NESTED, row("a", "success", size=3), *rows) == [Expand("n", 2)]


GROUPS = [
    ("success success", "success"),
    ("success skipped", "success"),
    ("skipped skipped", "skipped"),
    ("success failed", "failed"),
    ("skipped failed", "failed"),
    ("failed cancelled", "failed"),
    ("failed upstream_failed", "failed"),
    ("upstream_failed cancelled", "upstream_failed"),
    ("success cancelled", "cancelled"),
    *((f"failed {one.value}", "running") for one in TaskState if not one.is_terminal),
    *((f"success {one.value}", "running") for one in TaskState if not one.is_terminal),
    *((f"skipped {one.value}", "running") for one in TaskState if not one.is_terminal),
]


@pytest.mark.parametrize(("states", "whole"), GROUPS)
def test_the_elements_of_a_mapping_are_one_to_those_after_it(states: str, whole: str) -> None:
    """Tasks, mapped tasks: failed if any is, done when all are, skipped when all are."""
    for order in permutations(states.split()):
        assert mapped_state(map(TaskState, order)).value == whole


@pytest.mark.parametrize("states", list(product(ENDED, repeat=2)))
def test_those_after_a_mapping_are_judged_by_all_its_elements(states: tuple[TaskState, ...]) -> None:
    """Tasks, mapped tasks: the task behind sees one task, and what is behind waits for the last element."""
    rows = [row("a", "success", size=2), *elements("m", *states)]
    whole = mapped_state(states)
    after = (
        "scheduled" if whole is TaskState.SUCCESS else "skipped" if whole is TaskState.SKIPPED else "upstream_failed"
    )
    assert brief(planned(MAPPED, *rows))[0] == f"z: {after}"
    assert planned(MAPPED, row("a", "success", size=3), *elements("m", *states, "running")) == []


def test_a_mapping_of_one_is_like_a_mapping_of_many() -> None:
    """Tasks, mapped tasks: what consumes it gets a list, so the variant of its only element routes nothing."""
    for variants in ("A", "B", "AA", "AB", "BA"):
        rows = [row("m", "success", index=number, variant=one) for number, one in enumerate(variants)]
        assert brief(planned(MAPPED, row("a", "success", size=len(rows)), *rows)) == ["z: scheduled"]


@pytest.mark.parametrize(
    ("variants", "expected"),
    [("A", "z x 1"), ("ABA", "z x 2"), ("CBA", "z x 2"), ("B", "z: skipped"), ("BB", "z: skipped"), ("", "z: success")],
)
def test_elements_take_the_branches_of_their_variants(variants: str, expected: str) -> None:
    """api.md, A workflow: a union routes here too, element by element; a branch that none takes is skipped."""
    spec = workflow(task("a"), task("m", "a", each="a"), task("z", takes("m", "A", "C"), each="m"))
    rows = [row("m", "success", index=number, variant=one) for number, one in enumerate(variants)]
    found = brief(planned(spec, row("a", "success", size=len(rows)), *(rows or [row("m", "success")])))
    assert found[0] == expected


def test_an_element_that_did_not_succeed_takes_no_branch() -> None:
    """api.md, A workflow: of those that are skipped nothing is mapped over."""
    spec = workflow(task("a"), task("m", "a", each="a"), task("z", takes("m", "A"), each="m"))
    rows = [row("m", "skipped", index=0), row("m", "success", index=1, variant="A"), row("m", "skipped", index=2)]
    assert brief(planned(spec, row("a", "success", size=3), *rows)) == ["z x 1"]


def test_what_is_no_list_takes_another_branch() -> None:
    """api.md, A workflow: of `list[int] | A`, mapped over, an A skips; of any other value it is not known."""
    spec = workflow(task("a"), task("m", takes("a", "list[int]"), each="a"))
    assert brief(planned(spec, row("a", "success", variant="A")))[0] == "m: skipped"
    assert brief(planned(spec, row("a", "success", variant="list[int]", size=2))) == ["m x 2"]
    assert brief(planned(MAPPED, row("a", "success")))[0] == "m: upstream_failed"


@pytest.mark.parametrize("others", [["success"], ["failed", "success"], ["running"], ["skipped", "cancelled"]])
def test_a_cleared_element_runs_again_alone(others: list[str]) -> None:
    """leoflow 8: clear resets to none; the other elements keep their states, and those behind wait."""
    rows = [row("a", "success", size=3), *elements("m", *others, "none")]
    assert brief(planned(MAPPED, *rows)) == [f"m[{len(others)}]: scheduled"]


@pytest.mark.parametrize(
    ("state", "after"),
    [("none", None), ("running", None), ("failed", "upstream_failed"), ("skipped", "skipped")],
)
def test_a_cleared_element_follows_the_rule_of_its_task(state: str, after: str | None) -> None:
    """leoflow 8: with its source cleared too, an element waits for it, and ends if it does not come back."""
    rows = [row("a", state), *elements("m", "success", "none"), row("z", "success")]
    found = brief([one for one in planned(MAPPED, *rows) if isinstance(one, Transition) and one.task == "m"])
    assert found == ([f"m[1]: {after}"] if after else [])


def test_a_cleared_mapping_keeps_its_elements() -> None:
    """leoflow 8: all elements cleared one by one are judged again as one task."""
    rows = elements("m", "none", "none")
    assert brief(planned(MAPPED, row("a", "success", size=2), *rows)) == ["m[0]: scheduled", "m[1]: scheduled"]
    assert planned(MAPPED, row("a", "running"), *rows) == []
    assert brief(planned(MAPPED, row("a", "skipped"), *rows)) == [
        *("m[0]: skipped", "m[1]: skipped", "z: skipped"),
        "end: success",
    ]


# -- time


@pytest.mark.parametrize("state", ["up_for_retry", "deferred"])
def test_a_sleeping_task_is_woken_at_its_time_and_not_before(state: str) -> None:
    """leoflow 13, cloacina 116: a retry waits at least its delay, a deferral until its time, both no longer."""
    waiting = row("a", state, wake_at=NOW)
    assert planned(CHAIN, waiting, now=NOW - timedelta(microseconds=1)) == []
    woken = [Transition("a", UNMAPPED, TaskState(state), TaskState.SCHEDULED)]
    assert planned(CHAIN, waiting, now=NOW) == woken
    assert planned(CHAIN, waiting, now=NOW + timedelta(days=900)) == woken


@pytest.mark.parametrize("state", ["up_for_retry", "deferred"])
def test_a_sleeping_task_without_a_wake_time_is_left_alone(state: str) -> None:
    """Tasks, deferral: `ctx.defer(poll=...)` is ended by the poll, not by time."""
    assert planned(CHAIN, row("a", state), now=NOW + timedelta(days=900)) == []


@pytest.mark.parametrize("state", [one for one in TaskState if one not in ("up_for_retry", "deferred", "none")])
def test_a_time_left_over_wakes_nothing(state: TaskState) -> None:
    """leoflow 5: only what waits is woken."""
    spec = workflow(task("a"), task("b"))
    found = planned(spec, row("a", state, wake_at=NOW - SECOND), row("b", "running"))
    assert found == []


def test_elements_are_woken_each_at_its_own_time() -> None:
    """leoflow 13: retries of the elements of a mapping are independent."""
    rows = [
        row("m", "up_for_retry", index=0, wake_at=NOW + SECOND),
        row("m", "deferred", index=1, wake_at=NOW),
        row("m", "success", index=2),
    ]
    found = planned(MAPPED, row("a", "success", size=3), *rows)
    assert found == [Transition("m", 1, TaskState.DEFERRED, TaskState.SCHEDULED)]


# -- the outcome


OUTCOMES = [
    (workflow(task("a")), "success", "success"),
    (workflow(task("a")), "skipped", "success"),
    (workflow(task("a")), "failed", "failed"),
    (workflow(task("a")), "upstream_failed", "failed"),
    (workflow(task("a")), "cancelled", "cancelled"),
    (CHAIN, "failed upstream_failed upstream_failed", "failed"),
    (CHAIN, "cancelled upstream_failed upstream_failed", "failed"),
    (CHAIN, "skipped skipped skipped", "success"),
    (workflow(task("a"), task("b")), "success failed", "failed"),
    (workflow(task("a"), task("b")), "success skipped", "success"),
    (workflow(task("a"), task("b")), "success cancelled", "cancelled"),
    # A handled failure is a success; one whose handler fails is not.
    (workflow(task("a"), task("handle", "a", rule="one_failed")), "failed success", "success"),
    (workflow(task("a"), task("handle", "a", rule="one_failed")), "failed failed", "failed"),
    (workflow(task("a"), task("handle", "a", rule="one_failed")), "success skipped", "success"),
    (workflow(task("a"), task("handle", "a", rule="one_failed")), "cancelled success", "success"),
    # Tidying up hides nothing, and its own failure says nothing.
    (workflow(task("a"), task("tidy", "a", rule="all_done")), "failed success", "failed"),
    (workflow(task("a"), task("tidy", "a", rule="always")), "failed success", "failed"),
    (workflow(task("a"), task("tidy", "a", rule="all_done")), "success failed", "success"),
    (workflow(task("a"), task("tidy", "a", rule="all_done")), "success cancelled", "success"),
    (
        workflow(
            task("a"),
            task("handle", "a", rule="one_failed"),
            task("tidy", "a", "handle", rule="all_done"),
            task("sweep", "tidy", rule="all_done"),
        ),
        "failed success failed success",
        "success",
    ),
]


@pytest.mark.parametrize(("spec", "states", "expected"), OUTCOMES)
def test_the_outcome_is_a_function_of_the_leaves(spec: WorkflowSpec, states: str, expected: str) -> None:
    """W-3, outcome of a run: failed if a leaf is failed or upstream_failed; the planner says the same."""
    found = dict(zip(spec.by_name, map(TaskState, states.split()), strict=True))
    assert run_outcome(spec, found) is RunState(expected)
    assert planned(spec, *(row(name, state) for name, state in found.items())) == [Finish(RunState(expected))]


def test_a_failed_element_fails_a_run_whose_leaf_is_mapped() -> None:
    """W-3: a mapped leaf is judged as one."""
    spec = workflow(task("a"), task("m", "a", each="a"))
    rows = [row("a", "success", size=3), *elements("m", "success", "failed", "skipped")]
    assert brief(planned(spec, *rows)) == ["end: failed"]


def test_a_failed_leaf_beside_a_cancelled_one() -> None:
    """W-3: the page leaves open what wins; as drafted, who cancels a leaf has cancelled the run."""
    spec = workflow(task("a"), task("b"))
    assert run_outcome(spec, {"a": TaskState.FAILED, "b": TaskState.CANCELLED}) is RunState.CANCELLED


# -- the planner as a function

SHUFFLED = [
    row("choose", "success", variant="Small"),
    row("list", "success", size=4),
    row("m", "none", index=0),
    row("m", "up_for_retry", index=1, wake_at=NOW),
    row("m", "deferred", index=2, wake_at=NOW),
    row("m", "none", index=3),
    row("n", "none", index=0),
    row("n", "none", index=1),
    row("small"),
    row("large"),
    row("broken", "failed"),
    row("join"),
]
SHUFFLED_SPEC = workflow(
    task("join", "broken", "large"),
    task("choose"),
    task("list"),
    task("m", "list", each="list"),
    task("n", "list", each="list"),
    task("small", takes("choose", "Small")),
    task("large", takes("choose", "Large")),
    task("broken"),
)


@given(st.permutations(SHUFFLED))
def test_the_order_of_the_rows_does_not_matter(rows: list[TaskRun]) -> None:
    """leoflow 11, W-4: planning is deterministic for equal input; a database returns rows in any order."""
    assert brief(planned(SHUFFLED_SPEC, *rows)) == [
        *("m[0]: scheduled", "m[3]: scheduled", "m[1]: scheduled", "m[2]: scheduled"),
        *("n[0]: scheduled", "n[1]: scheduled"),
        *("small: scheduled", "large: skipped"),
        "join: upstream_failed",
    ]


def test_planning_changes_nothing() -> None:
    """W-4: the planner is pure: the same snapshot gives the same commands, again and again."""
    run = PlannedRun(spec=SHUFFLED_SPEC, state=RunState.RUNNING, tasks=list(SHUFFLED))
    first = plan(run, NOW)
    assert plan(run, NOW) == first
    assert run.tasks == SHUFFLED


def test_ten_thousand_elements_are_planned_in_one_pass() -> None:
    """W-4: a pass is linear in what it looks at; a quadratic one would run into the time limit."""
    size = 10_000
    rows = [row("a", "success", size=size), *elements("m", *["none"] * size)]
    assert len(planned(MAPPED, *rows)) == size
    wide = workflow(
        *(task(f"t{number}") for number in range(size)), task("z", *(f"t{number}" for number in range(size)))
    )
    assert brief(planned(wide, *(row(f"t{number}", "success") for number in range(size)))) == ["z: scheduled"]


@pytest.mark.parametrize(
    ("rule", "a", "b", "reason"),
    [
        ("all_failed", "success", "failed", "because of 'a'"),
        ("all_failed", "failed", "skipped", "because of 'b'"),
        ("all_skipped", "success", "skipped", "because of 'a'"),
        ("all_skipped", "skipped", "failed", "because of 'b'"),
        ("one_failed", "success", "skipped", "because of 'a', 'b'"),
        ("one_done", "skipped", "upstream_failed", "because of 'a', 'b'"),
        ("one_success", "skipped", "skipped", "because of 'a', 'b'"),
        ("none_skipped", "success", "skipped", "because of 'b'"),
    ],
)
def test_every_skip_has_its_reason(rule: str, a: str, b: str, reason: str) -> None:
    """W-17: also where it is a success, or a failure, that a task is skipped for."""
    spec = workflow(task("a"), task("b"), task("c", "a", "b", rule=rule))
    assert planned(spec, row("a", a), row("b", b))[0] == Transition("c", -1, TaskState.NONE, TaskState.SKIPPED, reason)


def test_a_mapped_task_that_its_list_ends_names_only_that() -> None:
    """W-17: its rule was content."""
    spec = workflow(task("a"), task("b"), task("c", "a", "b", rule="always", each="a"))
    commands = planned(spec, row("a", "skipped"), row("b", "skipped"))
    assert commands[0] == Transition("c", -1, TaskState.NONE, TaskState.SKIPPED, "because of 'a'")
