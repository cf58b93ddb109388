"""A run continues with another version of its workflow: which tasks stay, go and begin."""

from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

import tidemill as tm
from tests.unit.workflows.lives import lived, run_row
from tests.unit.workflows.test_clearing import BY, SPEC, applied, check_events, moves, row, some_tasks
from tests.unit.workflows.test_plan_against_an_oracle import World, workflows
from tidemill.workflows.change import Change
from tidemill.workflows.clearing import (
    VersionSwitch,
    build_cancel_change,
    plan_clear,
)
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import RunRecord, TaskRow
from tidemill.workflows.spec import TaskEdge, TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState, TaskState

FAILED = [
    row("extract", "success", attempt=1, size=2, executor="usual"),
    row("clean", "success", 0, attempt=1, executor="usual"),
    row("clean", "failed", 1, attempt=4, tries=3, executor="usual"),
    row("choose", "upstream_failed", executor="usual"),
    row("other", "success", attempt=2, executor="special"),
    row("tidy", "success", executor="usual"),
]
SPECIAL = TaskSpec(name="other", executor="special")
OLDER = replace(SPEC, tasks=tuple(SPECIAL if one.name == "other" else one for one in SPEC.tasks))


def record(*rows: TaskRow, state: RunState = RunState.FAILED) -> RunRecord:
    return RunRecord(run_row(state), list(rows))


def into(spec: WorkflowSpec, before: RunRecord, **values: object) -> VersionSwitch:
    """Return the switch of a run to another spec."""
    return VersionSwitch(record=before, version="new", new_spec=spec, **({"old_spec": OLDER} | values))


def changed(spec: WorkflowSpec, before: RunRecord, tasks: list[str] | None = None, **values: object) -> Change:
    """Return the change that switches a run to another spec, checked."""
    change = plan_clear(before, spec, tasks, into(spec, before, **values)).build_change(BY)
    after = applied(before, change)
    assert {one.task for one in after.tasks} == {one.name for one in spec.tasks}
    assert after.run.version == "new"
    return change


def version(*tasks: TaskSpec, without: tuple[str, ...] = ()) -> WorkflowSpec:
    """Return the structure with some tasks exchanged or added, and others left out."""
    known = {one.name: one for one in OLDER.tasks if one.name not in without} | {one.name: one for one in tasks}
    return WorkflowSpec(name="w", tasks=tuple(known.values()), code="new")


def test_the_same_structure_reruns_what_failed() -> None:
    """W-19: only code was fixed; the run is pinned to the new version."""
    before = record(*FAILED)
    spec = version()
    assert plan_clear(before, spec, None, into(spec, before)).names == ["clean", "choose", "tidy"]
    assert plan_clear(before, spec, None, into(spec, before)).elements == {"clean": (1, 2)}
    change = changed(spec, before)
    assert moves(change)[0] == "clean[1]: failed -> none"
    assert not change.removed
    assert not change.added
    assert change.updated_run is not None
    assert (change.updated_run.version, str(change.updated_run.state), change.is_operator_action) == (
        "new",
        "queued",
        True,
    )


def test_a_task_that_is_gone_is_removed_and_forgotten() -> None:
    """W-19: rows of tasks that the new version does not have; one that is new begins, and all after it again."""
    before = record(*FAILED)
    tidy = TaskSpec(name="tidy", edges=(TaskEdge("other"), TaskEdge("fixed")))
    spec = version(TaskSpec(name="fixed", edges=(TaskEdge("extract", "extract"),)), tidy, without=("clean", "choose"))
    assert plan_clear(before, spec, None, into(spec, before)).names == ["fixed", "tidy"]
    change = changed(spec, before)
    assert [(one.task, one.index) for one in change.removed] == [("clean", 0), ("clean", 1), ("choose", UNMAPPED)]
    assert {"clean", "choose"} <= set(change.cleared_outputs)
    (added,) = change.added
    assert (added.task, str(added.state), added.attempt, added.executor) == ("fixed", "none", 0, "usual")


def test_attempt_numbers_continue_if_a_task_comes_back() -> None:
    """W-1: no attempt ever has the key of another one."""
    before = record(*FAILED)
    change = changed(version(TaskSpec(name="back")), before, attempt_counters={"back": (7, 5)})
    assert [(one.task, one.attempt, one.tries) for one in change.added] == [("back", 7, 5)]


@pytest.mark.parametrize(
    "clean",
    [
        TaskSpec(name="clean", edges=(TaskEdge("extract", "extract"),)),
        TaskSpec(name="clean", edges=(TaskEdge("other", "other"),), each="other"),
        TaskSpec(name="clean", edges=(TaskEdge("extract", "extract", ("Big",)),), each="extract"),
    ],
)
def test_a_task_whose_list_is_another_is_made_whole(clean: TaskSpec) -> None:
    """W-19: also if all of its elements had succeeded."""
    rows = [replace(one, state=FAILED[0].state) if one.task == "clean" else one for one in FAILED]
    change = changed(version(clean), record(*rows))
    assert [(one.task, one.index) for one in change.removed] == [("clean", 0), ("clean", 1)]
    (whole,) = change.added
    assert (whole.task, whole.index, whole.attempt, whole.tries) == ("clean", UNMAPPED, 4, 3)


def test_what_was_whole_and_is_mapped_begins_anew() -> None:
    """W-19: its success was another one."""
    other = TaskSpec(name="other", edges=(TaskEdge("extract", "extract"),), each="extract")
    change = changed(version(other), record(*FAILED))
    assert ("other", UNMAPPED) in {(one.task, one.index) for one in change.removed}
    assert [(one.task, one.index, one.attempt) for one in change.added] == [("other", UNMAPPED, 2)]


def test_what_reruns_runs_where_the_new_version_says() -> None:
    """W-19: pool, priority, queue and executor; without an executor, at that of those which name none."""
    choose = TaskSpec(
        name="choose", edges=(TaskEdge("clean", "clean"),), pool="p", priority=3, queue="q", executor="far"
    )
    before = record(*FAILED)
    change = changed(
        version(choose, TaskSpec(name="other"), TaskSpec(name="extract", pool="p")), before, ["choose", "other"]
    )
    rows = {one.updated.task: one.updated for one in change.tasks}
    chosen = rows["choose"]
    assert (chosen.pool, chosen.priority, chosen.queue, chosen.executor) == ("p", 3, "q", "far")
    assert (rows["other"].executor, rows["other"].pool) == ("usual", None)
    assert "extract" not in rows


def test_nothing_to_do_is_said_and_the_end_of_what_failed_is_enough() -> None:
    """W-19: a version without the task that failed is a reason to look at the run again."""
    done = record(*(replace(one, state=FAILED[0].state) for one in FAILED), state=RunState.SUCCESS)
    with pytest.raises(tm.RequestError) as caught:
        plan_clear(done, OLDER, None, into(OLDER, done))
    assert caught.value.code == "nothing_to_retry"
    less = version(without=("other",))
    assert plan_clear(done, less, None, into(less, done)).names == []
    assert [one.task for one in changed(less, done).removed] == ["other"]


@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_run_with_running_tasks_is_left_alone(state: str) -> None:
    """W-19: with what to do."""
    before = record(row("extract", state, executor="usual"), *FAILED[1:], state=RunState.RUNNING)
    with pytest.raises(tm.RequestError, match="has running tasks, and only a run without any") as caught:
        plan_clear(before, OLDER, None, into(OLDER, before))
    assert (caught.value.code, caught.value.status) == ("run_active", 409)
    assert "`tidemill runs cancel r1`" in str(caught.value)


def test_what_waits_begins_again_and_what_is_deferred_stays() -> None:
    """W-19: of a run that has not ended, which keeps its state; elements that have succeeded stay too."""
    before = record(
        row("extract", "success", attempt=1, size=2, executor="usual"),
        row("clean", "success", 0, attempt=1, executor="usual"),
        row("clean", "up_for_retry", 1, attempt=2, tries=2, failures=2, executor="usual"),
        row("choose", "none", executor="usual"),
        row("other", "deferred", attempt=2, deferrals=1, executor="special"),
        row("tidy", "none", executor="usual"),
        state=RunState.RUNNING,
    )
    plan = plan_clear(before, OLDER, (), into(OLDER, before))
    change = plan.build_change(BY)
    after = {(one.task, one.index): one for one in applied(before, change).tasks}
    assert plan.elements == {"clean": (1, 2)}
    assert [str(after[ref].state) for ref in [("clean", 0), ("clean", 1), ("other", UNMAPPED)]] == [
        "success",
        "none",
        "deferred",
    ]
    assert (after["clean", 1].failures, after["clean", 1].attempt) == (0, 2)
    assert change.updated_run == replace(before.run, version="new")
    assert moves(change) == ["clean[1]: up_for_retry -> cancelled", "clean[1]: cancelled -> none"]


@given(workflows(), workflows(), st.integers(0, 2**32))
def test_any_unfinished_run_is_upgraded_to_any_version(first: WorkflowSpec, then: WorkflowSpec, seed: int) -> None:
    """W-19: no illegal move, no task run that the version does not have, and none that gets stuck."""
    before = lived(first, seed)
    assume(not before.run.state.is_terminal)
    handed_back = {"state": TaskState.SCHEDULED, "claimed_by": None}
    before = before._replace(
        tasks=[replace(one, **handed_back) if one.state.is_claimed else one for one in before.tasks]
    )
    plan = plan_clear(before, then, (), into(then, before, old_spec=first))
    change = plan.build_change(BY)
    after = applied(before, change)
    check_events(before, after, change)
    assert {one.task for one in after.tasks} == {one.name for one in then.tasks}
    assert (after.run.version, after.run.state) == ("new", before.run.state)
    world = World(then, Random(seed), list(after.tasks))
    assert sum(1 for _ in world.passes()) < 1000


@pytest.mark.parametrize("is_read", [True, False])
@given(workflows(), workflows(), st.integers(0, 2**32))
def test_any_run_continues_with_any_version(is_read: bool, first: WorkflowSpec, then: WorkflowSpec, seed: int) -> None:
    """No illegal move, no task run that the version does not have, and none that gets stuck."""
    chance = Random(seed)
    before = lived(first, seed)
    if not before.run.state.is_terminal:
        before = applied(before, build_cancel_change(before, BY))
    tasks = some_tasks(then, chance)
    succession = into(then, before, old_spec=first if is_read else None)
    failed = {one.task for one in before.tasks if one.state.has_failed} & {one.name for one in then.tasks}
    if not (tasks or failed or succession.restarted_tasks or succession.removed_tasks):
        with pytest.raises(tm.RequestError, match="none of its tasks has failed"):
            plan_clear(before, then, tasks, succession)
        return
    plan = plan_clear(before, then, tasks, succession)
    names = plan.names
    change = plan.build_change(BY)
    after = applied(before, change)
    check_events(before, after, change)
    assert {one.task for one in after.tasks} == {one.name for one in then.tasks}
    assert {one.task for one in after.tasks if str(one.state) == "none"} <= set(names)
    kept = [one for one in after.tasks if one.task not in names]
    assert all(one in before.tasks for one in kept)
    assert after.run.version == "new"
    world = World(then, chance, list(after.tasks))
    assert sum(1 for _ in world.passes()) < 1000
