"""The checkpointer: decides when snapshots are written, and notices when they cannot be.

Everything that is to outlive the process passes here: snapshots of reactors, the journal, dead letters, recoveries and
pauses. A change is noted and written together with all others of the next 200 ms; a reactor with durability="fire", a
dead letter or a recovery has it written at once. One write is on its way at a time, so what comes meanwhile is folded
into the next. What could not be written stays noted and is tried again, an interval later; meanwhile graphs fire on.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta

from tidemill.annotations.codec import UnstorableError
from tidemill.engine.graphs.durability.capture import CheckpointGroup, GroupSnapshot, checkpoint_groups, take_snapshot
from tidemill.engine.graphs.durability.dead_letter_store import (
    DeadLetterOwner,
    PendingWrites,
    PersistentDeadLetterStore,
)
from tidemill.engine.graphs.durability.journal import Journal, JournalObserver
from tidemill.engine.graphs.durability_backend import (
    CodecLookup,
    DeadLetterStore,
    DurabilityBackend,
    JournalStep,
    Stepping,
)
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.definition import Durability, Reactor
from tidemill.graphs.result import Receipt
from tidemill.graphs.state import Recovery
from tidemill.kernel.errors import OperationError, StoreError
from tidemill.kernel.ids import new_sortable_id
from tidemill.storage.graph_ports import PartKind, StoredRecovery
from tidemill.storage.store import Store
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

WRITE_STALL_TIMEOUT = 0.75  # seconds without a successful write, while one is wanted, that degrade a reactor


class Checkpointer(DurabilityBackend, JournalObserver):
    """Keeps what one node's reactors need for their next life."""

    def __init__(self, store: Store, runtime: GraphRuntime) -> None:
        self._store = store
        self._runtime = runtime
        self._interval = runtime.settings.checkpoint_interval
        self.journal = Journal(store.checkpoints, self)
        self._changed_reactors: dict[RunningReactor, None] = {}
        self._pending_writes = PendingWrites()
        self._write_callbacks: list[Callable[[], None]] = []
        self._moment = 0
        self._work_ready = asyncio.Event()
        self._changed_since = 0.0
        self._flush_requested = asyncio.Event()
        self._write_lock = asyncio.Lock()
        self._is_backing_off = False  # after a failure, whatever the hurry
        self._unwritten_since: dict[
            RunningReactor, float
        ] = {}  # since when a write for a reactor is on its way, or fails
        self._stall_watch: asyncio.Task[None] | None = None
        self.last_write_failed = False
        self._store_refused = False  # whether the store would not take the last write
        self._is_abandoned = False

    async def open(self) -> None:
        """Go on with the numbers of earlier lives, and begin to write."""
        kept_from = self._runtime.clock.now() - timedelta(seconds=self._runtime.settings.retention)
        await self._store.recoveries.delete_before(kept_from)
        newest = await self._store.checkpoints.read_high_water_marks()
        self._moment = newest.moment
        self.journal.advance_position(newest.position)
        tasks = self._runtime.tasks
        tasks.start("checkpoints", self._run())
        tasks.start("journal", self.journal.run())

    # -- what is asked of it

    def mode_for(self, reactor: Reactor) -> Durability:
        return reactor.durability or "interval"

    def request_checkpoint(self, reactor: RunningReactor) -> None:
        self._changed_reactors[reactor] = None
        if not self._work_ready.is_set():
            self._changed_since = self._runtime.clock.monotonic()
            self._work_ready.set()

    def flush_soon(self) -> None:
        self._work_ready.set()
        self._flush_requested.set()

    def on_next_write(self, callback: Callable[[], None]) -> None:
        self._write_callbacks.append(callback)
        self.flush_soon()

    def append(self, accumulator: Stepping, step: JournalStep, payload: bytes) -> "asyncio.Future[Receipt]":
        return self.journal.append(accumulator, step, payload)

    async def flush_dead_letters(self) -> None:
        with suppress(StoreError):  # they stay noted, and are tried again with the next checkpoint
            await self._pending_writes.write(self._store)

    async def wait_committed(self) -> None:
        await self.journal.wait_committed()

    def advance_position(self, position: int) -> None:
        self.journal.advance_position(position)

    async def set_paused(self, tenant: str, reactor: str, *, paused: bool) -> None:
        try:
            await self._store.pauses.set_paused(tenant, reactor, paused=paused)
        except StoreError as error:
            word = "paused" if paused else "resumed"
            raise OperationError(
                f"reactor '{reactor}' is {word}, but a restart will not know of it: {error}"
            ) from error

    def dead_letter_store(
        self, tenant: str, owner: PartKind, source: str, codec_for: CodecLookup | None = None
    ) -> DeadLetterStore:
        return PersistentDeadLetterStore(
            self._pending_writes, self.flush_soon, DeadLetterOwner(tenant, owner, source, codec_for)
        )

    def add_recovery(self, tenant: str, recovery: Recovery) -> None:
        self._pending_writes.recoveries.append(
            StoredRecovery(
                id=new_sortable_id(recovery.at),
                tenant=tenant,
                component=recovery.component,
                name=recovery.name,
                at=recovery.at,
                action=recovery.action,
                reason=recovery.reason,
                failures=recovery.failures,
            )
        )
        self.flush_soon()

    async def close(self) -> None:
        """Write everything a last time. If the store fails, or is silent for a grace: nobody waits for it again."""
        tasks, clock = self._runtime.tasks, self._runtime.clock
        writing = tasks.start("checkpoints: last write", self._write())
        grace = tasks.start("checkpoints: grace", clock.sleep(self._runtime.settings.unload_timeout))
        await asyncio.wait({writing, grace}, return_when=asyncio.FIRST_COMPLETED)
        grace.cancel()
        if not writing.done() or self._store_refused:
            self._is_abandoned = True
            self.journal.abandon()

    async def save_and_forget(self, reactor: RunningReactor) -> None:
        if reactor.is_durable:
            self.request_checkpoint(reactor)
            await self.write()
            if reactor in self._changed_reactors:
                logger.error(events.LAST_CHECKPOINT_FAILED, extra={"reactor": reactor.name})
        self._changed_reactors.pop(reactor, None)
        self._unwritten_since.pop(reactor, None)
        reactor.durability = "none"  # whatever ends here late must not be written over what comes after it

    # -- when it writes

    @property
    def has_pending_changes(self) -> bool:
        """Whether something is noted and not yet written."""
        return self._work_ready.is_set()

    @property
    def is_idle(self) -> bool:
        """Whether no write is on its way and none is due at once."""
        is_due = self._flush_requested.is_set() and not self._is_backing_off
        return not self._write_lock.locked() and not is_due and self.journal.is_idle

    async def _run(self) -> None:
        while not self._is_abandoned:
            await self._work_ready.wait()
            await self._wait_for_batch()
            await self._write()

    async def _wait_for_batch(self) -> None:
        """Let changes gather for an interval, or until somebody is in a hurry; after a failure always the former."""
        clock = self._runtime.clock
        if self._store_refused:
            self._is_backing_off = True
            await clock.sleep(self._interval)
            self._is_backing_off = False
        elif not self._flush_requested.is_set():
            tasks, remaining = self._runtime.tasks, self._changed_since + self._interval - clock.monotonic()
            ends = tasks.start("checkpoints: interval", clock.sleep(remaining))
            hurry = tasks.start("checkpoints: hurry", self._flush_requested.wait())
            await asyncio.wait({ends, hurry}, return_when=asyncio.FIRST_COMPLETED)
            ends.cancel()
            hurry.cancel()

    async def write(self) -> None:
        """Write everything that is noted by now, also if nobody waits for it; what cannot be written stays noted."""
        await self._runtime.tasks.run_shielded("checkpoints: write", self._write())

    async def _write(self) -> None:
        if self._is_abandoned:
            return
        async with self._write_lock:
            self._work_ready.clear()
            self._flush_requested.clear()
            self.last_write_failed = self._store_refused = False
            callbacks, self._write_callbacks = self._write_callbacks, []
            captures = self._take_snapshots()
            try:
                await self._pending_writes.write(self._store)
                if captures:
                    await self._save_snapshots(captures)
            except StoreError as error:
                self._store_refused = True
                self._on_write_failed([one.group for one in captures], str(error))
            for call in callbacks:
                call()

    def _take_snapshots(self) -> list[GroupSnapshot]:
        """Take the snapshots of all circles with changes, in one moment."""
        noted, self._changed_reactors = self._changed_reactors, {}
        self._moment += 1
        captures = []
        for circle in checkpoint_groups(noted):
            try:
                captures.append(take_snapshot(circle, self._moment, self._runtime.clock.now()))
            except UnstorableError as error:
                self._on_write_failed([circle], str(error))
        return captures

    async def _save_snapshots(self, snapshots: list[GroupSnapshot]) -> None:
        reactors = [reactor for one in snapshots for reactor in one.group.reactors]
        self._watch_for_stall(reactors)
        parts = [part for one in snapshots for part in one.parts]
        covered = [entry for one in snapshots for entry in one.journal_trims]
        await self._store.checkpoints.save(parts, covered)
        for one in snapshots:
            one.mark_written()
        self._on_write_ok(reactors)

    # -- whether it can

    def on_commit_started(self, accumulators: Iterable[Stepping]) -> None:
        self._watch_for_stall(_journaled_reactors(accumulators))

    async def flush_pending_writes(self) -> None:
        await self._pending_writes.write(self._store)

    def on_committed(self, accumulators: Iterable[Stepping]) -> None:
        self._on_write_ok(_journaled_reactors(accumulators))

    def on_failed(self, accumulators: Iterable[Stepping], reason: str) -> None:
        for reactor in _journaled_reactors(accumulators):
            reactor.on_write_failed(reason)
            self.request_checkpoint(
                reactor
            )  # so that it is known when the store is well again, although nobody may push meanwhile

    def _on_write_failed(self, groups: list[CheckpointGroup], reason: str) -> None:
        self.last_write_failed = True
        self._work_ready.set()
        for circle in groups:
            self._watch_for_stall(circle.reactors)
            for reactor in circle.reactors:
                self._changed_reactors[reactor] = None
                reactor.on_write_failed(reason)

    def _on_write_ok(self, reactors: Iterable[RunningReactor]) -> None:
        for reactor in reactors:
            self._unwritten_since.pop(reactor, None)
            reactor.on_write_ok()

    def _watch_for_stall(self, reactors: Iterable[RunningReactor]) -> None:
        """Notice if a write for these reactors takes long, or fails for long."""
        now = self._runtime.clock.monotonic()
        for reactor in reactors:
            self._unwritten_since.setdefault(reactor, now)
        if self._unwritten_since and (self._stall_watch is None or self._stall_watch.done()):
            self._stall_watch = self._runtime.tasks.start("checkpoints: watch", self._degrade_stalled())

    async def _degrade_stalled(self) -> None:
        """Degrade the reactors for which nothing could be written for too long."""
        clock = self._runtime.clock
        while self._unwritten_since:
            await clock.sleep(
                max(
                    min(self._unwritten_since.values()) + WRITE_STALL_TIMEOUT - clock.monotonic(),
                    WRITE_STALL_TIMEOUT / 10,
                )
            )
            for reactor, since in tuple(self._unwritten_since.items()):
                if clock.monotonic() - since >= WRITE_STALL_TIMEOUT:
                    reactor.on_write_stalled()


def to_recovery(row: StoredRecovery) -> Recovery:
    """Return a stored recovery as people see it."""
    return Recovery(
        at=row.at, component=row.component, name=row.name, action=row.action, reason=row.reason, failures=row.failures
    )


def _journaled_reactors(accumulators: Iterable[Stepping]) -> list[RunningReactor]:
    """Return the reactors that rely on the journals of these accumulators."""
    found = (target for one in accumulators for target, _ in getattr(one, "targets", ()))
    return [target for target in dict.fromkeys(found) if isinstance(target, RunningReactor) and target.is_journaled]
