"""Drafts: the change that records the end of an attempt, from any state of its task run."""

from itertools import pairwise, product
from typing import get_args

import pytest

from tests.unit.workflows.lives import LATER, run_row
from tests.unit.workflows.test_plan_against_an_oracle import NOW
from tidemill.workflows.attempt_results import (
    AttemptResult,
    Cancelled,
    Deferred,
    Failed,
    HandedBack,
    Lost,
    RetryBudgets,
    Skipped,
    Succeeded,
)
from tidemill.workflows.records import AttemptKey, TaskError, TaskRow
from tidemill.workflows.run_draft import RunDraft
from tidemill.workflows.spec import TaskSpec, WorkflowSpec
from tidemill.workflows.states import TASK_TRANSITIONS, RunState, TaskState

KEY = AttemptKey("r1", "a", -1, 1)
ENDINGS = {
    Succeeded(b"\xc0"): ("success", "success"),
    Skipped("not needed"): ("skipped", "skipped"),
    Failed(error=TaskError("E", "no")): ("failed", "failed"),
    Deferred(wake_at=LATER): ("deferred", "deferred"),
    Lost("its process ended"): ("up_for_retry", "up_for_retry"),
    Cancelled(): ("cancelled", "cancelled"),
    HandedBack("its node was closed"): ("scheduled", "up_for_retry"),
}
"""Every way to end, with what becomes of a task run that was queued, and of one that was running."""


@pytest.mark.parametrize(("ending", "state"), list(product(ENDINGS, [TaskState.QUEUED, TaskState.RUNNING])))
def test_every_result_can_be_recorded(ending: AttemptResult, state: TaskState) -> None:
    """W-2: the start may not have been recorded; the end is, by legal transitions."""
    row = TaskRow(task="a", index=-1, state=state, attempt=1, tries=1, claimed_by="me", claimed_at=NOW)
    spec = WorkflowSpec(name="w", tasks=(TaskSpec(name="a"),))
    draft = RunDraft(run_row(RunState.RUNNING), {("a", -1): row}, spec, now=NOW, actor="me")

    assert draft.apply_result(KEY, ending, RetryBudgets())

    change = draft.build_change()
    assert change.tasks[0].updated.state == ENDINGS[ending][state is TaskState.RUNNING]
    assert change.history is not None
    states = [state, *(TaskState(one.after) for one in change.history.events)]
    assert all(TASK_TRANSITIONS.is_allowed(before, after) for before, after in pairwise(states))
    assert states[-1] is change.tasks[0].updated.state


def test_no_ending_is_left_out() -> None:
    """W-2: the table above has them all."""
    assert [type(one) for one in ENDINGS] == list(get_args(AttemptResult))


def test_a_failed_run_says_which_task_failed_first_and_why() -> None:
    """UD-7: in the row of the run and in its event, in a line."""
    early = TaskRow(task="b", index=3, state=TaskState.FAILED, ended_at=NOW, reason="ValueError: no\nmore")
    late = TaskRow(task="a", index=-1, state=TaskState.FAILED, ended_at=LATER, reason="KeyError: 'x'")
    spec = WorkflowSpec(name="w", tasks=(TaskSpec(name="a"), TaskSpec(name="b", each="a")))
    rows = {("a", -1): late, ("b", 3): early}
    draft = RunDraft(run_row(RunState.RUNNING), rows, spec, now=LATER, actor="me")

    draft.plan()

    change = draft.build_change()
    reason = "task 'b' failed (element 3): ValueError: no"
    assert (draft.run.state, draft.run.reason) == (RunState.FAILED, reason)
    assert change.history is not None
    assert change.history.events[-1].reason == reason
