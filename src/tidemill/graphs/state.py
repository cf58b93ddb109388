"""What operators see of reactors and accumulators: plain values, JSON all the way down."""

from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from tidemill.graphs.health import AccumulatorHealth, ReactorHealth


class AccumulatorState(msgspec.Struct, frozen=True, kw_only=True):
    """One accumulator at one moment."""

    name: str
    kind: str
    health: AccumulatorHealth
    events: int
    emitted: int
    suppressed: int
    dead_letters: int
    restarts: int
    last_event_at: datetime | None
    stuck_since: datetime | None


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


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """One thing the supervisor did: a restart, or giving up."""

    at: datetime
    component: str
    name: str
    action: str
    reason: str
    failures: int


class Latency(NamedTuple):
    """How long the newest firings took, in seconds."""

    p50: float
    p99: float
