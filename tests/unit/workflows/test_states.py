"""The states of runs and task runs: transitions over the full product, and properties."""

from itertools import product

import pytest

from tidemill.kernel.errors import IllegalTransitionError, OperationError
from tidemill.kernel.transitions import TransitionTable
from tidemill.workflows.states import RUN_TRANSITIONS, TASK_TRANSITIONS, RunState, TaskState

TASK = {
    "none": "scheduled skipped upstream_failed success cancelled",
    "scheduled": "queued failed cancelled",
    "queued": "running scheduled up_for_retry failed cancelled",
    "running": "success failed skipped upstream_failed deferred up_for_retry cancelled",
    "up_for_retry": "scheduled cancelled",
    "deferred": "scheduled failed cancelled",
    "success": "none",
    "failed": "none",
    "skipped": "none",
    "upstream_failed": "none",
    "cancelled": "none",
}
RUN = {
    "queued": "running cancelled",
    "running": "success failed cancelled",
    "success": "queued",
    "failed": "queued",
    "cancelled": "queued",
}


@pytest.mark.parametrize(("before", "after"), list(product(TaskState, TaskState)))
def test_task_runs_move_only_as_the_table_says(before: TaskState, after: TaskState) -> None:
    """States, leoflow 1: the full product of task states, each pair written out."""
    allowed = before is after or after.value in TASK[before.value].split()
    assert TASK_TRANSITIONS.is_allowed(before, after) is allowed


@pytest.mark.parametrize(("before", "after"), list(product(RunState, RunState)))
def test_runs_move_only_as_the_table_says(before: RunState, after: RunState) -> None:
    """States, leoflow 2 and 17: the full product of run states; a cleared run is queued again."""
    allowed = before is after or after.value in RUN[before.value].split()
    assert RUN_TRANSITIONS.is_allowed(before, after) is allowed


def test_the_words_are_those_of_the_documentation() -> None:
    """Values that come back: Airflow's words, in this order."""
    words = "none scheduled queued running success failed skipped upstream_failed up_for_retry deferred cancelled"
    assert [one.value for one in TaskState] == words.split()
    assert [one.value for one in RunState] == ["queued", "running", "success", "failed", "cancelled"]


def test_queued_and_running_tasks_are_claimed() -> None:
    """W-1, W-2."""
    assert {one.value for one in TaskState if one.is_claimed} == {"queued", "running"}


def test_every_state_is_terminal_or_active_or_undecided() -> None:
    """W-10: scheduled, queued, running, deferred and waiting for retry are active; `none` is neither."""
    terminal = {one.value for one in TaskState if one.is_terminal}
    active = {one.value for one in TaskState if one.is_active}
    assert terminal == {"success", "failed", "skipped", "upstream_failed", "cancelled"}
    assert active == {"scheduled", "queued", "running", "up_for_retry", "deferred"}
    assert [one for one in TaskState if not one.is_terminal and not one.is_active] == [TaskState.NONE]


def test_a_retriable_failure_has_not_failed_yet() -> None:
    """leoflow 12, cloacina 110: only what ended without success has failed; cancelled counts, a retry does not."""
    assert {one for one in TaskState if one.has_failed} == {"failed", "upstream_failed", "cancelled"}


def test_a_run_has_ended_in_three_states() -> None:
    """States: success, failed and cancelled end a run."""
    assert {one for one in RunState if one.is_terminal} == {"success", "failed", "cancelled"}


@pytest.mark.parametrize("state", [one for one in TaskState if one.is_active])
def test_every_active_state_can_be_cancelled(state: TaskState) -> None:
    """States: any active -> cancelled."""
    assert TASK_TRANSITIONS.is_allowed(state, TaskState.CANCELLED)


@pytest.mark.parametrize("state", [one for one in TaskState if one.is_terminal])
def test_what_has_ended_changes_only_by_being_cleared(state: TaskState) -> None:
    """leoflow 5: terminal -> none by clear or retry, and nothing else."""
    assert TASK_TRANSITIONS.table[state] == {TaskState.NONE}


def test_nothing_runs_without_having_been_claimed() -> None:
    """W-1, W-2: the only way to `running` is through `queued`, and the only way there through `scheduled`."""
    assert [one for one, targets in TASK_TRANSITIONS.table.items() if TaskState.RUNNING in targets] == [
        TaskState.QUEUED
    ]
    assert [one for one, targets in TASK_TRANSITIONS.table.items() if TaskState.QUEUED in targets] == [
        TaskState.SCHEDULED
    ]


@pytest.mark.parametrize(("moves", "states"), [(TASK_TRANSITIONS, TaskState), (RUN_TRANSITIONS, RunState)])
def test_no_state_is_a_trap_and_every_state_can_be_reached(moves: TransitionTable, states: type) -> None:
    """States: every ended state can be cleared, so every state leads to every other one."""
    assert set(moves.table) == set(states)
    for start in states:  # type: ignore[attr-defined]
        seen, todo = {start}, [start]
        while todo:
            fresh = moves.table[todo.pop()] - seen
            seen |= fresh
            todo += fresh
        assert seen == set(states)


def test_an_illegal_move_says_who_from_where_and_to_where() -> None:
    """leoflow 1: a transition that no table allows is refused with an error."""
    with pytest.raises(IllegalTransitionError, match="extract cannot move from success to running") as caught:
        TASK_TRANSITIONS.check("extract", TaskState.SUCCESS, TaskState.RUNNING)
    assert isinstance(caught.value, OperationError)
