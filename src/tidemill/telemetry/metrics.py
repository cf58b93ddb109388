"""Metrics: counters that cost an addition, and samples collected from their owners only when metrics are read.

Hot paths keep their counts in their own plain attributes; an owner registers a collector that reports them.
When an owner is retired its last counts are added to the totals, so a counter never falls.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple

Labels = tuple[tuple[str, str], ...]
"""Names and values of labels."""

MetricKind = Literal["counter", "gauge", "summary", "histogram"]


_SUFFIXES: dict[MetricKind, tuple[str, ...]] = {
    "counter": ("",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("_sum", "_count", "_p50", "_p99"),
}
"""What the names of a metric's samples end with, by its kind."""


class Metric(NamedTuple):
    """A metric: a row in the table of the part that counts it."""

    name: str
    kind: MetricKind
    """A summary is for paths that must not pay for a histogram."""
    help: str
    labels: tuple[str, ...] = ()
    """The labels that its samples may have."""
    parts: tuple[str, ...] = ()
    """Of a summary: the endings of the names by which `node.metrics()` shows it."""

    @property
    def shown(self) -> tuple[str, ...]:
        """The names by which `node.metrics()` shows it."""
        endings = ("", "_count") if self.kind == "histogram" else self.parts or ("",)
        return tuple(self.name + ending for ending in endings)


class MetricPart(NamedTuple):
    """What a sample is of its metric."""

    metric: Metric
    suffix: str

    @property
    def grows(self) -> bool:
        """Whether its value never falls."""
        return self.metric.kind == "counter" or self.suffix in ("_bucket", "_sum", "_count")


def sample_parts(metrics: Iterable[Metric]) -> dict[str, MetricPart]:
    """Return what each sample of some metrics is, by the name of the sample."""
    return {metric.name + suffix: MetricPart(metric, suffix) for metric in metrics for suffix in _SUFFIXES[metric.kind]}


def shown_names(metrics: Iterable[Metric]) -> list[str]:
    """Return the names by which `node.metrics()` shows some metrics."""
    return [name for metric in metrics for name in metric.shown]


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

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._names: list[str] = []
        self._parts: dict[str, MetricPart] = {}
        self._add(metrics)
        self._totals: defaultdict[tuple[str, Labels], float] = defaultdict(float)
        self._collectors: list[Collector] = []

    def _add(self, metrics: Sequence[Metric]) -> None:
        self._names += shown_names(metrics)
        self._parts |= sample_parts(metrics)

    def register(self, collector: Collector, metrics: Sequence[Metric] = ()) -> None:
        """Add a collector that is called whenever metrics are read, and the metrics that it adds."""
        self._collectors.append(collector)
        self._add(metrics)

    def retire(self, collector: Collector) -> None:
        """Remove a collector, and add the last values of its counters to the totals."""
        if collector in self._collectors:
            self._collectors.remove(collector)
            for sample in collector():
                if self._parts[sample.name].grows:
                    self._totals[sample.name, sample.labels] += sample.value

    @property
    def total_count(self) -> int:
        """How many totals of removed collectors are kept."""
        return len(self._totals)

    @property
    def collector_count(self) -> int:
        """How many collectors there are."""
        return len(self._collectors)

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

        Of percentiles and points of time it is the largest. Of a histogram, `name` is the sum of its values,
        `name_count` their number.
        """
        values: dict[str, float] = dict.fromkeys(self._names, 0)
        for sample in self.samples() if samples is None else samples:
            metric, suffix = self._parts[sample.name]
            if suffix == "_bucket":
                continue
            name = metric.name if suffix == "_sum" and metric.kind == "histogram" else sample.name
            before = values.get(name, 0)
            is_largest = suffix in ("_p50", "_p99") or name.endswith("_timestamp_seconds")
            values[name] = max(before, sample.value) if is_largest else before + sample.value
        return values
