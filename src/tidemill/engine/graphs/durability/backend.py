"""The durability port: policies, what the engine asks of a durable backend, and the backend without a store."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol

import msgspec

from tidemill.annotations.codec import Codec
from tidemill.engine.graphs.durability.journal import Journal
from tidemill.graphs.definition import Durability, Reactor
from tidemill.graphs.keys import Key
from tidemill.graphs.outcomes import DeadLetter
from tidemill.graphs.state import Recovery
from tidemill.storage.graph_ports import JournalKey, PartKey, PartKind, StoredPush


class DurabilityPolicy(msgspec.Struct, frozen=True):
    """How a reactor's state outlives the process."""

    name: Durability
    is_durable: bool = True
    """Whether the store holds the reactor's state."""
    is_journaled: bool = False
    """Whether each boundary is committed to the journal before the reactor takes it."""
    writes_each_firing: bool = False
    """Whether a checkpoint is written right after each firing."""

    def after_firing(self, backend: "DurabilityBackend", flush_batches: Callable[[], None] | None) -> None:
        """Write a checkpoint if the policy says so, and flush batches after it; None if there are none to flush."""
        if self.writes_each_firing:
            backend.flush_soon()
            if flush_batches is not None:
                backend.on_next_write(flush_batches)
        elif flush_batches is not None:
            flush_batches()


NOT_DURABLE = DurabilityPolicy("none", is_durable=False)
INTERVAL = DurabilityPolicy("interval")
EACH_FIRING = DurabilityPolicy("fire", writes_each_firing=True)
EACH_BOUNDARY = DurabilityPolicy("boundary", is_journaled=True)
DURABILITY_POLICIES: dict[Durability, DurabilityPolicy] = {
    policy.name: policy for policy in (NOT_DURABLE, INTERVAL, EACH_FIRING, EACH_BOUNDARY)
}


def declared_policy(reactor: Reactor) -> DurabilityPolicy:
    """Return the policy that a reactor declares; checkpoints at intervals are the default."""
    return INTERVAL if reactor.durability is None else DURABILITY_POLICIES[reactor.durability]


CodecLookup = Callable[[str], Codec | None]
"""Returns the codec for the boundaries of a source, by its name; None if they cannot be stored."""


ReadKeys = Callable[[Sequence[Key]], Awaitable[None]]
"""Reads the states of keys from the store, and makes them active; StoreError if it cannot."""


class DeadLetterStore(Protocol):
    """Stores the dead letters of one reactor or accumulator."""

    def put(self, dead_letter: DeadLetter, detail: Any) -> None:
        """Store a dead letter, in place of one with the same id."""

    def remove(self, dead_letter_id: str) -> None:
        """Delete a dead letter."""


class DurabilityBackend(Protocol):
    """Stores the state of reactors and accumulators, and restores it after a restart.

    Reactors are `RunningReactor`s, which this module cannot name: they are built on top of it.
    """

    journal: Journal | None
    """None without a store; then no policy is journaled."""

    def policy_for(self, reactor: Reactor) -> DurabilityPolicy:
        """Return a reactor's policy: the declared one, and none without a store."""

    async def acquire(self, keys: Collection[PartKey]) -> None:
        """Make this node the owner of parts before their state is read; RequestError if another node owns one."""

    async def release(self, keys: Collection[PartKey]) -> None:
        """Release those of some parts that this node owns to other nodes."""

    def advance_moment(self, moment: int) -> None:
        """Take the next snapshots after a moment, at which another node has taken some."""

    def request_checkpoint(self, reactor: Any) -> None:
        """Include a reactor and its accumulators in the next checkpoint."""

    def flush_soon(self) -> None:
        """Write the next checkpoint now instead of at the end of the interval."""

    def on_next_write(self, callback: Callable[[], None]) -> None:
        """Call this after the next checkpoint is written, or has failed."""

    async def write(self) -> None:
        """Write all pending changes now; those that cannot be written stay pending."""

    async def close(self) -> None:
        """Write pending changes a last time; a store that fails now is not asked again."""

    async def save_and_forget(self, reactor: Any) -> None:
        """Write the last checkpoint of a reactor that has stopped."""

    def forget(self, reactor: Any) -> None:
        """Stop writing anything of a reactor: what is stored under its name stays as it is."""

    async def flush_dead_letters(self) -> None:
        """Write the pending dead letters; those that cannot be written are retried with the next checkpoint."""

    async def newest_push(self, key: JournalKey, client: str) -> StoredPush | None:
        """Return the newest push of a producer to a journaled accumulator."""

    async def set_paused(self, tenant: str, reactor: str, *, paused: bool) -> None:
        """Store whether a reactor is paused."""

    def key_reader(self, reactor: Any) -> ReadKeys | None:
        """Return what reads the keys of a keyed reactor that are not in memory; None if the store keeps none."""

    def dead_letter_store(
        self, tenant: str, owner: PartKind, source: str, codec_for: CodecLookup | None = None
    ) -> DeadLetterStore:
        """Return the dead letter store of a reactor or accumulator; a reactor passes the codecs of its inputs."""

    def add_recovery(self, tenant: str, recovery: Recovery) -> None:
        """Store an action of the supervisor."""


class NoDeadLetterStore(DeadLetterStore):
    """Stores nothing: dead letters end with the process."""

    def put(self, dead_letter: DeadLetter, detail: Any) -> None:
        pass

    def remove(self, dead_letter_id: str) -> None:
        pass


class NoDurability(DurabilityBackend):
    """The backend without a store: everything works, and starts empty."""

    journal = None

    def policy_for(self, reactor: Reactor) -> DurabilityPolicy:
        return NOT_DURABLE

    async def acquire(self, keys: Collection[PartKey]) -> None:
        pass

    async def release(self, keys: Collection[PartKey]) -> None:
        pass

    def advance_moment(self, moment: int) -> None:
        pass

    def request_checkpoint(self, reactor: Any) -> None:
        pass

    def flush_soon(self) -> None:
        pass

    def on_next_write(self, callback: Callable[[], None]) -> None:
        callback()

    async def write(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def save_and_forget(self, reactor: Any) -> None:
        pass

    def forget(self, reactor: Any) -> None:
        pass

    async def flush_dead_letters(self) -> None:
        pass

    async def newest_push(self, key: JournalKey, client: str) -> StoredPush | None:
        return None

    async def set_paused(self, tenant: str, reactor: str, *, paused: bool) -> None:
        pass

    def key_reader(self, reactor: Any) -> ReadKeys | None:
        return None

    def dead_letter_store(
        self, tenant: str, owner: PartKind, source: str, codec_for: CodecLookup | None = None
    ) -> DeadLetterStore:
        return NoDeadLetterStore()

    def add_recovery(self, tenant: str, recovery: Recovery) -> None:
        pass
