"""Relays: sources that cannot be split are read by one node, which pushes their events to the partitions.

A Kafka topic is split by its own partitions. Anything else, such as a poll, a WebSocket or a NATS subject, is read by
the node that answers for the keyed reactor as a whole.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from tidemill.engine.graphs.accumulators.polling import Polling
from tidemill.engine.graphs.accumulators.stream import SourceSession, Stream
from tidemill.engine.graphs.durability.ownership import ReactorOwnership
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.graphs.partitions.relay_sink import BringEvents, RelaySink, SourceMark, StoredOffset, WentBackError
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.registry import Key
from tidemill.engine.tasks import cancel_and_wait
from tidemill.graphs.definition import Accumulator, AccumulatorKind, Kafka
from tidemill.kernel.errors import StoreError
from tidemill.storage.graph_ports import Checkpoints, PartKey
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


def is_relayed(accumulator: Accumulator) -> bool:
    """Return whether the events of an accumulator's source are relayed to the partitions."""
    if accumulator.kind is AccumulatorKind.POLLING:
        return True
    return accumulator.source is not None and not isinstance(accumulator.source, Kafka)


class RelayedStream(Stream):
    """Reads a source for all partitions of a keyed reactor."""

    def __init__(self, definition: Accumulator, tenant: str, runtime: GraphRuntime, sink: RelaySink) -> None:
        super().__init__(definition, tenant, runtime)
        self._sink = sink

    async def on_event(self, event: Any, checkpoint: Any) -> None:
        await self.on_events([(event, checkpoint)])

    async def on_events(self, events: Sequence[tuple[Any, Any]]) -> None:
        if events:
            offset, encoding = events[-1][1], self.reader.encoding
            await self._sink.deliver([event for event, _ in events], encoding, offset)
            self.offset = offset

    def on_moved(self, checkpoint: Any) -> None:
        self._sink.move_to(checkpoint)
        self.offset = checkpoint

    async def _read_source(self, session: SourceSession) -> BaseException | None:
        while True:
            try:
                return await super()._read_source(session)
            except WentBackError as error:
                self._go_back(error)

    def _go_back(self, error: WentBackError) -> None:
        logger.warning(events.SOURCE_READ_AGAIN, extra={"accumulator": self.name, "reason": str(error)})
        self.offset = self._sink.go_to(self._sink.stored)

    async def read_again(self, error: WentBackError) -> None:
        """Read the source from the newest event on that all partitions have stored."""
        loop, self._loop_task = self._loop_task, None
        await cancel_and_wait(loop)
        self._go_back(error)
        if self.down_reason is None:
            self._start_loop()


class RelayedPolling(Polling):
    """Polls for all partitions of a keyed reactor."""

    def __init__(self, definition: Accumulator, tenant: str, runtime: GraphRuntime, sink: RelaySink) -> None:
        super().__init__(definition, tenant, runtime)
        self._sink = sink

    async def emit_answer(self, boundary: Any) -> None:
        if boundary is None:
            self._suppress(None)
            return
        if self.definition.state is not None:
            self.state = boundary
        await self._sink.deliver([boundary], "json", None)

    async def read_again(self, error: WentBackError) -> None:
        """Do nothing: what was polled cannot be polled again."""


class Relay:
    """One source that is being read, and its offset."""

    def __init__(self, reader: RelayedStream | RelayedPolling, sink: RelaySink, stored: StoredOffset | None) -> None:
        self.reader = reader
        self._sink = sink
        self._stored = stored
        self._written = SourceMark(0, None)  # what is in the store

    async def start(self) -> None:
        """Read the source, from its stored offset on."""
        if self._stored is not None:
            self._written = await self._stored.read()
            self.reader.offset = self._sink.go_to(self._written)
        self.reader.start()

    async def stop(self) -> None:
        """Stop reading, and store the offset."""
        self.reader.close("is being unloaded")
        await self.reader.stop()
        await self._write(self._sink.find_stored())

    async def write_offset(self) -> None:
        """Store the offset up to which every partition has stored the events, if it has changed."""
        try:
            await self._sink.ask_unstored()
        except WentBackError as error:
            await self.reader.read_again(error)
        await self._write(self._sink.find_stored())

    async def _write(self, mark: SourceMark) -> None:
        if self._stored is None or mark == self._written:
            return
        try:
            await self._stored.write(mark)
            self._written = mark
        except StoreError as error:  # events that are read again are recognized
            logger.warning(events.RELAY_OFFSET_FAILED, extra={"accumulator": self.reader.name, "error": str(error)})


class SourceRelays:
    """The relays of the keyed reactors that this node answers for."""

    bring: BringEvents

    def __init__(
        self,
        runtime: GraphRuntime,
        checkpoints: Checkpoints | None = None,
        ownership: ReactorOwnership | None = None,
    ) -> None:
        self._runtime = runtime
        self._checkpoints = checkpoints
        self._ownership = ownership
        self._running: dict[Key, tuple[PartitionedReactor, list[Relay]]] = {}
        self._changing = asyncio.Lock()

    def of(self, key: Key) -> list[Relay]:
        """Return the relays of a keyed reactor that run here."""
        return self._running[key][1] if key in self._running else []

    async def run_for(self, keyed: PartitionedReactor) -> None:
        """Read the sources of a keyed reactor, in its newest version."""
        async with self._changing:
            if keyed.key in self._running and self._running[keyed.key][0] is keyed:
                return
            await self._stop(keyed.key)
            relays = [self._make(keyed, one) for one in keyed.definition.accumulators if is_relayed(one)]
            self._running[keyed.key] = keyed, relays
            for one in relays:
                await one.start()
            if relays and self._checkpoints is not None:
                self._runtime.tasks.start(f"relays of {keyed.name}", self._write_offsets(keyed))

    async def stop_for(self, keyed: PartitionedReactor) -> None:
        """Stop reading the sources of a keyed reactor."""
        async with self._changing:
            await self._stop(keyed.key)

    async def _stop(self, key: Key) -> None:
        _, relays = self._running.pop(key, (None, []))
        for one in relays:
            await one.stop()

    def _make(self, keyed: PartitionedReactor, definition: Accumulator) -> Relay:
        runtime = self._runtime
        sink = RelaySink(keyed, definition.name, runtime=runtime, bring=self.bring)
        create = RelayedPolling if definition.kind is AccumulatorKind.POLLING else RelayedStream
        reader = create(definition, keyed.tenant, runtime, sink)
        is_durable = runtime.durability.policy_for(keyed.definition).is_durable
        if self._checkpoints is None or self._ownership is None or not is_durable:
            return Relay(reader, sink, None)
        key = PartKey(keyed.tenant, "accumulator", definition.name)
        return Relay(reader, sink, StoredOffset(key, self._checkpoints, self._ownership, runtime.clock))

    async def _write_offsets(self, keyed: PartitionedReactor) -> None:
        """Store the offsets now and then, while the relays run."""
        while self._running.get(keyed.key, (None,))[0] is keyed:
            await self._runtime.clock.sleep(self._runtime.settings.checkpoint_interval)
            for one in self.of(keyed.key):
                await one.write_offset()
