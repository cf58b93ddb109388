"""The log of a task, repeated in Python's logging."""

import logging

import pytest

from tidemill.engine.workflows.executors.attempt_output import echo_to_logging
from tidemill.kernel.clock import SystemClock
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.records import AttemptKey


def test_fields_named_like_those_of_a_record_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    """An author's `attempt`, and what logging itself calls so, get other names."""
    fields = {"rows": 3, "attempt": 1, "name": "x"}
    with caplog.at_level("INFO", "tidemill.task"):
        echo_to_logging(
            AttemptKey("run", "task", -1, 1),
            LogRecord(at=SystemClock().now(), message="m", level="info", fields=fields),
        )
    (record,) = caplog.records
    assert {"rows": 3, "attempt_": 1, "name_": "x"}.items() <= vars(record).items()
    assert isinstance(record, logging.LogRecord)
    assert record.name == "tidemill.task"
    assert vars(record)["attempt"] != 1
