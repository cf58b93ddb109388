"""Metrics of reactors and accumulators, read from their own counters when metrics are collected."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from tidemill.engine.event_feed.samplers import FiringCount
from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.keys.topic_share import KeyedStream
from tidemill.engine.graphs.partitions.relays import ReaderListener
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.history import Reading, Subject
from tidemill.graphs.health import ReactorHealth
from tidemill.graphs.state import Latency
from tidemill.telemetry.metrics import Collector, Metric, Metrics, Sample

_OF_PARTS = ("accumulator", "reactor", "tenant", "partition")

GRAPH_METRICS = (
    Metric("reactor_fires_total", "counter", "firings, failed ones included", _OF_PARTS),
    Metric("reactor_fire_failures_total", "counter", "firings in which some graph failed", _OF_PARTS),
    Metric("reactor_incomplete_total", "counter", "evaluations that found a required input missing", _OF_PARTS),
    Metric("reactor_restarts_total", "counter", "restarts of reactors by supervisor or operator", _OF_PARTS),
    Metric("reactor_health", "gauge", "1 while a reactor is live", _OF_PARTS),
    Metric(
        "reactor_firing_seconds",
        "summary",
        "duration of the newest firings of a reactor",
        _OF_PARTS,
        parts=("_p50", "_p99"),
    ),
    Metric("reactor_keys_active", "gauge", "keys of keyed reactors that are in memory", _OF_PARTS),
    Metric("reactor_keys_stored", "gauge", "keys of keyed reactors that are in the store", _OF_PARTS),
    Metric(
        "push_seconds",
        "summary",
        "time from a push to its receipt, of pushes that were awaited",
        _OF_PARTS,
        parts=("_sum", "_count"),
    ),
    Metric("accumulator_events_total", "counter", "accepted events", _OF_PARTS),
    Metric("accumulator_restarts_total", "counter", "restarts of accumulators by supervisor or operator", _OF_PARTS),
    Metric(
        "accumulator_gaps_total", "counter", "gaps that sources have reported: events of theirs are missing", _OF_PARTS
    ),
    Metric(
        "accumulator_misplaced_total",
        "counter",
        "events in a partition of a Kafka topic that does not hold their keys",
        _OF_PARTS,
    ),
    Metric(
        "boundaries_dropped_total", "counter", "boundaries and events not delivered, by reason", (*_OF_PARTS, "reason")
    ),
    Metric("dead_letters_total", "counter", "events and firings kept as dead letters", _OF_PARTS),
    Metric("checkpoint_failures_total", "counter", "checkpoints that could not be written", _OF_PARTS),
    Metric("forwarded_requests_total", "counter", "requests to nodes that own reactors, by link or mailbox", ("way",)),
    Metric("links_open", "gauge", "links to other nodes that are open"),
    Metric("links_unreached", "gauge", "nodes with an address to which no link can be opened"),
)


def reactor_collector(reactor: RunningReactor) -> Collector:
    """Return the metrics collector of a reactor."""
    return Collector(reactor, _read_reactor)


def accumulator_collector(accumulator: RunningAccumulator) -> Collector:
    """Return the metrics collector of an accumulator."""
    return Collector(accumulator, _read_accumulator)


class ReaderMetrics(ReaderListener):
    """Collects the metrics of the readers of sources."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def on_made(self, reader: RunningAccumulator) -> None:
        self._metrics.register(accumulator_collector(reader))

    def on_stopped(self, reader: RunningAccumulator) -> None:
        self._metrics.retire(accumulator_collector(reader))


def count_firings(reactors: Iterable[RunningReactor]) -> list[FiringCount]:
    """Return how often reactors have fired, for the event feed."""
    fires: Counter[tuple[str, str]] = Counter()
    failures: Counter[tuple[str, str]] = Counter()
    for one in reactors:
        key = one.tenant, one.definition.declared_name
        fires[key] += one.firing_loop.log.fires
        failures[key] += one.firing_loop.results.failures
    return [FiringCount(*key, count, failures[key]) for key, count in fires.items()]


class FigureReader:
    """Reads the figures of reactors whose history a node keeps; the most important ones first."""

    def __init__(self) -> None:
        self._fires: dict[int, int] = {}
        """By reactor: how often it had fired. Only those that have fired since have new durations."""
        self._turn = 0

    def read(self, reactors: Iterable[RunningReactor]) -> Iterator[Reading]:
        """Yield the figures of reactors, of their tenants, and of all."""
        running = list(reactors)
        yield from _sums("firings", ((one, one.firing_loop.log.fires) for one in running))
        events: Counter[Subject] = Counter()
        for accumulator in {one for reactor in running for one in reactor.accumulators}:
            events.update(dict.fromkeys(((), (accumulator.tenant,)), accumulator.kind.event_count))
        yield from (Reading(subject, "events", count) for subject, count in events.items())
        yield from self._latencies(running)
        emitted: Counter[tuple[Subject, str]] = Counter()
        for reactor in running:
            for one in reactor.accumulators:
                subject = reactor.tenant, reactor.definition.declared_name
                emitted[subject, EMITTED + _labels("accumulator", one)[0][1]] += one.emitter.sequence
        yield from (Reading(*key, count) for key, count in emitted.items())

    def _latencies(self, running: list[RunningReactor]) -> Iterator[Reading]:
        """Yield median and 99th percentile of the reactors that have fired since the last reading."""
        before, self._fires = self._fires, {id(one): one.firing_loop.log.fires for one in running}
        found: defaultdict[Subject, list[Latency]] = defaultdict(list)
        fired = [one for one in running if before.get(id(one), 0) < self._fires[id(one)]]
        self._turn = 0 if self._turn + TIMED_REACTORS >= len(fired) else self._turn + TIMED_REACTORS
        for one in fired[self._turn : self._turn + TIMED_REACTORS]:
            latency = one.firing_loop.log.latency()
            for subject in _subjects(one):
                found[subject].append(latency)
        for subject, some in found.items():
            yield Reading(subject, "p50", sum(one.p50 for one in some) / len(some), is_counter=False)
            yield Reading(subject, "p99", max(one.p99 for one in some), is_counter=False)


TIMED_REACTORS = 50
"""Reactors whose durations one reading sorts; they take turns, so that a reading ends within milliseconds."""
EMITTED = "emitted/"
"""What the name of the figure of an accumulator's boundaries begins with."""


def _subjects(reactor: RunningReactor) -> tuple[Subject, ...]:
    return (), (reactor.tenant,), (reactor.tenant, reactor.definition.declared_name)


def _sums(name: str, values: Iterable[tuple[RunningReactor, int]]) -> Iterator[Reading]:
    sums: Counter[Subject] = Counter()
    for reactor, value in values:
        sums.update(dict.fromkeys(_subjects(reactor), value))
    return (Reading(subject, name, value) for subject, value in sums.items())


def _read_reactor(reactor: RunningReactor) -> Iterable[Sample]:
    labels = _labels("reactor", reactor)
    latency = reactor.firing_loop.log.latency()
    yield Sample("reactor_fires_total", reactor.firing_loop.log.fires, labels)
    yield Sample("reactor_fire_failures_total", reactor.firing_loop.results.failures, labels)
    yield Sample("reactor_incomplete_total", reactor.firing_loop.incomplete, labels)
    yield Sample("reactor_restarts_total", reactor.restart_state.restarts, labels)
    yield Sample("checkpoint_failures_total", reactor.write_health.total_failures, labels)
    yield Sample("reactor_health", float(reactor.health is ReactorHealth.LIVE), labels)
    yield Sample("reactor_firing_seconds_p50", latency.p50, labels)
    yield Sample("reactor_firing_seconds_p99", latency.p99, labels)
    yield Sample("dead_letters_total", reactor.firing_loop.results.dead_letters.total, labels)
    if (keys := reactor.keys.counts()) is not None:
        yield Sample("reactor_keys_active", keys.active, labels)
        yield Sample("reactor_keys_stored", keys.stored, labels)
    for reason, count in reactor.all_dropped().items():
        yield Sample("boundaries_dropped_total", count, (*labels, ("reason", reason)))


def _labels(kind: str, part: RunningReactor | RunningAccumulator) -> tuple[tuple[str, str], ...]:
    """Return the labels of a part; one of a keyed reactor also has the number of its partition."""
    if (partition := part.definition.partition) is None:
        return (kind, part.name), ("tenant", part.tenant)
    return (kind, partition.name), ("tenant", part.tenant), ("partition", str(partition.number))


def _read_accumulator(accumulator: RunningAccumulator) -> Iterable[Sample]:
    labels = _labels("accumulator", accumulator)
    yield Sample("accumulator_events_total", accumulator.kind.event_count, labels)
    yield Sample("accumulator_restarts_total", accumulator.restart_state.restarts, labels)
    yield Sample("accumulator_gaps_total", accumulator.kind.gap_count, labels)
    yield Sample("dead_letters_total", accumulator.dead_letters.total, labels)
    yield Sample("push_seconds_sum", accumulator.pushes.seconds, labels)
    yield Sample("push_seconds_count", accumulator.pushes.total, labels)
    if isinstance(accumulator.kind, KeyedStream):
        yield Sample("accumulator_misplaced_total", accumulator.kind.misplaced, labels)
    for reason, count in accumulator.emitter.dropped.items():
        yield Sample("boundaries_dropped_total", count, (*labels, ("reason", reason)))
