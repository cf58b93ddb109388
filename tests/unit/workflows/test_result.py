"""The results of runs."""

import traceback
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tidemill as tm
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey, AttemptRow, RunRecord, RunRow, TaskError, TaskKey, TaskRow
from tidemill.workflows.result import build_run_result, last_errors
from tidemill.workflows.spec import TaskEdge, TaskSpec, WorkflowSpec

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NO_SPEC = WorkflowSpec(name="daily", tasks=())
MAPPED = WorkflowSpec(
    name="daily",
    tasks=(TaskSpec(name="clean", edges=(TaskEdge("extract", "one"),), each="extract"), TaskSpec(name="extract")),
)


def at(second: int) -> datetime:
    return NOW + timedelta(seconds=second)


def row(task: str, state: str, index: int = UNMAPPED, **more: Any) -> TaskRow:
    return TaskRow(task=task, index=index, state=tm.TaskState(state), **more)


def record(state: str, *rows: TaskRow, reason: str = "") -> RunRecord:
    run = RunRow(
        id="r1",
        tenant="public",
        workflow="daily",
        version="v",
        state=tm.RunState(state),
        params=b"",
        origin="manual",
        created_at=NOW,
        started_at=at(1),
        ended_at=at(9),
        reason=reason,
    )
    return RunRecord(run, list(rows))


def key(task: str, index: int = UNMAPPED) -> TaskKey:
    return TaskKey("r1", task, index)


def test_a_run_that_went_well() -> None:
    """api.md, "Values that come back"."""
    rows = [
        row("extract", "success", tries=2, started_at=at(1), ended_at=at(2)),
        row("large", "skipped", reason="because of 'choose'"),
    ]
    result = build_run_result(record("success", *rows), NO_SPEC, {}, {key("extract"): [1, 2], key("large"): "stale"})
    assert (result.id, result.workflow, result.state, result.ok) == ("r1", "daily", tm.RunState.SUCCESS, True)
    assert (result.created_at, result.started_at, result.ended_at) == (NOW, at(1), at(9))
    assert result.outputs == {"extract": [1, 2]}
    assert result.tasks["extract"] == tm.TaskResult(
        state=tm.TaskState.SUCCESS, attempts=2, started_at=at(1), ended_at=at(2), output=[1, 2]
    )
    assert result.tasks["large"].output is None
    assert result.tasks["large"].reason == "because of 'choose'"
    assert result.raise_for_status() is result


def test_a_mapped_task_is_its_elements_taken_together() -> None:
    """api.md: state, times and tries of all; output and `mapped` by index, however the rows come."""
    rows = [
        row("clean", "success", 2, tries=1, started_at=at(1), ended_at=at(2)),
        row("clean", "success", 0, tries=3, started_at=at(2), ended_at=at(7)),
        row("clean", "skipped", 1, tries=1, started_at=at(3), ended_at=at(4)),
    ]
    outputs = {key("clean", 0): "a", key("clean", 2): "c"}
    clean = build_run_result(record("success", *rows), MAPPED, {}, outputs).tasks["clean"]
    assert (clean.state, clean.attempts, clean.started_at, clean.ended_at) == (tm.TaskState.SUCCESS, 3, at(1), at(7))
    assert clean.output == ["a", "c"]
    assert [one.output for one in clean.mapped] == ["a", None, "c"]
    assert [one.state for one in clean.mapped] == ["success", "skipped", "success"]
    going = build_run_result(record("running", rows[0], row("clean", "running", 0)), NO_SPEC, {}, {}).tasks["clean"]
    assert (going.state, going.ended_at) == (tm.TaskState.RUNNING, None)


def test_tasks_are_in_the_order_in_which_they_run() -> None:
    """A task that the spec does not have, as after a change of version, comes last."""
    rows = [row("removed", "success"), *(row("clean", "success", index) for index in (1, 0)), row("extract", "success")]
    result = build_run_result(record("success", *rows), MAPPED, {}, {key("clean", 0): "a", key("clean", 1): "b"})
    assert list(result.tasks) == ["extract", "clean", "removed"]
    assert result.tasks["clean"].output == ["a", "b"]


def test_a_mapping_over_nothing_gives_an_empty_list() -> None:
    """api.md: "Mapping over an empty list is a success with []"."""
    rows = [row("clean", "success")]
    assert build_run_result(record("success", *rows), MAPPED, {}, {}).outputs == {"clean": []}


def test_a_failed_run_says_which_task_failed_and_why() -> None:
    """api.md, `.raise_for_status()`: those behind it are not named."""
    rows = [
        row("extract", "failed", tries=1),
        row("clean", "success", 0),
        row("clean", "failed", 1),
        row("lost", "failed", reason="lost 4 times: no beat"),
        row("publish", "upstream_failed", reason="because of 'extract'"),
    ]
    errors = {
        key("extract"): TaskError("ValueError", "no rows", "Traceback ..."),
        key("clean", 1): TaskError("KeyError", "'x'"),
        key("publish"): TaskError("Stale", "of an earlier life"),
    }
    result = build_run_result(record("failed", *rows), NO_SPEC, errors, {})
    assert not result.ok
    assert result.tasks["extract"].error == errors[key("extract")]
    assert result.tasks["publish"].error is None
    with pytest.raises(tm.OperationError) as caught:
        result.raise_for_status()
    assert str(caught.value) == (
        "run r1 of workflow 'daily' failed: task 'extract' failed: ValueError: no rows; "
        "task 'clean' failed (element 1): KeyError: 'x'; "
        "task 'lost' failed: OperationError: lost 4 times: no beat"
    )


@pytest.mark.parametrize(
    ("state", "reason", "said"),
    [
        ("cancelled", "by hand", "was cancelled: by hand"),
        ("cancelled", "", "was cancelled"),
        ("cancelled", "cancelled", "was cancelled"),
        ("failed", "orphaned", "failed: orphaned"),
        ("running", "", "has not ended: it is running"),
    ],
)
def test_only_success_raises_nothing(state: str, reason: str, said: str) -> None:
    """api.md."""
    with pytest.raises(tm.OperationError, match=f"^run r1 of workflow 'daily' {said}$"):
        build_run_result(record(state, row("a", "none"), reason=reason), NO_SPEC, {}, {}).raise_for_status()


def test_the_error_of_a_task_is_that_of_its_newest_try_that_ended() -> None:
    """W-16."""

    def attempt(number: int, outcome: str, error: TaskError | None = None) -> AttemptRow:
        return AttemptRow(
            key=AttemptKey("r1", "a", UNMAPPED, number),
            number=number,
            executor="in_process",
            worker="w",
            claimed_at=NOW,
            outcome=outcome,
            error=error,
        )

    first, second = TaskError("A", "1"), TaskError("B", "2")
    failed = [attempt(2, "failed", second), attempt(1, "failed", first)]
    assert last_errors(failed) == {key("a"): second}
    assert last_errors([*failed, attempt(3, "")]) == {key("a"): second}
    assert last_errors([*failed, attempt(3, "success")]) == {}


def test_an_error_knows_its_place() -> None:
    """The last line of the author's, of what was raised last; nowhere if nothing was."""

    def inner() -> None:
        raise KeyError('a File "x.py", line 7, in a message')

    try:
        try:
            inner()
        except KeyError as error:
            raise ValueError("outer") from error
    except ValueError as error:
        line = error.__traceback__.tb_lineno if error.__traceback__ is not None else 0
        found = TaskError("ValueError", "outer", "".join(traceback.format_exception(error)))
    assert found.place == f"{__file__}:{line}"
    assert TaskError("TaskTimeout", "it took too long").place == ""
