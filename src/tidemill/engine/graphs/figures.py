"""What reactors and accumulators report as metrics, read from their own counters when somebody looks."""

from collections.abc import Iterable

from tidemill.engine.graphs.accumulator import RunningAccumulator
from tidemill.engine.graphs.reactor import RunningReactor
from tidemill.graphs.health import ReactorHealth
from tidemill.telemetry.metrics import Collector, Sample


def reactor_figures(reactor: RunningReactor) -> Collector:
    """Return the collector of a reactor's figures."""
    return Collector(reactor, _read_reactor)


def accumulator_figures(accumulator: RunningAccumulator) -> Collector:
    """Return the collector of an accumulator's figures."""
    return Collector(accumulator, _read_accumulator)


def _read_reactor(reactor: RunningReactor) -> Iterable[Sample]:
    labels = (("reactor", reactor.name), ("tenant", reactor.tenant))
    latency = reactor.wheel.log.latency()
    yield Sample("reactor_fires_total", reactor.wheel.log.fires, labels)
    yield Sample("reactor_fire_failures_total", reactor.wheel.outcomes.failures, labels)
    yield Sample("reactor_incomplete_total", reactor.wheel.incomplete, labels)
    yield Sample("reactor_restarts_total", reactor.supervision.restarts, labels)
    yield Sample("checkpoint_failures_total", reactor.checkpoint_failures, labels)
    yield Sample("reactor_health", float(reactor.health is ReactorHealth.LIVE), labels)
    yield Sample("reactor_firing_seconds_p50", latency.p50, labels)
    yield Sample("reactor_firing_seconds_p99", latency.p99, labels)
    yield Sample("dead_letters_total", reactor.wheel.outcomes.letters.total, labels)
    for reason, count in reactor.all_dropped().items():
        yield Sample("boundaries_dropped_total", count, (*labels, ("reason", reason)))


def _read_accumulator(one: RunningAccumulator) -> Iterable[Sample]:
    labels = (("accumulator", one.name), ("tenant", one.tenant))
    yield Sample("accumulator_events_total", one.events, labels)
    yield Sample("accumulator_restarts_total", one.supervision.restarts, labels)
    yield Sample("dead_letters_total", one.letters.total, labels)
    yield Sample("push_seconds_sum", one.push_seconds, labels)
    yield Sample("push_seconds_count", one.pushes, labels)
    for reason, count in one.dropped.items():
        yield Sample("boundaries_dropped_total", count, (*labels, ("reason", reason)))
