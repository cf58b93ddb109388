"""MQTT as a source: sessions, retained messages, and acknowledgements that follow the delivery."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import nats
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import tidemill as tm
from tests.system.sources.mqtt_broker import MqttBroker, mqtt_broker, open_session
from tests.system.sources.reading import SourceReading, reading
from tidemill.sources import Disconnected, Moved, Mqtt, mqtt_connection
from tidemill.sources.mqtt_packets import Packet, PacketKind, PacketParser, encode_packet
from tidemill.testing.sources.reading import wait_until


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[MqttBroker]:
    """A broker for one test."""
    async with mqtt_broker(tmp_path) as running:
        yield running


# -- a real broker


async def retain(broker: MqttBroker, topic: str, payload: bytes) -> None:
    """Publish a retained message, and wait until new subscribers get it: this broker confirms it a moment before."""
    await broker.publish(topic, payload, retain=True)
    for number in range(100):
        async with reading(Mqtt(topic=topic, client_id=f"probe-{number}", url=broker.mqtt_url)) as probe:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await probe.until(1)
                    return
    raise AssertionError("the broker does not retain the message")


async def test_an_envelope_has_the_topic_and_marks_retained_messages(broker: MqttBroker) -> None:
    """The payload is part of the event, and decoded with it."""
    await retain(broker, "plant/a/level", b'{"litres": 1}')
    async with reading(Mqtt(topic="plant/+/level", envelope=True, url=broker.mqtt_url)) as read:
        await read.until(1)
        await broker.publish("plant/b/level", b"2")
        assert await read.until(2) == [
            b'{"topic":"plant/a/level","retained":true,"payload":{"litres": 1}}',
            b'{"topic":"plant/b/level","retained":false,"payload":2}',
        ]


FORGED = b'{"litres": 9}, "topic": "plant/other/level", "retained": true'


async def test_a_payload_cannot_add_to_its_envelope(broker: MqttBroker) -> None:
    """It is one JSON value, or a dead letter: a publisher of one topic must not write in the name of another."""

    class Level(tm.Boundary):
        topic: str
        payload: dict[str, int] | int

    @tm.stream(Mqtt(topic="plant/+/level", envelope=True, url=broker.mqtt_url))
    def levels(event: Level) -> Level:
        return event

    payloads = [FORGED, b"", b"litres", b'{"a":1', b"[" * 5000]
    async with tm.Node(load=[tm.Reactor("plant", [levels])]) as node:
        handle = node.reactor("plant")
        await wait_until(lambda: handle.state().accumulators["levels"].health == "live", lambda: "it is not live")
        await broker.publish("plant/a/level", *payloads, b" 7 ")
        await wait_until(lambda: bool(handle.state().cache), lambda: "no event arrived")
        cache, letters = handle.state().cache, await handle.dead_letters()
    assert cache == {"levels": {"topic": "plant/a/level", "payload": 7}}
    assert sorted(letter.event for letter in letters) == sorted(payloads)


async def test_retained_messages_come_once_per_subscription_and_can_be_left_out(broker: MqttBroker) -> None:
    """A session that continues subscribes to nothing anew."""
    await retain(broker, "level", b"1")
    source = Mqtt(topic="level", url=broker.mqtt_url)
    async with reading(source) as read:
        await read.until(1)
    async with reading(source, read.checkpoints[-1]) as later:
        await broker.publish("level", b"2")
        assert await later.until(1) == [b"2"]
    async with reading(Mqtt(topic="level", retained=False, client_id="another", url=broker.mqtt_url)) as other:
        await broker.publish("level", b"3")
        assert await other.until(1) == [b"3"]


async def publish_all(broker: MqttBroker, payloads: list[bytes], qos: int) -> None:
    """Publish messages one by one until the broker has acknowledged each; one that it may have is published again."""
    for payload in payloads:
        while True:
            try:
                await broker.publish("numbers", payload, qos=qos)
                break
            except OSError:
                await asyncio.sleep(0.01)  # real time: the broker is another process


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_broker_that_is_killed_under_load_loses_no_message(broker: MqttBroker, qos: Any) -> None:
    """Messages that it had acknowledged are delivered, some of them again: it writes what it hears of us later."""
    source = Mqtt(topic="numbers", qos=qos, url=broker.mqtt_url)
    await open_session(source)
    payloads = [str(number).encode() for number in range(60)]
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        publishing = tasks.create_task(publish_all(broker, payloads, qos), name="load")
        async with reading(source) as read:
            await read.until(5)
            assert not publishing.done()
            broker.kill()
            with pytest.raises(Disconnected, match="MQTT topic 'numbers' at 127"):
                await read.until(1000)
        await asyncio.to_thread(broker.start)
        async with reading(source, read.checkpoints[-1]) as later:
            await later.until_true(lambda: {*read.events, *later.events} == {*payloads})
            assert later.gaps == []


async def test_a_session_that_the_broker_has_lost_is_reported_as_a_gap(broker: MqttBroker, tmp_path: Path) -> None:
    """Nothing was kept for the source while it was away."""
    async with reading(Mqtt(topic="level", url=broker.mqtt_url)) as read:
        await broker.publish("level", b"1")
        await read.until(1)
    (tmp_path / "another").mkdir()
    async with (
        mqtt_broker(tmp_path / "another") as new,
        reading(Mqtt(topic="level", url=new.mqtt_url), read.checkpoints[-1]) as later,
    ):
        (gap,) = later.gaps
        assert "the broker no longer has a session of client 'tidemill-numbers'" in gap
        await new.publish("level", b"2")
        assert await later.until(1) == [b"2"]


async def test_another_topic_replaces_the_subscription_of_the_session(broker: MqttBroker) -> None:
    """The session would deliver the old topic, too."""
    async with reading(Mqtt(topic="old", url=broker.mqtt_url)) as read:
        await broker.publish("old", b"1")
        await read.until(1)
    async with reading(Mqtt(topic="new", url=broker.mqtt_url), read.checkpoints[-1]) as later:
        await broker.publish("old", b"2")
        await broker.publish("new", b"3")
        assert await later.until(1) == [b"3"]


async def test_a_session_is_known_before_its_first_message(broker: MqttBroker, tmp_path: Path) -> None:
    """G-24: another topic replaces it, and a broker that has lost it is a gap, as after any message."""
    async with reading(Mqtt(topic="old", url=broker.mqtt_url)) as read:
        await read.until_true(lambda: bool(read.progress))
    async with reading(Mqtt(topic="new", url=broker.mqtt_url), read.progress[-1]) as later:
        await broker.publish("old", b"1")
        await broker.publish("new", b"2")
        assert await later.until(1) == [b"2"]
    (tmp_path / "another").mkdir()
    async with (
        mqtt_broker(tmp_path / "another") as lost,
        reading(Mqtt(topic="old", url=lost.mqtt_url), read.progress[0]) as after,
    ):
        (gap,) = after.gaps
        assert "the broker no longer has a session of client 'tidemill-numbers'" in gap


async def test_the_session_of_another_client_id_is_subscribed(broker: MqttBroker) -> None:
    """It may exist, with another subscription; what waits in the first one is a gap."""
    await open_session(Mqtt(topic="other", client_id="second", url=broker.mqtt_url))
    async with reading(Mqtt(topic="level", client_id="first", url=broker.mqtt_url)) as read:
        await broker.publish("level", b"1")
        await read.until(1)
    async with reading(Mqtt(topic="level", client_id="second", url=broker.mqtt_url), read.checkpoints[-1]) as later:
        await broker.publish("level", b"2")
        assert await later.until(1) == [b"2"]
        (gap,) = later.gaps
        assert "messages that wait in the session of client 'first' at 127.0.0.1" in gap


async def test_a_broker_that_refuses_the_client_fails_the_source_for_good(tmp_path: Path) -> None:
    """G-20: the reason names the broker, and no credentials."""
    async with mqtt_broker(tmp_path, 'authorization { username: "u", password: "p" }') as broker:
        wrong = broker.mqtt_url.replace("mqtt://", "mqtt://user:secret@")
        with pytest.raises(tm.Fail, match=r"MQTT topic 'level' at 127\.0\.0\.1:\d+: .*correct") as failure:
            await Mqtt(topic="level", url=wrong).start(None, SourceReading().make_context())
        assert "secret" not in str(failure.value)
        right = broker.mqtt_url.replace("mqtt://", "mqtt://u:p@")
        async with reading(Mqtt(topic="level", url=right)):
            pass


async def test_a_broker_with_tls_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the certificates of the machine; an unknown one is no connection."""
    certificate, key = write_certificate(tmp_path)
    async with mqtt_broker(tmp_path, f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}') as broker:
        source = Mqtt(topic="level", url=broker.mqtt_url.replace("mqtt://", "mqtts://"))
        with pytest.raises(Disconnected, match="certificate verify failed"):
            await source.start(None, SourceReading().make_context())
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        async with reading(source) as read:
            await publish_over_nats(broker.url, "level", b"1")
            assert await read.until(1) == [b"1"]


async def publish_over_nats(url: str, subject: str, payload: bytes) -> None:
    client = await nats.connect(url)
    await client.publish(subject, payload)
    await client.close()


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate of 127.0.0.1 and its key; return their paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2120, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for file, content in (("broker.pem", certificate.public_bytes(Encoding.PEM)), ("broker.key", secret)):
        (folder / file).write_bytes(content)
    return folder / "broker.pem", folder / "broker.key"


async def test_a_server_that_speaks_another_protocol_is_disconnected(broker: MqttBroker) -> None:
    """Such as the broker's own port for NATS."""
    with pytest.raises(Disconnected, match=r"MQTT topic 'level' at .*: (the server does not speak MQTT|no answer)"):
        await Mqtt(topic="level", url=broker.url.replace("nats", "mqtt")).start(None, SourceReading().make_context())


# -- a broker that follows a script


class ScriptedBroker:
    """Answers the set-up of a session, and sends what a test tells it to."""

    def __init__(self, granted: int, *, answers_pings: bool) -> None:
        self.url = ""
        self._answers_pings = answers_pings
        self.received: list[Packet] = []
        self.on_subscribe: Callable[[], None] = lambda: None
        """Called before the answer to a subscription."""
        self._granted = granted
        self._writer: asyncio.StreamWriter
        self._changed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self._writer = writer
        parser = PacketParser()
        with suppress(ConnectionError), closing(writer):
            while data := await reader.read(4096):
                for packet in parser.feed(data):
                    self.received.append(packet)
                    self._answer(packet)
                self._changed.set()

    def _answer(self, packet: Packet) -> None:
        if packet.kind is PacketKind.CONNECT:
            self._writer.write(encode_packet(PacketKind.CONNACK, b"\x01\x00"))
        elif packet.kind is PacketKind.SUBSCRIBE:
            self.on_subscribe()
            self._writer.write(encode_packet(PacketKind.SUBACK, packet.body[:2] + bytes([self._granted])))
        elif packet.kind is PacketKind.PINGREQ and self._answers_pings:
            self._writer.write(encode_packet(PacketKind.PINGRESP))

    def publish(self, packet_id: int, payload: bytes, *, again: bool = False) -> None:
        """Send a message with QoS 2."""
        data = bytearray(encode_packet(PacketKind.PUBLISH, b"\x00\x01t" + packet_id.to_bytes(2) + payload))
        data[0] |= 0x04 | (0x08 if again else 0)
        self._writer.write(bytes(data))

    def release(self, packet_id: int) -> None:
        """Send a PUBREL."""
        self._writer.write(encode_packet(PacketKind.PUBREL, packet_id.to_bytes(2)))

    def count(self, kind: PacketKind) -> int:
        """Return how many packets of a kind have arrived."""
        return sum(packet.kind is kind for packet in self.received)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on what has arrived holds."""
        async with asyncio.timeout(10):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def scripted_broker(granted: int = 2, *, answers_pings: bool = True) -> AsyncIterator[ScriptedBroker]:
    """Run a broker that follows a script."""
    broker = ScriptedBroker(granted, answers_pings=answers_pings)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield broker


async def test_with_qos_2_a_message_that_comes_again_is_dropped_until_it_is_released() -> None:
    """It is confirmed again. The same id with another content is another message, and so is one after the release."""
    async with scripted_broker() as broker, reading(Mqtt(topic="t", qos=2, url=broker.url)) as read:
        broker.publish(7, b"1")
        await read.until(1)
        broker.publish(7, b"1", again=True)
        broker.publish(7, b"2", again=True)
        await read.until(2)
        broker.release(7)
        await broker.until(lambda: broker.count(PacketKind.PUBCOMP) == 1)
        broker.publish(7, b"2", again=True)
        await read.until(3)
        await broker.until(lambda: broker.count(PacketKind.PUBREC) == 4)
        assert read.events == [b"1", b"2", b"2"]
        assert [list(one.get("unreleased", {})) for one in read.checkpoints] == [["7"], ["7"], ["7"]]


async def test_messages_before_the_answer_to_the_subscription_are_delivered_like_others() -> None:
    """A session may have any number of them: they come in batches, and a release ends one, as later."""
    async with scripted_broker() as broker:

        def send_session() -> None:
            for number in range(1, 101):
                broker.publish(number, b"%d" % number)
            broker.release(1)
            broker.publish(1, b"1", again=True)  # another message, since the first one is released

        broker.on_subscribe = send_session
        deliveries: Any = await Mqtt(topic="t", qos=2, url=broker.url).start(None, SourceReading().make_context())
        assert isinstance(await anext(deliveries), Moved)
        batches = [await anext(deliveries) for _ in range(3)]
        assert [len(batch) for batch in batches] == [64, 36, 1]
        assert [event for batch in batches for event, _ in batch] == [b"%d" % number for number in [*range(1, 101), 1]]
        await deliveries.aclose()


async def test_the_checkpoint_drops_what_came_before_a_crash() -> None:
    """G-6: what it names has changed the state; the broker, which has not heard of it, sends it again."""
    async with scripted_broker() as broker, reading(Mqtt(topic="t", qos=2, url=broker.url)) as read:
        broker.publish(1, b"a")
        broker.publish(2, b"b")
        await read.until(2)
    before = read.checkpoints[0]
    async with scripted_broker() as broker, reading(Mqtt(topic="t", qos=2, url=broker.url), before) as later:
        broker.publish(1, b"a", again=True)
        broker.publish(2, b"b", again=True)
        assert await later.until(1) == [b"b"]
        await broker.until(lambda: broker.count(PacketKind.PUBREC) == 2)


async def test_nothing_is_confirmed_before_its_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    """QoS 2 hands a message over with PUBREC: after it the broker forgets the content."""
    monkeypatch.setattr(mqtt_connection, "PING_INTERVAL", 0.02)
    async with scripted_broker() as broker:
        deliveries: Any = await Mqtt(topic="t", qos=2, url=broker.url).start(None, SourceReading().make_context())
        assert isinstance(await anext(deliveries), Moved)
        broker.publish(1, b"a")
        assert [event for event, _ in await anext(deliveries)] == [b"a"]
        pings = broker.count(PacketKind.PINGREQ)
        await broker.until(lambda: broker.count(PacketKind.PINGREQ) > pings)  # later than anything sent so far
        assert broker.count(PacketKind.PUBREC) == 0
        going_on = asyncio.get_running_loop().create_task(anext(deliveries))
        await broker.until(lambda: broker.count(PacketKind.PUBREC) == 1)
        going_on.cancel()
        await asyncio.wait([going_on])


@pytest.mark.parametrize(("granted", "words"), [(0x80, "refuses the subscription"), (0, "ask for it with qos=0")])
async def test_a_subscription_that_is_not_granted_fails_the_source(granted: int, words: str) -> None:
    """Less than was asked for would lose messages."""
    async with scripted_broker(granted) as broker:
        with pytest.raises(tm.Fail, match=words):
            await Mqtt(topic="t", url=broker.url).start(None, SourceReading().make_context())


async def test_a_broker_that_stops_answering_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that swallows what it is sent shows no error of its own."""
    monkeypatch.setattr(mqtt_connection, "PING_INTERVAL", 0.05)
    async with (
        scripted_broker(1, answers_pings=False) as broker,
        reading(Mqtt(topic="t", url=broker.url)) as read,
    ):
        with pytest.raises(Disconnected, match=r"the broker has not answered for 0\.05 s"):
            await read.until(1)
        assert broker.count(PacketKind.PINGREQ) == 1


@pytest.mark.parametrize(("options", "words"), [({"qos": 3}, "qos=3 is unknown"), ({"topic": ""}, "topic= is a text")])
def test_options_are_checked_when_the_source_is_declared(options: dict[str, Any], words: str) -> None:
    """Not when it is read."""
    with pytest.raises(tm.DefinitionError, match=words):
        Mqtt(**{"topic": "t", **options})
