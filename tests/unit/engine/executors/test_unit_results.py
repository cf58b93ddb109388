"""The result of an attempt whose unit is over without a report."""

import pytest

from tidemill.engine.workflows.executors.remote.interface import UnitCause, UnitStatus
from tidemill.engine.workflows.executors.remote.unit_results import LEASE_LOST, NOT_WANTED, TERMINATED, judge_unit
from tidemill.workflows.attempt_results import Failed, Lost
from tidemill.workflows.states import TaskState


@pytest.mark.parametrize(
    ("cause", "outcome"), [("evicted", "evicted"), ("node_lost", "node_lost"), ("deleted", "lost")]
)
@pytest.mark.parametrize("state", [TaskState.QUEUED, TaskState.RUNNING])
def test_what_the_cluster_does_to_a_unit_costs_a_recovery(cause: UnitCause, outcome: str, state: TaskState) -> None:
    result = judge_unit(UnitStatus(state="ended", cause=cause, reason="the node is low on memory", exit=137), state)
    assert isinstance(result, Lost)
    assert (result.outcome, result.reason) == (outcome, "the node is low on memory")


@pytest.mark.parametrize(
    ("cause", "outcome"),
    [("oom", "oom"), ("image_pull", "not_started"), ("pending_timeout", "not_started"), ("refused", "not_started")],
)
def test_what_would_happen_again_is_a_failure(cause: UnitCause, outcome: str) -> None:
    result = judge_unit(UnitStatus(state="ended", cause=cause, reason="no such image", exit=1), TaskState.QUEUED)
    assert isinstance(result, Failed)
    assert (result.outcome, result.error.message, result.exit) == (outcome, "no such image", 1)


@pytest.mark.parametrize("cause", ["image_pull", "pending_timeout", "refused"])
def test_an_attempt_that_has_begun_was_started(cause: UnitCause) -> None:
    """W-11, do no harm: what the cluster says about its start is out of date."""
    status = UnitStatus(state="ended", cause=cause, reason="no such image")
    assert isinstance(judge_unit(status, TaskState.RUNNING), Lost)


def test_a_unit_that_crashes_before_it_begins_shows_the_end_of_its_output() -> None:
    """Such as an image without Tidemill."""
    status = UnitStatus(state="ended", cause="error", exit=127, log_tail="tidemill: not found")
    result = judge_unit(status, TaskState.QUEUED)
    assert isinstance(result, Failed)
    assert "with exit code 127" in result.error.message
    assert "tidemill: not found" in result.error.message


@pytest.mark.parametrize("code", [NOT_WANTED, LEASE_LOST, TERMINATED])
def test_an_attempt_that_gives_up_by_itself_is_started_again(code: int) -> None:
    status = UnitStatus(state="ended", cause="error", exit=code)
    assert isinstance(judge_unit(status, TaskState.QUEUED), Lost)


@pytest.mark.parametrize("status", [UnitStatus(state="missing"), UnitStatus(state="ended", cause="error", exit=137)])
def test_a_unit_that_vanishes_while_its_code_runs_is_lost(status: UnitStatus) -> None:
    result = judge_unit(status, TaskState.RUNNING)
    assert isinstance(result, Lost)
    assert result.outcome == "lost"
