"""Metrics: counters that cost an addition, and samples collected from their owners only when metrics are read.

Hot paths keep their counts in plain attributes of their own; an owner registers a collector that reports them.
When an owner is retired its last counts are added to the totals, so a counter never falls.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any, Literal, NamedTuple

Labels = tuple[tuple[str, str], ...]
"""Names and values of labels."""

MetricKind = Literal["counter", "gauge", "summary", "histogram"]


class Sample(NamedTuple):
    """One value of a metric, with the labels that distinguish it."""

    name: str
    value: float
    labels: Labels = ()


class Collector(NamedTuple):
    """Reads the samples of one owner; equal for the same owner."""

    owner: object
    read: Callable[[Any], Iterable[Sample]]

    def __call__(self) -> Iterable[Sample]:
        return self.read(self.owner)


GRAPH_METRICS = {
    "reactor_fires_total": "firings, failed ones included",
    "reactor_fire_failures_total": "firings in which some graph failed",
    "reactor_incomplete_total": "evaluations that found a required input missing",
    "reactor_restarts_total": "restarts of reactors by supervisor or operator",
    "reactor_health": "1 while a reactor is live",
    "reactor_firing_seconds_p50": "median duration of the newest firings",
    "reactor_firing_seconds_p99": "99th percentile of the newest firings",
    "reactor_keys_active": "keys of keyed reactors that are in memory",
    "reactor_keys_stored": "keys of keyed reactors that are in the store",
    "push_seconds_sum": "time spent in pushes that were awaited",
    "push_seconds_count": "pushes that were awaited",
    "accumulator_events_total": "accepted events",
    "accumulator_restarts_total": "restarts of accumulators by supervisor or operator",
    "accumulator_gaps_total": "gaps that sources have reported: events of theirs are missing",
    "accumulator_misplaced_total": "events in a partition of a Kafka topic that does not hold their keys",
    "boundaries_dropped_total": "boundaries and events not delivered, by reason",
    "dead_letters_total": "events and firings kept as dead letters",
    "checkpoint_failures_total": "checkpoints that could not be written",
}

PACKAGE_METRICS = {
    "packages_loaded": "loaded packages, from every source",
    "packages_waiting": "packages that wait for others to be loaded",
    "packages_failed": "packages whose desired version could not be loaded, or that could not be removed",
    "package_loads_total": "loads of package versions, reloads included",
    "package_removals_total": "packages removed because they were no longer desired",
    "package_failures_total": "failed tries to load or remove a package",
    "package_source_errors_total": "failed reads of the desired packages of a source",
}


HISTOGRAMS = frozenset(["dispatch_latency_seconds", "http_request_duration_seconds"])
"""Metrics that count values by size. Their samples end with _bucket, _sum and _count."""
SUMMARIES = frozenset(["push_seconds", "reactor_firing_seconds"])
"""Metrics of paths that must not pay for a histogram. Their samples end with _sum and _count, or with a percentile."""
_PLAIN_COUNTERS = frozenset(
    [
        *("orphan_reaped", "orphan_reap_error", "orphan_list_error", "orphan_panic"),
        *("dispatch_at_capacity", "agent_lost_error"),
    ]
)
"""Counters whose names do not end with _total."""
_PART_SUFFIXES = ("_bucket", "_sum", "_count", "_p50", "_p99")
_GROWING_SUFFIXES = ("_total", "_bucket", "_sum", "_count")


METRIC_LABELS = {
    **dict.fromkeys(GRAPH_METRICS, ("accumulator", "reactor", "tenant")),
    **dict.fromkeys(["push_seconds", "reactor_firing_seconds"], ("accumulator", "reactor", "tenant")),
    "boundaries_dropped_total": ("accumulator", "reactor", "tenant", "reason"),
    "scheduler_phase_errors_total": ("phase",),
    "runs_total": ("state",),
    "tasks_total": ("state",),
    **{
        f"subscription_{what}_total": ("workflow", "reactor", "tenant")
        for what in ("runs", "suppressed", "errors", "dead_letters")
    },
    "http_requests_total": ("method", "route", "status"),
    "http_request_duration_seconds": ("method", "route"),
    "http_answers_broken_total": ("route",),
    "http_connections_dropped_total": ("reason",),
    "websocket_connections": ("route",),
    "websocket_frames_total": ("route", "direction"),
    "build_info": ("version", "python"),
}
"""The labels that the samples of a metric may have; all other metrics have none."""


def split_name(name: str) -> tuple[str, str]:
    """Return the metric that a sample belongs to, and the suffix that names its part, which may be empty."""
    for suffix in _PART_SUFFIXES:
        metric = name.removesuffix(suffix)
        if metric != name and metric in HISTOGRAMS | SUMMARIES:
            return metric, suffix
    return name, ""


def metric_kind(metric: str) -> MetricKind:
    """Return the kind of a metric."""
    if metric in HISTOGRAMS:
        return "histogram"
    if metric in SUMMARIES:
        return "summary"
    return "counter" if metric.endswith("_total") or metric in _PLAIN_COUNTERS else "gauge"


LATENCY_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the sizes that latencies are counted by, in seconds."""


class Histogram:
    """Counts values by size."""

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BOUNDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def samples(self, name: str, labels: Labels = (), zeros: float = 0) -> Iterator[Sample]:
        """Yield the counts up to each bound, the sum and the count; `zeros` more values were 0."""
        limits = [*map(repr, self._bounds), "+Inf"]
        for limit, count in zip(limits, accumulate(self._counts, initial=None), strict=True):
            yield Sample(f"{name}_bucket", zeros + count, (*labels, ("le", limit)))
        yield Sample(f"{name}_sum", self._sum, labels)
        yield Sample(f"{name}_count", zeros + sum(self._counts), labels)


class Metrics:
    """All metrics of one node."""

    def __init__(self, names: Iterable[str] = GRAPH_METRICS) -> None:
        self._names = tuple(names)
        self._totals: defaultdict[tuple[str, Labels], float] = defaultdict(float)
        self._collectors: list[Collector] = []

    def register(self, collector: Collector, names: Iterable[str] = ()) -> None:
        """Add a collector that is called whenever metrics are read, and names of metrics that it adds."""
        self._collectors.append(collector)
        self._names += tuple(names)

    def retire(self, collector: Collector) -> None:
        """Remove a collector, and add the last values of its counters to the totals."""
        if collector in self._collectors:
            self._collectors.remove(collector)
            for sample in collector():
                if sample.name.endswith(_GROWING_SUFFIXES):
                    self._totals[sample.name, sample.labels] += sample.value

    def samples(self, tenant: str | None = None) -> list[Sample]:
        """Return all current samples; with a tenant, those of the whole node and those of the tenant."""
        samples = [Sample(name, value, labels) for (name, labels), value in self._totals.items()]
        for collector in self._collectors:
            samples.extend(collector())
        if tenant is None:
            return samples
        return [one for one in samples if dict(one.labels).get("tenant", tenant) == tenant]

    def by_name(self, samples: Iterable[Sample] | None = None) -> dict[str, float]:
        """Return every metric by name, from some or all samples, summed over labels; 0 for one without samples.

        Of percentiles it is the largest. Of a histogram, `name` is the sum of its values, `name_count` their number.
        """
        values: dict[str, float] = dict.fromkeys(self._names, 0)
        for sample in self.samples() if samples is None else samples:
            metric, suffix = split_name(sample.name)
            if suffix == "_bucket":
                continue
            name = metric if suffix == "_sum" and metric in HISTOGRAMS else sample.name
            before = values.get(name, 0)
            values[name] = max(before, sample.value) if suffix in ("_p50", "_p99") else before + sample.value
        return values
