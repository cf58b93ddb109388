"""Packets of MQTT: however the network cuts the bytes, the same packets come out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.sources.mqtt_packets import (
    MqttMessage,
    Packet,
    PacketKind,
    PacketParser,
    PacketTooLargeError,
    encode_connect,
    encode_packet,
    encode_subscribe,
    parse_message,
)

BODIES = st.one_of(st.binary(max_size=5), st.integers(100, 20_000).map(bytes))


@given(packets=st.lists(st.tuples(st.sampled_from(PacketKind), BODIES)), cuts=st.lists(st.integers(1, 500)))
def test_packets_come_out_as_they_went_in(packets: list[tuple[PacketKind, bytes]], cuts: list[int]) -> None:
    """Also if a packet, or its length, arrives in pieces."""
    data = b"".join(encode_packet(kind, body) for kind, body in packets)
    parser = PacketParser()
    found: list[Packet] = []
    for cut in [*cuts, len(data)]:
        found += parser.feed(data[:cut])
        data = data[cut:]
    assert [(packet.kind, packet.body) for packet in found] == packets


@given(
    topic=st.text(max_size=20), payload=st.binary(), qos=st.integers(0, 2), retained=st.booleans(), again=st.booleans()
)
def test_a_message_is_read_with_its_flags(topic: str, payload: bytes, qos: int, retained: bool, again: bool) -> None:
    """As section 3.3 of the standard lays it out."""
    name = topic.encode()
    body = len(name).to_bytes(2) + name + (b"\x01\x02" if qos else b"") + payload
    packet = Packet(PacketKind.PUBLISH, again << 3 | qos << 1 | retained, body)
    assert parse_message(packet) == MqttMessage(topic, payload, qos, 0x0102 if qos else 0, retained, again)


@pytest.mark.parametrize(
    "packet",
    [
        Packet(PacketKind.PUBLISH, 0, b"\x00\x09short"),
        Packet(PacketKind.PUBLISH, 2, b"\x00\x01a\x01"),
        Packet(PacketKind.PUBLISH, 6, b"\x00\x01a\x01\x02"),
        Packet(PacketKind.PUBLISH, 0, b"\x00\x01\xff"),
    ],
)
def test_a_message_that_is_malformed_is_a_value_error(packet: Packet) -> None:
    """Too short, without its id, with a QoS of 3, with a topic that is no text."""
    with pytest.raises(ValueError, match=r"malformed|utf-8"):
        parse_message(packet)


@pytest.mark.parametrize("data", [b"\x30\xff\xff\xff\xff\x7f", b"\x00\x00"])
def test_bytes_that_are_no_mqtt_are_a_value_error(data: bytes) -> None:
    """A length of five bytes, and a kind that does not exist."""
    with pytest.raises(ValueError, match=r"four bytes|valid PacketKind"):
        PacketParser().feed(data)


def test_a_packet_above_the_limit_is_refused_before_its_body_comes() -> None:
    """The length alone decides, so that no more than the limit is held in memory."""
    parser = PacketParser()
    assert parser.feed(b"\x30\xfb\xff\xff\x07") == []  # five bytes of header, and the rest of 16 MiB
    with pytest.raises(PacketTooLargeError, match=r"a packet of 16,777,217 bytes, and the limit is 16,777,216"):
        PacketParser().feed(b"\x30\xfc\xff\xff\x07")


def test_requests_are_encoded_as_the_standard_shows_them() -> None:
    """Byte for byte: section 3.1 with user and password, a session that continues, and section 3.8."""
    assert encode_connect("c", "u", "p", 30) == b"\x10\x13\x00\x04MQTT\x04\xc0\x00\x1e\x00\x01c\x00\x01u\x00\x01p"
    assert encode_connect("c", None, None, 30) == b"\x10\x0d\x00\x04MQTT\x04\x00\x00\x1e\x00\x01c"
    assert encode_subscribe(1, "a/b", 2) == b"\x82\x08\x00\x01\x00\x03a/b\x02"
