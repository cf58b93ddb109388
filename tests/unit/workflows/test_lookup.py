"""Names of runs, tasks and elements."""

import pickle

import pytest

from tests.unit.workflows.lives import run_row
from tidemill.kernel.errors import RequestError
from tidemill.workflows.lookup import WorkflowPausedError, resolve_task, unknown_run, unknown_task
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import RunRecord, TaskKey, TaskRow
from tidemill.workflows.states import RunState

ROWS = [("load", UNMAPPED), ("clean", 1), ("clean", 0), ("publish", UNMAPPED)]
RECORD = RunRecord(run_row(RunState.RUNNING), [TaskRow(task=task, index=index) for task, index in ROWS])


def test_task_runs_are_found_by_their_task() -> None:
    """In the order in which the run has them, tasks and elements."""
    found = {name: [row.index for row in rows] for name, rows in RECORD.by_task().items()}
    assert list(found.items()) == [("load", [UNMAPPED]), ("clean", [1, 0]), ("publish", [UNMAPPED])]


@pytest.mark.parametrize(("task", "element"), ROWS)
def test_what_a_task_run_is_called_names_it(task: str, element: int) -> None:
    """W-17: what is shown can be asked about."""
    label = TaskKey("r1", task, element).label
    assert label == (task if element == UNMAPPED else f"{task}[{element}]")
    assert resolve_task(RECORD, label) == (task, None if element == UNMAPPED else element)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cleam", "workflow 'w' has no task 'cleam' (did you mean 'clean'?); it has 'load', 'clean', 'publish'"),
        ("clean[2]", "there is no 'clean[2]': task 'clean' has 2 elements, the first is clean[0]"),
        ("clean[x]", "there is no 'clean[x]': task 'clean' has 2 elements, the first is clean[0]"),
        ("load[0]", "there is no 'load[0]': task 'load' has no elements"),
    ],
)
def test_what_there_is_not_is_refused(text: str, said: str) -> None:
    """Errors of the caller: what is wrong, and what there is."""
    with pytest.raises(RequestError) as caught:
        resolve_task(RECORD, text)
    assert str(caught.value) == said
    assert (caught.value.code, caught.value.status) == ("task_not_found", 404)


def test_all_that_is_unknown_is_said_at_once() -> None:
    """Each with what may have been meant."""
    error = unknown_task("w", ["x", "lod"], ["load", "clean"])
    assert str(error) == "workflow 'w' has no task 'x', 'lod' (did you mean 'load'?); it has 'load', 'clean'"
    assert error.facts == {"tasks": ["x", "lod"], "suggestions": ["load"]}
    assert str(unknown_run("r9")) == "there is no run 'r9'"


def test_of_many_tasks_some_are_named() -> None:
    """A short list is complete, a long one is cut."""
    names = [f"t{number}" for number in range(40)]
    assert str(unknown_task("w", ["x"], names[:12])).endswith("it has " + ", ".join(f"'{one}'" for one in names[:12]))
    listed = ", ".join(f"'{one}'" for one in names[:10])
    assert str(unknown_task("w", ["x"], names[:13])).endswith(f"it has {listed} and 3 more")
    assert str(unknown_task("w", ["x"], names)).endswith(f"it has {listed} and 30 more")
    assert str(unknown_task("w", ["x"], [])).endswith("it has none")


@pytest.mark.parametrize(("id", "said"), [("a\0", r"'a\x00'"), ("\ud800", r"'\ud800'"), (5, "5"), (None, "None")])
def test_an_id_that_is_none_can_be_printed(id: object, said: str) -> None:
    """A caller may pass anything."""
    assert str(unknown_run(id)) == f"there is no run {said}"


def test_an_error_of_a_paused_workflow_goes_to_other_processes() -> None:
    """As every request error does."""
    error = pickle.loads(pickle.dumps(WorkflowPausedError("w")))
    assert (str(error), error.code, error.status) == (str(WorkflowPausedError("w")), "workflow_paused", 409)
