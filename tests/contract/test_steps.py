"""The table of steps: fenced by the attempt, first value wins, deleted with what it belongs to."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.contract.run_samples import creation, make, move, queued, run_row, running, succeeded, task_row
from tests.contract.samples import NOON
from tidemill.storage.store import Store
from tidemill.storage.tables.steps import StepRow
from tidemill.workflows.change import Change
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey, TaskError, TaskKey
from tidemill.workflows.states import RunState
from tidemill.workflows.step_records import KEPT_VALUE_LIMIT, StepFailure, StepName, StepRecord

CLAIMED = running(queued(task_row()))
NAME = StepName("step", "fetch", '"a"', 0)
FAILURE = StepFailure(TaskError("ValueError", "bad", "Traceback ..."), may_retry=False)


def step(name: StepName = NAME, attempt: int = 1, task: str = "a", **values: Any) -> StepRow:
    """Return the row of a step with a value."""
    record = StepRecord(name, **({"try_number": attempt, "position": 0, "value": b"value"} | values))
    return StepRow.of_record("public", AttemptKey("r1", task, UNMAPPED, attempt), record, (NOON, NOON))


@pytest.fixture
async def claimed(store: Store) -> Store:
    """A store with a run whose task is running, in its first attempt."""
    await make(store, creation(run_row(), task_row(), task_row("b")), move("r1", task_row(), CLAIMED))
    return store


async def listed(store: Store, task: str = "a") -> list[StepRow]:
    """Return the steps of a task."""
    return list(await store.steps.list_of("r1", task, UNMAPPED))


async def test_a_step_is_read_as_it_was_written(claimed: Store) -> None:
    """L-1: all of its fields; large values only one by one."""
    large = step(StepName("step", "fetch", "", 1), position=1, value=b"x" * (KEPT_VALUE_LIMIT + 1))
    failed = step(StepName("step", "fetch", "", 2), position=2, value=None, failure=FAILURE)
    for one in (step(), large, failed):
        assert await claimed.steps.add(one)
        assert await claimed.steps.get(TaskKey("r1", "a"), one.to_record().name) == one
    assert await listed(claimed) == [step(), replace(large, value=None), failed]
    assert list(await claimed.steps.list_of("r1", "a", None)) == await listed(claimed)
    assert await claimed.steps.get(TaskKey("r1", "b"), NAME) is None


async def test_a_value_stays_and_a_failure_gives_way(claimed: Store) -> None:
    """L-3, L-4: a later try replaces a failure, nothing replaces a value."""
    assert await claimed.steps.add(step(value=None, failure=FAILURE))
    assert await claimed.steps.add(step(value=b"first"))
    assert not await claimed.steps.add(step(value=b"second"))
    assert not await claimed.steps.add(step(value=None, failure=FAILURE))
    assert [one.value for one in await listed(claimed)] == [b"first"]


@pytest.mark.parametrize("row", [step(attempt=2), step(task="b"), msgspec.structs.replace(step(), run="r2")])
async def test_only_the_current_attempt_records(claimed: Store, row: StepRow) -> None:
    """L-2: one that is not claimed, another attempt, and a run that is gone record nothing."""
    assert not await claimed.steps.add(row)
    assert await listed(claimed) == []


async def test_an_attempt_that_has_ended_records_nothing(claimed: Store) -> None:
    """L-2."""
    await make(claimed, move("r1", CLAIMED, succeeded(CLAIMED)))
    assert not await claimed.steps.add(step())


async def test_a_change_forgets_the_steps_of_its_tasks(claimed: Store) -> None:
    """L-4: of all elements; those of other tasks stay."""
    other = running(queued(task_row("b")))
    await make(claimed, move("r1", task_row("b"), other))
    assert await claimed.steps.add(step())
    assert await claimed.steps.add(step(task="b"))
    await make(claimed, Change(run="r1", forgotten_steps=["a"], is_operator_action=True))
    assert await listed(claimed) == []
    assert len(await listed(claimed, "b")) == 1


async def test_steps_are_deleted_with_their_run(claimed: Store) -> None:
    """Retention."""
    assert await claimed.steps.add(step())
    ended = run_row(state=RunState.SUCCESS, ended_at=NOON)
    await make(claimed, move("r1", CLAIMED, succeeded(CLAIMED)), Change(run="r1", updated_run=ended))
    assert await claimed.runs.prune("public", NOON.replace(year=2100), 10) == 1
    assert await listed(claimed) == []
