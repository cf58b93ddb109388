"""Where in the author's code a poll or an event went wrong: the log has the line (P-10)."""

import inspect
import json

import pytest

import tidemill as tm
from tidemill.engine.graphs.accumulators.dead_event_log import locate_error
from tidemill.graphs.definition import Accumulator
from tidemill.telemetry import events


@tm.polling(every="1s")
async def quote() -> float:
    """Fails inside a library."""
    return json.loads("nothing")


@tm.passthrough
def order(event: int) -> int:
    """Fails by itself."""
    return event // 0


async def test_a_poll_and_an_event_that_fail_have_a_place(caplog: pytest.LogCaptureFixture) -> None:
    """It is the author's last line, not that of the library that raised."""
    async with tm.testing.node(load=[tm.Reactor("desk", [quote, order])]) as node:
        await node.push("order", 1)
        await node.advance(1.5)
    places = {
        one.msg: one.place  # type: ignore[attr-defined]
        for one in caplog.records
        if one.msg in (events.POLL_FAILED, events.EVENT_DEAD_LETTERED)
    }
    assert places == {
        events.POLL_FAILED: f"{__file__}:{line_of(quote) + 3}",
        events.EVENT_DEAD_LETTERED: f"{__file__}:{line_of(order) + 3}",
    }


def line_of(accumulator: Accumulator) -> int:
    """Return the line of the decorator above a function."""
    assert accumulator.function is not None
    return inspect.getsourcelines(accumulator.function.call)[1]


async def test_what_never_came_to_the_author_has_none(caplog: pytest.LogCaptureFixture) -> None:
    """An event that does not fit its type is refused before the function is called."""
    async with tm.testing.node(load=[tm.Reactor("desk", [order])]) as node:
        await node.push("order", "one")
    (record,) = [one for one in caplog.records if one.msg == events.EVENT_DEAD_LETTERED]
    assert record.place == ""  # type: ignore[attr-defined]
    assert locate_error(ValueError(), None) == ""
