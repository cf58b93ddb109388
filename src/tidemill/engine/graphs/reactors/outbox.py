"""The outbox: firings of one reactor that workflows are to be told of.

A firing of a reactor that is kept becomes part of its next checkpoint, which is written at once, and only then are
workflows told: what a crash undoes has not started anything. It leaves the checkpoint when all of them have had it.
After a crash in between they are told once more, and know by its id whether they had it already.

If workflows cannot keep up, or the store does not answer, the reactor stops firing on criteria until there is room:
its inputs wait or replace each other, as its strategy has it, and nothing is lost here.
"""

from collections.abc import Iterable
from functools import partial
from typing import Protocol

import msgspec

from tidemill.engine.graphs.reactors.firing_log import FiringRecord
from tidemill.engine.graphs.reactors.firing_loop import FiringLoop
from tidemill.engine.graphs.restart_state import Supervised
from tidemill.engine.graphs.runtime import GraphRuntime

OUTBOX_LIMIT = 256  # firings on their way
WRITE_FAILURE_LIMIT = 5  # checkpoints in a row that could not be written


class Posting(Supervised, Protocol):
    """The reactor whose firings these are."""

    firing_loop: FiringLoop
    persist_failures: int

    @property
    def is_durable(self) -> bool:
        """Whether the store holds what is left undone."""

    def request_checkpoint(self) -> None:
        """Something has changed since the last checkpoint."""


class OutboxEntry(msgspec.Struct, eq=False):
    """A firing on its way."""

    record: FiringRecord
    undelivered_to: set[str]
    """The workflows that have not had it."""
    is_stored: bool = False
    in_delivery: set[str] = msgspec.field(default_factory=set)
    """Those of them that are being told."""


class Outbox:
    """The firings of one reactor that are on their way to workflows."""

    def __init__(self, reactor: Posting, runtime: GraphRuntime) -> None:
        self._reactor = reactor
        self._runtime = runtime
        self._entries: list[OutboxEntry] = []
        self._is_full = False
        self.subscribers: frozenset[str] = frozenset()

    @property
    def entries(self) -> tuple[OutboxEntry, ...]:
        """What a checkpoint holds of it, oldest first."""
        return tuple(self._entries)

    def set_subscribers(self, names: frozenset[str]) -> None:
        """Tell these workflows, and no others; who comes late is told of what an earlier life left for it."""
        gone, self.subscribers = self.subscribers - names, names
        for post in self.entries:
            for name in post.undelivered_to & gone:
                self._on_delivered(post, name, None)
        self._deliver()

    def restore(self, entries: Iterable[OutboxEntry]) -> None:
        """Go on with what an earlier life left."""
        self._entries.extend(entries)
        self._deliver()

    def put(self, record: FiringRecord) -> None:
        """Tell every follower of a firing, as soon as it is safe to."""
        post = OutboxEntry(record, set(self.subscribers))
        self._entries.append(post)
        if len(self._entries) >= OUTBOX_LIMIT and not self._is_full:
            self._is_full = True
            self._reactor.firing_loop.pause_queue(+1, always=True)
        self._reactor.request_checkpoint()
        self._deliver_when_stored(post)

    def _deliver_when_stored(self, entry: OutboxEntry) -> None:
        if self._reactor.is_durable:
            self._runtime.durability.on_next_write(partial(self._on_written, entry))
        else:
            self._mark_stored(entry)

    def _on_written(self, entry: OutboxEntry) -> None:
        """Go on when a firing is stored, or will not be soon: like firings themselves, this does not wait for ever."""
        if 0 < self._reactor.persist_failures < WRITE_FAILURE_LIMIT:
            self._deliver_when_stored(entry)
        else:
            self._mark_stored(entry)

    def _mark_stored(self, entry: OutboxEntry) -> None:
        entry.is_stored = True
        self._deliver()

    def _deliver(self) -> None:
        log, reactor = self._reactor.firing_loop.log, self._reactor
        for post in self.entries:
            if not post.is_stored:
                break  # their order stays
            for name in (post.undelivered_to & self.subscribers) - post.in_delivery:
                post.in_delivery.add(name)
                done = partial(self._on_delivered, post, name)
                self._runtime.subscribers.deliver(reactor.tenant, name, log.to_firing(post.record), done)

    def _on_delivered(self, entry: OutboxEntry, name: str, reason: str | None) -> None:
        if name not in entry.undelivered_to:
            return  # it follows no longer
        entry.undelivered_to.discard(name)
        self._reactor.request_checkpoint()
        if reason is not None:
            firing = self._reactor.firing_loop.log.to_firing(entry.record).id
            reason = f"firing {firing} started no run of workflow '{name}': {reason}"
            self._runtime.supervisor.on_undelivered(self._reactor, reason)
        if not entry.undelivered_to:
            self._entries.remove(entry)
        if self._is_full and len(self._entries) < OUTBOX_LIMIT:
            self._is_full = False
            self._reactor.firing_loop.pause_queue(-1, always=True)
