"""The open connections of a server: how many there may be, and which one makes room for a new one.

Anyone can open connections and leave them half used. So the server keeps some descriptors back for its store and its
tasks, and closes the oldest connection that has not presented a valid key when a new one comes and there is no room.
"""

import resource
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from tidemill.kernel.errors import RequestError
from tidemill.kernel.settings import Settings
from tidemill.node import Node
from tidemill.telemetry.metrics import Collector, Metric, Sample

if TYPE_CHECKING:
    from litestar.types import Scope

CONNECTION_METRICS = (
    Metric("http_connections", "gauge", "open connections of clients, WebSocket connections included"),
    Metric("http_connections_dropped_total", "counter", "connections that the server dropped, by reason", ("reason",)),
    Metric(
        "http_accept_errors_total",
        "counter",
        "connections that the server could not accept: the system had no descriptor for them",
    ),
)

HELD_BACK = 128
"""Descriptors that connections leave for the store, packages and tasks; a quarter of them if that is more."""
MOST_DESCRIPTORS = 65_536
"""Descriptors that the server counts with, even if the system allows more."""
FEWEST_CONNECTIONS = 16
"""Connections that a server takes, however few descriptors it has."""
CONNECTION_STATE = "connection"
"""The name under which the state of each request has its connection."""


class Droppable(Protocol):
    """An open connection."""

    def drop(self) -> None:
        """Close it without waiting for what has not been sent."""


class Connections:
    """The open connections of one server.

    A connection is a stranger's until a request on it has presented a valid key. Strangers get at most half of the
    room. Connections with a key never get the last eighth of it, so that health checks find room.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self._limit = _limit_of(self.settings)
        self._stranger_limit = self._limit // 2
        self._known_limit = _known_limit_of(self.settings)
        # oldest first; those whose request is complete and being answered are dropped last
        self._waiting: dict[Droppable, None] = {}
        self._busy: dict[Droppable, None] = {}
        self._known: set[Droppable] = set()
        self.dropped: Counter[str] = Counter()
        """Connections that the server dropped, by reason."""
        self.accept_errors = 0

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._waiting) + len(self._busy) + len(self._known)

    def make_room(self) -> None:
        """Drop strangers until there is room for a connection."""
        while len(self._waiting) + len(self._busy) >= self._stranger_limit or self.count >= self._limit:
            self.drop_stranger("no_room")

    def count_accept_error(self) -> None:
        """Count a connection that could not be accepted."""
        self.accept_errors += 1

    def drop_stranger(self, reason: str) -> None:
        """Drop the oldest connection without a key, if there is one: one that waits for its client, if possible."""
        if (oldest := next(iter(self._waiting or self._busy), None)) is not None:
            self.drop(oldest, reason)

    def drop_waiting(self) -> None:
        """Drop all connections without a key whose request is not complete: the server stops."""
        for connection in list(self._waiting):
            self.drop(connection, "stop")

    def drop(self, connection: Droppable, reason: str) -> None:
        """Drop a connection."""
        self.remove(connection)
        self.dropped[reason] += 1
        connection.drop()

    def add(self, connection: Droppable) -> None:
        """Add a new connection."""
        self._waiting[connection] = None

    def remove(self, connection: Droppable) -> None:
        """Remove a connection that has ended; does nothing if it was removed before."""
        self._waiting.pop(connection, None)
        self._busy.pop(connection, None)
        self._known.discard(connection)

    def set_busy(self, connection: Droppable, *, is_busy: bool) -> None:
        """Note whether the server works on a request of a connection, or waits for the client."""
        source, target = (self._waiting, self._busy) if is_busy else (self._busy, self._waiting)
        if connection in source:
            del source[connection]
            target[connection] = None

    def admit(self, connection: Droppable) -> None:
        """Note that a connection has presented a valid key; RequestError if too many have."""
        if connection in self._known:
            return
        if len(self._known) >= self._known_limit:
            message = f"this server has {self._known_limit} connections open: close some, or raise max_connections"
            raise RequestError(message, code="server_full", status=503)
        if connection in self._waiting or connection in self._busy:
            self.remove(connection)
            self._known.add(connection)

    def samples(self) -> Iterator[Sample]:
        """Yield all samples."""
        yield Sample("http_connections", self.count)
        for reason, count in self.dropped.items():
            yield Sample("http_connections_dropped_total", count, (("reason", reason),))
        yield Sample("http_accept_errors_total", self.accept_errors)


def connections_of(node: Node) -> Connections:
    """Return the connections of the server of a node, which has their metrics."""
    connections = Connections(node.settings)
    node.metrics_registry.register(Collector(connections, Connections.samples), CONNECTION_METRICS)
    return connections


def limit_per_key(settings: Settings) -> int:
    """Return how many streams and WebSocket connections a key may have: others find room, whatever the settings say."""
    return min(settings.connections_per_key, _known_limit_of(settings) // 2)


def _limit_of(settings: Settings) -> int:
    return settings.max_connections or default_limit(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _known_limit_of(settings: Settings) -> int:
    limit = _limit_of(settings)
    return limit - limit // 8


def default_limit(descriptors: int) -> int:
    """Return how many connections a process with a limit of descriptors takes."""
    if descriptors == resource.RLIM_INFINITY:
        descriptors = MOST_DESCRIPTORS
    descriptors = min(descriptors, MOST_DESCRIPTORS)
    return max(FEWEST_CONNECTIONS, descriptors - max(HELD_BACK, descriptors // 4))


def admit(scope: "Scope") -> None:
    """Note that the connection of a request has presented a valid key; RequestError if too many have."""
    if (connection := scope["state"].get(CONNECTION_STATE)) is not None:
        connection.admit()
