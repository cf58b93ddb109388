"""The sink of a source that cannot be split: brings its events to the partitions of a keyed reactor, each event once.

Events are numbered in the order of the source. Each partition knows the number of the newest one that it has taken, so
events that are read again after a crash are recognized there. The offset of the source is stored with its number. A
source without offsets never repeats an event: its numbers continue after the newest one that any partition has taken.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from tidemill.engine.graphs.durability.checksums import is_part_intact, snapshot_part
from tidemill.engine.graphs.durability.ownership import ReactorOwnership
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.pushes import ProducerPosition, PushSummary
from tidemill.graphs.snapshot import DIGEST_SIZE, AccumulatorPart, encode_stored
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError, RequestError
from tidemill.storage.graph_ports import Checkpoints, PartKey
from tidemill.telemetry import events as event_names

logger = logging.getLogger(__name__)

SOURCE_CLIENT = "tidemill-source"
"""The producer that a source is to the partitions."""

PushGroup = Callable[[PartKey, Sequence[Any], str, ProducerPosition], Awaitable[PushSummary]]
"""Pushes the events of one partition, numbered."""
LastPosition = Callable[[PartKey], Awaitable[int | None]]
"""Returns the number of the newest event of the source that a partition has taken."""


class StoredOffset:
    """The offset of a source, and the number of the event before it, in the store."""

    def __init__(self, key: PartKey, checkpoints: Checkpoints, ownership: ReactorOwnership, clock: Clock) -> None:
        self._key = key
        self._checkpoints = checkpoints
        self._ownership = ownership
        self._clock = clock
        self._generation = 0

    async def read(self) -> tuple[Any, int]:
        """Return the newest offset that is intact; (None, 0) if there is none."""
        for part in await self._checkpoints.read_parts([self._key]):
            self._generation = max(self._generation, part.generation)
            if is_part_intact(part):
                content = msgspec.msgpack.decode(part.payload, type=AccumulatorPart)
                return content.offset, content.sequence
        return None, 0

    async def write(self, offset: Any, number: int) -> None:
        """Replace the offset; StoreError if another node owns the source now."""
        self._generation += 1
        payload = encode_stored(AccumulatorPart(sequence=number, position=0, offset=offset))
        part = snapshot_part(
            self._key, self._generation, self._generation, self._clock.now(), bytes(DIGEST_SIZE), payload
        )
        await self._checkpoints.save([part], (), self._ownership.fences_for([self._key]))


class RelaySink:
    """Takes the events of one source."""

    def __init__(
        self,
        keyed: PartitionedReactor,
        accumulator: str,
        *,
        runtime: GraphRuntime,
        push: PushGroup,
        last_position: LastPosition,
    ) -> None:
        self._keyed = keyed
        self._accumulator = accumulator
        self._push = push
        self._last_position = last_position
        self._runtime = runtime
        self.number = 0
        """The number of the newest event that every partition has."""
        self._taken: dict[int, int] = {}  # by partition: the number of its newest event from this source
        self._continues = False  # whether the number of the next event is higher than all that were taken

    async def deliver(self, events: Sequence[Any], encoding: str, *, are_repeatable: bool) -> None:
        """Push events to their partitions; return when all have them.

        Events are repeatable if the source sends them again when it is read from an older offset.
        """
        if not (are_repeatable or self._continues):
            await self._retry(self._continue_numbers)
            self._continues = True
        partitioner = self._keyed.partitioners[self._accumulator]
        groups: dict[int, list[tuple[int, Any]]] = {}
        for number, event in enumerate(events, self.number + 1):
            groups.setdefault(partitioner.route(event, encoding).partition, []).append((number, event))
        await asyncio.gather(*(self._deliver_group(partition, group, encoding) for partition, group in groups.items()))
        self.number += len(events)

    async def _deliver_group(self, partition: int, group: Sequence[tuple[int, Any]], encoding: str) -> None:
        async def attempt() -> bool:
            try:
                return await self._try_group(partition, group, encoding)
            except (RequestError, OperationError):  # the push may have been taken: ask again
                self._taken.pop(partition, None)
                raise

        await self._retry(attempt)

    async def _retry(self, attempt: Callable[[], Awaitable[bool]]) -> None:
        """Try until it succeeds: the source must not continue while no node answers."""
        is_done = was_logged = False
        while not is_done:
            reason = "a partition rejects its events"
            try:
                with self._runtime.in_flight:
                    is_done = await attempt()
            except (RequestError, OperationError) as error:
                reason = str(error)
            if not is_done:
                if not was_logged:
                    logger.warning(
                        event_names.SOURCE_STALLED, extra={"accumulator": self._accumulator, "reason": reason}
                    )
                was_logged = True
                await self._runtime.clock.sleep(self._runtime.settings.checkpoint_interval)

    async def _continue_numbers(self) -> bool:
        """Continue after the newest event that any partition has: it may be newer than the stored number."""
        parts = [self._keyed.accumulator_part(self._accumulator, number) for number in self._keyed.numbers]
        taken = await asyncio.gather(*(self._last_position(part) for part in parts))
        self.number = max(self.number, *(one or 0 for one in taken))
        return True

    async def _try_group(self, partition: int, group: Sequence[tuple[int, Any]], encoding: str) -> bool:
        """Push those events that a partition does not have; return whether it has all of them now."""
        part = self._keyed.accumulator_part(self._accumulator, partition)
        if partition not in self._taken:
            self._taken[partition] = await self._last_position(part) or 0
        waiting = [(number, event) for number, event in group if number > self._taken[partition]]
        if waiting:
            newest = waiting[-1][0]
            position = ProducerPosition(SOURCE_CLIENT, newest)
            summary = await self._push(part, [event for _, event in waiting], encoding, position)
            if summary.is_rejected:
                return False
            self._taken[partition] = newest
        return True
