"""Samplers: publish what no one reports, by comparing it from time to time, while someone reads such events."""

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import StoreError
from tidemill.storage.workflow_ports import NodeRow, Owners
from tidemill.telemetry import events
from tidemill.telemetry.node_events import NodeEvents


class Sampler(Protocol):
    """Compares something with how it was before."""

    title: str
    """What it samples, as part of the name of its task."""
    types: frozenset[str]
    """The types of events that it publishes."""

    async def start(self) -> None:
        """Note how it is now."""

    async def run(self) -> None:
        """Publish what changes, until cancelled."""


logger = logging.getLogger(__name__)

COMPARE_INTERVAL = 2.0
"""Seconds between two comparisons of the list of nodes."""


class NodeListSampler(Sampler):
    """Publishes which nodes have appeared in the store, and which have left it or were removed as dead."""

    title = "nodes"
    types = frozenset([events.NODE_JOINED, events.NODE_LEFT])

    def __init__(self, owners: Owners, node_events: NodeEvents, clock: Clock) -> None:
        self._owners = owners
        self._node_events = node_events
        self._clock = clock
        self._known: dict[str, NodeRow] = {}

    async def start(self) -> None:
        self._known = await self._read()

    async def run(self) -> None:
        while True:
            await self._clock.sleep(COMPARE_INTERVAL)
            try:
                self._compare(await self._read())
            except StoreError as error:  # the next comparison finds what this one has missed
                logger.debug(events.EVENTS_UNREADABLE, extra={"error": str(error)})

    async def _read(self) -> dict[str, NodeRow]:
        return {owner.id: owner for owner in await self._owners.list_all()}

    def _compare(self, found: dict[str, NodeRow]) -> None:
        known, self._known = self._known, found
        for joined in sorted(found.keys() - known.keys()):
            self._publish(events.NODE_JOINED, found[joined])
        for left in sorted(known.keys() - found.keys()):
            self._publish(events.NODE_LEFT, known[left])

    def _publish(self, event: str, owner: NodeRow) -> None:
        self._node_events.publish(event, None, node=owner.id, name=owner.name, kind=owner.kind)


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
