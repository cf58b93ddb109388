"""Producers of one accumulator that number their pushes: the newest push of each, so that none is applied twice.

The pushes of one producer are taken one after another. With durability="boundary" the newest one is in the store, and
outlives the process and the owner of the reactor; otherwise it is kept in memory only.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from tidemill.graphs.pushes import ProducerPosition, PushSummary, ReceiptRun, decode_runs
from tidemill.storage.graph_ports import StoredPush

MAX_PRODUCERS = 10_000
"""Producers that one accumulator keeps in memory; more of them are read from the store again."""


class Producer(msgspec.Struct, eq=False):
    """One producer, and the newest of its pushes that was taken."""

    turn: asyncio.Lock
    newest: StoredPush | None = None
    is_read: bool = False
    """Whether the newest push in the store is known."""

    def answer_repetition(self, position: ProducerPosition, events: int) -> PushSummary | None:
        """Return the answer to a push that was taken before; None if it is new.

        Only the newest push has its answer kept. The events of an older one are suppressed, with the reason.
        """
        newest = self.newest
        if newest is None or position.sequence > newest.sequence:
            return None
        runs = decode_runs(newest.answer)
        if position.sequence < newest.sequence:
            reason = (
                f"push {position.sequence} of '{position.client}' was taken before; its newest one is {newest.sequence}"
            )
            sequence = runs[-1].last_sequence if runs else 0
            runs = (ReceiptRun(True, "suppressed", reason, sequence, events),) if events else ()
        return PushSummary(runs, is_duplicate=True)


class KnownProducers:
    """The producers of one accumulator, by the ids that they chose."""

    def __init__(self, read: Callable[[str], Awaitable[StoredPush | None]]) -> None:
        self._read = read
        self._producers: dict[str, Producer] = {}  # least recently used first

    def add_new(self, client: str) -> None:
        """Add a producer that has pushed nothing yet, so that the store is not asked about it."""
        self._producers[client] = Producer(asyncio.Lock(), is_read=True)

    @asynccontextmanager
    async def turn(self, client: str, *, is_stored: bool) -> AsyncIterator[Producer]:
        """Wait for the turn of a producer's next push; `is_stored` if its newest one is to be read from the store."""
        producer = self._producers.pop(client, None) or Producer(asyncio.Lock())
        self._producers[client] = producer
        self._forget_oldest()
        async with producer.turn:
            if is_stored and not producer.is_read:
                producer.newest = await self._read(client)
                producer.is_read = True
            yield producer

    def _forget_oldest(self) -> None:
        if len(self._producers) > MAX_PRODUCERS:
            idle = (client for client, producer in self._producers.items() if not producer.turn.locked())
            if (oldest := next(idle, None)) is not None:
                del self._producers[oldest]
