"""Relays: sources that cannot be split are read by one node, which pushes their events to the partitions.

A Kafka topic is split by its own partitions. Anything else, such as a poll, a WebSocket or a NATS subject, is read by
the node that answers for the keyed reactor as a whole.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.polling import Polling
from tidemill.engine.graphs.accumulators.stream import SourceSession, Stream
from tidemill.engine.graphs.durability.ownership import ReactorOwnership
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.graphs.partitions.relay_sink import BringEvents, RelaySink, SourceMark, StoredOffset, WentBackError
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.registry import Key
from tidemill.engine.tasks import FOREVER, Wakeup, cancel_and_wait
from tidemill.graphs.definition import Accumulator, AccumulatorKind, Kafka
from tidemill.graphs.health import AccumulatorHealth
from tidemill.kernel.errors import OperationError, RequestError, StoreError
from tidemill.storage.graph_ports import Checkpoints, PartKey
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

TELL_INTERVAL = 5.0
"""Seconds after which a relay tells the hosts again that its source is lost: partitions may have started since."""


class MarkSource(Protocol):
    """Tells all hosts of a keyed reactor whether the source of an accumulator is lost."""

    async def __call__(self, keyed: PartitionedReactor, accumulator: str, *, is_lost: bool) -> None:
        """Return when all hosts know it; raises if one does not answer."""


def is_relayed(accumulator: Accumulator) -> bool:
    """Return whether the events of an accumulator's source are relayed to the partitions."""
    if accumulator.kind is AccumulatorKind.POLLING:
        return True
    return accumulator.source is not None and not isinstance(accumulator.source, Kafka)


class RelayedStream(Stream):
    """Reads a source for all partitions of a keyed reactor."""

    def __init__(self, accumulator: RunningAccumulator, sink: RelaySink) -> None:
        super().__init__(accumulator)
        self._sink = sink
        self.health_changed = Wakeup(accumulator.clock)

    def on_health_set(self) -> None:
        """Wake what tells the partitions about the health of their source."""
        self.health_changed.notify()

    async def on_event(self, event: Any, checkpoint: Any) -> None:
        await self.on_events([(event, checkpoint)])

    async def on_events(self, events: Sequence[tuple[Any, Any]]) -> None:
        if events:
            offset, encoding = events[-1][1], self.reader.encoding
            delivered = [event for event, _ in events]
            await self._sink.deliver(delivered, encoding, offset, self.reader.replays)
            self.emitter.offset = offset

    def on_moved(self, checkpoint: Any) -> None:
        self._sink.move_to(checkpoint)
        self.emitter.offset = checkpoint

    def on_gap(self, reason: str) -> None:
        self.on_history_lost()
        super().on_gap(reason)

    def on_history_lost(self) -> None:
        self._sink.on_history_lost()

    async def _read_source(self, session: SourceSession) -> BaseException | None:
        while True:
            try:
                return await super()._read_source(session)
            except WentBackError as error:
                self._go_back(error)

    def _go_back(self, error: WentBackError) -> None:
        facts = {"accumulator": self.accumulator.name, "reason": str(error)}
        logger.warning(events.SOURCE_READ_AGAIN, extra=facts)
        self.emitter.offset = self._sink.go_to(self._sink.stored)

    async def read_again(self, error: WentBackError) -> None:
        """Read the source from the newest event on that all partitions have stored."""
        accumulator = self.accumulator
        loop, accumulator.loop_task = accumulator.loop_task, None
        await cancel_and_wait(loop)
        self._go_back(error)
        if accumulator.intake.down_reason is None:
            accumulator.start_loop()


class RelayedPolling(Polling):
    """Polls for all partitions of a keyed reactor."""

    def __init__(self, accumulator: RunningAccumulator, sink: RelaySink) -> None:
        super().__init__(accumulator)
        self._sink = sink
        self.health_changed = Wakeup(accumulator.clock)

    def on_health_set(self) -> None:
        """Wake what tells the partitions about the health of their source."""
        self.health_changed.notify()

    async def emit_answer(self, boundary: Any) -> None:
        if boundary is None:
            self.emitter.suppress(self.emitter.held)
            return
        if self.accumulator.definition.state is not None:
            self.emitter.held.state = boundary
        await self._sink.deliver([boundary], "json", None, replays=False)

    async def read_again(self, error: WentBackError) -> None:
        """Do nothing: what was polled cannot be polled again."""


class Relay:
    """One source that is being read, and its offset."""

    def __init__(self, reader: RunningAccumulator, sink: RelaySink, stored: StoredOffset | None) -> None:
        assert isinstance(reader.kind, RelayedStream | RelayedPolling), "a relay reads, or polls"
        self.reader = reader
        self._kind = reader.kind
        self._sink = sink
        self._stored = stored
        self._written = SourceMark(0, None)  # what is in the store
        self.is_started = False
        """Whether the reader has got its offset; until then it must not be restarted."""

    @property
    def mark(self) -> SourceMark:
        """The newest event that was delivered, and the offset after it."""
        return SourceMark(self._sink.number, self.reader.emitter.offset)

    async def start(self) -> None:
        """Read the source, from its stored offset on, unless it is being read; StoreError if there is no answer."""
        if self.is_started:
            return
        if self._stored is not None:
            self._written = await self._stored.read()
            self.reader.emitter.offset = self._sink.go_to(self._written)
        self.reader.start()
        self.is_started = True

    def continue_at(self, mark: SourceMark) -> None:
        """Read the source from a mark on, unless its offset is stored: that one counts more."""
        if self._stored is None:
            self.reader.emitter.offset = self._sink.go_to(mark)

    async def stop(self) -> None:
        """Stop reading, and store the offset."""
        self.reader.close("is being unloaded")
        await self.reader.stop()
        if self.is_started:
            await self._write(self._sink.find_stored())

    async def write_offset(self) -> None:
        """Store the offset up to which every partition has stored the events, if it has changed."""
        if not self.is_started:
            return
        try:
            await self._sink.ask_unstored()
        except WentBackError as error:
            await self._kind.read_again(error)
        await self._sink.pass_gap()
        await self._write(self._sink.find_stored())

    async def tell_health(self, mark_source: Callable[[bool], Awaitable[None]]) -> None:
        """Tell all partitions whether the source is lost, until cancelled; those that start later, within a while."""
        told: bool | None = None
        while True:
            health = self.reader.health
            is_lost = not health.is_healthy
            if health is not AccumulatorHealth.STARTING and (is_lost or told is not False):
                try:
                    await mark_source(is_lost)
                    told = is_lost
                except (RequestError, OperationError):  # a host has not answered: try again
                    told = None
            is_final = told is False and not is_lost
            await self._kind.health_changed.wait(FOREVER if is_final else TELL_INTERVAL)

    async def _write(self, mark: SourceMark) -> None:
        if self._stored is None or mark == self._written:
            return
        try:
            await self._stored.write(mark)
            self._written = mark
        except StoreError as error:  # events that are read again are recognized
            logger.warning(events.RELAY_OFFSET_FAILED, extra={"accumulator": self.reader.name, "error": str(error)})


class _RunningRelays(NamedTuple):
    """The relays of one keyed reactor, and the tasks that store their offsets and tell of their health."""

    keyed: PartitionedReactor
    relays: list[Relay]
    tasks: list[asyncio.Task[Any]]


class ReaderListener:
    """Follows the readers of sources on this node."""

    def on_made(self, reader: RunningAccumulator) -> None:
        """Act on a new reader."""

    def on_stopped(self, reader: RunningAccumulator) -> None:
        """Act on a reader that has stopped."""


class SourceRelays:
    """The relays of the keyed reactors that this node answers for."""

    bring: BringEvents
    mark_source: MarkSource

    def __init__(
        self,
        runtime: GraphRuntime,
        checkpoints: Checkpoints | None = None,
        ownership: ReactorOwnership | None = None,
        *,
        listener: ReaderListener,
    ) -> None:
        self._runtime = runtime
        self._listener = listener
        self._checkpoints = checkpoints
        self._ownership = ownership
        self._running: dict[Key, _RunningRelays] = {}
        self._changing = asyncio.Lock()

    def of(self, key: Key) -> list[Relay]:
        """Return the relays of a keyed reactor that run here."""
        return self._running[key].relays if key in self._running else []

    async def run_for(self, keyed: PartitionedReactor) -> None:
        """Read the sources of a keyed reactor, in its newest version. After a StoreError, another call tries again."""
        async with self._changing:
            if keyed.key not in self._running or self._running[keyed.key].keyed is not keyed:
                before = {one.reader.name: one.mark for one in await self._stop(keyed.key)}
                self._running[keyed.key] = self._prepare(keyed, before)
            for one in self._running[keyed.key].relays:
                await one.start()

    def _prepare(self, keyed: PartitionedReactor, before: Mapping[str, SourceMark]) -> _RunningRelays:
        """Make the relays of a keyed reactor; those of an older version have come as far as `before`."""
        relays = [self._make(keyed, one) for one in keyed.definition.accumulators if is_relayed(one)]
        for one in relays:
            self._listener.on_made(one.reader)
            one.continue_at(before.get(one.reader.name, SourceMark(0, None)))
        tasks = [self._start_telling(keyed, one) for one in relays]
        if relays and self._checkpoints is not None:
            tasks.append(self._runtime.tasks.start(f"relays of {keyed.name}", self._write_offsets(relays)))
        return _RunningRelays(keyed, relays, tasks)

    def _start_telling(self, keyed: PartitionedReactor, relay: Relay) -> asyncio.Task[Any]:
        name = relay.reader.name

        async def mark_source(is_lost: bool) -> None:
            await self.mark_source(keyed, name, is_lost=is_lost)

        return self._runtime.tasks.start(f"accumulator {name}: health of its source", relay.tell_health(mark_source))

    async def stop_for(self, keyed: PartitionedReactor) -> None:
        """Stop reading the sources of a keyed reactor."""
        async with self._changing:
            await self._stop(keyed.key)

    async def _stop(self, key: Key) -> list[Relay]:
        if (running := self._running.pop(key, None)) is None:
            return []
        for task in running.tasks:
            await cancel_and_wait(task)  # an offset must not be written after the next reader has written one
        for one in running.relays:
            await one.stop()
            self._listener.on_stopped(one.reader)
        return running.relays

    def _make(self, keyed: PartitionedReactor, definition: Accumulator) -> Relay:
        runtime = self._runtime
        sink = RelaySink(keyed, definition.name, runtime=runtime, bring=self.bring)
        kind = RelayedPolling if definition.kind is AccumulatorKind.POLLING else RelayedStream
        reader = RunningAccumulator(definition, keyed.tenant, runtime, partial(kind, sink=sink))
        is_durable = runtime.durability.policy_for(keyed.definition).is_durable
        if self._checkpoints is None or self._ownership is None or not is_durable:
            return Relay(reader, sink, None)
        key = PartKey(keyed.tenant, "accumulator", definition.name)
        return Relay(reader, sink, StoredOffset(key, self._checkpoints, self._ownership, runtime.clock))

    async def _write_offsets(self, relays: Sequence[Relay]) -> None:
        """Store the offsets now and then, until cancelled."""
        while True:
            await self._runtime.clock.sleep(self._runtime.settings.checkpoint_interval)
            for one in relays:
                await one.write_offset()
