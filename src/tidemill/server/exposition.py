"""Renders metrics in the formats of Prometheus: plain text, or OpenMetrics for clients that ask for it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from tidemill.engine.workflows.metrics import WORKFLOW_METRICS
from tidemill.server.connections import CONNECTION_METRICS
from tidemill.server.metrics import SERVER_METRICS
from tidemill.telemetry.metrics import (
    GRAPH_METRICS,
    METRIC_LABELS,
    PACKAGE_METRICS,
    Sample,
    metric_kind,
    split_name,
)

PREFIX = "tidemill_"
HELP = {
    **GRAPH_METRICS,
    **WORKFLOW_METRICS,
    **PACKAGE_METRICS,
    **SERVER_METRICS,
    **CONNECTION_METRICS,
    "push_seconds": "time from a push to its receipt, of pushes that were awaited",
    "reactor_firing_seconds": "duration of the newest firings of a reactor",
}
"""The description of each metric, and of those that `node.metrics()` shows as several."""
METRICS = tuple(dict.fromkeys(split_name(name)[0] for name in HELP))
_QUANTILES = {"_p50": "0.5", "_p99": "0.99"}


class Exposition(NamedTuple):
    """Rendered metrics and their format."""

    content: bytes
    content_type: str


def render_metrics(samples: Iterable[Sample], accept: str = "") -> Exposition:
    """Render samples in the format that a client accepts."""
    encode, content_type = choose_encoder(accept)
    return Exposition(encode(_Samples(samples)), content_type)


class _Samples(Collector):
    """Samples as a collector of prometheus_client."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._by_metric: dict[str, list[Sample]] = {metric: [] for metric in METRICS}
        for sample in samples:
            self._by_metric.setdefault(split_name(sample.name)[0], []).append(sample)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric; one that never rose is 0, unless its labels are not known yet."""
        for metric, samples in self._by_metric.items():
            is_unlabelled = metric not in METRIC_LABELS and metric_kind(metric) != "histogram"
            yield _to_family(metric, samples or ([Sample(metric, 0)] if is_unlabelled else []))


def _to_family(metric: str, samples: Iterable[Sample]) -> Metric:
    family = Metric(PREFIX + metric.removesuffix("_total"), HELP.get(metric, ""), _type_of(metric))
    totals: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for sample in samples:  # the counts of an owner that has gone, and of its successor, have the same labels
        name, labels = _name_and_labels(sample)
        totals[name, tuple(labels.items())] = totals.get((name, tuple(labels.items())), 0) + sample.value
    for (name, pairs), value in totals.items():
        family.add_sample(PREFIX + name, dict(pairs), value)
    return family


def _name_and_labels(sample: Sample) -> tuple[str, Mapping[str, str]]:
    metric, suffix = split_name(sample.name)
    if suffix in _QUANTILES:
        return metric, dict(sample.labels) | {"quantile": _QUANTILES[suffix]}
    return sample.name, dict(sample.labels)


def _type_of(metric: str) -> str:
    """Return the type of a metric. A counter must end with _total, so others are of an unknown type."""
    kind = metric_kind(metric)
    return "unknown" if kind == "counter" and not metric.endswith("_total") else kind
