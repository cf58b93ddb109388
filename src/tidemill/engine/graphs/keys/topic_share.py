"""A stream that reads a share of a Kafka topic: events whose key belongs to another partition are passed on."""

import logging
from collections.abc import Sequence
from typing import Any

from tidemill.annotations.validation import TypeMismatchError
from tidemill.engine.graphs.accumulators.stream import Stream
from tidemill.engine.graphs.keys.keyed_ingest import KeyedAccumulator, KeyedEvent, KeyedIngest, keys_of
from tidemill.engine.graphs.keys.relayed_events import RelayedEvents
from tidemill.graphs.definition import KafkaShare
from tidemill.graphs.keys import partition_of
from tidemill.graphs.outcomes import may_accept_later
from tidemill.kernel.errors import OperationError, StoreError
from tidemill.telemetry import events as event_names
from tidemill.telemetry.logs import FAILURES_PER_REMINDER

logger = logging.getLogger(__name__)


class KeyedStream(Stream):
    """A stream of a keyed reactor."""

    misplaced = 0
    """Events that a producer has put into a partition of the topic which does not follow their key."""

    accumulator: KeyedAccumulator
    intake: KeyedIngest

    def __init__(self, accumulator: KeyedAccumulator) -> None:
        super().__init__(accumulator)
        self.relayed = RelayedEvents(self.accumulator)

    async def run_loop(self) -> None:
        if isinstance(self.emitter.offset, int):  # a number of a relay, of an older version: not an offset of a topic
            self.emitter.move_offset(None)
        await super().run_loop()

    async def on_events(self, events: Sequence[tuple[Any, Any]]) -> None:
        share = self.intake.definition.source
        own: list[tuple[Any, Any]] = []
        for received, checkpoint in events:
            event = _read_or_keep(self.intake, received, self.encoding)
            if isinstance(share, KafkaShare) and _is_misplaced(event, share):
                await self._take(own)
                own = []
                await self._pass_on(received)
                self.emitter.move_offset(checkpoint)
            else:
                own.append((event, checkpoint))
        await self._take(own)

    async def _take(self, events: Sequence[tuple[Any, Any]]) -> None:
        """Process events of the source in order, after their keys are in memory."""
        try:
            async with self.intake.memory.holding(keys_of(self.intake, (event for event, _ in events), self.encoding)):
                await super().on_events(events)
        except StoreError:  # one by one, each waits until the store answers
            for event, checkpoint in events:
                await self.on_event(event, checkpoint)

    async def _pass_on(self, event: Any) -> None:
        """Push an event to the partition of its key."""
        self.misplaced += 1
        declared = self.intake.definition.partition
        assert declared is not None, "only a partition reads a share of a topic"
        if self.misplaced == 1 or self.misplaced % FAILURES_PER_REMINDER == 0:
            facts = {"accumulator": self.intake.name, "count": self.misplaced}
            logger.warning(event_names.EVENT_MISPLACED, extra=facts)
        while True:
            if (front := self.intake.runtime.find_accumulator(self.intake.tenant, declared.name)) is None:
                raise OperationError(f"accumulator '{declared.name}' is not loaded as a whole: its event must wait")
            if not may_accept_later(await front.push(event, self.encoding)):
                return
            await self.intake.clock.sleep(self.intake.runtime.settings.checkpoint_interval)


def _is_misplaced(event: Any, share: KafkaShare) -> bool:
    return event.__class__ is KeyedEvent and partition_of(event.key, share.partitions) != share.number


def _read_or_keep(intake: KeyedIngest, event: Any, encoding: str) -> Any:
    """Return an event with its key; one that is not valid as it is: it becomes a dead letter here."""
    try:
        return intake.read(event, encoding)
    except TypeMismatchError:
        return event
