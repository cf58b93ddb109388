"""NATS JetStream: follows a subject with a durable consumer, in the stream's order.

The client reconnects by itself; we say when the connection goes and comes. A message is acknowledged only after its
event has reached the reactors, so a crash repeats messages and never loses one. If we kept our own place in the stream,
together with the state it belongs to, that counts; else what was acknowledged does.

A place is one number, so order is what makes it true. A server brings what it delivered and nobody acknowledged again
only after a while, behind newer messages: a consumer that delivered anything beyond our place is therefore made anew,
and so is one whose deliveries do not all reach us. A consumer belongs to one accumulator of one node.
"""

import logging
from collections.abc import Sequence
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, ConsumerInfo, DeliverPolicy, RetentionPolicy, StreamInfo
from nats.js.errors import NotFoundError

from tidemill.engine.graphs.sources.feed import Feed, Listener
from tidemill.graphs.definition import Nats
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

BATCH = 256
PATIENCE = 1.0  # seconds to wait for a batch
STAND_IN_SECONDS = 3600.0  # after which the server removes a consumer that a crash left behind


class NatsFeed(Feed):
    """Follows one subject of a stream."""

    def __init__(self, source: Nats, name: str, servers: str) -> None:
        self._source = source
        self._durable = source.durable or f"tidemill-{name}"
        self._servers = servers.split(",")

    async def follow(self, listener: Listener, checkpoint: Any) -> None:
        client = await self._connect(listener)
        try:
            stream = client.jetstream()
            reached = checkpoint or 0
            while True:
                consumer, reached = await self._agree(stream, reached)
                subscription = await stream.pull_subscribe_bind(durable=self._durable, stream=consumer.stream_name)
                listener.connected()
                reached = await _Following(subscription, listener, reached, _delivered(consumer)).until_a_gap()
                logger.info("nats", extra={"consumer": self._durable, "missed_after": reached})
                await subscription.unsubscribe()  # with what is still in its queue: it comes again, in order
        finally:
            await client.close()

    async def _agree(self, stream: JetStreamContext, reached: int) -> tuple[ConsumerInfo, int]:
        """Return our place in the stream, and a consumer that has delivered nothing beyond it."""
        info = await stream.stream_info(await stream.find_stream_name_by_subject(self._source.subject))
        name = info.config.name
        assert name is not None
        if info.state.last_seq < reached:
            logger.warning(events.SOURCE_BEGAN_ANEW, extra={"stream": name, "reached": reached})
            reached = 0
        try:
            consumer = await stream.consumer_info(name, self._durable)
        except NotFoundError:
            config = ConsumerConfig(name=self._durable, durable_name=self._durable, filter_subject=self._source.subject)
            return await stream.add_consumer(name, _from(config, info, reached)), reached
        assert consumer.delivered is not None
        assert consumer.ack_floor is not None
        reached = reached or consumer.ack_floor.stream_seq  # without a place of our own, everything up to there is done
        if consumer.delivered.stream_seq > reached:
            consumer = await self._make_anew(stream, info, _from(consumer.config, info, reached))
        return consumer, reached

    async def _make_anew(self, stream: JetStreamContext, info: StreamInfo, config: ConsumerConfig) -> ConsumerInfo:
        """Replace the consumer, as it was configured, by one that begins elsewhere."""
        name = info.config.name
        assert name is not None
        stand_in = None
        if info.config.retention == RetentionPolicy.INTEREST:  # it drops what no consumer waits for: let one wait
            waiting = config.evolve(name=None, durable_name=None, inactive_threshold=STAND_IN_SECONDS)
            stand_in = (await stream.add_consumer(name, waiting)).name
        await stream.delete_consumer(name, self._durable)
        consumer = await stream.add_consumer(name, config)
        if stand_in is not None:
            await stream.delete_consumer(name, stand_in)
        return consumer

    async def _connect(self, listener: Listener) -> Client:
        async def disconnected() -> None:
            listener.lost("connection lost")

        async def reconnected() -> None:
            listener.connected()

        async def failed(error: Exception) -> None:
            logger.info("nats", extra={"error": repr(error)})

        return await nats.connect(
            servers=self._servers,
            max_reconnect_attempts=-1,
            reconnect_time_wait=PATIENCE,
            disconnected_cb=disconnected,
            reconnected_cb=reconnected,
            error_cb=failed,
        )


class _Following:
    """One subscription, from our place in the stream for as long as it misses no delivery."""

    def __init__(
        self, subscription: JetStreamContext.PullSubscription, listener: Listener, reached: int, delivered: int
    ) -> None:
        self._subscription = subscription
        self._listener = listener
        self._reached = reached  # number of the newest message that was handed on: all before it were, too
        self._delivered = delivered  # how many deliveries the consumer had made with the newest that we know of

    async def until_a_gap(self) -> int:
        """Hand messages on until a delivery is missing; return the number of the newest one handed on."""
        while await self._bring():
            pass
        return self._reached

    async def _bring(self) -> bool:
        """Hand on and acknowledge what is there, up to the first gap; return whether there was none."""
        try:
            messages = await self._subscription.fetch(BATCH, timeout=PATIENCE)
        except NatsTimeoutError:
            return True  # no message for now
        seen = self._without_gap(messages)
        new = [(message.data, number) for message, number in seen if number > self._reached]
        await self._listener.many(new)
        for message, _ in seen:  # what is not new was handed on before, and comes again as its acknowledgement was lost
            await message.ack()
        self._reached = max([self._reached, *(number for _, number in new)])
        return len(seen) == len(messages)

    def _without_gap(self, messages: Sequence[Msg]) -> list[tuple[Msg, int]]:
        """Return messages with their numbers in the stream, up to the first before which a delivery is missing.

        The consumer counts its deliveries, those of the same message again included. One that is missing went to a
        connection that has ended, and comes again after newer ones: with those, our place would pass it by.
        """
        seen: list[tuple[Msg, int]] = []
        for message in messages:
            sequence = message.metadata.sequence
            if sequence.consumer != self._delivered + 1:
                break
            self._delivered = sequence.consumer
            seen.append((message, sequence.stream))
        return seen


def _from(config: ConsumerConfig, info: StreamInfo, reached: int) -> ConsumerConfig:
    """Return a consumer's configuration so that it begins behind our place."""
    if reached == 0 or info.config.retention == RetentionPolicy.WORK_QUEUE:  # the latter has only what is not done
        return config.evolve(deliver_policy=DeliverPolicy.ALL, opt_start_seq=None, opt_start_time=None)
    policy = DeliverPolicy.BY_START_SEQUENCE
    return config.evolve(deliver_policy=policy, opt_start_seq=reached + 1, opt_start_time=None)


def _delivered(consumer: ConsumerInfo) -> int:
    """Return how many deliveries a consumer has made."""
    return consumer.delivered.consumer_seq if consumer.delivered is not None else 0
