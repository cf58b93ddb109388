"""The bytes of log that a server takes from a remote attempt."""

import msgspec

from tidemill.engine.workflows.remote_reports import ATTEMPT_LIMIT, LOG_LIMIT, LogBudget
from tidemill.kernel.clock import VirtualClock
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.records import AttemptKey

KEY = AttemptKey("run", "task", -1, 1)


def test_a_log_without_end_is_cut_with_a_note() -> None:
    """One note says that the rest is missing; other attempts have a budget of their own."""
    budget, batch = LogBudget(VirtualClock()), b"x" * (LOG_LIMIT // 4)
    assert [budget.take(KEY, batch) for _ in range(4)] == [batch] * 4
    note = budget.take(KEY, batch)
    assert note is not None
    (record,) = msgspec.msgpack.decode(note, type=list[LogRecord])
    assert "the rest is left out" in record.message
    assert budget.take(KEY, b"x") is None
    assert budget.take(KEY._replace(attempt=2), batch) == batch


def test_attempts_that_end_or_fall_silent_are_forgotten() -> None:
    """A server counts for years, in bounded memory."""
    budget, all_of_it = LogBudget(VirtualClock()), b"x" * LOG_LIMIT
    for end in (lambda: budget.forget(KEY), lambda: fill(budget)):
        assert budget.take(KEY, all_of_it) == all_of_it
        end()
    assert budget.take(KEY, all_of_it) == all_of_it


def fill(budget: LogBudget) -> None:
    """Let many other attempts log."""
    for number in range(ATTEMPT_LIMIT):
        budget.take(AttemptKey("other", "task", number, 1), b"x")
