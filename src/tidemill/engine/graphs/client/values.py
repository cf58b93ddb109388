"""Values that pass between nodes, and between the graph client and the server."""

from collections.abc import Iterator

import msgspec

from tidemill.engine.graphs.reactors.reactor import PERSIST_MARKER, RunningReactor
from tidemill.graphs.health import ReactorHealth, UnhealthyPart
from tidemill.graphs.state import AccumulatorState, ReactorState
from tidemill.graphs.views import FiringView


class FiringPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the firings that a reactor keeps, newest first."""

    firings: list[FiringView]
    kept: int
    """The number of all firings that are kept."""
    has_more: bool
    """Whether older ones follow."""


class ReactorObservation(msgspec.Struct, frozen=True, kw_only=True):
    """A reactor at one moment, and its newest firing, which shows the route that events take."""

    state: ReactorState
    last_firing: FiringView | None
    """None if there is none, or if it is the known one."""
    is_known: bool
    """Whether the newest firing is still the one that the caller knows."""


class KnownFiring(msgspec.Struct, frozen=True):
    """A firing that a caller has: a retry has the same id."""

    id: str
    attempt: int


class HostStates(msgspec.Struct, frozen=True, kw_only=True):
    """What one host runs of a keyed reactor."""

    partitions: list[ReactorState]
    sources: list[AccumulatorState]
    """The sources that it reads for all partitions."""


class HealthReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a reactor and its accumulators, and how many dead letters they have."""

    unhealthy: list[UnhealthyPart]
    dead_letters: dict[str, int]
    """By kind and name, such as `accumulator orderbook`; those without any are left out."""


UNKNOWN_HEALTH = "unknown"
"""The health of a reactor whose node does not answer."""


def report_health(reactor: RunningReactor) -> HealthReport:
    """Return what is wrong with a reactor and its accumulators."""
    queues = {f"reactor {reactor.name}": reactor.firing_loop.results.dead_letters}
    queues |= {f"accumulator {one.name}": one.dead_letters for one in reactor.accumulators}
    counts = {name: len(queue) for name, queue in queues.items()}
    return HealthReport(
        unhealthy=list(_unhealthy_parts(reactor)),
        dead_letters={name: number for name, number in counts.items() if number},
    )


def report_silence(name: str, reason: str) -> HealthReport:
    """Return the report of a reactor whose node does not answer."""
    part = UnhealthyPart(kind="reactor", name=name, health=UNKNOWN_HEALTH, since=None, reason=reason)
    return HealthReport(unhealthy=[part], dead_letters={})


def _unhealthy_parts(reactor: RunningReactor) -> Iterator[UnhealthyPart]:
    if reactor.health is not ReactorHealth.LIVE:
        yield UnhealthyPart(
            kind="reactor",
            name=reactor.name,
            health=str(reactor.health),
            since=reactor.health_since,
            reason=_reactor_reason(reactor),
        )
    for one in reactor.accumulators:
        if not one.health.is_healthy:
            reason = one.unhealthy_reason or f"it is {one.health}"
            yield UnhealthyPart(
                kind="accumulator", name=one.name, health=str(one.health), since=one.health_since, reason=reason
            )


def _reactor_reason(reactor: RunningReactor) -> str:
    if reactor.is_fenced:
        return "another node owns it now"
    if reactor.health is ReactorHealth.FAILED:
        return "it has failed too often, and is not restarted: restart it"
    causes = [f"accumulator '{name}'" for name in reactor.disconnected if name != PERSIST_MARKER]
    if PERSIST_MARKER in reactor.disconnected:
        causes.append("the store, which does not take its state")
    return f"it waits for {', '.join(causes)}" if causes else f"it is {reactor.health}"
