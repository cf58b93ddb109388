"""Kafka: reads a topic as a member of a consumer group.

librdkafka fetches and reconnects on its own threads; the reader takes batches on a worker thread and passes them to the
event loop. An offset is stored for the group only after its event has reached the reactors, so a crash repeats events
and never loses one. If a checkpoint has offsets, together with the state they belong to, those count: the group's may
be ahead of them by what a crash undid. Without brokers the reader reports it and waits: that is not a crash. A refused
authorisation, and a configuration that the client rejects, are final.
"""

import logging
from typing import Any

from confluent_kafka import OFFSET_STORED, Consumer, KafkaError, KafkaException, Message, TopicPartition

from tidemill.engine.graphs.sources.reader import SourceListener, SourceReader
from tidemill.graphs.definition import Kafka, KafkaShare
from tidemill.kernel.author_errors import Fail
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import WorkerThread
from tidemill.kernel.errors import OperationError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

BATCH_SIZE = 256
POLL_TIMEOUT = 0.2  # seconds a worker thread waits for a batch
OFFSETS_TIMEOUT = 10.0  # seconds, once per partition when it is assigned
GROWTH_CHECK_INTERVAL = 30.0
"""Seconds after which a reader of a share looks whether its topic has got more partitions."""
REFUSED_CODES = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)
PARTITION_REVOKED_CODES = (KafkaError._STATE, KafkaError._UNKNOWN_PARTITION)
"""A rebalance gave the partition to another member, which reads the event again: nothing to store, and no failure."""


class KafkaReader(SourceReader):
    """Reads one topic."""

    def __init__(self, source: Kafka, name: str, servers: str, clock: Clock, share: KafkaShare | None = None) -> None:
        self._source = source
        self._clock = clock
        self._share = share
        self._settings: dict[str, Any] = {
            "bootstrap.servers": servers,
            "group.id": source.group or f"tidemill-{name}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": True,  # commits what was stored ...
            "enable.auto.offset.store": False,  # ... and offsets are stored after delivery
            "log_level": 2,  # errors come through error_cb; the rest repeats many times a second
        }

        self._session: _ConsumerSession | None = None

    @property
    def upstream_lag(self) -> int | None:
        return None if self._session is None else self._session.lag

    async def run(self, listener: SourceListener, checkpoint: Any) -> None:
        session = _ConsumerSession(self._source.topic, self._settings, listener, self._clock, checkpoint)
        try:
            await session.connect()
            if self._share is None:
                session.subscribe()
            else:
                await session.assign_share(self._share)
            self._session = session
            while True:
                await session.deliver_batch()
                await session.follow_growth()
        finally:
            self._session = None
            await session.close()


class _ConsumerSession:
    """One membership in the group, with its own consumer and thread: the previous one may still be leaving."""

    def __init__(
        self, topic: str, settings: dict[str, Any], listener: SourceListener, clock: Clock, checkpoint: Any = None
    ) -> None:
        self._topic = topic
        self._servers = settings["bootstrap.servers"]
        self._listener = listener
        self._clock = clock
        self._next_offsets: dict[str, int] = dict(checkpoint or {})  # by partition, as text: they are stored
        self._was_assigned = False
        self._share: KafkaShare | None = None
        self._looked_at = 0.0
        self._assigned: list[TopicPartition] = []
        self._gaps: list[str] = []  # found on the worker thread, and not reported yet
        self._last_error: KafkaError | None = None
        try:
            self.consumer = Consumer({**settings, "error_cb": self._on_error})
        except KafkaException as error:
            raise Fail(f"Kafka topic '{topic}': the client rejects its configuration: {error}") from error
        self._thread = WorkerThread(f"kafka {topic}")

    def _on_error(self, error: KafkaError) -> None:
        """Record the error. Called on librdkafka's thread, or on ours within `consume`."""
        self._last_error = error

    async def connect(self) -> None:
        """Wait until a broker has answered."""
        while True:
            try:
                await self._thread.call(self.consumer.list_topics, None, POLL_TIMEOUT * 5)
            except KafkaException as error:
                self._check_refused(error.args[0])
                await self._clock.sleep(self._listener.on_disconnected(self._explain(error.args[0])))
            else:
                self._listener.on_connected()
                return

    def _check_refused(self, error: KafkaError) -> None:
        """Raise Fail if the brokers refuse this client: a retry cannot help."""
        refusal = next((one for one in (error, self._last_error) if one and one.code() in REFUSED_CODES), None)
        if refusal is not None:
            raise Fail(f"{self._explain(refusal)}; correct the credentials or the grants of this client")

    def _explain(self, error: KafkaError) -> str:
        return f"Kafka topic '{self._topic}' at {self._servers}: {error.str()}"

    def subscribe(self) -> None:
        """Join the group."""
        self.consumer.subscribe([self._topic], on_assign=self._assign_stored_offsets)

    async def assign_share(self, share: KafkaShare) -> None:
        """Read the topic's partitions that hold the keys of one partition of a keyed reactor, without the group."""
        count = await self._thread.call(self.count_partitions, OFFSETS_TIMEOUT)
        if not count:
            raise OperationError(f"Kafka topic '{self._topic}' at {self._servers} has no partitions yet")
        partitions = [TopicPartition(self._topic, number, OFFSET_STORED) for number in self._numbers(share, count)]
        await self._thread.call(self._assign_stored_offsets, self.consumer, partitions)
        self._report_gaps()
        self._share, self._looked_at = share, self._clock.monotonic()

    def count_partitions(self, timeout: float) -> int:
        """Return how many partitions the topic has now. Called on the worker thread."""
        return len(self.consumer.list_topics(self._topic, timeout).topics[self._topic].partitions)

    def _numbers(self, share: KafkaShare, count: int) -> range:
        """Return the partitions of the topic that hold the keys of a share, or raise Fail."""
        if count % share.partitions:
            raise Fail(
                f"Kafka topic '{self._topic}' has {count} partitions, and the reactor has {share.partitions}: keys "
                f"follow partitions only if the topic has a multiple of the reactor's; set partitions= of the reactor"
            )
        return range(share.number, count, share.partitions)

    async def follow_growth(self) -> None:
        """Read partitions that the topic of a share has got since the last look, from their beginning."""
        if self._share is None or self._clock.monotonic() - self._looked_at < GROWTH_CHECK_INTERVAL:
            return
        self._looked_at = self._clock.monotonic()
        try:
            count = await self._thread.call(self.count_partitions, POLL_TIMEOUT * 5)
        except KafkaException:  # no broker answers: the next look may find one
            return
        numbers = self._numbers(self._share, count) if count else range(0)
        if len(numbers) > len(self._assigned):
            facts = {"topic": self._topic, "partitions": count}
            logger.info(events.SOURCE_TOPIC_GREW, extra=facts)
            offsets = {number: self._next_offsets.get(str(number), OFFSET_STORED) for number in numbers}
            self._assigned = [TopicPartition(self._topic, number, offset) for number, offset in offsets.items()]
            await self._thread.call(self.consumer.assign, self._assigned)

    def _assign_stored_offsets(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Start at the checkpoint's offsets; after a rebalance at the group's. Called within `consume`."""
        for partition in partitions:
            if (stored := self._next_offsets.get(str(partition.partition))) is not None:
                start = self._start_offset(consumer, partition, stored)
                partition.offset = partition.offset if self._was_assigned else start
        self._was_assigned = True
        self._assigned = partitions
        consumer.assign(partitions)

    def _start_offset(self, consumer: Consumer, topic_partition: TopicPartition, stored_offset: int) -> int:
        """Return the start for a stored offset, which may have expired in the partition, or lie beyond its end."""
        low, high = _watermarks(consumer, topic_partition)
        number = str(topic_partition.partition)
        if stored_offset > high:  # of another topic: no event of this one was read before
            self._next_offsets = {other: at for other, at in self._next_offsets.items() if other != number}
            self._gaps.append(
                f"partition {number} ends at offset {high}, and messages before {stored_offset} were read; it has "
                "restarted, so it is read from its start"
            )
            return low
        if stored_offset >= low:
            return stored_offset
        # After a rebalance other members may have read on, and then the group's offset counts.
        if not self._was_assigned or _committed_offset(consumer, topic_partition) < low:
            self._next_offsets = {**self._next_offsets, number: low}
            self._gaps.append(
                f"partition {number} begins at offset {low}, and messages before {stored_offset} were read; the topic "
                f"has dropped up to {low - stored_offset} messages in between"
            )
        return low

    def _report_gaps(self) -> None:
        """Report what an assignment has found, and keep the offsets behind it: it is not reported again."""
        gaps, self._gaps = self._gaps, []
        if gaps:
            self._listener.on_gap(f"Kafka topic '{self._topic}' at {self._servers}: {'; '.join(gaps)}")
            self._listener.on_moved(self._next_offsets)

    @property
    def lag(self) -> int | None:
        """The number of messages after those that were delivered, as the brokers said with their last answers.

        Partitions of which no message was delivered yet do not count: only the brokers know where the group is there.
        """
        lags = [lag for one in self._assigned if (lag := self._partition_lag(one)) is not None]
        return sum(lags) if lags else None

    def _partition_lag(self, topic_partition: TopicPartition) -> int | None:
        reached = self._next_offsets.get(str(topic_partition.partition), topic_partition.offset)
        try:
            ends = self.consumer.get_watermark_offsets(topic_partition, cached=True)  # without a request
        except KafkaException:  # another member has the partition now
            return None
        return max(0, ends[1] - reached) if ends is not None and ends[1] >= 0 and reached >= 0 else None

    async def deliver_batch(self) -> None:
        """Deliver the available messages."""
        messages: list[Message] = await self._thread.call(self.consumer.consume, BATCH_SIZE, POLL_TIMEOUT)
        self._report_gaps()
        failure, self._last_error = self._last_error, None
        if failure is not None and failure.code() == KafkaError._ALL_BROKERS_DOWN:
            self._listener.on_disconnected(self._explain(failure))
            await self.connect()
        arrived = [event for message in messages if (event := self._decode_message(message)) is not None]
        await self._listener.on_events(arrived)
        for partition in {message.partition() for message in messages if message.error() is None} - {None}:
            assert partition is not None
            self._store_offset(TopicPartition(self._topic, partition, self._next_offsets[str(partition)]))

    def _decode_message(self, message: Message) -> tuple[Any, Any] | None:
        """Return a message's event and the offsets after it; None for a message that was read before."""
        error = message.error()
        partition, offset = message.partition(), message.offset()
        if error is not None and not error.retriable() and error.code() != KafkaError._PARTITION_EOF:
            self._check_refused(error)
            raise OperationError(self._explain(error))
        if error is not None or offset is None or offset < self._next_offsets.get(str(partition), 0):
            return None  # a rebalance delivers messages again
        self._next_offsets = {**self._next_offsets, str(partition): offset + 1}
        return message.value(), self._next_offsets

    def _store_offset(self, topic_partition: TopicPartition) -> None:
        try:
            self.consumer.store_offsets(offsets=[topic_partition])
        except KafkaException as error:
            if error.args[0].code() not in PARTITION_REVOKED_CODES:
                raise

    async def close(self) -> None:
        """Leave the group."""
        try:
            await self._thread.call(self.consumer.close)
        finally:
            self._thread.close()


def _watermarks(consumer: Consumer, topic_partition: TopicPartition) -> tuple[int, int]:
    """Return the offsets of a partition's first message and of the next one to come."""
    ends = consumer.get_watermark_offsets(topic_partition, timeout=OFFSETS_TIMEOUT, cached=False)
    if ends is None:  # an unchecked start could skip events; the supervisor restarts the reader
        raise OperationError(
            f"Kafka topic '{topic_partition.topic}': no offsets of partition {topic_partition.partition} in time"
        )
    return ends


def _committed_offset(consumer: Consumer, topic_partition: TopicPartition) -> int:
    """Return the group's offset in a partition; negative if it has none."""
    return consumer.committed([topic_partition], timeout=OFFSETS_TIMEOUT)[0].offset
