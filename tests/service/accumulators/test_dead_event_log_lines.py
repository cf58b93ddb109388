"""The log of dead events: many of them take few lines."""

import pytest

import tidemill as tm
from tests.service.samples import single
from tidemill.telemetry import events

MANY = 2_345


async def test_a_series_of_dead_events_takes_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    async with tm.testing.node(load=single().load) as node:
        await node.push_many("a", ["not a number"] * MANY)
        counts = [one.events for one in caplog.records if one.msg == events.EVENT_DEAD_LETTERED]  # type: ignore[attr-defined]
        assert counts == [1, 10, 100, 1000]
        await node.advance("61s")
        await node.push("a", "not a number")
        counts = [one.events for one in caplog.records if one.msg == events.EVENT_DEAD_LETTERED]  # type: ignore[attr-defined]
        assert counts == [1, 10, 100, 1000, 1], "a minute without one ends the series"
