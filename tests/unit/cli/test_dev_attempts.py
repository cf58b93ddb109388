"""Attempts that are repeated, as `tidemill dev` shows them: one line for each task and reason."""

import io
import logging
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import tidemill as tm
from tidemill.cli.dev_attempts import AttemptReports
from tidemill.cli.dev_view import DevView
from tidemill.kernel.clock import SystemClock
from tidemill.telemetry import events

FAILED: dict[str, Any] = {"reason": "ValueError: no", "place": f"{Path.cwd()}/flow.py:7", "delay": 10.0}


async def lines(*records: tuple[str, dict[str, Any]]) -> list[str]:
    """Return the lines that some events are shown as, without their times."""
    reports = AttemptReports(DevView(tm.Node(), Path.cwd(), SystemClock(), lambda: None), workflow_of)
    for event, fields in records:
        assert reports.handles(logging.makeLogRecord({"msg": event, **fields}))
    with redirect_stdout(io.StringIO()) as output:
        await reports.report()
        await reports.report()
    return [line[10:] for line in output.getvalue().splitlines()]


async def workflow_of(_: str) -> str:
    """Return the workflow of a run."""
    return "flow"


def failed(attempt: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    """Return a failed attempt that is retried."""
    return events.TASK_RETRY_SCHEDULED, {"attempt": attempt, **FAILED, **fields}


async def test_a_retry_is_shown_with_its_error_and_its_delay() -> None:
    assert await lines(failed("run1/read#1")) == [
        "flow  task read of run run1 failed: ValueError: no (flow.py:7); retry in 10.0s"
    ]


async def test_several_retries_of_one_task_are_one_line() -> None:
    assert await lines(failed("run1/read#1"), failed("run1/read#2", delay=0.02)) == [
        "flow  task read of run run1 failed 2 times: ValueError: no (flow.py:7); retry in 20ms"
    ]


async def test_elements_are_counted() -> None:
    assert await lines(failed("run1/read[1]#1"), failed("run1/read[2]#1")) == [
        "flow  2 elements of task read of run run1 failed: ValueError: no (flow.py:7); retry in 10.0s"
    ]


async def test_many_runs_are_counted() -> None:
    assert await lines(*(failed(f"run{number}/read#1") for number in range(4))) == [
        "flow  4 attempts of task read in 4 runs failed: ValueError: no (flow.py:7); retry in 10.0s"
    ]


async def test_other_errors_are_other_lines() -> None:
    assert len(await lines(failed("run1/read#1"), failed("run1/read#2", reason="KeyError: 1"))) == 2


async def test_lost_attempts_are_shown_with_the_reason() -> None:
    lost = (events.TASK_LOST, {"attempt": "run1/read#1", "reason": "its process ended"})
    assert await lines(lost) == ["flow  task read of run run1 was lost: its process ended"]
