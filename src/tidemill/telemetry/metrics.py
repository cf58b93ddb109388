"""Metrics: counters that cost an addition, and samples collected from their owners only when metrics are read.

Hot paths keep their counts in plain attributes of their own; an owner registers a collector that reports them.
When an owner is retired its last counts are added to the totals, so a counter never falls.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Sample(NamedTuple):
    """One value of a metric, with the labels that distinguish it."""

    name: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


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
    "reactor_health": "reactors that are live",
    "reactor_firing_seconds_p50": "median duration of the newest firings",
    "reactor_firing_seconds_p99": "99th percentile of the newest firings",
    "push_seconds_sum": "time spent in pushes that were awaited",
    "push_seconds_count": "pushes that were awaited",
    "accumulator_events_total": "accepted events",
    "accumulator_restarts_total": "restarts of accumulators by supervisor or operator",
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


class Metrics:
    """All metrics of one node."""

    def __init__(self, names: Iterable[str] = GRAPH_METRICS) -> None:
        self._names = tuple(names)
        self._totals: defaultdict[tuple[str, tuple[tuple[str, str], ...]], float] = defaultdict(float)
        self._collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        """Add a collector that is called whenever metrics are read."""
        self._collectors.append(collector)

    def retire(self, collector: Collector) -> None:
        """Remove a collector, and add the last values of its counters to the totals."""
        if collector in self._collectors:
            self._collectors.remove(collector)
            for sample in collector():
                if sample.name.endswith(("_total", "_sum", "_count")):
                    self._totals[sample.name, sample.labels] += sample.value

    def samples(self) -> list[Sample]:
        """Return all current samples."""
        samples = [Sample(name, value, labels) for (name, labels), value in self._totals.items()]
        for collector in self._collectors:
            samples.extend(collector())
        return samples

    def by_name(self) -> dict[str, float]:
        """Return every metric by name, summed over labels (percentiles: the largest); 0 for one without samples."""
        values: dict[str, float] = dict.fromkeys(self._names, 0)
        for sample in self.samples():
            before = values.get(sample.name, 0)
            is_percentile = sample.name.endswith(("_p50", "_p99"))
            values[sample.name] = max(before, sample.value) if is_percentile else before + sample.value
        return values
