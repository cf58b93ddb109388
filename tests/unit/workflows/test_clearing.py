"""Clearing and cancelling: which tasks rerun, and the one change that does it."""

from collections.abc import Collection
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.unit.workflows.lives import LATER, NOW, lived, run_row
from tests.unit.workflows.test_plan_against_an_oracle import World, workflows
from tidemill.workflows.change import Change
from tidemill.workflows.clearing import OperatorAction, build_cancel_change, plan_clear
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey, AttemptRow, RunRecord, TaskRow
from tidemill.workflows.spec import TaskEdge, TaskSpec, WorkflowSpec
from tidemill.workflows.states import RUN_TRANSITIONS, TASK_TRANSITIONS, RunState, TaskState

BY = OperatorAction(at=LATER, actor="me", reason="again")
SPEC = WorkflowSpec(
    name="w",
    tasks=(
        TaskSpec(name="extract"),
        TaskSpec(name="clean", edges=(TaskEdge("extract", "extract"),), each="extract"),
        TaskSpec(name="choose", edges=(TaskEdge("clean", "clean"),)),
        TaskSpec(name="other"),
        TaskSpec(name="tidy", edges=(TaskEdge("choose"),), rule="all_done"),
    ),
)


def row(task: str, state: str, index: int = UNMAPPED, **more: Any) -> TaskRow:
    return TaskRow(task=task, index=index, state=TaskState(state), **more)


def record(*rows: TaskRow, state: RunState = RunState.FAILED) -> RunRecord:
    known = {one.task for one in rows}
    rest = [row(one.name, "success") for one in SPEC.tasks if one.name not in known]
    return RunRecord(run_row(state), [*rows, *rest])


def applied(before: RunRecord, change: Change) -> RunRecord:
    """Return a run after a change, as a store would write it; assuming that the store is as the change expects."""
    rows = {(one.task, one.index): one for one in before.tasks}
    for one in change.removed:
        assert rows.pop((one.task, one.index)) == one
    for one in change.tasks:
        assert rows[one.expected.task, one.expected.index] == one.expected  # type: ignore[attr-defined]
        rows[one.updated.task, one.updated.index] = one.updated  # type: ignore[attr-defined]
    for one in change.added:
        assert (one.task, one.index) not in rows
        rows[one.task, one.index] = one
    assert change.expected_run == before.run
    return RunRecord(change.updated_run or before.run, list(rows.values()))


def moves(change: Change) -> list[str]:
    """Return the events as words."""
    return [
        f"{one.task or 'run'}{'' if one.index == UNMAPPED else [one.index]}: {one.before} -> {one.after}"
        for one in (change.history.events if change.history else ())
    ]


FAILED = [
    row("clean", "success", 0, attempt=1),
    row("clean", "failed", 1, attempt=4, tries=3, failures=3, recoveries=1, ended_at=NOW, reason="no"),
    row("choose", "upstream_failed"),
]


def test_without_names_what_failed_reruns_and_all_after_it() -> None:
    """Clear and retry: only the failed elements and everything downstream of them."""
    before = record(*FAILED)
    assert plan_clear(before, SPEC).names == ["clean", "choose", "tidy"]
    change = plan_clear(before, SPEC).build_change(BY)
    assert moves(change) == [
        "clean[1]: failed -> none",
        "choose: upstream_failed -> none",
        "tidy: success -> none",
        "run: failed -> queued",
    ]
    assert change.cleared_outputs == ["choose", "tidy"]  # not those of the elements that stay
    assert change.tasks[0].updated == row("clean", "none", 1, attempt=4, tries=3, since=LATER)
    assert change.is_operator_action
    run = applied(before, change).run
    assert (run.state, run.started_at, run.ended_at) == (RunState.QUEUED, None, None)
    assert change.history is not None
    assert {(one.actor, one.reason, one.at) for one in change.history.to_rows("r1")} == {("me", "again", LATER)}


def test_a_task_that_is_named_is_cleared_whole() -> None:
    """One that is cleared without its list keeps its elements."""
    before = record(*FAILED)
    assert plan_clear(before, SPEC, ["clean"]).names == ["clean", "choose", "tidy"]
    after = applied(before, plan_clear(before, SPEC, ["clean"]).build_change(BY))
    assert [(one.index, one.state) for one in after.tasks if one.task == "clean"] == [(0, "none"), (1, "none")]


def test_a_mapped_task_is_one_again_when_its_list_is_made_anew() -> None:
    """No attempt of the elements to come may have the key of an old one."""
    before = record(*FAILED)
    change = plan_clear(before, SPEC, ["extract"]).build_change(BY)
    assert [one.index for one in change.removed] == [0, 1]
    assert change.added == [row("clean", "none", attempt=4, tries=3, since=LATER)]
    assert change.cleared_outputs == ["extract", "clean", "choose", "tidy"]
    assert "other" not in plan_clear(before, SPEC, ["extract"]).names


def test_elements_that_were_built_on_what_failed_rerun_too() -> None:
    """Without names: those that succeeded stay only where nothing before them reruns."""
    tasks = (
        TaskSpec(name="a"),
        TaskSpec(name="b"),
        TaskSpec(name="c", edges=(TaskEdge("a", "a"), TaskEdge("b")), each="a"),
    )
    spec = WorkflowSpec(name="w", tasks=tasks)
    rows = [row("a", "success", size=2), row("b", "failed"), row("c", "success", 0), row("c", "failed", 1)]
    change = plan_clear(RunRecord(run_row(RunState.FAILED), rows), spec, None).build_change(BY)
    assert moves(change)[:3] == ["b: failed -> none", "c[0]: success -> none", "c[1]: failed -> none"]
    assert change.cleared_outputs == ["b", "c"]


def test_what_is_active_is_cancelled_before_it_is_cleared() -> None:
    """The transition table; its attempt ends."""
    running = row("choose", "running", attempt=2, tries=1, claimed_by="n1", claimed_at=NOW, executor="e")
    before = record(running, row("tidy", "none"), state=RunState.RUNNING)
    change = plan_clear(before, SPEC, ["choose"]).build_change(BY)
    assert moves(change) == ["choose: running -> cancelled", "choose: cancelled -> none"]
    assert change.updated_run is None  # the run continues
    (attempt,) = change.attempts
    assert attempt == AttemptRow(
        key=AttemptKey("r1", "choose", UNMAPPED, 2),
        number=1,
        executor="e",
        worker="n1",
        claimed_at=NOW,
        ended_at=LATER,
        outcome="cancelled",
    )
    assert plan_clear(before, SPEC, ["choose"]).names == ["choose"]  # an undecided task does not rerun


def test_unknown_tasks_are_all_named() -> None:
    """api.md: with suggestions."""
    with pytest.raises(tm.RequestError, match="no task 'cleen' \\(did you mean 'clean'\\?\\), 'zzz'") as caught:
        plan_clear(record(*FAILED), SPEC, ["cleen", "clean", "zzz"])
    assert (caught.value.code, caught.value.status) == ("task_not_found", 404)
    assert caught.value.facts["tasks"] == ["cleen", "zzz"]


@pytest.mark.parametrize(
    ("before", "tasks"),
    [
        (record(state=RunState.SUCCESS), None),
        (record(row("choose", "none"), row("tidy", "none"), state=RunState.RUNNING), ["choose"]),
        (record(*FAILED), []),
    ],
)
def test_there_may_be_nothing_to_clear(before: RunRecord, tasks: list[str] | None) -> None:
    """A conflict, not an empty success."""
    with pytest.raises(tm.RequestError) as caught:
        plan_clear(before, SPEC, tasks)
    assert (caught.value.code, caught.value.status) == ("nothing_to_retry", 409)


def test_cancelling_ends_everything_at_once() -> None:
    """W-3: the run and its tasks in one change."""
    before = record(
        row("extract", "success"),
        row("clean", "running", 0, claimed_by="n1", attempt=1),
        row("clean", "up_for_retry", 1, wake_at=NOW),
        row("choose", "none"),
        state=RunState.RUNNING,
    )
    change = build_cancel_change(before, BY)
    assert moves(change) == [
        "clean[0]: running -> cancelled",
        "clean[1]: up_for_retry -> cancelled",
        "choose: none -> cancelled",
        "run: running -> cancelled",
    ]
    after = applied(before, change)
    assert (after.run.state, after.run.ended_at, after.run.reason) == (RunState.CANCELLED, LATER, "again")
    assert {one.claimed_by for one in after.tasks} == {None}
    with pytest.raises(tm.RequestError) as caught:
        build_cancel_change(after, BY)
    assert (caught.value.code, caught.value.status) == ("run_ended", 409)
    assert plan_clear(after, SPEC).names == ["clean", "choose", "tidy"]


# -- random runs


def check_events(before: RunRecord, after: RunRecord, change: Change) -> None:
    """Every event is a legal transition, events are consecutive, and the last ones match the rows."""
    states: dict[tuple[str | None, int], str] = {(one.task, one.index): one.state for one in before.tasks}
    states[None, UNMAPPED] = before.run.state
    for one in change.history.events if change.history else ():
        table: Any = RUN_TRANSITIONS if one.task is None else TASK_TRANSITIONS
        kind: Any = RunState if one.task is None else TaskState
        assert states[one.task, one.index] == one.before != one.after
        assert table.is_allowed(kind(one.before), kind(one.after))
        states[one.task, one.index] = one.after
    assert states[None, UNMAPPED] == after.run.state
    for one in after.tasks:
        assert one in change.added or states[one.task, one.index] == one.state  # type: ignore[attr-defined]


def some_tasks(spec: WorkflowSpec, chance: Random) -> list[str] | None:
    names = [one.name for one in spec.tasks]
    return None if chance.random() < 0.4 else chance.sample(names, chance.randint(1, len(names)))


def closure(spec: WorkflowSpec, seeds: Collection[str]) -> set[str]:
    """Return tasks and all after them, by following edges until nothing is new."""
    found = set(seeds)
    while more := {one.name for one in spec.tasks if found & set(one.upstream)} - found:
        found |= more
    return found


@given(workflows(), st.integers(0, 2**32))
def test_a_cleared_run_continues_legally_and_nothing_else_changes(spec: WorkflowSpec, seed: int) -> None:
    """Clear, then plan: no illegal transition, no stuck run; tasks that are not downstream stay unchanged."""
    chance = Random(seed)
    before, tasks = lived(spec, seed), some_tasks(spec, chance)
    seeds = tasks if tasks is not None else {one.task for one in before.tasks if one.state.has_failed}
    reach = closure(spec, seeds)
    if not any(one.task in reach and one.state != "none" for one in before.tasks):
        with pytest.raises(tm.RequestError, match=r"none of its tasks has failed|none of these tasks has started"):
            plan_clear(before, spec, tasks)
        return
    plan = plan_clear(before, spec, tasks)
    names = plan.names
    assert names == [one.name for one in spec.topological_order if one.name in names]
    assert set(names) == {one.task for one in before.tasks if one.task in reach and one.state != "none"}
    change = plan.build_change(BY)
    after = applied(before, change)
    check_events(before, after, change)
    outside = [one for one in before.tasks if one.task not in reach]
    assert [one for one in after.tasks if one.task not in reach] == outside
    inside = [one for one in after.tasks if one.task in reach]
    assert all(
        one.state is TaskState.NONE or (tasks is None and one.index != UNMAPPED and one in before.tasks)
        for one in inside
    )
    assert not any(one.state.has_failed for one in inside)
    behind = {one.name for one in spec.tasks if reach & set(one.upstream)}
    assert all(one.state is TaskState.NONE for one in inside if one.task in behind)
    assert not any(one.index != UNMAPPED and spec.by_name[one.task].each in reach for one in inside)
    for one in inside:
        tried = [old.attempt for old in before.tasks if old.task == one.task and one.index in (UNMAPPED, old.index)]
        assert one.attempt >= max(tried)
    assert set(change.cleared_outputs) <= reach
    world = World(spec, chance, list(after.tasks))
    assert sum(1 for _ in world.passes()) < 1000


@given(workflows(), st.integers(0, 2**32))
def test_a_cancelled_run_has_ended(spec: WorkflowSpec, seed: int) -> None:
    """Nothing is left active, and ended tasks stay unchanged."""
    before = lived(spec, seed)
    if before.run.state.is_terminal:
        return
    change = build_cancel_change(before, BY)
    after = applied(before, change)
    check_events(before, after, change)
    assert after.run.state is RunState.CANCELLED
    assert all(one.state.is_terminal for one in after.tasks)
    ended = [one for one in before.tasks if one.state.is_terminal]
    assert all(one in after.tasks for one in ended)
