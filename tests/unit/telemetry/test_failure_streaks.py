"""Failure streaks: repeated failures are logged at intervals."""

from tidemill.telemetry.logs import FAILURES_PER_REMINDER, FailureStreaks


def test_a_streak_is_logged_at_its_start_at_intervals_and_when_its_kind_changes() -> None:
    """docs, Workflows, Triggers: a failure every second must not fill the logs."""
    streaks = FailureStreaks()
    logged = [
        number
        for number in range(1, 3 * FAILURES_PER_REMINDER)
        if streaks.record_failure("a", "ValueError") is not None
    ]
    assert logged == [1, FAILURES_PER_REMINDER, 2 * FAILURES_PER_REMINDER]
    assert streaks.record_failure("a", "KeyError") == streaks.record_failure("b", "KeyError") == 1
    assert (streaks.reset("a"), streaks.reset("a")) == (1, 0)
    assert streaks.record_failure("a", "KeyError") == 1
