"""The journal: commits the steps of accumulators that feed reactors with durability="boundary" before they happen.

Steps gather while a commit is in progress; the next commit takes all of them. After a commit its steps happen in the
order in which they were appended, and only then are they acknowledged. If the store refuses a commit, none of its steps
happens, and none of those appended behind it: they were prepared on top of it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from tidemill.engine.graphs.durability.ownership import ReactorOwnership
from tidemill.engine.graphs.durability.pending_writes import PendingWrites
from tidemill.engine.graphs.durability.write_health import StallWatch, WriteHealth
from tidemill.graphs.result import Receipt
from tidemill.graphs.snapshot import journal_checksum
from tidemill.kernel.errors import FencedError, OperationError, StoreError
from tidemill.storage.graph_ports import JournalEntry, JournalKey, PartFence, PartKey, fenced_error
from tidemill.storage.store import Store

logger = logging.getLogger(__name__)

StepKind = Literal["boundary", "held", "released"]


class JournalStep(msgspec.Struct, frozen=True):
    """A change of an accumulator: it emits a boundary, buffers an event, or releases its `count` oldest events."""

    kind: StepKind
    value: Any = None
    count: int = 0
    offset: Any = None
    """How far the source has been read, if the event came from one."""


class JournalWriter(msgspec.Struct, eq=False):
    """One accumulator's side of the journal: where its entries go, and what happens to its steps afterwards."""

    key: JournalKey
    part_key: PartKey
    """The accumulator's part: a node that owns it owns its journal."""
    seed: int
    """Starts the checksum of each entry; computed once, because this is done for each event."""
    on_committed: Callable[[JournalStep, int], Receipt]
    """Applies a committed step at its position, and returns the receipt."""
    on_refused: Callable[[JournalStep, str], Receipt]
    """Rolls a refused step back, and returns the receipt."""
    write_health: list[WriteHealth] = []
    """Of the reactors that rely on this journal."""


AppendedStep = tuple[JournalWriter, JournalStep, bytes, "asyncio.Future[Receipt]"]


class Journal:
    """The journals of one node's accumulators, in one order."""

    def __init__(
        self, store: Store, ownership: ReactorOwnership, pending_writes: PendingWrites, stall_watch: StallWatch
    ) -> None:
        self._store = store
        self._ownership = ownership
        self._pending_writes = pending_writes
        self._stall_watch = stall_watch
        self._pending: list[AppendedStep] = []
        self._work_ready = asyncio.Event()
        self._committing: list[AppendedStep] = []
        self._position = 0
        self._is_abandoned = False

    def advance_position(self, position: int) -> None:
        """Assign positions after this one from now on."""
        self._position = max(self._position, position)

    @property
    def is_idle(self) -> bool:
        """Whether no step waits for its commit."""
        return not self._pending and not self._committing

    async def wait_committed(self) -> None:
        """Wait until every step appended so far is committed or refused, unless the journal was abandoned."""
        waiting = [future for *_, future in (*self._committing, *self._pending)]
        if waiting and not self._is_abandoned:
            await asyncio.wait(waiting)

    def append(self, writer: JournalWriter, step: JournalStep, payload: bytes) -> "asyncio.Future[Receipt]":
        """Append a step; it happens when it is committed."""
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._pending.append((writer, step, payload, future))
        self._work_ready.set()
        return future

    def abandon(self) -> None:
        """Make `wait_committed` return immediately: the node is closing and its store does not answer."""
        self._is_abandoned = True

    async def run(self) -> None:
        """Commit appended steps until cancelled."""
        try:
            while True:
                await self._work_ready.wait()
                self._work_ready.clear()
                await asyncio.sleep(0)  # steps appended in the same turn of the loop join this commit
                steps, self._committing, self._pending = self._pending, self._pending, []
                await self._commit(steps)
                self._committing = []
        finally:
            self._fail_waiters()

    def _fail_waiters(self) -> None:
        """Fail the callers that still wait for a commit: its outcome is unknown."""
        for *_, future in (*self._committing, *self._pending):
            if not future.done():
                future.set_exception(OperationError("the node ended before it was known whether this event was stored"))
                future.exception()  # marks it as retrieved: some have no waiter

    async def _commit(self, steps: list[AppendedStep]) -> None:
        entries = [self._next_entry(writer, payload) for writer, _, payload, _ in steps]
        write_health = _write_health(steps)
        self._stall_watch.watch(write_health)
        try:
            if self._pending_writes:  # first: an offset must not pass a dead letter that is not in the store
                await self._pending_writes.write(self._store)
            await self._store.checkpoints.append(entries, self._fences(steps))
        except StoreError as error:
            behind, self._pending = self._pending, []
            self._refuse(steps + behind, str(error))
            if isinstance(error, FencedError):
                await self._ownership.renew()
            return
        for health in write_health:
            health.pending_since = None
            if not health.is_clean:
                health.mark_written()
        for (writer, step, _, future), entry in zip(steps, entries, strict=True):
            receipt = writer.on_committed(step, entry.position)
            if not future.done():
                future.set_result(receipt)

    def _fences(self, steps: list[AppendedStep]) -> list[PartFence]:
        """Return the fences of the accumulators whose steps are written."""
        owned = self._ownership.fences
        try:
            return [owned[key] for key in {writer.part_key for writer, *_ in steps}]
        except KeyError:
            raise fenced_error() from None

    def _next_entry(self, writer: JournalWriter, payload: bytes) -> JournalEntry:
        self._position = position = self._position + 1
        checksum = journal_checksum(payload, writer.seed, position)
        return JournalEntry(key=writer.key, position=position, checksum=checksum, payload=payload)

    def _refuse(self, steps: list[AppendedStep], reason: str) -> None:
        for writer, step, _, future in steps:
            receipt = writer.on_refused(step, reason)
            if not future.done():
                future.set_result(receipt)
        for health in _write_health(steps):
            health.mark_failed(reason)


def _write_health(steps: Iterable[AppendedStep]) -> list[WriteHealth]:
    """Return the write health of all reactors that rely on these steps, each once."""
    writers = {writer for writer, *_ in steps}
    return list(dict.fromkeys(health for writer in writers for health in writer.write_health))
