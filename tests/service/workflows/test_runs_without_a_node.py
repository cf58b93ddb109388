"""`daily.run(...)`: here and now, on a node of its own."""

from datetime import date

import pytest

import tidemill as tm
from tidemill.workflows.workflow import Workflow


class Some(tm.Params):
    day: date
    size: int = 3


def squares() -> tm.Workflow:
    """Return a workflow with a mapping, and a graph that is called."""
    flow = tm.Workflow("squares", params=Some)
    scoring = tm.Graph("scoring")

    @flow.task
    def numbers(params: Some) -> list[int]:
        if params.size < 0:
            raise ValueError("less than nothing")
        return list(range(params.size))

    @flow.task(each=numbers)
    def squared(numbers: int) -> int:
        return numbers * numbers

    @scoring.node
    def total(squared: list[int], factor: int = 2) -> int:
        return factor * sum(squared)

    flow.call(scoring, name="scored")
    return flow


def test_it_runs_without_a_loop() -> None:
    """api.md, `daily.run(day=...)`: for scripts."""
    result = squares().run(day="2026-01-01")
    assert result.ok
    assert result.outputs == {"numbers": [0, 1, 2], "squared": [0, 1, 4], "scored": {"total": 10}}
    assert [one.output for one in result.tasks["squared"].mapped] == [0, 1, 4]


async def test_it_runs_where_a_loop_runs_already() -> None:
    """api.md: for tests and notebooks; mapping over nothing is a success with []."""
    assert squares().run(day="2026-01-01", size=0).outputs == {"numbers": [], "squared": [], "scored": {"total": 0}}


def test_what_goes_wrong_is_said() -> None:
    """api.md: params at once, failures by the result."""
    with pytest.raises(tm.RequestError, match="'day' \\(date\\) is missing") as caught:
        squares().run()
    assert caught.value.code == "invalid_params"
    result = squares().run(day="2026-01-01", size=-1)
    with pytest.raises(tm.OperationError, match=r"failed: task 'numbers' failed: ValueError: less than nothing$"):
        result.raise_for_status()
    assert result.tasks["scored"].state is tm.TaskState.UPSTREAM_FAILED


def test_it_knows_where_it_was_declared() -> None:
    """Q-1: the author's own line, although the class has a base elsewhere."""
    flow = tm.Workflow("daily")
    assert isinstance(flow, Workflow)
    assert flow.location.file == __file__
