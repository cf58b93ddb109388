"""Events of a source that one node reads for all partitions: a partition takes those of its keys, each once.

The relay numbers the events of the source. Here the offset of an accumulator is the number of the newest event that it
has taken, so that a snapshot stores the number together with what the event has changed. With a journal the number is
that of a producer, and is committed with the events.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from tidemill.engine.graphs.accumulators.pushes import PUSHES_PER_YIELD
from tidemill.engine.graphs.keys.keyed_ingest import KeyedAccumulator, keys_of
from tidemill.graphs.outcomes import may_accept_later
from tidemill.graphs.pushes import SOURCE_CLIENT, ProducerPosition, RelayProgress
from tidemill.kernel.errors import StoreError


class RelayedEvents:
    """Takes the numbered events of a relay for one accumulator of a partition."""

    def __init__(self, accumulator: KeyedAccumulator) -> None:
        self._keyed = accumulator.intake
        self._pushes = accumulator.pushes
        self._turn = asyncio.Lock()

    async def take(self, events: Sequence[Any], encoding: str, numbers: Sequence[int], after: int) -> RelayProgress:
        """Take those events that are new, in order, and return how far this partition is.

        It takes nothing if it does not have event `after`: it has gone back, and misses events before these.
        """
        work = self._take_in_turn(events, encoding, numbers, after)
        title = f"accumulator {self._keyed.name}: events of its source"
        return await self._keyed.runtime.tasks.run_shielded(title, work)

    async def _take_in_turn(
        self, events: Sequence[Any], encoding: str, numbers: Sequence[int], after: int
    ) -> RelayProgress:
        async with self._turn:
            taken, reason = await self._newest_taken(), None
            waiting = [(number, event) for number, event in zip(numbers, events, strict=True) if number > taken]
            if waiting and taken >= after:
                take = self._take_journaled if self._keyed.emitter.is_journaled else self._take_each
                reason = await take(waiting, encoding)
            return await self._progress(reason)

    async def _progress(self, reason: str | None) -> RelayProgress:
        taken = await self._newest_taken()
        offset = self._keyed.emitter.checkpointed_offset
        stored = offset if isinstance(offset, int) else 0
        return RelayProgress(taken, taken if self._keyed.emitter.is_journaled else stored, reason)

    async def _newest_taken(self) -> int:
        """Return the number of the newest event that was taken; 0 if there is none."""
        if self._keyed.emitter.is_journaled:
            return await self._pushes.last_position(SOURCE_CLIENT) or 0
        return self._keyed.emitter.offset if isinstance(self._keyed.emitter.offset, int) else 0

    async def _take_journaled(self, waiting: Sequence[tuple[int, Any]], encoding: str) -> str | None:
        position = ProducerPosition(SOURCE_CLIENT, waiting[-1][0])
        summary = await self._pushes.push_many([event for _, event in waiting], encoding, position)
        return summary.runs[0].reason if summary.is_rejected else None

    async def _take_each(self, waiting: Sequence[tuple[int, Any]], encoding: str) -> str | None:
        """Take events one by one; return why the rest was not taken, if so."""
        started = self._keyed.clock.monotonic()
        async with AsyncExitStack() as held:
            try:
                await held.enter_async_context(
                    self._keyed.memory.holding(keys_of(self._keyed, _events(waiting), encoding))
                )
            except StoreError as error:
                return str(error)
            for count, (number, event) in enumerate(waiting, 1):
                receipt = await self._keyed.ingest(event, encoding, number)
                if may_accept_later(receipt):
                    return receipt.reason
                # No await since the event has happened: a snapshot has the event and its number, or neither.
                self._keyed.emitter.move_offset(number)
                if count % PUSHES_PER_YIELD == 0:
                    await asyncio.sleep(0)
        self._pushes.count(len(waiting), self._keyed.clock.monotonic() - started)
        return None


def _events(numbered: Sequence[tuple[int, Any]]) -> list[Any]:
    return [event for _, event in numbered]
