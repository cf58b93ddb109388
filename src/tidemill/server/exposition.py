"""Renders metrics in the formats of Prometheus: plain text, or OpenMetrics for clients that ask for it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from tidemill.engine.graphs.metrics import GRAPH_METRICS
from tidemill.engine.workflows.metrics import WORKFLOW_METRICS
from tidemill.packages.status import PACKAGE_METRICS
from tidemill.server.connections import CONNECTION_METRICS
from tidemill.server.metrics import SERVER_METRICS
from tidemill.telemetry.metrics import Metric, Sample, sample_parts

PREFIX = "tidemill_"
METRICS = (*GRAPH_METRICS, *WORKFLOW_METRICS, *PACKAGE_METRICS, *SERVER_METRICS, *CONNECTION_METRICS)
"""Every metric of a server."""
_PARTS = sample_parts(METRICS)
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
        self._by_metric: dict[Metric, list[Sample]] = {metric: [] for metric in METRICS}
        for sample in samples:
            self._by_metric[_PARTS[sample.name].metric].append(sample)

    def collect(self) -> Iterator[Family]:
        """Yield every metric; one that never rose is 0, unless its labels are not known yet."""
        for metric, samples in self._by_metric.items():
            is_unlabelled = not metric.labels and metric.kind != "histogram"
            yield _to_family(metric, samples or ([Sample(metric.name, 0)] if is_unlabelled else []))


def _to_family(metric: Metric, samples: Iterable[Sample]) -> Family:
    family = Family(PREFIX + metric.name.removesuffix("_total"), metric.help, _type_of(metric))
    totals: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for sample in samples:  # the counts of an owner that has gone, and of its successor, have the same labels
        name, labels = _name_and_labels(sample)
        totals[name, tuple(labels.items())] = totals.get((name, tuple(labels.items())), 0) + sample.value
    for (name, pairs), value in totals.items():
        family.add_sample(PREFIX + name, dict(pairs), value)
    return family


def _name_and_labels(sample: Sample) -> tuple[str, Mapping[str, str]]:
    metric, suffix = _PARTS[sample.name]
    if suffix in _QUANTILES:
        return metric.name, dict(sample.labels) | {"quantile": _QUANTILES[suffix]}
    return sample.name, dict(sample.labels)


def _type_of(metric: Metric) -> str:
    """Return the type of a metric. A counter must end with _total, so others are of an unknown type."""
    return "unknown" if metric.kind == "counter" and not metric.name.endswith("_total") else metric.kind
