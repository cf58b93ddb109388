"""Kafka: follows a topic as a member of a consumer group.

librdkafka fetches and reconnects on threads of its own; we ask it for batches on a worker thread and bring them to the
loop. An offset is stored for the group only after its event has reached the reactors, so a crash repeats events and
never loses one. If we kept offsets of our own, together with the state they belong to, those count: the group's may be
ahead of them by what a crash undid. Without brokers the feed says so and waits: it does not count as a crash.
"""

import logging
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tidemill.engine.graphs.sources.feed import Feed, Listener
from tidemill.graphs.definition import Kafka
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import WorkerThread
from tidemill.kernel.errors import OperationError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

BATCH = 256
PATIENCE = 0.2  # seconds a worker thread waits for a batch
PATIENCE_FOR_OFFSETS = 10.0  # seconds, once per partition when it is assigned
RETRY_AFTER = 1.0
TAKEN_AWAY = (KafkaError._STATE, KafkaError._UNKNOWN_PARTITION)
"""A rebalance gave the partition to another member, which will read the event again: nothing to store, no failure."""


class KafkaFeed(Feed):
    """Follows one topic."""

    def __init__(self, source: Kafka, name: str, servers: str, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._settings: dict[str, Any] = {
            "bootstrap.servers": servers,
            "group.id": source.group or f"tidemill-{name}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": True,  # commits what was stored ...
            "enable.auto.offset.store": False,  # ... and we store after delivery
            "log_level": 2,  # what matters comes through error_cb; the rest repeats itself many times a second
        }

    async def follow(self, listener: Listener, checkpoint: Any) -> None:
        following = _Following(self._source.topic, self._settings, listener, self._clock, checkpoint)
        try:
            await following.connect()
            following.subscribe()
            while True:
                await following.bring()
        finally:
            await following.close()


class _Following:
    """One membership in the group, with a consumer and a thread of its own: the one before it may still be leaving."""

    def __init__(
        self, topic: str, settings: dict[str, Any], listener: Listener, clock: Clock, checkpoint: Any = None
    ) -> None:
        self._topic = topic
        self._listener = listener
        self._clock = clock
        self._next: dict[str, int] = dict(checkpoint or {})  # offsets by partition, as text: they are stored
        self._was_assigned = False
        self._failure: KafkaError | None = None
        self.consumer = Consumer({**settings, "error_cb": self._note_failure})
        self._thread = WorkerThread(f"kafka {topic}")

    def _note_failure(self, error: KafkaError) -> None:
        """Called on librdkafka's thread, or ours within `consume`: only a note is made."""
        self._failure = error

    async def connect(self) -> None:
        """Return when a broker has answered."""
        while True:
            try:
                await self._thread.call(self.consumer.list_topics, None, PATIENCE * 5)
            except KafkaException as error:
                self._listener.lost(str(error))
                await self._clock.sleep(RETRY_AFTER)
            else:
                self._listener.connected()
                return

    def subscribe(self) -> None:
        """Join the group."""
        self.consumer.subscribe([self._topic], on_assign=self._begin_at_ours)

    def _begin_at_ours(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Begin where our own offsets say, called within `consume`; after a rebalance the group knows better."""
        for place in partitions:
            if (ours := self._next.get(str(place.partition))) is not None:
                begin = self._checked(consumer, place, ours)
                place.offset = place.offset if self._was_assigned else begin
        self._was_assigned = True
        consumer.assign(partitions)

    def _checked(self, consumer: Consumer, place: TopicPartition, ours: int) -> int:
        """Return where to begin by our own offset, which the partition may have left behind or never have reached."""
        low, high = _ends(consumer, place)
        known = {"topic": self._topic, "partition": place.partition, "reached": ours, "begins": low, "ends": high}
        if ours > high:  # it is another topic's: nothing of this one may be taken for something read before
            logger.warning(events.SOURCE_BEGAN_ANEW, extra=known)
            self._next = {partition: at for partition, at in self._next.items() if partition != str(place.partition)}
            return low
        if ours < low and not (self._was_assigned and _group_is_at(consumer, place) >= low):  # others may have read on
            logger.warning(events.SOURCE_EXPIRED, extra=known)
        return max(ours, low)

    async def bring(self) -> None:
        """Hand on the messages that are there."""
        messages: list[Message] = await self._thread.call(self.consumer.consume, BATCH, PATIENCE)
        failure, self._failure = self._failure, None
        if failure is not None and failure.code() == KafkaError._ALL_BROKERS_DOWN:
            self._listener.lost(failure.str())
            await self.connect()
        arrived = [event for message in messages if (event := self._read(message)) is not None]
        await self._listener.many(arrived)
        for partition in {message.partition() for message in messages if message.error() is None} - {None}:
            assert partition is not None
            self._store(TopicPartition(self._topic, partition, self._next[str(partition)]))

    def _read(self, message: Message) -> tuple[Any, Any] | None:
        """Return a message's event, and how far the topic is read with it; None for what was read before."""
        error = message.error()
        partition, offset = message.partition(), message.offset()
        if error is not None and not error.retriable() and error.code() != KafkaError._PARTITION_EOF:
            raise OperationError(f"Kafka topic '{self._topic}': {error.str()}")
        if error is not None or offset is None or offset < self._next.get(str(partition), 0):
            return None  # the last: a rebalance brought it again
        self._next = {**self._next, str(partition): offset + 1}
        return message.value(), self._next

    def _store(self, place: TopicPartition) -> None:
        try:
            self.consumer.store_offsets(offsets=[place])
        except KafkaException as error:
            if error.args[0].code() not in TAKEN_AWAY:
                raise

    async def close(self) -> None:
        """Leave the group."""
        try:
            await self._thread.call(self.consumer.close)
        finally:
            self._thread.close()


def _ends(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Return the offsets of a partition's first event, and of the one that will come next."""
    ends = consumer.get_watermark_offsets(place, timeout=PATIENCE_FOR_OFFSETS, cached=False)
    if ends is None:  # to begin unchecked could pass events over; the supervisor tries again
        raise OperationError(f"Kafka topic '{place.topic}': no offsets of partition {place.partition} in time")
    return ends


def _group_is_at(consumer: Consumer, place: TopicPartition) -> int:
    """Return the group's offset in a partition; negative if it has none."""
    return consumer.committed([place], timeout=PATIENCE_FOR_OFFSETS)[0].offset
