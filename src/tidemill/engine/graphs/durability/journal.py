"""The journal: commits the steps of accumulators that feed reactors with durability="boundary" before they happen.

Steps gather while a commit is in progress; the next commit takes all of them, and writes one block for each of their
accumulators. After a commit its steps happen in the order in which they were appended, and only then are they
acknowledged. If the store refuses a commit, none of its steps happens, and none of those appended behind it: they were
prepared on top of it.

A producer may number its pushes. The number is committed together with the steps of the push, and with its answer, so
that a repetition of the push is recognized however it was interrupted.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Literal

import msgspec

from tidemill.engine.graphs.durability.journal_blocks import pack_block
from tidemill.engine.graphs.durability.ownership import ReactorOwnership
from tidemill.engine.graphs.durability.write_health import PendingWrites, StallWatch, WriteHealth
from tidemill.graphs.outcomes import Receipt
from tidemill.kernel.errors import FencedError, OperationError, StoreError
from tidemill.storage.graph_ports import JournalBlock, JournalKey, PartFence, PartKey, StoredPush, fenced_error
from tidemill.storage.store import Store

logger = logging.getLogger(__name__)

MAX_SHARED_COMMIT = 4096
"""Events of one pusher, or of frames that wait together, that share a commit."""

StepKind = Literal["boundary", "held", "released"]


class JournalStep(msgspec.Struct, frozen=True):
    """A change of an accumulator: it emits a boundary, buffers an event, or releases its `count` oldest events."""

    kind: StepKind
    value: Any = None
    count: int = 0
    offset: Any = None
    """How far the source has been read, if the event came from one."""
    key: Any = None
    """Of a keyed accumulator: the key that changes."""


class JournalWriter(msgspec.Struct, eq=False):
    """One accumulator's side of the journal: where its entries go, and what happens to its steps afterwards."""

    key: JournalKey
    part_key: PartKey
    """The accumulator's part: a node that owns it owns its journal."""
    seed: int
    """Starts the checksum of each block; computed once, because this is done for each commit."""
    on_committed: Callable[[JournalStep, int], Receipt]
    """Applies a committed step at its position, and returns the receipt."""
    on_refused: Callable[[JournalStep, str], Receipt]
    """Rolls a refused step back, and returns the receipt."""
    emits_boundary: Callable[[JournalStep], bool]
    """Returns whether a step emits a boundary."""
    write_health: list[WriteHealth] = []
    """Of the reactors that rely on this journal."""


class NumberedPush(msgspec.Struct, frozen=True, eq=False):
    """A push that its producer has numbered: it is committed together with its steps."""

    writer: JournalWriter
    first_step: int
    """The index of its first step among those of the commit."""
    end: int
    """The index after its last step."""
    to_row: Callable[[int, Sequence[JournalStep]], StoredPush]
    """Returns what is stored, for the boundaries that are emitted before it in the same commit, and for its steps."""
    taken: "asyncio.Future[StoredPush | None]"
    """Becomes what was stored, or None if the store refused the commit."""


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
        self._pending_pushes: list[NumberedPush] = []
        self._committing_pushes: list[NumberedPush] = []
        self._commit_waiters: list[asyncio.Future[None]] = []
        self._position = 0
        self._is_abandoned = False

    def advance_position(self, position: int) -> None:
        """Assign positions after this one from now on."""
        self._position = max(self._position, position)

    @property
    def is_idle(self) -> bool:
        """Whether no step waits for its commit."""
        return not (self._pending or self._committing or self._pending_pushes or self._committing_pushes)

    async def wait_committed(self) -> None:
        """Wait until every step appended so far has happened or is refused, unless the journal was abandoned.

        The futures of the steps do not tell: a pusher that is cancelled cancels its own, and the step happens later.
        """
        if self.is_idle or self._is_abandoned:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._commit_waiters.append(waiter)
        self._work_ready.set()
        await waiter

    def append(self, writer: JournalWriter, step: JournalStep, payload: bytes) -> "asyncio.Future[Receipt]":
        """Append a step; it happens when it is committed."""
        future: asyncio.Future[Receipt] = asyncio.Future()
        if not self._pending:  # once per commit: this is done for each event
            self._work_ready.set()
        self._pending.append((writer, step, payload, future))
        return future

    def append_push(
        self, writer: JournalWriter, steps: int, to_row: Callable[[int, Sequence[JournalStep]], StoredPush]
    ) -> "asyncio.Future[StoredPush | None]":
        """Commit the number of a push together with its steps, the last ones that were appended in this turn."""
        future: asyncio.Future[StoredPush | None] = asyncio.get_running_loop().create_future()
        end = len(self._pending)
        self._pending_pushes.append(NumberedPush(writer, end - steps, end, to_row, future))
        self._work_ready.set()
        return future

    def abandon(self) -> None:
        """Make `wait_committed` return immediately: the node is closing and its store does not answer."""
        self._is_abandoned = True
        self._release_waiters(len(self._commit_waiters))

    async def run(self) -> None:
        """Commit appended steps until cancelled."""
        try:
            while True:
                await self._work_ready.wait()
                self._work_ready.clear()
                await asyncio.sleep(0)  # steps appended in the same turn of the loop join this commit
                waiters = len(self._commit_waiters)
                steps, self._committing, self._pending = self._pending, self._pending, []
                pushes, self._committing_pushes, self._pending_pushes = self._pending_pushes, self._pending_pushes, []
                if steps or pushes:  # else they were part of the last commit, or were refused with it
                    await self._commit(steps, pushes)
                self._committing, self._committing_pushes = [], []
                self._release_waiters(waiters)
        finally:
            self._fail_pushers()
            self._release_waiters(len(self._commit_waiters))

    def _release_waiters(self, count: int) -> None:
        """Let the oldest callers of `wait_committed` go on."""
        released, self._commit_waiters = self._commit_waiters[:count], self._commit_waiters[count:]
        for waiter in released:
            if not waiter.done():
                waiter.set_result(None)

    def _fail_pushers(self) -> None:
        """Fail the pushers that still wait for a commit: its outcome is unknown."""
        futures: list[asyncio.Future[Any]] = [future for *_, future in (*self._committing, *self._pending)]
        futures += [push.taken for push in (*self._committing_pushes, *self._pending_pushes)]
        for future in futures:
            if not future.done():
                future.set_exception(OperationError("the node ended before it was known whether this event was stored"))
                future.exception()  # marks it as retrieved: some have no waiter
        self._committing, self._pending, self._committing_pushes, self._pending_pushes = [], [], [], []

    async def _commit(self, steps: list[AppendedStep], pushes: list[NumberedPush]) -> None:
        first = self._position + 1
        self._position += len(steps)
        blocks, writers = _pack_blocks(steps, first)
        write_health = _write_health(writers)
        self._stall_watch.watch(write_health)
        try:
            if self._pending_writes:  # first: an offset must not pass a dead letter that is not in the store
                await self._pending_writes.write(self._store)
            fences = self._fences({one.part_key for one in (*writers, *(push.writer for push in pushes))})
            rows = _push_rows(pushes, steps)
            await self._store.checkpoints.append(blocks, fences, rows)
        except StoreError as error:
            if isinstance(error, FencedError):  # first: callers then know that another node owns the accumulator
                await self._ownership.renew()
            behind, self._pending = self._pending, []
            self._refuse(steps + behind, str(error))
            pushes_behind, self._pending_pushes = self._pending_pushes, []
            _resolve(pushes + pushes_behind, [None] * len(pushes + pushes_behind))
            return
        for health in write_health:
            health.pending_since = None
            if not health.is_clean:
                health.mark_written()
        for position, (writer, step, _, future) in enumerate(steps, first):
            receipt = writer.on_committed(step, position)
            if not future.done():
                future.set_result(receipt)
        _resolve(pushes, rows)

    def _fences(self, accumulators: Iterable[PartKey]) -> list[PartFence]:
        """Return the fences of the accumulators whose steps are written."""
        owned = self._ownership.fences
        try:
            return [owned[key] for key in accumulators]
        except KeyError:
            raise fenced_error() from None

    def _refuse(self, steps: list[AppendedStep], reason: str) -> None:
        for writer, step, _, future in steps:
            receipt = writer.on_refused(step, reason)
            if not future.done():
                future.set_result(receipt)
        for health in _write_health({writer for writer, *_ in steps}):
            health.mark_failed(reason)


def _pack_blocks(steps: list[AppendedStep], first: int) -> tuple[list[JournalBlock], Collection[JournalWriter]]:
    """Return the blocks of steps whose positions begin at `first`, one for each accumulator, and their writers."""
    packed: dict[JournalWriter, tuple[list[int], list[bytes]]] = {}
    for position, (writer, _, payload, _) in enumerate(steps, first):
        if (block := packed.get(writer)) is None:
            packed[writer] = ([position], [payload])
        else:
            block[0].append(position)
            block[1].append(payload)
    return [pack_block(writer.key, writer.seed, *block) for writer, block in packed.items()], packed.keys()


def _push_rows(pushes: list[NumberedPush], steps: list[AppendedStep]) -> list[StoredPush]:
    """Return the rows of pushes. Their answers name boundaries, which are numbered when the commit has happened."""
    emitted: Counter[JournalWriter] = Counter()
    rows, counted = [], 0
    for push in pushes:
        for writer, step, *_ in steps[counted : push.first_step]:
            emitted[writer] += writer.emits_boundary(step)
        counted = push.first_step
        rows.append(push.to_row(emitted[push.writer], [step for _, step, *_ in steps[push.first_step : push.end]]))
    return rows


def _resolve(pushes: Sequence[NumberedPush], rows: Sequence[StoredPush | None]) -> None:
    for push, row in zip(pushes, rows, strict=True):
        if not push.taken.done():
            push.taken.set_result(row)


def _write_health(writers: Iterable[JournalWriter]) -> list[WriteHealth]:
    """Return the write health of all reactors that rely on these journals, each once."""
    return list(dict.fromkeys(health for writer in writers for health in writer.write_health))
