"""Write health: tracks whether reactor state reaches the store, by consecutive failures and stalled writes."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from tidemill.engine.tasks import TaskScope
from tidemill.kernel.clock import Clock
from tidemill.storage.store import Store
from tidemill.storage.tables.graphs import StoredDeadLetter, StoredRecovery
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

WRITE_FAILURE_LIMIT = 5  # failed writes in a row that degrade a reactor
WRITE_STALL_TIMEOUT = 0.75  # seconds without a successful write, while one is pending, that degrade a reactor


class WriteHealth:
    """The outcome of one reactor's writes. `on_change` is called when the reactor starts or stops being degraded."""

    def __init__(self, reactor: str, on_change: Callable[[], None]) -> None:
        self._reactor = reactor
        self._on_change = on_change
        self.failures = 0  # in a row
        self.total_failures = 0
        self.is_ok = True
        self.is_clean = True  # no failure and no stall since the last successful write
        self.pending_since: float | None = None  # since when a write is in progress, or has been failing

    def mark_written(self) -> None:
        """Record a successful write, which ends every degradation."""
        self.pending_since = None
        if self.is_clean:
            return
        if self.failures:
            logger.info(events.CHECKPOINT_RECOVERED, extra={"reactor": self._reactor, "failures": self.failures})
        self.failures = 0
        self.is_clean = True
        self._set_ok(is_ok=True)

    def mark_failed(self, reason: str) -> None:
        """Record a failed write; five in a row degrade the reactor."""
        self.is_clean = False
        self.failures += 1
        self.total_failures += 1
        if self.failures in (1, WRITE_FAILURE_LIMIT):  # logging each of many equal failures helps no one
            facts = {"reactor": self._reactor, "reason": reason, "failures": self.failures}
            logger.warning(events.CHECKPOINT_FAILED, extra=facts)
        if self.failures >= WRITE_FAILURE_LIMIT:
            self._set_ok(is_ok=False)

    def mark_stalled(self) -> None:
        """Degrade the reactor because a write has been pending for too long."""
        self.is_clean = False
        self._set_ok(is_ok=False)

    def _set_ok(self, *, is_ok: bool) -> None:
        if is_ok is not self.is_ok:
            self.is_ok = is_ok
            self._on_change()


class StallWatch:
    """Finds writes that stay pending for too long. It runs only while some write is pending."""

    def __init__(self, clock: Clock, tasks: TaskScope) -> None:
        self._clock = clock
        self._tasks = tasks
        self._watched: set[WriteHealth] = set()
        self._task: asyncio.Task[None] | None = None

    def watch(self, writes: Iterable[WriteHealth]) -> None:
        """Watch these writes until each succeeds."""
        now = self._clock.monotonic()
        for write in writes:
            if write.pending_since is None:
                write.pending_since = now
            self._watched.add(write)
        if self._watched and (self._task is None or self._task.done()):
            self._task = self._tasks.start("checkpoints: stall watch", self._run())

    async def _run(self) -> None:
        while pending := self._pending():
            oldest = min(pending.values())
            delay = oldest + WRITE_STALL_TIMEOUT - self._clock.monotonic()
            await self._clock.sleep(max(delay, WRITE_STALL_TIMEOUT / 10))
            for write, since in self._pending().items():
                if self._clock.monotonic() - since >= WRITE_STALL_TIMEOUT:
                    write.mark_stalled()

    def _pending(self) -> dict[WriteHealth, float]:
        pending = {write: write.pending_since for write in self._watched if write.pending_since is not None}
        self._watched = set(pending)
        return pending


class PendingWrites:
    """Dead letters and recoveries that are not in the store yet."""

    def __init__(self) -> None:
        self.dead_letters: dict[str, StoredDeadLetter] = {}
        self.removed_dead_letters: dict[str, None] = {}
        self.recoveries: list[StoredRecovery] = []
        self._write_lock = asyncio.Lock()  # a caller never overtakes rows that another caller is still writing

    def __bool__(self) -> bool:
        """Return whether some row is not in the store yet; rows that are being written count."""
        return bool(self.dead_letters or self.recoveries or self._write_lock.locked())

    async def write(self, store: Store) -> None:
        """Write everything; rows that cannot be written stay pending."""
        async with self._write_lock:
            await self._write(store)

    async def write_removals(self, store: Store) -> None:
        """Delete the removed dead letters; those that cannot be deleted stay pending."""
        async with self._write_lock:
            removed, self.removed_dead_letters = self.removed_dead_letters, {}
            try:
                if removed:
                    await store.dead_letters.delete(list(removed))
            except BaseException:
                self.removed_dead_letters = removed | self.removed_dead_letters
                raise

    async def _write(self, store: Store) -> None:
        dead_letters, self.dead_letters = self.dead_letters, {}
        recoveries, self.recoveries = self.recoveries, []
        try:
            if dead_letters:
                await store.dead_letters.upsert(list(dead_letters.values()))
            dead_letters = {}
            if recoveries:
                await store.recoveries.add(recoveries)
        except BaseException:
            self.dead_letters = {**dead_letters, **self.dead_letters}
            self.recoveries = [*recoveries, *self.recoveries]
            raise
