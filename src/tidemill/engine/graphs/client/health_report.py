"""Health reports: what is wrong with a reactor and its accumulators."""

from collections.abc import Iterator

from tidemill.engine.graphs.client.values import HealthReport
from tidemill.engine.graphs.reactors.reactor import PERSIST_MARKER, RunningReactor
from tidemill.graphs.health import ReactorHealth, UnhealthyPart

UNKNOWN_HEALTH = "unknown"
"""The health of a reactor whose node does not answer."""


def report_health(reactor: RunningReactor) -> HealthReport:
    """Return what is wrong with a reactor and its accumulators."""
    queues = {f"reactor {reactor.name}": reactor.firing_loop.results.dead_letters}
    queues |= {f"accumulator {one.name}": one.dead_letters for one in reactor.accumulators}
    counts = {name: len(queue.entries()) for name, queue in queues.items()}
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
