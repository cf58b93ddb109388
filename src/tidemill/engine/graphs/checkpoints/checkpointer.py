"""The checkpointer: decides when snapshots are written, and retries writes that fail.

All durable state passes here: snapshots of reactors, the journal, dead letters, recoveries and pauses. A change is
written together with all others of the next 200 ms; a reactor with durability="fire", a dead letter or a recovery
requests an immediate write. One write is in progress at a time, so changes that come meanwhile join the next. Changes
that could not be written stay pending and are retried after an interval; meanwhile graphs keep firing.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime, timedelta

from msgspec.structs import asdict

from tidemill.annotations.codec import UnstorableError
from tidemill.engine.graphs.checkpoints.capture import CheckpointGroup, GroupSnapshot, checkpoint_groups, take_snapshot
from tidemill.engine.graphs.checkpoints.dead_letter_store import DeadLetterOwner, PersistentDeadLetterStore
from tidemill.engine.graphs.checkpoints.key_restore import KeyLoader
from tidemill.engine.graphs.durability.backend import (
    NOT_DURABLE,
    CodecLookup,
    DeadLetterStore,
    DurabilityBackend,
    DurabilityPolicy,
    ReadKeys,
    declared_policy,
)
from tidemill.engine.graphs.durability.journal import Journal
from tidemill.engine.graphs.durability.ownership import ReactorOwnership
from tidemill.engine.graphs.durability.write_health import PendingWrites, StallWatch
from tidemill.engine.graphs.keys.keyed_reactor import KeyedReactor
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.tasks import TaskScope
from tidemill.graphs.definition import Reactor
from tidemill.graphs.pushes import SOURCE_CLIENT
from tidemill.graphs.state import Recovery
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import FencedError, OperationError, StoreError
from tidemill.kernel.ids import new_sortable_id
from tidemill.kernel.settings import Settings
from tidemill.storage.graph_ports import JournalKey, PartKey, PartKind, StoredPush
from tidemill.storage.store import Store
from tidemill.storage.tables.graphs import StoredRecovery
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

PRODUCER_RETENTION = timedelta(hours=24)
"""For how long the store knows the newest push of a producer."""


class Checkpointer(DurabilityBackend):
    """Writes the durable state of one node's reactors."""

    journal: Journal

    def __init__(
        self, store: Store, ownership: ReactorOwnership, *, clock: Clock, settings: Settings, tasks: TaskScope
    ) -> None:
        self._store = store
        self._ownership = ownership
        self._clock = clock
        self._settings = settings
        self._tasks = tasks
        self._interval = settings.checkpoint_interval
        self._pending_writes = PendingWrites()
        self._stall_watch = StallWatch(clock, tasks)
        self.journal = Journal(store, ownership, self._pending_writes, self._stall_watch)
        self._changed_reactors: dict[RunningReactor, None] = {}
        self._write_callbacks: list[Callable[[], None]] = []
        self._moment = 0
        self._work_ready = asyncio.Event()
        self._changed_since = 0.0
        self._flush_requested = asyncio.Event()
        self._write_lock = asyncio.Lock()
        self._is_backing_off = False  # after a failure, even if a flush is requested
        self.last_write_failed = False
        self._store_refused = False  # whether the store refused the last write
        self._is_abandoned = False
        self._pruned_at: datetime | None = None

    async def open(self) -> None:
        """Continue the numbering of earlier processes, and start writing."""
        retained_from = self._clock.now() - timedelta(seconds=self._settings.retention)
        await self._store.recoveries.delete_before(retained_from)
        await self._continue_numbering()
        self._tasks.start("checkpoints", self._run())
        self._tasks.start("journal", self.journal.run())

    async def _continue_numbering(self) -> None:
        """Continue the moments and positions that are in use: other nodes may have written since the last time."""
        marks = await self._store.checkpoints.read_high_water_marks()
        self._moment = max(self._moment, marks.moment)
        self.journal.advance_position(marks.position)

    # -- ownership

    async def acquire(self, keys: Collection[PartKey]) -> None:
        if not set(keys) <= self._ownership.fences.keys():
            await self._ownership.acquire(keys)
            await self._continue_numbering()

    async def release(self, keys: Collection[PartKey]) -> None:
        if not self._is_abandoned:
            await self._ownership.release(keys)

    def forget(self, reactor: RunningReactor) -> None:
        self._changed_reactors.pop(reactor, None)
        reactor.write_health.pending_since = None
        reactor.durability = NOT_DURABLE  # a late change must not overwrite the state of the reactor's successor

    # -- requests

    def policy_for(self, reactor: Reactor) -> DurabilityPolicy:
        return declared_policy(reactor)

    def advance_moment(self, moment: int) -> None:
        """Take the next snapshots after a moment, at which another node has taken some: the newest one counts."""
        self._moment = max(self._moment, moment)

    def request_checkpoint(self, reactor: RunningReactor) -> None:
        self._changed_reactors[reactor] = None
        if not self._work_ready.is_set():
            self._changed_since = self._clock.monotonic()
            self._work_ready.set()

    def flush_soon(self) -> None:
        self._work_ready.set()
        self._flush_requested.set()

    def on_next_write(self, callback: Callable[[], None]) -> None:
        self._write_callbacks.append(callback)
        self.flush_soon()

    async def flush_dead_letters(self) -> None:
        with suppress(StoreError):  # they stay pending, and are retried with the next checkpoint
            await self._pending_writes.write(self._store)
            await self._pending_writes.write_removals(self._store)

    async def newest_push(self, key: JournalKey, client: str) -> StoredPush | None:
        now = self._clock.now()
        # Once an hour is often enough here: only clients that are not known yet add rows.
        if self._pruned_at is None or now - self._pruned_at > timedelta(hours=1):
            self._pruned_at = now
            await self._store.producers.delete_before(now - PRODUCER_RETENTION, kept=SOURCE_CLIENT)
        return await self._store.producers.newest_push(key, client)

    async def set_paused(self, tenant: str, reactor: str, *, paused: bool) -> None:
        try:
            await self._store.pauses.set_paused(tenant, reactor, paused=paused)
        except StoreError as error:
            word = "paused" if paused else "resumed"
            raise OperationError(
                f"reactor '{reactor}' is {word}, but a restart will not know of it: {error}"
            ) from error

    def key_reader(self, reactor: KeyedReactor) -> ReadKeys | None:
        return KeyLoader(reactor, self._store).read if reactor.durability.is_durable else None

    def dead_letter_store(
        self, tenant: str, owner: PartKind, source: str, codec_for: CodecLookup | None = None
    ) -> DeadLetterStore:
        return PersistentDeadLetterStore(
            self._pending_writes, self.flush_soon, DeadLetterOwner(tenant, owner, source, codec_for)
        )

    def add_recovery(self, tenant: str, recovery: Recovery) -> None:
        self._pending_writes.recoveries.append(
            StoredRecovery(id=new_sortable_id(recovery.at), tenant=tenant, **asdict(recovery))
        )
        self.flush_soon()

    async def close(self) -> None:
        """Write everything a last time. If the store fails, or does not answer in time, it is not asked again."""
        writing = self._tasks.start("checkpoints: last write", self._write())
        timeout = self._tasks.start("checkpoints: timeout", self._clock.sleep(self._settings.unload_timeout))
        await asyncio.wait({writing, timeout}, return_when=asyncio.FIRST_COMPLETED)
        timeout.cancel()
        if not writing.done() or self._store_refused:
            self._is_abandoned = True
            self.journal.abandon()

    async def save_and_forget(self, reactor: RunningReactor) -> None:
        if reactor.durability.is_durable:
            self.request_checkpoint(reactor)
            await self.write()
            if reactor in self._changed_reactors:
                logger.error(events.LAST_CHECKPOINT_FAILED, extra={"reactor": reactor.name})
        self.forget(reactor)

    # -- writing

    @property
    def has_pending_changes(self) -> bool:
        """Whether some change is not written yet."""
        return self._work_ready.is_set()

    @property
    def is_idle(self) -> bool:
        """Whether no write is in progress or due immediately."""
        is_due = self._flush_requested.is_set() and not self._is_backing_off
        return not self._write_lock.locked() and not is_due and self.journal.is_idle

    async def _run(self) -> None:
        while not self._is_abandoned:
            await self._work_ready.wait()
            await self._wait_for_batch()
            await self._write()

    async def _wait_for_batch(self) -> None:
        """Let changes gather for an interval, or until a flush is requested; after a failure always the former."""
        if self._store_refused:
            self._is_backing_off = True
            await self._clock.sleep(self._interval)
            self._is_backing_off = False
        elif not self._flush_requested.is_set():
            remaining = self._changed_since + self._interval - self._clock.monotonic()
            interval = self._tasks.start("checkpoints: interval", self._clock.sleep(remaining))
            flush = self._tasks.start("checkpoints: flush", self._flush_requested.wait())
            await asyncio.wait({interval, flush}, return_when=asyncio.FIRST_COMPLETED)
            interval.cancel()
            flush.cancel()

    async def write(self) -> None:
        """Write all pending changes, even if the caller is cancelled; those that cannot be written stay pending."""
        await self._tasks.run_shielded("checkpoints: write", self._write())

    async def _write(self) -> None:
        if self._is_abandoned:
            return
        async with self._write_lock:
            self._work_ready.clear()
            self._flush_requested.clear()
            self.last_write_failed = self._store_refused = False
            callbacks, self._write_callbacks = self._write_callbacks, []
            snapshots = self._take_snapshots()
            try:
                await self._pending_writes.write(self._store)
                if snapshots:
                    await self._save_snapshots(snapshots)
                await self._pending_writes.write_removals(self._store)
            except StoreError as error:
                self._store_refused = True
                for one in snapshots:
                    one.mark_failed()
                self._on_write_failed([one.group for one in snapshots], str(error))
                if isinstance(error, FencedError):
                    await self._ownership.renew()
            for callback in callbacks:
                callback()

    def _take_snapshots(self) -> list[GroupSnapshot]:
        """Take the snapshots of all groups with changes, at one moment."""
        changed, self._changed_reactors = self._changed_reactors, {}
        self._moment += 1
        snapshots = []
        for group in checkpoint_groups(changed):
            try:
                snapshots.append(take_snapshot(group, self._moment, self._clock.now()))
            except UnstorableError as error:
                self._on_write_failed([group], str(error))
        return snapshots

    async def _save_snapshots(self, snapshots: list[GroupSnapshot]) -> None:
        write_health = [reactor.write_health for one in snapshots for reactor in one.group.reactors]
        self._stall_watch.watch(write_health)
        parts = [part for one in snapshots for part in one.parts]
        trims = [trim for one in snapshots for trim in one.journal_trims]
        keys = [row for one in snapshots for capture in one.keys for row in capture.rows]
        await self._store.checkpoints.save(parts, trims, self._ownership.fences_for(part.key for part in parts), keys)
        for one in snapshots:
            one.mark_written()
        for health in write_health:
            health.mark_written()

    def _on_write_failed(self, groups: list[CheckpointGroup], reason: str) -> None:
        self.last_write_failed = True
        self._work_ready.set()
        for group in groups:
            self._stall_watch.watch(reactor.write_health for reactor in group.reactors)
            for reactor in group.reactors:
                self._changed_reactors[reactor] = None
                reactor.write_health.mark_failed(reason)


def to_recovery(row: StoredRecovery) -> Recovery:
    """Return a stored recovery as the public type."""
    return Recovery(
        at=row.at, component=row.component, name=row.name, action=row.action, reason=row.reason, failures=row.failures
    )
