"""Kafka: follows a topic as a member of a consumer group.

librdkafka fetches and reconnects on threads of its own; we ask it for batches on a worker thread and bring them to the
loop. An offset is stored for the group only after its event has reached the reactors, so a crash repeats events and
never loses one. Without brokers the feed says so and waits: it does not count as a crash.
"""

from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tidemill.engine.graphs.sources.feed import Feed, Listener
from tidemill.graphs.definition import Kafka
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import WorkerThread
from tidemill.kernel.errors import OperationError

BATCH = 256
PATIENCE = 0.2  # seconds a worker thread waits for a batch
RETRY_AFTER = 1.0


class KafkaFeed(Feed):
    """Follows one topic."""

    _thread: WorkerThread

    def __init__(self, source: Kafka, name: str, servers: str, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._failure: KafkaError | None = None
        self._settings = {
            "bootstrap.servers": servers,
            "group.id": source.group or f"tidemill-{name}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": True,  # commits what was stored ...
            "enable.auto.offset.store": False,  # ... and we store after delivery
            "error_cb": self._note_failure,
            "log_level": 2,  # what matters comes through error_cb; the rest repeats itself many times a second
        }

    def _note_failure(self, error: KafkaError) -> None:
        """Called on librdkafka's thread, or ours within `consume`: only a note is made."""
        self._failure = error

    async def follow(self, listener: Listener, checkpoint: Any) -> None:  # noqa: ARG002 - the broker keeps our place
        consumer = Consumer(self._settings)
        self._thread = WorkerThread(f"kafka {self._source.topic}")
        try:
            await self._connect(consumer, listener)
            consumer.subscribe([self._source.topic])
            while True:
                await self._bring(consumer, listener)
        finally:
            await self._thread.call(consumer.close)
            self._thread.close()

    async def _connect(self, consumer: Consumer, listener: Listener) -> None:
        """Return when a broker has answered."""
        while True:
            try:
                await self._thread.call(consumer.list_topics, None, PATIENCE * 5)
            except KafkaException as error:
                listener.lost(str(error))
                await self._clock.sleep(RETRY_AFTER)
            else:
                listener.connected()
                return

    async def _bring(self, consumer: Consumer, listener: Listener) -> None:
        messages: list[Message] = await self._thread.call(consumer.consume, BATCH, PATIENCE)
        failure, self._failure = self._failure, None
        if failure is not None and failure.code() == KafkaError._ALL_BROKERS_DOWN:
            listener.lost(failure.str())
            await self._connect(consumer, listener)
        for message in messages:
            await self._deliver(consumer, message, listener)

    async def _deliver(self, consumer: Consumer, message: Message, listener: Listener) -> None:
        error = message.error()
        partition, offset = message.partition(), message.offset()
        if error is None and partition is not None and offset is not None:
            await listener.event(message.value(), {str(partition): offset + 1})
            consumer.store_offsets(offsets=[TopicPartition(self._source.topic, partition, offset + 1)])
        elif error is not None and not error.retriable() and error.code() != KafkaError._PARTITION_EOF:
            raise OperationError(f"Kafka topic '{self._source.topic}': {error.str()}")
