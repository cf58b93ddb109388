"""The firing log: the newest firings, per-minute counts, and durations, at the price of one tuple per firing.

Fast firings are logged in bursts. A burst begins with a copy of the cache; each firing after that adds only what
changed: (source, boundary, started, ended, values). The snapshot that a firing saw is put together again when somebody
looks at it. So logging costs the same with one accumulator as with a hundred. All other firings, those that were
manual, failed, or took several boundaries at once, are logged whole.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from tidemill.engine.graphs.event_path.fast_path import FastEntry
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.result import Firing, GraphResult
from tidemill.graphs.state import Latency
from tidemill.kernel.clock import Clock
from tidemill.kernel.ids import new_instance_id

LOGGED_FIRINGS_LIMIT = 200
TIMESERIES_MINUTES = 60
_CLOCK_STEP_SECONDS = 0.05
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FiringSeries:
    """Numbers for firings. Together with the name of the series they are unique."""

    __slots__ = ("name", "number")

    def __init__(self, name: str, number: int = 0) -> None:
        self.name = name
        self.number = number

    def next(self, at_least: int = 0) -> int:
        """Return the next number."""
        self.number = max(self.number + 1, at_least)
        return self.number


class FiringRecord(msgspec.Struct, frozen=True):
    """One firing, logged whole."""

    series: str
    number: int
    started: float
    ended: float
    snapshot: list[Any]
    results: dict[str, GraphResult]
    manual: bool = False
    degraded: bool = False
    attempt: int = 1
    wall_offset: float = 0.0  # from the clock's seconds to those of the wall, as it was then


class Burst(msgspec.Struct):
    """A run of fast firings of one graph: the cache as it was, then what changed."""

    graph: CompiledGraph
    series: str
    first_number: int
    base_snapshot: list[Any]
    entries: list[FastEntry]
    degraded: bool
    wall_offset: float

    def latest_snapshot(self) -> list[Any]:
        """Return the snapshot after the newest firing."""
        snapshot = self.base_snapshot.copy()
        for index, boundary, *_ in self.entries:
            snapshot[index] = boundary
        return snapshot

    def records(self, start: int) -> Iterator[FiringRecord]:
        """Put the firings together again, oldest first, from the one at position `start` on."""
        snapshot = self.base_snapshot.copy()
        for position, (index, boundary, started, ended, *values) in enumerate(self.entries):
            snapshot[index] = boundary
            if position >= start:
                results = {self.graph.name: GraphResult(self.graph.layout, tuple(values))}
                seen, number = snapshot.copy(), self.first_number + position
                facts = (False, self.degraded, 1, self.wall_offset)
                yield FiringRecord(self.series, number, started, ended, seen, results, *facts)


class FiringLog:
    """The newest firings of one reactor and what is counted about all of them."""

    def __init__(self, reactor: str, names: Sequence[str], clock: Clock) -> None:
        self._reactor = reactor
        self.manual_series = self.series = FiringSeries(new_instance_id())
        self._names = tuple(names)
        self._clock = clock
        self._retained: deque[FiringRecord | Burst] = deque()
        self._burst: Burst | None = None
        self._wall_offset = self._measure_wall_offset()
        self._minutes: Counter[int] = Counter()
        self._closed_entries = self._retained_count = self._fires = 0
        self._read_count = 0

    # -- writing

    def begin_burst(
        self, graph: CompiledGraph, cache: list[Any], entries: list[FastEntry], *, degraded: bool, number: int = 0
    ) -> int:
        """Begin a run of fast firings that will be noted in `entries`; return how many it may hold.

        They are numbered from `number` on, or from the next one if that is higher.
        """
        self.close_burst()
        series = self.series
        series.number = max(series.number, number - 1)
        offset = self.wall_offset()
        self._burst = Burst(graph, series.name, series.number + 1, cache.copy(), entries, degraded, offset)
        return LOGGED_FIRINGS_LIMIT

    def continues_at(self, number: int) -> bool:
        """Return whether the next fast firing of the run would have this number."""
        burst = self._burst
        return burst is not None and burst.first_number + len(burst.entries) == number

    def close_burst(self) -> None:
        """End the run of fast firings, and count them."""
        burst, self._burst = self._burst, None
        if burst is None or not burst.entries:
            return
        noted, burst.entries = burst.entries, burst.entries.copy()
        noted.clear()
        self.series.number += len(burst.entries)
        self._fires += len(burst.entries)
        self._count_minutes(burst.entries[0][2], burst.entries)
        self._retain(burst, len(burst.entries))

    def latest_snapshot(self) -> list[Any]:
        """Return the cache as the newest fast firing left it."""
        if self._burst is None:
            raise LookupError("no burst is running")
        return self._burst.latest_snapshot()

    def next_number(self, at_least: int = 0) -> int:
        """Return the number in the series of a firing that is about to be logged whole."""
        self.close_burst()
        return self.series.next(at_least)

    def next_manual_number(self) -> int:
        """Return the number in this life of a firing by hand, which a journal does not repeat."""
        self.close_burst()
        return self.manual_series.next()

    def new_series(self) -> None:
        """Number the firings to come in a series of their own."""
        self.close_burst()
        self.series = FiringSeries(new_instance_id())

    def add(self, record: FiringRecord) -> None:
        """Log a firing whole."""
        self.close_burst()
        if record.attempt == 1:
            self._fires += 1
            self._minutes[self._minute(record.started)] += 1
            self._prune_minutes()
        self._retain(record, 1)

    def _retain(self, item: "FiringRecord | Burst", entries: int) -> None:
        self._retained.append(item)
        self._closed_entries += entries
        self._retained_count += entries
        while self._retained_count - _entry_count(self._retained[0]) >= LOGGED_FIRINGS_LIMIT:
            self._retained_count -= _entry_count(self._retained.popleft())

    def _count_minutes(self, first: float, entries: list[FastEntry]) -> None:
        if self._minute(first) == self._minute(entries[-1][2]):
            self._minutes[self._minute(first)] += len(entries)
        else:
            self._minutes.update(self._minute(entry[2]) for entry in entries)
        self._prune_minutes()

    def _prune_minutes(self) -> None:
        if len(self._minutes) > 2 * TIMESERIES_MINUTES:
            horizon = self._minute(self._clock.monotonic()) - TIMESERIES_MINUTES
            self._minutes = Counter({minute: n for minute, n in self._minutes.items() if minute > horizon})

    def wall_offset(self) -> float:
        """Return what turns the clock's seconds into the wall's: it follows steps, and is steady otherwise."""
        offset = self._measure_wall_offset()
        if abs(offset - self._wall_offset) > _CLOCK_STEP_SECONDS:
            self._wall_offset = offset
        return self._wall_offset

    def _measure_wall_offset(self) -> float:
        return self._clock.now().timestamp() - self._clock.monotonic()

    def _minute(self, moment: float) -> int:
        return int((self._wall_offset + moment) // 60)

    # -- reading

    @property
    def fires(self) -> int:
        """How many firings there were, the running burst included."""
        return self._fires + (len(self._burst.entries) if self._burst else 0)

    @property
    def total(self) -> int:
        """How many entries were ever logged: firings, and further attempts at them."""
        return self._closed_entries + (len(self._burst.entries) if self._burst else 0)

    def newest(self, limit: int) -> list[Firing]:
        """Return the newest firings, newest first."""
        firings: list[Firing] = []
        for item in self._newest_first():
            wanted = min(limit, LOGGED_FIRINGS_LIMIT) - len(firings)
            if wanted <= 0:
                break
            records = list(_iter_records(item, max(0, _entry_count(item) - wanted)))
            firings.extend(self.to_firing(record) for record in reversed(records))
        return firings

    def next_unread(self) -> Firing | None:
        """Return the oldest firing that was not handed out yet; what the log no longer holds is passed over."""
        waiting = self.total - self._read_count
        if waiting <= 0:
            return None
        item, behind = self._burst or self._retained[-1], 0
        for item in self._newest_first():
            behind += _entry_count(item)
            if behind >= waiting:
                break
        waiting = min(waiting, behind)
        self._read_count = self.total - waiting + 1
        return self.to_firing(next(_iter_records(item, behind - waiting)))

    def per_minute(self) -> list[int]:
        """Return the firings of each of the last 60 minutes, oldest first, the running minute last."""
        counts = self._minutes.copy()
        counts.update(self._minute(entry[2]) for entry in (self._burst.entries if self._burst else ()))
        now = self._minute(self._clock.monotonic())
        return [counts[minute] for minute in range(now - TIMESERIES_MINUTES + 1, now + 1)]

    def latency(self) -> Latency:
        """Return median and 99th percentile of the newest firings' durations, 0 without any."""
        spans: list[float] = []
        for item in self._newest_first():
            spans.extend(_durations(item, LOGGED_FIRINGS_LIMIT - len(spans)))
        spans.sort()
        if not spans:
            return Latency(0.0, 0.0)
        return Latency(spans[(len(spans) - 1) // 2], spans[min(len(spans) - 1, int(len(spans) * 0.99))])

    def firing_id(self, series: str, number: int) -> str:
        """Return the name of a firing: unique, and the same when it is tried again."""
        return f"{self._reactor}-{series}-{number}"

    def _newest_first(self) -> Iterator["FiringRecord | Burst"]:
        """Yield what is kept, without putting anything together."""
        if self._burst is not None and self._burst.entries:
            yield self._burst
        yield from reversed(self._retained)

    def to_firing(self, record: FiringRecord) -> Firing:
        """Show one record as a Firing."""
        inputs = zip(self._names, record.snapshot, strict=True)
        return Firing(
            id=self.firing_id(record.series, record.number),
            reactor=self._reactor,
            at=_EPOCH + timedelta(seconds=record.wall_offset + record.started),
            inputs={name: value for name, value in inputs if value is not None},
            results=record.results,
            duration=record.ended - record.started,
            manual=record.manual,
            degraded=record.degraded,
            attempt=record.attempt,
        )


def _entry_count(item: "FiringRecord | Burst") -> int:
    return len(item.entries) if isinstance(item, Burst) else 1


def _iter_records(item: "FiringRecord | Burst", start: int) -> Iterator[FiringRecord]:
    return item.records(start) if isinstance(item, Burst) else iter((item,))


def _durations(item: "FiringRecord | Burst", limit: int) -> list[float]:
    """Return how long the newest firings took, at most `limit` of them."""
    if isinstance(item, FiringRecord):
        return [item.ended - item.started][:limit]
    return [entry[3] - entry[2] for entry in item.entries[max(0, len(item.entries) - limit) :]]
