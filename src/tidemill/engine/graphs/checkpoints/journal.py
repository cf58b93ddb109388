"""The journal: what happens to accumulators of reactors with durability="boundary", committed before it happens.

Steps gather while a commit is on its way; the next one takes all of them. When it is through they happen, in the order
in which they were appended, and only then are they acknowledged. If the store refuses a commit nothing of it happens,
and nothing that was appended behind it: that was prepared on top of it.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from tidemill.engine.graphs.checkpoints.sealing import marked
from tidemill.engine.graphs.step import Step, Stepping
from tidemill.graphs.result import Receipt
from tidemill.kernel.errors import OperationError, StoreError
from tidemill.storage.ports import Checkpoints, JournalEntry

logger = logging.getLogger(__name__)

Appended = tuple[Stepping, Step, bytes, "asyncio.Future[Receipt]"]


class Witness(Protocol):
    """Who wants to know whether the store takes what it is given."""

    def began(self, stepping: Iterable[Stepping]) -> None:
        """What these accumulators appended is on its way."""

    async def write_notes(self) -> None:
        """Write what must be in the store before what is appended: an offset must not pass an unwritten letter."""

    def kept(self, stepping: Iterable[Stepping]) -> None:
        """What these accumulators appended is committed."""

    def refused(self, stepping: Iterable[Stepping], reason: str) -> None:
        """What these accumulators appended could not be committed."""


class Journal:
    """The journals of one node's accumulators, in one order."""

    def __init__(self, checkpoints: Checkpoints, witness: Witness) -> None:
        self._checkpoints = checkpoints
        self._witness = witness
        self._appended: list[Appended] = []
        self._news = asyncio.Event()
        self._committing: list[Appended] = []
        self._position = 0
        self._has_given_up = False

    def go_on_from(self, position: int) -> None:
        """Give positions beyond this one."""
        self._position = max(self._position, position)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for its commit."""
        return not self._appended and not self._committing

    async def all_committed(self) -> None:
        """Return when everything appended by now has been answered, or nobody hopes for that any more."""
        waiting = [future for *_, future in (*self._committing, *self._appended)]
        if waiting and not self._has_given_up:
            await asyncio.wait(waiting)

    def append(self, stepping: Stepping, step: Step, payload: bytes) -> "asyncio.Future[Receipt]":
        """Append a step; it happens when it is committed."""
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._appended.append((stepping, step, payload, future))
        self._news.set()
        return future

    def give_up(self) -> None:
        """Let nobody wait for a commit any more: the node ends, and its store does not answer."""
        self._has_given_up = True

    async def work(self) -> None:
        """Commit what is appended, until cancelled."""
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                await asyncio.sleep(0)  # whoever is about to append in this turn of the loop joins
                steps, self._committing, self._appended = self._appended, self._appended, []
                await self._commit(steps)
                self._committing = []
        finally:
            self._leave_open()

    def _leave_open(self) -> None:
        """Tell those who still wait that the node has ended: what became of their events nobody can say here."""
        for *_, future in (*self._committing, *self._appended):
            if not future.done():
                future.set_exception(OperationError("the node ended before it was known whether this event was stored"))
                future.exception()  # some have nobody who waits for them

    async def _commit(self, steps: list[Appended]) -> None:
        entries = [self._entry(stepping, payload) for stepping, _, payload, _ in steps]
        those = {stepping for stepping, *_ in steps}
        self._witness.began(those)
        try:
            await self._witness.write_notes()
            await self._checkpoints.append(entries)
        except StoreError as error:
            behind, self._appended = self._appended, []
            self._refuse(steps + behind, str(error))
        else:
            self._witness.kept(those)
            for (stepping, step, _, future), entry in zip(steps, entries, strict=True):
                receipt = stepping.complete(step, entry.position)
                if not future.done():
                    future.set_result(receipt)

    def _entry(self, stepping: Stepping, payload: bytes) -> JournalEntry:
        self._position += 1
        return marked(stepping.journal_key, stepping.journal_seed, self._position, payload)

    def _refuse(self, steps: list[Appended], reason: str) -> None:
        for stepping, step, _, future in steps:
            receipt = stepping.refuse(step, reason)
            if not future.done():
                future.set_result(receipt)
        self._witness.refused({stepping for stepping, *_ in steps}, reason)
