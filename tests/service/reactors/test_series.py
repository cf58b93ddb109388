"""The series of a node: rates and durations of the last day, sampled by a timer (UD-5)."""

from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

import tidemill as tm
from tests.service.samples import single
from tidemill.access.principal import Caller
from tidemill.engine import history
from tidemill.engine.history import Courses, History, Reading, merge_courses
from tidemill.engine.tasks import TaskScope
from tidemill.kernel.clock import VirtualClock

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


async def series_of(node: Any, seconds: int) -> Courses:
    """Return the series of the reactor `r`."""
    found: Courses = await node.graph_client.courses(Caller("public", "test"), "r", seconds)
    return found


async def test_a_reactor_has_its_firings_by_the_second_and_by_the_minute() -> None:
    """UD-5: counts, durations and boundaries; the running second and minute are left out."""
    async with tm.testing.node(load=single().load, start=START) as node:
        node.history.start()
        push = node.handle("a")
        for value in range(180):
            push(value)
            await node.advance("1s")
        minute = await series_of(node, 60)
        day = await series_of(node, 86_400)
    assert (minute.step, minute.start) == (1, int(START.timestamp()) + 120)
    assert minute.values["firings"] == [1.0] * 60
    assert minute.values["emitted/a"] == [1.0] * 60
    assert None not in minute.values["p99"]
    assert (day.step, len(day.values["firings"])) == (60, 1440)
    assert day.values["firings"][-3:] == [pytest.approx(60), 60.0, 60.0]
    assert day.values["firings"][-4] is None


async def test_a_second_without_a_firing_has_no_duration() -> None:
    """UD-5: what is not known is not drawn as zero, and a count of zero is known."""
    async with tm.testing.node(load=single().load, start=START) as node:
        node.history.start()
        await node.push("a", 1)
        await node.advance("3s")
        found = await series_of(node, 4)
    assert found.values["firings"] == [None, 1.0, 0.0, 0.0]
    assert [value is None for value in found.values["p50"]] == [True, False, True, True]


async def test_reading_is_enough_to_begin() -> None:
    """UD-5: an embedded node samples once another node has asked it."""
    async with tm.testing.node(load=single().load, start=START) as node:
        before = await series_of(node, 2)
        await node.push("a", 1)
        await node.advance("2s")
        after = await series_of(node, 2)
    assert (before.values["firings"], after.values["firings"]) == ([None, None], [1.0, 0.0])


class Figures:
    """A history of counters that a test sets."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self.clock = VirtualClock(START)
        self.tasks = TaskScope()
        self.history = History(self.read, self.clock, self.tasks)

    def read(self) -> list[Reading]:
        """Return the counters as they are."""
        return [Reading((), name, value) for name, value in self.values.items()]

    def last(self, name: str, seconds: int) -> list[float | None]:
        """Return the newest values of a counter."""
        return self.history.courses((), seconds).values[name]


@pytest.fixture
async def figures() -> Any:
    """Return a history that is closed in the end."""
    figures = Figures()
    await figures.tasks.open()
    yield figures
    await figures.tasks.close()


async def test_a_late_sample_spreads_what_it_missed(figures: Figures) -> None:
    """UD-5: a blocked loop leaves no hole and no peak."""
    figures.values["a"] = 0
    figures.history.start()
    figures.clock.step("4s")  # the wall clock goes on, and no sampler wakes
    figures.values["a"] = 8
    figures.history.sample()
    assert figures.last("a", 4) == [2.0, 2.0, 2.0, 2.0]


async def test_a_sample_in_the_middle_of_a_second_makes_no_peak(figures: Figures) -> None:
    """UD-5: what happened since the last full second belongs to the next one."""
    figures.values["a"] = 0
    figures.history.start()
    for value, step in ((70, "1s"), (175, "1.5s"), (210, "0.5s"), (280, "1s")):
        figures.values["a"] = value
        figures.clock.step(step)
        figures.history.sample()
    assert figures.last("a", 4) == [70.0, 70.0, 70.0, 70.0]


async def test_an_early_timer_changes_nothing(figures: Figures) -> None:
    """UD-5: two samples within one second are one."""
    figures.values["a"] = 0
    figures.history.start()
    for value in (5, 10):
        figures.values["a"] = value
        figures.clock.step("1s")
        figures.history.sample()
        figures.history.sample()
    assert figures.last("a", 2) == [5.0, 5.0]


async def test_a_counter_that_falls_belongs_to_something_new(figures: Figures) -> None:
    """UD-5: a reactor that was loaded again has no negative rate."""
    figures.values["a"] = 100
    figures.history.start()
    for value in (110, 3, 5):
        figures.values["a"] = value
        figures.clock.step("1s")
        figures.history.sample()
    assert figures.last("a", 3) == [10.0, None, 2.0]


async def test_memory_has_a_bound(figures: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
    """UD-5: the first figures are kept; those of what was unloaded make room."""
    monkeypatch.setattr(history, "FIGURES_LIMIT", 2)
    numbers = count()

    def tick(*names: str) -> None:
        figures.values = {name: float(next(numbers)) for name in names}
        figures.clock.step("1s")
        figures.history.sample()

    figures.values = {"a": 0, "b": 0, "c": 0}
    figures.history.start()
    tick("a", "b", "c")
    assert set(figures.history.courses((), 1).values) == {"a", "b"}
    tick("b", "c")
    tick("b", "c")
    assert set(figures.history.courses((), 1).values) == {"b", "c"}


async def test_a_pause_of_the_process_is_not_known(figures: Figures) -> None:
    """UD-5: old values of the ring do not show up as new ones."""
    figures.values["a"] = 0
    figures.history.start()
    for value in (5, 10):
        figures.values["a"] = value
        figures.clock.step("1s")
        figures.history.sample()
    figures.clock.step("2h")
    figures.history.sample()
    assert set(figures.last("a", 3600)) == {None}


def test_the_hosts_of_a_keyed_reactor_are_one() -> None:
    """UD-5: counts are added, of durations the longest is shown; hosts may answer a second apart."""
    one = Courses(start=10, step=1, values={"firings": [1, 2, None], "p99": [0.5, None, 0.1]})
    other = Courses(start=11, step=1, values={"firings": [4, 8, 16], "p99": [0.2, 0.3, 0.4]})
    merged = merge_courses([one, other])
    assert merged.start == 11
    assert merged.values["firings"] == [6, 8, 16]
    assert merged.values["p99"] == [0.2, 0.3, 0.4]
