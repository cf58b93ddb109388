"""MQTT: reads a topic with a session that the broker keeps, and acknowledges each message after its delivery.

Client libraries for Python acknowledge when a message arrives, or confirm QoS 2 before it was processed: a crash then
loses it. So this is a separate subscriber. QoS 1 means at least once. With QoS 2, the checkpoint holds the ids of the
messages that were delivered and that the broker has not released yet; one that it sends again is dropped.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from hashlib import blake2b
from typing import Any, ClassVar, Literal

import msgspec

from tidemill.kernel.author_errors import Fail
from tidemill.kernel.errors import DefinitionError
from tidemill.sources.clients import explaining_errors, resolve_url, server_name
from tidemill.sources.interface import Delivery, Event, Moved, SourceContext, read_checkpoint
from tidemill.sources.mqtt_connection import CONNECT_TIMEOUT, MqttConnection, open_connection
from tidemill.sources.mqtt_packets import (
    REFUSED_SUBSCRIPTION,
    MqttMessage,
    Packet,
    PacketKind,
    encode_acknowledgement,
    encode_subscribe,
    encode_unsubscribe,
    parse_message,
)
from tidemill.sources.options import check_text

BATCH_SIZE = 64  # messages that share a commit, if that many have arrived
SETUP_ID = 1  # of the only requests that this client makes; the broker counts its own ids
REFUSALS = {
    1: "the broker does not speak MQTT 3.1.1",
    2: "the broker refuses the client id; choose another one with client_id=",
    4: "the broker refuses the user name or the password; correct the credentials in its address",
    5: "the broker does not authorise this client; correct its grants",
}
"""What a CONNACK says that a retry cannot change."""


class MqttCheckpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """The session that was read, its subscription, and the QoS 2 messages that were delivered and not released."""

    server: str
    client_id: str
    topic: str
    qos: int
    unreleased: dict[str, str] = {}
    """A checksum of each message, by packet id."""

    def is_of_session(self, other: "MqttCheckpoint") -> bool:
        """Return whether two checkpoints are of one session."""
        return (self.server, self.client_id) == (other.server, other.client_id)


class Mqtt(msgspec.Struct, frozen=True, kw_only=True):
    """An MQTT topic, or a filter such as `"plant/+/temperature"`; the address from here or from `mqtt_url`."""

    replays: ClassVar[bool] = False  # a broker does not send again what was acknowledged

    topic: str
    qos: Literal[0, 1, 2] = 1
    """0 loses messages while the source is away, 1 may repeat some after a lost connection, 2 does neither."""
    client_id: str | None = None
    """The name of the session at the broker; `tidemill-` and the name of the accumulator by default.

    The accumulator of another tenant than `public` has the name of its tenant in between.
    """
    envelope: bool = False
    """Whether the event is `{"topic": ..., "retained": ..., "payload": ...}` instead of the payload alone.

    The payload must be JSON. One that is not, or that is empty, becomes a dead letter without an envelope.
    """
    retained: bool = True
    """Whether to deliver retained messages, which the broker sends with each new subscription."""
    url: str | None = None

    def __post_init__(self) -> None:
        check_text("Mqtt", "topic", self.topic)
        if self.qos not in (0, 1, 2):
            raise DefinitionError.single("Mqtt", f"qos={self.qos!r} is unknown; choose 0, 1 or 2")

    def __repr__(self) -> str:
        return f"Mqtt(topic={self.topic!r})"  # its address may hold a password

    async def start(self, checkpoint: Any, context: SourceContext) -> AsyncIterator[Delivery]:
        """Connect, continue the session or subscribe, and return its messages."""
        url = resolve_url("mqtt", self.url, context)
        title = f"MQTT topic '{self.topic}' at {server_name(url)}"
        client_id = self.client_id or context.client_name
        before = read_checkpoint(checkpoint, MqttCheckpoint, title)
        now = MqttCheckpoint(server_name(url), client_id, self.topic, self.qos)
        with explaining_errors(title, ValueError):
            connection, answer = await open_connection(url, client_id)
            try:
                has_session = _check_answer(answer, title)
                if before is not None and (gap := _find_gap(before, now, has_session=has_session)):
                    context.report_gap(f"{title}: {gap}")
                session = _MqttSession(self, title, connection, now, before if has_session else None)
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    await session.subscribe()
            except BaseException:
                connection.close()
                raise
        return session.messages()


def _find_gap(before: MqttCheckpoint, now: MqttCheckpoint, *, has_session: bool) -> str | None:
    """Return what is missing if the session that was read does not continue."""
    if not has_session:
        return (
            f"the broker no longer has a session of client '{now.client_id}'; messages since the last one are missing"
        )
    if not now.is_of_session(before):
        return f"messages that wait in the session of client '{before.client_id}' at {before.server} are missing"
    return None


class _MqttSession:
    """Delivers the messages of one connection."""

    def __init__(
        self,
        source: Mqtt,
        title: str,
        connection: MqttConnection,
        now: MqttCheckpoint,
        before: MqttCheckpoint | None,
    ) -> None:
        self._source = source
        self._title = title
        self._connection = connection
        self._now = now
        self._before = before
        self._unreleased = dict(before.unreleased) if before is not None else {}
        self._early: deque[Packet] = deque()
        """Packets of the session that came before the answer to the subscription, and are yet to be delivered."""

    async def subscribe(self) -> None:
        """Subscribe, unless the session has this very subscription: the broker repeats retained messages each time."""
        before, source = self._before, self._source
        continues = before is not None and before.is_of_session(self._now)
        if before is not None and continues and before.topic != source.topic:
            self._connection.send(encode_unsubscribe(SETUP_ID, before.topic))
            await self._receive_answer(PacketKind.UNSUBACK)
        if before is not None and continues and (before.topic, before.qos) == (source.topic, source.qos):
            return
        self._connection.send(encode_subscribe(SETUP_ID, source.topic, source.qos))
        granted = (await self._receive_answer(PacketKind.SUBACK)).body[2]
        if granted == REFUSED_SUBSCRIPTION:
            raise Fail(f"{self._title}: the broker refuses the subscription; correct the topic or the grants")
        if granted < source.qos:
            raise Fail(f"{self._title}: the broker grants QoS {granted} only; ask for it with qos={granted}")

    async def _receive_answer(self, kind: PacketKind) -> Packet:
        while (packet := await self._connection.receive()).kind is not kind:
            self._early.append(packet)
        return packet

    async def messages(self) -> AsyncIterator[Delivery]:
        """Yield the messages that have arrived, and acknowledge them after their delivery.

        The subscription comes first: it is known from then on, even if no message follows.
        """
        try:
            with explaining_errors(self._title, ValueError):
                yield Moved(self._checkpoint())
                while True:
                    arrived = await self._take_arrived()
                    if batch := self._make_batch(arrived):
                        yield batch
                    for packet in arrived:
                        self._acknowledge(packet)
        finally:
            self._connection.close()

    async def _take_arrived(self) -> list[Packet]:
        """Return the packets that have arrived, at least one, up to a release: that changes what is a repetition."""
        packets = [await self._receive()]
        while self._has_packets and len(packets) < BATCH_SIZE and packets[-1].kind is PacketKind.PUBLISH:
            packets.append(await self._receive())
        return packets

    @property
    def _has_packets(self) -> bool:
        return bool(self._early) or self._connection.has_packets

    async def _receive(self) -> Packet:
        return self._early.popleft() if self._early else await self._connection.receive()

    def _make_batch(self, packets: list[Packet]) -> list[Event]:
        """Return the events of new messages, each with the checkpoint after it."""
        batch: list[Event] = []
        for packet in packets:
            if packet.kind is not PacketKind.PUBLISH:
                continue
            message = parse_message(packet)
            if self._is_repetition(message) or (message.is_retained and not self._source.retained):
                continue
            if message.qos == 2:
                self._unreleased = {**self._unreleased, str(message.packet_id): _checksum(message)}
            batch.append((self._make_event(message), self._checkpoint()))
        return batch

    def _checkpoint(self) -> Any:
        return msgspec.to_builtins(msgspec.structs.replace(self._now, unreleased=self._unreleased))

    def _is_repetition(self, message: MqttMessage) -> bool:
        """Return whether a message was delivered before, and the broker has not heard of it.

        An id alone does not tell: a broker may give it to another message when it has released the first.
        """
        known = self._unreleased.get(str(message.packet_id)) if message.qos == 2 else None
        return message.is_duplicate and known == _checksum(message)

    def _make_event(self, message: MqttMessage) -> bytes:
        """Return the event of a message. One that does not fit into an envelope is a dead letter."""
        if not self._source.envelope:
            return message.payload
        try:
            payload = msgspec.json.decode(message.payload, type=msgspec.Raw)  # one value, so that it adds no fields
        except (msgspec.DecodeError, RecursionError):
            return message.payload
        return msgspec.json.encode({"topic": message.topic, "retained": message.is_retained, "payload": payload})

    def _acknowledge(self, packet: Packet) -> None:
        if packet.kind is PacketKind.PUBLISH:
            message = parse_message(packet)
            kind = {1: PacketKind.PUBACK, 2: PacketKind.PUBREC}.get(message.qos)
            if kind is not None:
                self._connection.send(encode_acknowledgement(kind, message.packet_id))
        elif packet.kind is PacketKind.PUBREL:
            self._unreleased = {
                packet_id: checksum
                for packet_id, checksum in self._unreleased.items()
                if packet_id != str(packet.packet_id)
            }
            self._connection.send(encode_acknowledgement(PacketKind.PUBCOMP, packet.packet_id))


def _check_answer(answer: Packet, title: str) -> bool:
    """Return whether the broker has the client's session."""
    if answer.kind is not PacketKind.CONNACK or len(answer.body) != 2:
        raise ConnectionError("the server does not speak MQTT")
    session_present, code = answer.body
    if code in REFUSALS:
        raise Fail(f"{title}: {REFUSALS[code]}")
    if code:
        raise ConnectionError("the broker is not available")
    return bool(session_present)


def _checksum(message: MqttMessage) -> str:
    return blake2b(message.topic.encode() + b"\0" + message.payload, digest_size=4).hexdigest()
