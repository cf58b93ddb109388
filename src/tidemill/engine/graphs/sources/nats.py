"""NATS JetStream: follows a subject with a durable consumer.

The client reconnects by itself; we say when the connection goes and comes. A message is acknowledged only after its
event has reached the reactors, so a crash repeats messages and never loses one. If we kept our own place in the stream,
together with the state it belongs to, that counts: a consumer that is ahead of it, by what a crash undid, is made anew.
"""

import logging
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from tidemill.engine.graphs.sources.feed import Feed, Listener
from tidemill.graphs.definition import Nats
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

BATCH = 256
PATIENCE = 1.0  # seconds to wait for a batch


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
            reached = await self._agree(stream, checkpoint or 0)
            config = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=reached + 1)
            subscription = await stream.pull_subscribe(
                self._source.subject, durable=self._durable, config=config if reached else None
            )
            listener.connected()
            while True:
                reached = await self._bring(subscription, listener, reached)
        finally:
            await client.close()

    async def _agree(self, stream: JetStreamContext, reached: int) -> int:
        """Return our place in the stream, 0 for none, when no consumer there is ahead of it."""
        if not reached:
            return 0
        name = await stream.find_stream_name_by_subject(self._source.subject)
        if (await stream.stream_info(name)).state.last_seq < reached:
            logger.warning(events.SOURCE_BEGAN_ANEW, extra={"stream": name, "reached": reached})
            return 0
        try:
            consumer = await stream.consumer_info(name, self._durable)
        except NotFoundError:
            return reached
        if consumer.ack_floor is not None and consumer.ack_floor.stream_seq > reached:
            await stream.delete_consumer(name, self._durable)
        return reached

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

    async def _bring(self, subscription: JetStreamContext.PullSubscription, listener: Listener, reached: int) -> int:
        """Hand on the messages that are there and were not handed on before; return the newest one's number."""
        try:
            messages = await subscription.fetch(BATCH, timeout=PATIENCE)
        except NatsTimeoutError:
            return reached  # no message for now
        numbered = [(message.data, message.metadata.sequence.stream) for message in messages]
        await listener.many([(data, number) for data, number in numbered if number > reached])
        for message in messages:
            await message.ack()
        return max(reached, *(number for _, number in numbered))
