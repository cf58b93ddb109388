"""NATS JetStream: reads a subject with a durable consumer, in the stream's order.

The client reconnects by itself once it was connected; the reader reports when the connection changes. A server that
refuses the client is final: a retry cannot help. A message is acknowledged only after its event has reached the
reactors, so a crash repeats messages and never loses one. If a checkpoint has a stream sequence, together with the
state it belongs to, that counts; else the acknowledged messages do.

A sequence is one number, so it is only right if messages come in order. A server redelivers unacknowledged messages
only after a while, behind newer ones: a consumer that delivered anything beyond our sequence is therefore recreated,
and so is one whose deliveries do not all reach us. A consumer belongs to one accumulator of one node.

A stream may drop messages before they are read. Its first sequence shows that, if all its messages are read here: of a
stream with other subjects, the sequence does not tell whose messages were dropped.
"""

import logging
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, ConsumerInfo, DeliverPolicy, RetentionPolicy, StreamInfo
from nats.js.errors import NotFoundError

from tidemill.engine.graphs.sources.reader import SourceListener, SourceReader
from tidemill.graphs.definition import Nats
from tidemill.kernel.author_errors import Fail
from tidemill.kernel.errors import OperationError

logger = logging.getLogger(__name__)

BATCH_SIZE = 256
FETCH_TIMEOUT = 1.0  # seconds to wait for a batch
RECONNECT_INTERVAL = 1  # seconds between the client's own tries to reconnect
REFUSED = "authorization violation"  # the server's words, in lower case
PLACEHOLDER_CONSUMER_TTL = 3600.0  # after which the server removes a consumer that a crash left behind


class NatsReader(SourceReader):
    """Reads one subject of a stream."""

    def __init__(self, source: Nats, name: str, servers: str) -> None:
        self._source = source
        self._durable = source.durable or f"tidemill-{name}"
        self._servers = servers.split(",")
        self._session: _ConsumerSession | None = None

    @property
    def upstream_lag(self) -> int | None:
        return None if self._session is None else self._session.pending

    async def run(self, listener: SourceListener, checkpoint: Any) -> None:
        client = await self._connect(listener)
        try:
            stream = client.jetstream()
            last_sequence = checkpoint or 0
            while True:
                consumer, last_sequence = await self._prepare_consumer(stream, last_sequence, listener)
                subscription = await stream.pull_subscribe_bind(durable=self._durable, stream=consumer.stream_name)
                listener.on_connected()
                deliveries = _count_deliveries(consumer)
                self._session = _ConsumerSession(client, subscription, listener, last_sequence, deliveries)
                last_sequence = await self._session.run_until_gap()
                logger.info("nats", extra={"consumer": self._durable, "missed_after": last_sequence})
                await subscription.unsubscribe()  # drops its queued messages: they are redelivered in order
        finally:
            self._session = None
            await client.close()

    async def _prepare_consumer(
        self, stream: JetStreamContext, last_sequence: int, listener: SourceListener
    ) -> tuple[ConsumerInfo, int]:
        """Return a consumer that has delivered nothing beyond our sequence, and that sequence."""
        info = await stream.stream_info(await stream.find_stream_name_by_subject(self._source.subject))
        name = info.config.name
        assert name is not None
        if info.state.last_seq < last_sequence:
            ends = f"stream '{name}' ends at {info.state.last_seq}, and messages up to {last_sequence} were read"
            listener.on_gap(self._explain(f"{ends}; it has restarted, so it is read from its start"))
            last_sequence = 0
            listener.on_moved(last_sequence)
        self.replays = info.config.retention in (None, RetentionPolicy.LIMITS)  # else acknowledged messages are gone
        if info.state.first_seq > last_sequence + 1:
            listener.on_history_lost()
        try:
            consumer = await stream.consumer_info(name, self._durable)
        except NotFoundError:
            last_sequence = self._skip_dropped(info, last_sequence, listener)
            config = ConsumerConfig(name=self._durable, durable_name=self._durable, filter_subject=self._source.subject)
            return await stream.add_consumer(name, _config_starting_after(config, info, last_sequence)), last_sequence
        assert consumer.delivered is not None
        assert consumer.ack_floor is not None
        if not last_sequence and consumer.ack_floor.stream_seq:  # without a checkpoint, what was acknowledged is done
            last_sequence = consumer.ack_floor.stream_seq
            listener.on_history_lost()
        last_sequence = self._skip_dropped(info, last_sequence, listener)
        if consumer.delivered.stream_seq > last_sequence:
            config = _config_starting_after(consumer.config, info, last_sequence)
            consumer = await self._recreate_consumer(stream, info, config)
        return consumer, last_sequence

    def _skip_dropped(self, info: StreamInfo, last_sequence: int, listener: SourceListener) -> int:
        """Report messages that the stream has dropped before they were read; return the sequence before the next one.

        A work queue, and a stream of interest, drop what was acknowledged: that is not a loss.
        """
        dropped = info.state.first_seq - 1 - last_sequence
        subjects = info.config.subjects or []
        is_all_ours = bool(subjects) and all(_covers(self._source.subject, one) for one in subjects)
        if last_sequence == 0 or dropped <= 0 or not is_all_ours or info.config.retention != RetentionPolicy.LIMITS:
            return last_sequence
        begins = f"stream '{info.config.name}' begins at {info.state.first_seq}, and messages up to {last_sequence}"
        listener.on_gap(self._explain(f"{begins} were read; the stream has dropped the {dropped} in between"))
        last_sequence += dropped
        listener.on_moved(last_sequence)
        return last_sequence

    async def _recreate_consumer(
        self, stream: JetStreamContext, info: StreamInfo, config: ConsumerConfig
    ) -> ConsumerInfo:
        """Replace the consumer by one with the same configuration and another start."""
        name = info.config.name
        assert name is not None
        placeholder = None
        if info.config.retention == RetentionPolicy.INTEREST:
            # The stream drops messages that no consumer waits for: keep one waiting.
            placeholder_config = config.evolve(
                name=None, durable_name=None, inactive_threshold=PLACEHOLDER_CONSUMER_TTL
            )
            placeholder = (await stream.add_consumer(name, placeholder_config)).name
        await stream.delete_consumer(name, self._durable)
        consumer = await stream.add_consumer(name, config)
        if placeholder is not None:
            await stream.delete_consumer(name, placeholder)
        return consumer

    async def _connect(self, listener: SourceListener) -> Client:
        """Return a connected client, or raise after one try per server."""
        client = Client()
        failures = 0
        was_connected = False  # from then on the client reconnects by itself

        async def disconnected() -> None:
            if client.is_reconnecting:
                listener.on_disconnected(self._explain("connection lost"))

        async def reconnected() -> None:
            listener.on_connected()

        async def failed(error: Exception) -> None:
            nonlocal failures
            failures += 1
            logger.info("nats", extra={"error": repr(error)})
            if was_connected:
                return
            if REFUSED in str(error).lower():
                raise Fail(f"{self._explain(error)}; correct the credentials in its address") from error
            if failures >= len(self._servers):  # the client would try without end; it lets this class of error pass
                raise OperationError(self._explain(error)) from error

        try:
            await client.connect(
                servers=self._servers,
                max_reconnect_attempts=-1,
                reconnect_time_wait=RECONNECT_INTERVAL,
                disconnected_cb=disconnected,
                reconnected_cb=reconnected,
                error_cb=failed,
            )
        except BaseException:
            await client.close()
            raise
        was_connected = True
        return client

    def _explain(self, error: object) -> str:
        servers = ", ".join(server.rpartition("@")[2] for server in self._servers)  # without credentials
        return f"NATS subject '{self._source.subject}' at {servers}: {error}"


class _ConsumerSession:
    """One subscription, which lasts as long as no delivery is missing."""

    def __init__(
        self,
        client: Client,
        subscription: JetStreamContext.PullSubscription,
        listener: SourceListener,
        last_sequence: int,
        delivery_count: int,
    ) -> None:
        self._client = client
        self._subscription = subscription
        self._listener = listener
        self._last_sequence = last_sequence  # of the newest delivered message; all before it were delivered, too
        self._delivery_count = delivery_count  # the consumer's delivery number of the newest known message
        self.pending: int | None = None
        """Messages that the server has for this consumer after those that were delivered; None if it cannot say."""

    async def run_until_gap(self) -> int:
        """Deliver messages until one is missing; return the sequence of the newest delivered one."""
        while await self._deliver_batch():
            pass
        return self._last_sequence

    async def _deliver_batch(self) -> bool:
        """Deliver and acknowledge the available messages up to the first gap; return whether there was none."""
        try:
            messages = await self._subscription.fetch(BATCH_SIZE, timeout=FETCH_TIMEOUT)
        except NatsTimeoutError:
            self.pending = 0 if self._client.is_connected else None
            return True  # no message for now
        if messages:
            self.pending = messages[-1].metadata.num_pending
        contiguous = self._contiguous_messages(messages)
        new = [(message.data, number) for message, number in contiguous if number > self._last_sequence]
        await self._listener.on_events(new)
        for message, _ in contiguous:  # the server redelivers an old message whose acknowledgement was lost
            await message.ack()
        self._last_sequence = max([self._last_sequence, *(number for _, number in new)])
        return len(contiguous) == len(messages)

    def _contiguous_messages(self, messages: Sequence[Msg]) -> list[tuple[Msg, int]]:
        """Return messages with their stream sequences, up to the first gap in the deliveries.

        The consumer numbers its deliveries, redeliveries included. A missing one went to a connection that has ended,
        and is redelivered after newer ones: their sequences would skip it.
        """
        contiguous: list[tuple[Msg, int]] = []
        for message in messages:
            sequence = message.metadata.sequence
            if sequence.consumer != self._delivery_count + 1:
                break
            self._delivery_count = sequence.consumer
            contiguous.append((message, sequence.stream))
        return contiguous


def _config_starting_after(config: ConsumerConfig, info: StreamInfo, last_sequence: int) -> ConsumerConfig:
    """Return a consumer's configuration that starts after our sequence."""
    # A work queue holds only unprocessed messages.
    if last_sequence == 0 or info.config.retention == RetentionPolicy.WORK_QUEUE:
        return config.evolve(deliver_policy=DeliverPolicy.ALL, opt_start_seq=None, opt_start_time=None)
    policy = DeliverPolicy.BY_START_SEQUENCE
    return config.evolve(deliver_policy=policy, opt_start_seq=last_sequence + 1, opt_start_time=None)


def _count_deliveries(consumer: ConsumerInfo) -> int:
    """Return how many deliveries a consumer has made."""
    return consumer.delivered.consumer_seq if consumer.delivered is not None else 0


def _covers(wanted: str, subject: str) -> bool:
    """Return whether a consumer with one filter is given every message of a subject, which may have wildcards."""
    for own, other in zip_longest(wanted.split("."), subject.split(".")):
        if own == ">":
            return other is not None
        if own != other and (own != "*" or other in (None, ">")):
            return False
    return True
