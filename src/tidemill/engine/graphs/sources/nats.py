"""NATS JetStream: follows a subject with a durable consumer.

The client reconnects by itself; we say when the connection goes and comes. A message is acknowledged only after its
event has reached the reactors, so a crash repeats messages and never loses one.
"""

import logging
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js import JetStreamContext

from tidemill.engine.graphs.sources.feed import Feed, Listener
from tidemill.graphs.definition import Nats

logger = logging.getLogger(__name__)

BATCH = 256
PATIENCE = 1.0  # seconds to wait for a batch


class NatsFeed(Feed):
    """Follows one subject of a stream."""

    def __init__(self, source: Nats, name: str, servers: str) -> None:
        self._source = source
        self._durable = source.durable or f"tidemill-{name}"
        self._servers = servers.split(",")

    async def follow(self, listener: Listener, checkpoint: Any) -> None:  # noqa: ARG002 - the broker keeps our place
        client = await self._connect(listener)
        try:
            subscription = await client.jetstream().pull_subscribe(self._source.subject, durable=self._durable)
            listener.connected()
            while True:
                await self._bring(subscription, listener)
        finally:
            await client.close()

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

    async def _bring(self, subscription: JetStreamContext.PullSubscription, listener: Listener) -> None:
        try:
            messages = await subscription.fetch(BATCH, timeout=PATIENCE)
        except NatsTimeoutError:
            return  # no message for now
        for message in messages:
            await listener.event(message.data, message.metadata.sequence.stream)
            await message.ack()
