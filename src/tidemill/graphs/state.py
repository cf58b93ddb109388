"""The state of reactors and accumulators that operators see, as JSON-able values."""

from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from tidemill.graphs.health import AccumulatorHealth, ReactorHealth


class AccumulatorState(msgspec.Struct, frozen=True, kw_only=True):
    """One accumulator at one moment."""

    name: str
    kind: str
    health: AccumulatorHealth
    reason: str | None
    """Why it is not healthy: the last error of its source, its poll, or its crash."""
    events: int
    emitted: int
    suppressed: int
    dead_letters: int
    """Those that it has now, in the store as well."""
    restarts: int
    last_event_at: datetime | None
    stuck_since: datetime | None
    since: datetime
    """When it entered this health."""
    buffered: int
    """Events that it holds until it processes them together; 0 unless it is a batch."""
    pushes: int
    """Pushes that were awaited; those of handles and sources are not timed."""
    push_seconds: float
    """The time that they took, summed; of those that need not wait, a sample is timed."""
    upstream_lag: int | None
    """Events that its source has, and that it has not read yet, as the source last said; None if it cannot say."""
    counted_since: datetime | None = None
    """When its counters began: when its node loaded it, as after a move. Events before are not in them."""


class KeyCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a keyed reactor at one moment."""

    total: int
    active: int
    """Keys in memory."""
    stored: int
    """Keys with a row in the store, active or not."""


class PartitionState(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a keyed reactor at one moment."""

    number: int
    owner: str | None
    """The node that runs it; None while it moves."""
    health: ReactorHealth
    fires: int
    queued: int
    keys: KeyCounts | None = None


class ReactorState(msgspec.Struct, frozen=True, kw_only=True):
    """One reactor at one moment, with its accumulators."""

    name: str
    health: ReactorHealth
    waiting: list[str]
    disconnected: list[str]
    paused: bool
    cache: dict[str, Any]
    dirty: dict[str, bool]
    queued: int
    fires: int
    failures: int
    incomplete: int
    dropped: dict[str, int]
    subscribers: list[str]
    accumulators: dict[str, AccumulatorState]
    since: datetime
    """When it entered this health."""
    when: str
    """Its criteria, such as "any" or "all of orderbook, limits"."""
    strategy: str
    buffered: int
    """Boundaries that the next firings take: those in the queue, or, of strategy "latest", one for each dirty flag."""
    p50: float
    """The median duration of the newest firings, in seconds; 0 without any."""
    p99: float
    key: Any = None
    """The key that was asked for, as JSON: the cache, the flags and the queue are those of this key."""
    keys: KeyCounts | None = None
    """Of a keyed reactor; without a key that was asked for, its cache is empty, because each key has its own."""
    partitions: list[PartitionState] = []
    """Those of a keyed reactor, by number; with a key that was asked for, none."""
    dead_letters: int = 0
    """Those that it and its accumulators have now: events, firings and starts of runs."""
    counted_since: datetime | None = None
    """When its counters began: when its node loaded it, as after a move; of a keyed one, the last partition.

    Firings before are not in them.
    """
    starts: list[str] = []
    """The workflows that its decisions start. Without any, they start nothing."""
    omitted: dict[str, int] = {}
    """By path, the bytes of values that a list leaves out because they are large."""
    owner: str = ""
    """Whom to ask, as its author declares it."""
    description: str = ""
    """What it is for."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """One action of the supervisor: a restart, or its last failure."""

    at: datetime
    component: str
    name: str
    action: str
    reason: str
    failures: int


class Latency(NamedTuple):
    """Percentiles of the duration of recent firings, in seconds."""

    p50: float
    p99: float
