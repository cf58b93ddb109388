"""Unfinished runs whose code has changed: the pure decisions, over all states of a task."""

from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.workflows.records import RunRecord, RunRow, TaskRow
from tidemill.workflows.run_draft import RunDraft, new_task_rows
from tidemill.workflows.spec import TaskEdge, TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState, TaskState
from tidemill.workflows.unfinished import (
    UNFINISHED_POLICIES,
    Continuation,
    UnfinishedPolicy,
    decide_continuation,
    has_begun,
    missing_code_note,
    missing_tasks,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NEW = WorkflowSpec(name="flow", tasks=(TaskSpec(name="a"), TaskSpec(name="b", edges=(TaskEdge("a", "a"),))))
LACKS_A = WorkflowSpec(name="flow", tasks=(TaskSpec(name="b"),))


def record(*states: TaskState, run_state: RunState = RunState.RUNNING) -> RunRecord:
    """Return a run of the tasks a, b, ... in these states."""
    run = RunRow(
        id="r1",
        tenant="public",
        workflow="flow",
        version="v1",
        state=run_state,
        params=b"",
        origin="manual",
        created_at=NOW,
    )
    return RunRecord(run, [TaskRow(task="abc"[number], state=state) for number, state in enumerate(states)])


@given(
    states=st.lists(st.sampled_from(TaskState), min_size=2, max_size=2),
    policy=st.sampled_from(UNFINISHED_POLICIES),
    newest=st.sampled_from([None, NEW, LACKS_A]),
    has_code=st.booleans(),
)
def test_no_run_waits_or_changes_without_reason(
    states: list[TaskState], policy: UnfinishedPolicy, newest: WorkflowSpec | None, has_code: bool
) -> None:
    """Do no harm: what runs is not interrupted by an upgrade, results are not lost, and what has its code goes on."""
    run = record(*states)
    verdict = decide_continuation(run, newest, policy, has_code=has_code)
    is_running = any(state.is_claimed for state in states)
    if verdict is Continuation.CANCEL:
        assert (policy, newest is not None) == ("cancel", True)
    elif verdict is Continuation.UPGRADE:
        assert policy == "upgrade"
        assert newest is not None
        assert not is_running
        assert not missing_tasks(run, newest)
    elif verdict is Continuation.WAIT:
        assert not has_code
        assert not is_running
    if newest is None:
        assert verdict in (Continuation.KEEP, Continuation.WAIT)


@pytest.mark.parametrize(
    ("policy", "states", "newest", "has_code", "expected"),
    [
        ("pin", (TaskState.SUCCESS, TaskState.SCHEDULED), NEW, False, Continuation.WAIT),
        ("pin", (TaskState.SUCCESS, TaskState.SCHEDULED), NEW, True, Continuation.KEEP),
        ("pin", (TaskState.SUCCESS, TaskState.RUNNING), NEW, False, Continuation.KEEP),
        ("pin", (TaskState.NONE, TaskState.NONE), NEW, False, Continuation.KEEP),
        ("upgrade", (TaskState.SUCCESS, TaskState.UP_FOR_RETRY), NEW, True, Continuation.UPGRADE),
        ("upgrade", (TaskState.SUCCESS, TaskState.RUNNING), NEW, False, Continuation.KEEP),
        ("upgrade", (TaskState.SUCCESS, TaskState.SCHEDULED), LACKS_A, False, Continuation.WAIT),
        ("upgrade", (TaskState.SCHEDULED, TaskState.NONE), LACKS_A, False, Continuation.UPGRADE),
        ("upgrade", (TaskState.SUCCESS, TaskState.SCHEDULED), None, False, Continuation.WAIT),
        ("cancel", (TaskState.SUCCESS, TaskState.RUNNING), NEW, True, Continuation.CANCEL),
    ],
)
def test_the_policy_decides(
    policy: Any, states: tuple[TaskState, ...], newest: WorkflowSpec | None, has_code: bool, expected: Continuation
) -> None:
    """api.md, unfinished."""
    assert decide_continuation(record(*states), newest, policy, has_code=has_code) is expected


def test_a_run_has_begun_as_soon_as_a_task_was_decided_on_or_tried() -> None:
    """Only a run in which nothing has happened may take another version without being asked."""
    for states in product(TaskState, repeat=2):
        assert has_begun(record(*states).tasks) == any(state is not TaskState.NONE for state in states)
    assert has_begun([TaskRow(task="a", attempt=1)])


def test_a_run_that_has_not_begun_takes_the_tasks_of_its_new_version() -> None:
    """All of its rows are replaced in the change that begins it."""
    run = record(TaskState.NONE, TaskState.NONE, TaskState.NONE, run_state=RunState.QUEUED)
    rows = {(row.task, row.index): row for row in run.tasks}
    draft = RunDraft(run.run, rows, WorkflowSpec(name="flow", tasks=()), now=NOW, actor="n1")
    draft.take_version("v2", new_task_rows(NEW, lambda task: f"for {task.name}"), NEW)
    draft.admit()
    draft.plan()
    change = draft.build_change()
    assert [row.task for row in change.removed] == ["a", "b", "c"]
    assert [(row.task, row.state, row.executor) for row in change.added] == [
        ("a", TaskState.SCHEDULED, "for a"),
        ("b", TaskState.NONE, "for b"),
    ]
    assert change.tasks == []
    assert change.updated_run is not None
    assert (change.updated_run.version, change.updated_run.state) == ("v2", RunState.RUNNING)


def test_the_note_names_the_commands() -> None:
    """Errors say what to do."""
    run = record(TaskState.SUCCESS).run
    waits = "run r1 waits for version v1 of 'flow', which no node has the code of: "
    assert missing_code_note(run, None) == f"{waits}load that version again, or `tidemill runs cancel r1` ends it"
    assert missing_code_note(run, "v2", ["a"]) == (
        f"{waits}`tidemill runs retry r1 --latest` continues it with version v2 without 'a', which that version does "
        "not have, `tidemill runs cancel r1` ends it"
    )
