"""The outbox: firings of one reactor that workflows have not received yet.

A firing of a durable reactor becomes part of its next checkpoint, which is written right away, and only then is it
delivered to workflows: a firing that a crash undoes has started nothing. It leaves the checkpoint when all workflows
have received it. After a crash in between it is delivered again, and workflows recognise it by its id.

If workflows cannot keep up, or the store does not answer, the reactor stops firing on criteria until there is space:
its inputs wait or replace each other, as its strategy says, and no firing is lost.
"""

from collections.abc import Iterable
from functools import partial

import msgspec

from tidemill.engine.graphs.durability.write_health import WRITE_FAILURE_LIMIT
from tidemill.engine.graphs.firing.firing_log import FiringRecord
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.supervisor import Supervised

OUTBOX_LIMIT = 256  # undelivered firings that pause the reactor


class OutboxEntry(msgspec.Struct, eq=False):
    """A firing that is being delivered."""

    record: FiringRecord
    undelivered_to: set[str]
    """The workflows that have not received it."""
    is_stored: bool = False
    in_delivery: set[str] = msgspec.field(default_factory=set)
    """The workflows whose delivery is in progress."""


class Outbox:
    """The firings of one reactor that are being delivered to workflows."""

    def __init__(self, owner: Supervised, firing_loop: FiringLoop, runtime: GraphRuntime) -> None:
        self._owner = owner
        self._firing_loop = firing_loop
        self._reactor = firing_loop.reactor
        self._runtime = runtime
        self._entries: list[OutboxEntry] = []
        self._is_full = False
        self.subscribers: frozenset[str] = frozenset()

    @property
    def entries(self) -> tuple[OutboxEntry, ...]:
        """The entries that a checkpoint holds, oldest first."""
        return tuple(self._entries)

    def set_subscribers(self, names: frozenset[str]) -> None:
        """Deliver to these workflows, and no others; a new one receives the restored entries that are left for it."""
        removed, self.subscribers = self.subscribers - names, names
        for entry in self.entries:
            for name in entry.undelivered_to & removed:
                self._on_delivered(entry, name, None)
        self._deliver()

    def restore(self, entries: Iterable[OutboxEntry]) -> None:
        """Add the entries that an earlier process stored."""
        self._entries.extend(entries)
        self._deliver()

    def put(self, record: FiringRecord) -> None:
        """Deliver a firing to every subscriber as soon as it is stored."""
        entry = OutboxEntry(record, set(self.subscribers))
        self._entries.append(entry)
        if len(self._entries) >= OUTBOX_LIMIT and not self._is_full:
            self._is_full = True
            self._firing_loop.pause_queue(+1, always=True)
        self._firing_loop.request_checkpoint()
        self._deliver_when_stored(entry)

    def _deliver_when_stored(self, entry: OutboxEntry) -> None:
        if self._reactor.durability.is_durable:
            self._runtime.durability.on_next_write(partial(self._on_written, entry))
        else:
            self._mark_stored(entry)

    def _on_written(self, entry: OutboxEntry) -> None:
        """Deliver a stored firing; after too many failed writes, deliver it without."""
        if 0 < self._reactor.write_health.failures < WRITE_FAILURE_LIMIT:
            self._deliver_when_stored(entry)
        else:
            self._mark_stored(entry)

    def _mark_stored(self, entry: OutboxEntry) -> None:
        entry.is_stored = True
        self._deliver()

    def _deliver(self) -> None:
        for entry in self.entries:
            if not entry.is_stored:
                break  # deliveries keep their order
            for name in (entry.undelivered_to & self.subscribers) - entry.in_delivery:
                entry.in_delivery.add(name)
                done = partial(self._on_delivered, entry, name)
                firing = self._firing_loop.log.to_firing(entry.record)
                self._runtime.subscribers.deliver(self._owner.tenant, name, firing, done)

    def _on_delivered(self, entry: OutboxEntry, name: str, reason: str | None) -> None:
        if name not in entry.undelivered_to:
            return  # it unsubscribed meanwhile
        entry.undelivered_to.discard(name)
        self._firing_loop.request_checkpoint()
        if reason is not None:
            firing = self._firing_loop.log.to_firing(entry.record).id
            reason = f"firing {firing} started no run of workflow '{name}': {reason}"
            self._runtime.supervisor.on_undelivered(self._owner, reason)
        if not entry.undelivered_to:
            self._entries.remove(entry)
        if self._is_full and len(self._entries) < OUTBOX_LIMIT:
            self._is_full = False
            self._firing_loop.pause_queue(-1, always=True)
