"""The firing log: the newest firings, per-minute counts, and durations, at the price of one tuple per firing.

Fast firings are logged in bursts. A burst of one graph begins with a copy of the cache; each firing after that adds
only what changed: (source, boundary, started, ended, values). The snapshot that a firing saw is rebuilt when it is
read. So logging costs the same with one accumulator as with a hundred. On the broad path, and with keys, an entry holds
the snapshot itself. All other firings, those that were manual or failed, are logged whole.

Firings of graphs that are replaced become plain values: the log outlives versions, and must not keep their code.
"""

import asyncio
from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Protocol

import msgspec

from tidemill.engine.graphs.firing.firing_output import FiringOutput
from tidemill.engine.graphs.push_paths.one_graph import FastEntry
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.result import Firing, GraphResult, PlainValues
from tidemill.graphs.result_layout import ResultLayout
from tidemill.graphs.state import Latency
from tidemill.kernel.abstract import AbstractStructMeta
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import RequestError
from tidemill.kernel.ids import new_instance_id

LOGGED_FIRINGS_LIMIT = 200
TIMESERIES_MINUTES = 60
_MINUTES_LIMIT = 2 * TIMESERIES_MINUTES
_CLOCK_STEP_SECONDS = 0.05
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_firing_id(reactor: str, series: str, number: int) -> str:
    """Return the id of a firing: unique, and the same for its retries."""
    return f"{reactor}-{series}-{number}"


class FiringSeries:
    """Numbers firings. A number together with the name of its series is unique."""

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
    wall_offset: float = 0.0  # from monotonic seconds to wall-clock seconds at that time
    key: Any = None
    is_plain: bool = False  # whether it holds plain values, and nothing of the code that fired

    entry_count: ClassVar[int] = 1

    def records(self, start: int) -> Iterator["FiringRecord"]:  # noqa: ARG002 - a record is one firing
        """Yield the firing itself."""
        yield self

    def record_at(self, position: int) -> "FiringRecord":  # noqa: ARG002 - as above
        """Return the firing itself."""
        return self

    def durations(self, limit: int) -> list[float]:
        """Return how long the firing took, in a list of at most `limit`."""
        return [self.ended - self.started][:limit]

    def to_plain(self, values: PlainValues) -> "FiringRecord":
        """Return the firing with plain values."""
        if self.is_plain:
            return self
        snapshot = [values.convert(value) for value in self.snapshot]
        results = {name: values.convert_result(result) for name, result in self.results.items()}
        return msgspec.structs.replace(self, snapshot=snapshot, results=results, is_plain=True)


class Burst(msgspec.Struct, metaclass=AbstractStructMeta):
    """A run of fast firings, one entry each."""

    series: str
    first_number: int
    entries: list[FastEntry]
    degraded: bool
    wall_offset: float

    @property
    def entry_count(self) -> int:
        """How many firings it holds."""
        return len(self.entries)

    def durations(self, limit: int) -> list[float]:
        """Return how long the newest firings took, at most `limit` of them."""
        return [entry[3] - entry[2] for entry in self.entries[max(0, len(self.entries) - limit) :]]

    @abstractmethod
    def records(self, start: int) -> Iterator[FiringRecord]:
        """Rebuild the firings, oldest first, from the one at position `start` on."""

    def record_at(self, position: int) -> FiringRecord:
        """Rebuild one firing."""
        return next(self.records(position))

    def _record(
        self, position: int, snapshot: list[Any], results: dict[str, GraphResult], key: Any = None
    ) -> FiringRecord:
        _, _, started, ended, *_ = self.entries[position]
        facts = (False, self.degraded, 1, self.wall_offset, key)
        return FiringRecord(self.series, self.first_number + position, started, ended, snapshot, results, *facts)


class ChangeBurst(Burst):
    """A run of fast firings of one graph: the cache at its start, then one change per firing."""

    graph: CompiledGraph
    base_snapshot: list[Any]

    def latest_snapshot(self) -> list[Any]:
        """Return the snapshot after the newest firing."""
        snapshot = self.base_snapshot.copy()
        for index, boundary, *_ in self.entries:
            snapshot[index] = boundary
        return snapshot

    def records(self, start: int) -> Iterator[FiringRecord]:
        """Rebuild the firings, oldest first, from the one at position `start` on."""
        snapshot = self.base_snapshot.copy()
        for position, (index, boundary, _, _, *values) in enumerate(self.entries):
            snapshot[index] = boundary
            if position >= start:
                results = {self.graph.name: GraphResult(self.graph.layout, tuple(values))}
                yield self._record(position, snapshot.copy(), results)


class KeyedBurst(Burst):
    """A run of fast firings of a keyed reactor. An entry has the key and the snapshot instead of a change."""

    graph: CompiledGraph

    def records(self, start: int) -> Iterator[FiringRecord]:
        """Return the firings, oldest first, from the one at position `start` on."""
        for position, (key, snapshot, _, _, *values) in enumerate(self.entries[start:], start):
            results = {self.graph.name: GraphResult(self.graph.layout, tuple(values))}
            yield self._record(position, snapshot, results, key)


class BroadBurst(Burst):
    """A run of firings on the broad path. An entry has the snapshot, and the values of each graph."""

    graphs: tuple[CompiledGraph, ...]

    def records(self, start: int) -> Iterator[FiringRecord]:
        """Return the firings, oldest first, from the one at position `start` on."""
        for position, (_, snapshot, _, _, *values) in enumerate(self.entries[start:], start):
            pairs = zip(self.graphs, values, strict=True)
            results = {graph.name: GraphResult(graph.layout, one) for graph, one in pairs}
            yield self._record(position, snapshot, results)


def _is_of(item: FiringRecord | Burst, layouts: Mapping[str, ResultLayout]) -> bool:
    """Return whether firings are of graphs with these layouts only; those of one burst are of the same graphs."""
    newest = item.record_at(item.entry_count - 1)
    return all(layouts.get(name) is result.layout for name, result in newest.results.items())


class BurstMaker(Protocol):
    """Creates a burst from what all bursts have."""

    def __call__(
        self, series: str, first_number: int, entries: list[FastEntry], degraded: bool, wall_offset: float, /
    ) -> Burst:
        """Return the burst."""


class FiringLog:
    """The newest firings of one reactor, and counts of all of them."""

    def __init__(self, reactor: str, names: Sequence[str], clock: Clock, output: FiringOutput) -> None:
        self.output = output
        """What nodes have written, by firing."""
        self._reactor = reactor
        self.manual_series = self.series = FiringSeries(new_instance_id())
        self._names = tuple(names)
        self._clock = clock
        self._retained: deque[FiringRecord | Burst] = deque()
        self._burst: Burst | None = None
        self._wall_offset = clock.now().timestamp() - clock.monotonic()
        self._minutes: Counter[int] = Counter()
        self._closed_entries = self._retained_count = self._fires = 0
        self._read_count = 0
        self._waiters: list[asyncio.Future[None]] = []

    # -- writing

    def begin_burst(self, make: BurstMaker, entries: list[FastEntry], *, degraded: bool, number: int = 0) -> int:
        """Begin a run of fast firings that are recorded in `entries`; return how many it may hold.

        They are numbered from `number` on, or from the next one if that is higher.
        """
        self.close_burst()
        series = self.series
        series.number = max(series.number, number - 1)
        self._burst = make(series.name, series.number + 1, entries, degraded, self.wall_offset())
        return LOGGED_FIRINGS_LIMIT

    def close_burst(self) -> None:
        """End the run of fast firings, and count them."""
        burst, self._burst = self._burst, None
        if burst is None or not burst.entries:
            return
        recorded, burst.entries = burst.entries, burst.entries.copy()
        recorded.clear()
        self.series.number += len(burst.entries)
        self._fires += len(burst.entries)
        self._count_minutes(burst.entries[0][2], burst.entries)
        self._retain(burst, len(burst.entries))

    def latest_snapshot(self) -> list[Any]:
        """Return the cache after the newest fast firing."""
        if not isinstance(self._burst, ChangeBurst):
            raise LookupError("no burst of changes is running")
        return self._burst.latest_snapshot()

    def fast_firing_number(self) -> tuple[str, int]:
        """Return series and number of the fast firing that runs now."""
        burst = self._burst
        assert burst is not None, "fast firings run in a burst"
        return burst.series, burst.first_number + len(burst.entries)

    def newest_fast_record(self) -> FiringRecord:
        """Return the newest fast firing of the running burst."""
        assert self._burst is not None, "fast firings run in a burst"
        return self._burst.record_at(self._burst.entry_count - 1)

    def next_number(self, at_least: int = 0) -> int:
        """Return the series number for a firing that is about to be logged whole."""
        if self._burst is not None:
            self.close_burst()
        return self.series.next(at_least)

    def next_manual_number(self) -> int:
        """Return the number for a manual firing; its series is this process's own, because no journal repeats it."""
        self.close_burst()
        return self.manual_series.next()

    def new_series(self) -> None:
        """Number the firings from now on in a new series."""
        self.close_burst()
        self.series = FiringSeries(new_instance_id())

    def add(self, record: FiringRecord) -> None:
        """Log a firing whole."""
        if self._burst is not None:
            self.close_burst()
        if record.attempt == 1:
            self._fires += 1
            self._minutes[self._minute(record.started)] += 1
            if len(self._minutes) > _MINUTES_LIMIT:
                self._prune_minutes()
        self._retain(record, 1)
        if self._waiters:
            self._notify_waiters()

    def _retain(self, item: "FiringRecord | Burst", entries: int) -> None:
        self._retained.append(item)
        self._closed_entries += entries
        self._retained_count += entries
        while self._retained_count - self._retained[0].entry_count >= LOGGED_FIRINGS_LIMIT:
            self._retained_count -= self._retained.popleft().entry_count

    def detach(self, bound: Iterable[CompiledGraph], *, is_redefined: bool) -> None:
        """Turn the firings of other graphs than these into plain values; all firings, if the reactor is redefined."""
        self.close_burst()
        layouts = {graph.name: graph.layout for graph in bound}
        values, kept, wanted = PlainValues(), deque[FiringRecord | Burst](), LOGGED_FIRINGS_LIMIT
        while self._retained and wanted > 0:
            item = self._retained.pop()
            if is_redefined or not _is_of(item, layouts):
                records = [one.to_plain(values) for one in item.records(max(0, item.entry_count - wanted))]
                kept.extendleft(reversed(records))
            else:
                kept.appendleft(item)
            wanted -= item.entry_count
        self._retained = kept
        self._retained_count = sum(one.entry_count for one in kept)

    def _count_minutes(self, first: float, entries: list[FastEntry]) -> None:
        if self._minute(first) == self._minute(entries[-1][2]):
            self._minutes[self._minute(first)] += len(entries)
        else:
            self._minutes.update(self._minute(entry[2]) for entry in entries)
        if len(self._minutes) > _MINUTES_LIMIT:
            self._prune_minutes()

    def _prune_minutes(self) -> None:
        horizon = self._minute(self._clock.monotonic()) - TIMESERIES_MINUTES
        self._minutes = Counter({minute: n for minute, n in self._minutes.items() if minute > horizon})

    def wall_offset(self) -> float:
        """Return the offset from monotonic to wall-clock seconds: it follows clock steps, and is steady otherwise."""
        offset = self._clock.now().timestamp() - self._clock.monotonic()
        if abs(offset - self._wall_offset) > _CLOCK_STEP_SECONDS:
            self._wall_offset = offset
        return self._wall_offset

    def _minute(self, moment: float) -> int:
        return int((self._wall_offset + moment) // 60)

    # -- waiters

    @property
    def has_waiters(self) -> bool:
        """Whether a caller waits for the next firing."""
        return any(not waiter.done() for waiter in self._waiters)

    def add_waiter(self) -> "asyncio.Future[None]":
        """Return a future that is done after the next firing that is logged whole."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters = [one for one in self._waiters if not one.done()]
        self._waiters.append(waiter)
        return waiter

    def fail_waiters(self) -> None:
        """Fail all callers that wait for a firing: the reactor was unloaded."""
        message = f"reactor '{self._reactor}' was unloaded"
        self._notify_waiters(RequestError(message, code="reactor_not_found", status=404, reactor=self._reactor))

    def _notify_waiters(self, error: RequestError | None = None) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    # -- reading

    @property
    def fires(self) -> int:
        """How many firings there were, including those of the running burst."""
        return self._fires + (len(self._burst.entries) if self._burst else 0)

    @property
    def total(self) -> int:
        """How many entries were ever logged: firings, and their retries."""
        return self._closed_entries + (len(self._burst.entries) if self._burst else 0)

    def newest(self, limit: int, key: Any = None) -> list[Firing]:
        """Return the newest firings, newest first; those of one key, if one is given."""
        return [self.to_firing(record) for record in self.newest_records(limit, key)]

    def newest_records(self, limit: int, key: Any = None) -> list[FiringRecord]:
        """Return the newest firings as records, newest first; those of one key, if one is given."""
        if key is not None:
            return [one for one in self.newest_records(LOGGED_FIRINGS_LIMIT) if one.key == key][:limit]
        found: list[FiringRecord] = []
        for item in self._newest_first():
            wanted = min(limit, LOGGED_FIRINGS_LIMIT) - len(found)
            if wanted <= 0:
                break
            found.extend(reversed(list(item.records(max(0, item.entry_count - wanted)))))
        return found

    def peek_unread(self) -> FiringRecord | None:
        """Return the oldest firing not read before, or None; firings that the log has dropped are skipped."""
        running = self._burst if self._burst is not None and self._burst.entries else None
        total = self._closed_entries + (0 if running is None else len(running.entries))
        waiting = total - self._read_count
        if waiting <= 0:
            return None
        item = running or self._retained[-1]
        behind = item.entry_count
        if behind < waiting:
            item, behind = self._find_behind(waiting)
        waiting = min(waiting, behind)
        self._read_count = total - waiting
        return item.record_at(behind - waiting)

    def _find_behind(self, waiting: int) -> "tuple[FiringRecord | Burst, int]":
        """Return what holds the oldest of the newest `waiting` firings, and how many firings are not older than it."""
        behind = 0
        for item in self._newest_first():
            behind += item.entry_count
            if behind >= waiting:
                break
        return item, behind

    def next_unread(self) -> Firing | None:
        """Read the oldest firing not read before, or None."""
        if (record := self.peek_unread()) is None:
            return None
        self._read_count += 1
        return self.to_firing(record)

    def per_minute(self) -> list[int]:
        """Return the firing counts of the last 60 minutes, oldest first, the current minute last."""
        counts = self._minutes.copy()
        counts.update(self._minute(entry[2]) for entry in (self._burst.entries if self._burst else ()))
        now = self._minute(self._clock.monotonic())
        return [counts[minute] for minute in range(now - TIMESERIES_MINUTES + 1, now + 1)]

    def latency(self) -> Latency:
        """Return median and 99th percentile of the newest firings' durations, 0 without any."""
        durations: list[float] = []
        for item in self._newest_first():
            durations.extend(item.durations(LOGGED_FIRINGS_LIMIT - len(durations)))
        durations.sort()
        if not durations:
            return Latency(0.0, 0.0)
        last = len(durations) - 1
        return Latency(durations[last // 2], durations[min(last, int(len(durations) * 0.99))])

    def firing_id(self, series: str, number: int) -> str:
        """Return the id of a firing: unique, and the same for its retries."""
        return format_firing_id(self._reactor, series, number)

    def _newest_first(self) -> Iterator["FiringRecord | Burst"]:
        """Yield the logged records and bursts, without rebuilding any firing."""
        if self._burst is not None and self._burst.entries:
            yield self._burst
        yield from reversed(self._retained)

    def to_firing(self, record: FiringRecord) -> Firing:
        """Return a record as a Firing."""
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
            key=record.key,
            log=self.output.read(record.series, record.number, record.attempt),
        )
