"""Packets of MQTT 3.1.1, as far as a subscriber needs them: bytes in, packets out, and the other way round."""

from enum import IntEnum
from typing import NamedTuple


class PacketKind(IntEnum):
    """The kinds of packets that a subscriber sends or receives."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14


PROTOCOL_LEVEL = 4  # MQTT 3.1.1
REQUIRED_FLAGS = {PacketKind.PUBREL: 2, PacketKind.SUBSCRIBE: 2, PacketKind.UNSUBSCRIBE: 2}
USER_NAME_FLAG, PASSWORD_FLAG = 0x80, 0x40
MAX_LENGTH_BYTES = 4
MAX_PACKET_SIZE = 16_777_216  # bytes; the protocol allows 256 MiB, which would all be held in memory
REFUSED_SUBSCRIPTION = 0x80


class PacketTooLargeError(Exception):
    """A packet is larger than the limit."""


class Packet(NamedTuple):
    """A packet: its kind, the four flags of its first byte, and what follows the length."""

    kind: PacketKind
    flags: int
    body: bytes

    @property
    def packet_id(self) -> int:
        """The id that an acknowledgement refers to."""
        return int.from_bytes(self.body[:2])


class MqttMessage(NamedTuple):
    """A message that the broker has published to this client."""

    topic: str
    payload: bytes
    qos: int
    packet_id: int
    is_retained: bool
    is_duplicate: bool


class PacketParser:
    """Cuts a stream of bytes into packets."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Packet]:
        """Take bytes in, and return the packets that they complete.

        Raises ValueError if they are not MQTT, and PacketTooLargeError as soon as the length of a packet is known.
        """
        self._buffer += data
        packets: list[Packet] = []
        while (header := _read_header(self._buffer)) is not None:
            start, end = header
            if end > MAX_PACKET_SIZE:
                sizes = f"a packet of {end:,} bytes, and the limit is {MAX_PACKET_SIZE:,}"
                raise PacketTooLargeError(f"the broker sends {sizes}: publish smaller messages")
            if len(self._buffer) < end:
                break
            first = self._buffer[0]
            packets.append(Packet(PacketKind(first >> 4), first & 0x0F, bytes(self._buffer[start:end])))
            del self._buffer[:end]
        return packets


def _read_header(buffer: bytearray) -> tuple[int, int] | None:
    """Return where the body of the first packet begins and ends; None if its length is not complete yet."""
    length = 0
    for position, byte in enumerate(buffer[1 : 1 + MAX_LENGTH_BYTES]):
        length |= (byte & 0x7F) << (7 * position)
        if not byte & 0x80:
            return position + 2, position + 2 + length
    if len(buffer) > MAX_LENGTH_BYTES:
        raise ValueError("the length of a packet has more than four bytes")
    return None


def parse_message(packet: Packet) -> MqttMessage:
    """Return the message of a PUBLISH packet."""
    qos = packet.flags >> 1 & 0x03
    topic_end = 2 + int.from_bytes(packet.body[:2])
    payload_start = topic_end + (2 if qos else 0)
    if len(packet.body) < payload_start or qos > 2:
        raise ValueError("a published message is malformed")
    return MqttMessage(
        topic=packet.body[2:topic_end].decode(),
        payload=packet.body[payload_start:],
        qos=qos,
        packet_id=int.from_bytes(packet.body[topic_end:payload_start]),
        is_retained=bool(packet.flags & 0x01),
        is_duplicate=bool(packet.flags & 0x08),
    )


def encode_connect(client_id: str, user: str | None, password: str | None, keep_alive: int) -> bytes:
    """Return the packet that opens a connection and continues the client's session."""
    flags = (USER_NAME_FLAG if user is not None else 0) | (PASSWORD_FLAG if password is not None else 0)
    texts = [text for text in (client_id, user, password) if text is not None]
    body = _text("MQTT") + bytes([PROTOCOL_LEVEL, flags]) + keep_alive.to_bytes(2)
    return encode_packet(PacketKind.CONNECT, body + b"".join(map(_text, texts)))


def encode_subscribe(packet_id: int, topic: str, qos: int) -> bytes:
    """Return the packet that subscribes to a topic filter."""
    return encode_packet(PacketKind.SUBSCRIBE, packet_id.to_bytes(2) + _text(topic) + bytes([qos]))


def encode_unsubscribe(packet_id: int, topic: str) -> bytes:
    """Return the packet that ends a subscription."""
    return encode_packet(PacketKind.UNSUBSCRIBE, packet_id.to_bytes(2) + _text(topic))


def encode_acknowledgement(kind: PacketKind, packet_id: int) -> bytes:
    """Return a PUBACK, PUBREC or PUBCOMP."""
    return encode_packet(kind, packet_id.to_bytes(2))


def encode_packet(kind: PacketKind, body: bytes = b"") -> bytes:
    """Return a packet as bytes."""
    length, rest = bytearray(), len(body)
    while True:
        rest, digit = divmod(rest, 128)
        length.append(digit | (0x80 if rest else 0))
        if not rest:
            break
    return bytes([kind << 4 | REQUIRED_FLAGS.get(kind, 0)]) + bytes(length) + body


def _text(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2) + data
