"""Counts of firings for the event feed: read from the reactors' own counters now and then, never per firing."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tidemill.engine.event_feed.samplers import Sampler
from tidemill.kernel.clock import Clock
from tidemill.telemetry import events
from tidemill.telemetry.node_events import NodeEvents

SAMPLE_INTERVAL = 0.25
"""Seconds between two samples: the shortest time between two events about one reactor."""


class FiringCount(NamedTuple):
    """How often a reactor has fired, and in how many of these firings some graph failed."""

    tenant: str
    reactor: str
    firings: int
    failures: int


ReadFiringCounts = Callable[[], Iterable[FiringCount]]


class FiringSampler(Sampler):
    """Publishes how often each reactor has fired since the last sample, if it has."""

    title = "firing counts"
    types = frozenset([events.REACTOR_FIRED])

    def __init__(self, read_counts: ReadFiringCounts, node_events: NodeEvents, clock: Clock) -> None:
        self._read_counts = read_counts
        self._node_events = node_events
        self._clock = clock
        self._before: dict[tuple[str, str], FiringCount] = {}

    async def start(self) -> None:
        self._before = self._read()

    async def run(self) -> None:
        while True:
            await self._clock.sleep(SAMPLE_INTERVAL)
            self._sample()

    def _read(self) -> dict[tuple[str, str], FiringCount]:
        return {(one.tenant, one.reactor): one for one in self._read_counts()}

    def _sample(self) -> None:
        counts = self._read()
        for key, now in counts.items():
            before = self._before.get(key)
            if before is None or before.firings > now.firings:  # it was loaded meanwhile, perhaps again
                before = FiringCount(*key, 0, 0)
            if now.firings > before.firings:
                self._node_events.publish(
                    events.REACTOR_FIRED,
                    now.tenant,
                    reactor=now.reactor,
                    firings=now.firings - before.firings,
                    failures=now.failures - before.failures,
                    total=now.firings,
                )
        self._before = counts
