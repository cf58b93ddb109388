"""The log of dead events, on virtual time."""

import logging

import pytest

from tidemill.engine.graphs.accumulators.dead_event_log import DeadEventLog
from tidemill.kernel.clock import VirtualClock


def test_a_series_has_a_line_for_each_power_of_ten_and_each_hour(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise a source that fails slowly would be silent for days."""
    clock = VirtualClock()
    log = DeadEventLog("ticks", clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(300):  # two and a half hours
            log.record(ValueError("bad"), "bad", None)
            clock.advance_to(clock.monotonic() + 30)
    counts = [(vars(one)["events"], vars(one)["new_events"]) for one in caplog.records]
    assert counts == [(1, 1), (10, 9), (100, 90), (220, 120)]
