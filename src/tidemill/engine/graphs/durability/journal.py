"""The journal: what happens to accumulators of reactors with durability="boundary", committed before it happens.

Steps gather while a commit is on its way; the next one takes all of them. When it is through they happen, in the order
in which they were appended, and only then are they acknowledged. If the store refuses a commit nothing of it happens,
and nothing that was appended behind it: that was prepared on top of it.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from tidemill.engine.graphs.durability.checksums import journal_entry
from tidemill.engine.graphs.durability_backend import JournalStep, Stepping
from tidemill.graphs.result import Receipt
from tidemill.kernel.errors import OperationError, StoreError
from tidemill.storage.graph_ports import Checkpoints, JournalEntry

logger = logging.getLogger(__name__)

AppendedStep = tuple[Stepping, JournalStep, bytes, "asyncio.Future[Receipt]"]


class JournalObserver(Protocol):
    """Who wants to know whether the store takes what it is given."""

    def on_commit_started(self, accumulators: Iterable[Stepping]) -> None:
        """What these accumulators appended is on its way."""

    async def flush_pending_writes(self) -> None:
        """Write what must be in the store before what is appended: an offset must not pass an unwritten letter."""

    def on_committed(self, accumulators: Iterable[Stepping]) -> None:
        """What these accumulators appended is committed."""

    def on_failed(self, accumulators: Iterable[Stepping], reason: str) -> None:
        """What these accumulators appended could not be committed."""


class Journal:
    """The journals of one node's accumulators, in one order."""

    def __init__(self, checkpoints: Checkpoints, observer: JournalObserver) -> None:
        self._checkpoints = checkpoints
        self._observer = observer
        self._pending: list[AppendedStep] = []
        self._work_ready = asyncio.Event()
        self._committing: list[AppendedStep] = []
        self._position = 0
        self._is_abandoned = False

    def advance_position(self, position: int) -> None:
        """Give positions beyond this one."""
        self._position = max(self._position, position)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for its commit."""
        return not self._pending and not self._committing

    async def wait_committed(self) -> None:
        """Return when everything appended by now has been answered, or nobody hopes for that any more."""
        waiting = [future for *_, future in (*self._committing, *self._pending)]
        if waiting and not self._is_abandoned:
            await asyncio.wait(waiting)

    def append(self, accumulator: Stepping, step: JournalStep, payload: bytes) -> "asyncio.Future[Receipt]":
        """Append a step; it happens when it is committed."""
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._pending.append((accumulator, step, payload, future))
        self._work_ready.set()
        return future

    def abandon(self) -> None:
        """Let nobody wait for a commit any more: the node ends, and its store does not answer."""
        self._is_abandoned = True

    async def run(self) -> None:
        """Commit what is appended, until cancelled."""
        try:
            while True:
                await self._work_ready.wait()
                self._work_ready.clear()
                await asyncio.sleep(0)  # whoever is about to append in this turn of the loop joins
                steps, self._committing, self._pending = self._pending, self._pending, []
                await self._commit(steps)
                self._committing = []
        finally:
            self._fail_waiters()

    def _fail_waiters(self) -> None:
        """Tell those who still wait that the node has ended: what became of their events nobody can say here."""
        for *_, future in (*self._committing, *self._pending):
            if not future.done():
                future.set_exception(OperationError("the node ended before it was known whether this event was stored"))
                future.exception()  # some have nobody who waits for them

    async def _commit(self, steps: list[AppendedStep]) -> None:
        entries = [self._next_entry(stepping, payload) for stepping, _, payload, _ in steps]
        those = {stepping for stepping, *_ in steps}
        self._observer.on_commit_started(those)
        try:
            await self._observer.flush_pending_writes()
            await self._checkpoints.append(entries)
        except StoreError as error:
            behind, self._pending = self._pending, []
            self._refuse_steps(steps + behind, str(error))
        else:
            self._observer.on_committed(those)
            for (stepping, step, _, future), entry in zip(steps, entries, strict=True):
                receipt = stepping.on_committed(step, entry.position)
                if not future.done():
                    future.set_result(receipt)

    def _next_entry(self, accumulator: Stepping, payload: bytes) -> JournalEntry:
        self._position += 1
        return journal_entry(accumulator.journal_key, accumulator.journal_seed, self._position, payload)

    def _refuse_steps(self, steps: list[AppendedStep], reason: str) -> None:
        for stepping, step, _, future in steps:
            receipt = stepping.on_refused(step, reason)
            if not future.done():
                future.set_result(receipt)
        self._observer.on_failed({stepping for stepping, *_ in steps}, reason)
