"""The metrics of the server: requests, WebSocket connections and frames, and which build runs for how long."""

import platform
from collections import Counter, defaultdict
from collections.abc import Iterator

from tidemill.kernel.version import VERSION
from tidemill.node import Node
from tidemill.telemetry.metrics import Collector, Histogram, Metric, Sample

SERVER_METRICS = (
    Metric(
        "http_requests_total",
        "counter",
        "requests that were answered, by method, route and status",
        ("method", "route", "status"),
    ),
    Metric(
        "http_request_duration_seconds",
        "histogram",
        "time from a request to the end of its answer, event streams not included",
        ("method", "route"),
    ),
    Metric("http_answers_broken_total", "counter", "answers that failed after they had started, by route", ("route",)),
    Metric("websocket_connections", "gauge", "open WebSocket connections, by route", ("route",)),
    Metric("websocket_frames_total", "counter", "WebSocket frames, by route and direction", ("route", "direction")),
    Metric("event_feed_readers", "gauge", "readers of the event feed"),
    Metric("build_info", "gauge", "always 1; the labels say which build runs", ("version", "python")),
    Metric("uptime_seconds", "gauge", "time since the server was started"),
)

UNMATCHED = "unmatched"
"""The route of requests that match none: their paths would be labels without limit."""


class ServerMetrics:
    """Counts what the server does."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._clock = node.event_feed.clock
        self._started = self._clock.monotonic()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._durations: defaultdict[tuple[str, str], Histogram] = defaultdict(Histogram)
        self.broken: Counter[str] = Counter()
        """Answers that failed after they had started, by route."""
        self.connections: Counter[str] = Counter()
        """Open WebSocket connections, by route."""
        self.frames: Counter[tuple[str, str]] = Counter()
        """WebSocket frames, by route and direction."""
        node.metrics_registry.register(Collector(self, ServerMetrics.samples), SERVER_METRICS)

    def count_request(self, method: str, route: str, status: int, duration: float | None) -> None:
        """Count an answered request; a stream of events has no duration."""
        self._requests[method, route, status] += 1
        if duration is not None:
            self._durations[method, route].observe(duration)

    def samples(self) -> Iterator[Sample]:
        """Yield all samples."""
        for (method, route, status), count in self._requests.items():
            yield Sample("http_requests_total", count, (("method", method), ("route", route), ("status", str(status))))
        for (method, route), durations in self._durations.items():
            yield from durations.samples("http_request_duration_seconds", (("method", method), ("route", route)))
        for route, count in self.broken.items():
            yield Sample("http_answers_broken_total", count, (("route", route),))
        for route, count in self.connections.items():
            yield Sample("websocket_connections", count, (("route", route),))
        for (route, direction), count in self.frames.items():
            yield Sample("websocket_frames_total", count, (("route", route), ("direction", direction)))
        yield Sample("event_feed_readers", self._node.event_feed.reader_count)
        yield Sample("build_info", 1, (("version", VERSION), ("python", platform.python_version())))
        yield Sample("uptime_seconds", self._clock.monotonic() - self._started)
