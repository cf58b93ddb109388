"""Nodes that come and go, for the event feed: the list of nodes in the store, compared from time to time."""

import logging

from tidemill.engine.event_feed.samplers import Sampler
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import StoreError
from tidemill.storage.workflow_ports import Owner, Owners
from tidemill.telemetry import events
from tidemill.telemetry.node_events import NodeEvents

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
        self._known: dict[str, Owner] = {}

    async def start(self) -> None:
        self._known = await self._read()

    async def run(self) -> None:
        while True:
            await self._clock.sleep(COMPARE_INTERVAL)
            try:
                self._compare(await self._read())
            except StoreError as error:  # the next comparison finds what this one has missed
                logger.debug(events.EVENTS_UNREADABLE, extra={"error": str(error)})

    async def _read(self) -> dict[str, Owner]:
        return {owner.id: owner for owner in await self._owners.list_all()}

    def _compare(self, found: dict[str, Owner]) -> None:
        known, self._known = self._known, found
        for joined in sorted(found.keys() - known.keys()):
            self._publish(events.NODE_JOINED, found[joined])
        for left in sorted(known.keys() - found.keys()):
            self._publish(events.NODE_LEFT, known[left])

    def _publish(self, event: str, owner: Owner) -> None:
        self._node_events.publish(event, None, node=owner.id, name=owner.name, kind=owner.kind)
