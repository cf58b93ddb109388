"""Run admission: max_active_runs, pauses, and the limit of a backfill."""

from msgspec.structs import replace

from tests.unit.engine.workflows.builders import run_row
from tidemill.engine.workflows.leader.slots import RunAdmission
from tidemill.workflows.records import RunRow
from tidemill.workflows.states import RunState


def queued(id: str, max_active: int = 1, backfill: str | None = None) -> RunRow:
    """Return a queued run."""
    return run_row(id, RunState.QUEUED, max_active=max_active, backfill=backfill)


def begin(admission: RunAdmission, run: RunRow) -> RunRow:
    """Admit a queued run; return it as it runs."""
    assert admission.may_begin(run)
    running = replace(run, state=RunState.RUNNING)
    admission.update(run, running)
    return running


def test_no_more_runs_begin_than_the_workflow_allows() -> None:
    """max_active_runs: the next begins when one ends, in the order in which they were created."""
    admission = RunAdmission()
    runs = [queued(f"r{number}", max_active=2) for number in range(4)]
    for run in runs:
        admission.update(None, run)
    first, _ = [begin(admission, run) for run in runs[:2]]
    assert not admission.may_begin(runs[2])
    assert admission.running_count("public", "flow") == 2
    assert admission.next_runs("public", "flow") == []
    admission.update(first, None)
    assert admission.next_runs("public", "flow") == ["r2"]
    assert admission.may_begin(runs[2])


def test_a_paused_workflow_begins_nothing() -> None:
    """Also if there is room; runs of other workflows do."""
    admission = RunAdmission()
    admission.paused = {("public", "flow")}
    assert not admission.may_begin(queued("r1"))
    assert admission.is_paused(queued("r1"))
    assert admission.may_begin(replace(queued("r2"), workflow="other"))
    assert admission.may_begin(replace(queued("r3"), tenant="acme"))


def test_a_run_that_is_not_queued_does_not_begin() -> None:
    """It has begun, or has ended."""
    admission = RunAdmission()
    assert not admission.may_begin(run_row(state=RunState.RUNNING))
    assert not admission.may_begin(run_row(state=RunState.CANCELLED))


def test_a_backfill_keeps_to_its_own_limit() -> None:
    """Within the limit of the workflow; a backfill whose limit is unknown runs one at a time."""
    admission = RunAdmission()
    admission.backfill_limits["b"] = 2
    runs = [queued(f"b{number}", max_active=9, backfill="b") for number in range(3)]
    manual = queued("c", max_active=9)
    for run in [*runs, manual]:
        admission.update(None, run)
    assert admission.next_runs("public", "flow") == ["b0", "b1", "c"]
    begin(admission, runs[0])
    running = begin(admission, runs[1])
    assert not admission.may_begin(runs[2])
    assert admission.may_begin(manual)
    assert admission.next_runs("public", "flow") == ["c"]
    admission.update(running, None)
    assert admission.next_runs("public", "flow") == ["b2", "c"]
    unknown = [queued(f"u{number}", max_active=9, backfill="unknown") for number in range(2)]
    begin(admission, unknown[0])
    assert not admission.may_begin(unknown[1])


def test_a_begin_that_was_not_written_is_taken_back() -> None:
    """The change was refused: the run is queued again."""
    admission = RunAdmission()
    first, second = queued("r1", max_active=2), queued("r2", max_active=2)
    admission.update(None, first)
    admission.update(None, second)
    running = begin(admission, first)
    assert admission.next_runs("public", "flow") == ["r2"]
    admission.update(running, first)
    assert admission.running_count("public", "flow") == 0
    assert admission.next_runs("public", "flow") == ["r1", "r2"]


def test_a_queued_run_that_is_removed_does_not_wait() -> None:
    """It was cancelled before it began."""
    admission = RunAdmission()
    admission.update(None, queued("r1"))
    admission.update(queued("r1"), None)
    assert admission.next_runs("public", "flow") == []
