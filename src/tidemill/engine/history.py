"""The history of a node's figures: a day of counters and levels, sampled once a second by a timer.

What counts does not know of it: the event path pays nothing. A figure takes 20 kB, and a node keeps at most
`FIGURES_LIMIT` of them, so its memory has a bound however many reactors it runs.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from math import isnan, nan
from typing import NamedTuple

import msgspec

from tidemill.engine.tasks import TaskScope
from tidemill.kernel.clock import Clock

SECONDS_KEPT = 3600
MINUTES_KEPT = 24 * 60
FIGURES_LIMIT = 1000
MINUTE = 60
PUNCTUAL = 0.1
"""Seconds after a full one within which a sample is that of the full one."""

Subject = tuple[str, str] | tuple[str] | tuple[()]
"""What a figure is about: a reactor by tenant and name, a tenant, or the node."""


class Reading(NamedTuple):
    """A figure at one moment."""

    subject: Subject
    name: str
    value: float
    is_counter: bool = True
    """Whether its history shows by how much it grew; otherwise it shows the value."""


class Courses(msgspec.Struct, frozen=True, kw_only=True):
    """Figures over time: one value for each step, oldest first; None where a value is not known."""

    start: int
    """When the first step begins, in seconds since the epoch."""
    step: int
    """Seconds."""
    values: dict[str, list[float | None]]
    """By the name of the figure."""


class _Figure:
    """The values of one figure, in two rings: by second and by minute. A value that is not known is NaN."""

    __slots__ = ("_before", "_carried", "_sampled", "minutes", "seconds")

    def __init__(self) -> None:
        self.seconds = array("f", [nan]) * SECONDS_KEPT
        self.minutes = array("f", [nan]) * MINUTES_KEPT
        self._before: float | None = None
        self._carried = 0.0
        self._sampled = 0

    def sample(self, reading: Reading, second: int, passed: int, running: float) -> None:
        """Note a value at the end of a second, `passed` seconds after the sample before that of the node.

        `running` is the part of the growth since then that belongs to the second that runs now.
        """
        value = reading.value
        if reading.is_counter:
            before, self._before = self._before, value
            if before is not None and before <= value and self._sampled == second - passed:
                rest = (value - before) * running
                self._carried, value = rest, (value - before - rest + self._carried) / passed
            else:
                self._carried, value = 0.0, nan
        for one in range(second - passed + 1, second + 1):
            self.seconds[one % SECONDS_KEPT] = value
        self._sampled = second

    def end_minute(self, minute: int, *, is_counter: bool) -> None:
        """Note the values of a minute that has ended, unless most of it is not known."""
        first = minute * MINUTE
        known = [value for one in range(first, first + MINUTE) if not isnan(value := self.seconds[one % SECONDS_KEPT])]
        mean = sum(known) / len(known) if len(known) >= MINUTE / 2 else nan
        self.minutes[minute % MINUTES_KEPT] = mean * MINUTE if is_counter else mean

    def forget(self, seconds: Iterable[int], minutes: Iterable[int]) -> None:
        """Mark values as not known."""
        for second in seconds:
            self.seconds[second % SECONDS_KEPT] = nan
        for minute in minutes:
            self.minutes[minute % MINUTES_KEPT] = nan


class History:
    """Keeps the figures of a node: an hour by the second, and a day by the minute."""

    def __init__(self, read: Callable[[], Iterable[Reading]], clock: Clock, tasks: TaskScope) -> None:
        self._read = read
        self._clock = clock
        self._tasks = tasks
        self._figures: dict[tuple[Subject, str], _Figure] = {}
        self._counters: set[tuple[Subject, str]] = set()
        self._second = 0
        self._lateness = 0.0
        self._is_started = False

    def start(self) -> None:
        """Sample from now on; a second call does nothing."""
        if not self._is_started:
            self._is_started = True
            self._second = self._last_second() - 1
            self.sample()
            self._tasks.start("history: sample figures", self._run())

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(1.0 - self._clock.now().timestamp() % 1.0)
            self.sample()

    def _last_second(self) -> int:
        """Return the second that ended last."""
        return int(self._clock.now().timestamp()) - 1

    def sample(self) -> None:
        """Note all figures, for the seconds since the last sample."""
        second, lateness = self._last_second(), self._clock.now().timestamp() % 1.0
        passed = second - self._second
        if passed == 0:  # the timer was early, and comes again
            return
        if not 0 < passed < MINUTE:  # the clock was stepped, or the process was stopped
            self._skip_to(second)
            passed = 1
        before, self._lateness = self._lateness, lateness if lateness > PUNCTUAL else 0.0
        running = self._lateness / (passed + self._lateness - before)
        readings = {(one.subject, one.name): one for one in self._read()}
        self._make_room(readings)
        for key, reading in readings.items():
            if (figure := self._figures.get(key)) is not None:
                figure.sample(reading, second, passed, running)
        for key in self._figures.keys() - readings.keys():
            self._figures[key].forget(range(second - passed + 1, second + 1), ())
        if (second + 1) // MINUTE > (second - passed + 1) // MINUTE:
            self._end_minute((second + 1) // MINUTE - 1)
        self._second = second

    def _make_room(self, readings: dict[tuple[Subject, str], Reading]) -> None:
        """Add the figures that are new; those of what was unloaded make room for them."""
        new = [one for one in readings.values() if (one.subject, one.name) not in self._figures]
        gone = iter(list(self._figures.keys() - readings.keys()))
        for one in new:
            if len(self._figures) >= FIGURES_LIMIT:
                if (old := next(gone, None)) is None:
                    return
                del self._figures[old]
                self._counters.discard(old)
            key = one.subject, one.name
            self._figures[key] = _Figure()
            if one.is_counter:
                self._counters.add(key)

    def _end_minute(self, minute: int) -> None:
        for key, figure in self._figures.items():
            figure.end_minute(minute, is_counter=key in self._counters)

    def _skip_to(self, second: int) -> None:
        """Forget what the rings hold of the time up to a second: nothing was sampled in it."""
        first = max(self._second + 1, second - SECONDS_KEPT + 1) if second > self._second else 0
        seconds = range(first, second + 1) if first else range(SECONDS_KEPT)
        minutes = range(first // MINUTE, second // MINUTE + 1) if first else range(MINUTES_KEPT)
        for figure in self._figures.values():
            figure.forget(seconds, minutes)

    # -- reading

    def courses(self, subject: Subject, seconds: int) -> Courses:
        """Return the figures of a subject in the last `seconds`, by the second up to an hour, then by the minute."""
        self.start()
        return self._make_courses({name: one for (of, name), one in self._figures.items() if of == subject}, seconds)

    def _make_courses(self, figures: dict[str, _Figure], seconds: int) -> Courses:
        if seconds <= SECONDS_KEPT:
            numbers, step = range(self._second - seconds + 1, self._second + 1), 1
            values = {name: list(_known(one.seconds, numbers)) for name, one in figures.items()}
        else:
            ended = (self._second + 1) // MINUTE
            numbers, step = range(ended - min(seconds // MINUTE, MINUTES_KEPT), ended), MINUTE
            values = {name: list(_known(one.minutes, numbers)) for name, one in figures.items()}
        return Courses(start=numbers.start * step, step=step, values=values)


def _known(ring: "array[float]", numbers: range) -> Iterator[float | None]:
    size = len(ring)
    for number in numbers:
        value = ring[number % size]
        yield None if isnan(value) else round(value, 9)


LEVELS = frozenset(("p50", "p99"))
"""Figures of which several nodes have the largest value; of all others, they have the sum."""


def merge_courses(found: list[Courses]) -> Courses:
    """Return the figures of several nodes as those of one."""
    if not found:
        return Courses(start=0, step=1, values={})
    start, step = max(one.start for one in found), found[0].step
    length = max(len(values) for one in found for values in [*one.values.values(), ()])
    merged: dict[str, list[float | None]] = {}
    for name in {name: None for one in found for name in one.values}:
        columns = [_from(one, name, start, length) for one in found]
        combine = max if name in LEVELS else sum
        merged[name] = [
            combine(known) if (known := [value for value in row if value is not None]) else None
            for row in zip(*columns, strict=True)
        ]
    return Courses(start=start, step=step, values=merged)


def _from(courses: Courses, name: str, start: int, length: int) -> list[float | None]:
    """Return the values of a figure from a moment on."""
    values = courses.values.get(name, [])[(start - courses.start) // courses.step :]
    return [*values, *[None] * (length - len(values))]
