"""A connection to an MQTT broker: packets in the order of their arrival, and back-pressure.

While many packets wait here, the connection is not read: a slow consumer slows the broker down, and memory stays
bounded. A timer sends the pings, because a source does nothing while its consumer is busy.
"""

import asyncio
import ssl
from collections import deque
from urllib.parse import unquote, urlsplit

from tidemill.kernel.author_errors import Fail
from tidemill.sources.mqtt_packets import (
    Packet,
    PacketKind,
    PacketParser,
    PacketTooLargeError,
    encode_connect,
    encode_packet,
)

KEEP_ALIVE = 30  # seconds; a broker drops a client that is silent for half as long again
PING_INTERVAL = 15.0  # seconds
CONNECT_TIMEOUT = 5.0  # seconds for the connection, and for each answer while it is set up
WAITING_BYTES_LIMIT = 262_144  # of packets that wait for the consumer, before the connection is read no further
DEFAULT_PORTS = {"mqtt": 1883, "mqtts": 8883}


class MqttConnection(asyncio.Protocol):
    """One connection, from CONNECT to its end."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._parser = PacketParser()
        self._packets: deque[Packet] = deque()
        self._waiting_bytes = 0
        self._changed = asyncio.Event()
        self._loss: Exception | None = None
        self._has_answered = True
        self._ping_timer: asyncio.TimerHandle | None = None

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, and begin to send pings."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._schedule_ping()

    def data_received(self, data: bytes) -> None:
        """Queue the packets that are complete; stop reading while many wait."""
        self._has_answered = True
        try:
            packets = self._parser.feed(data)
        except ValueError as error:
            self._lose(ConnectionError(f"the server does not speak MQTT: {error}"))
            return
        except PacketTooLargeError as error:
            self._lose(ConnectionError(str(error)))
            return
        for packet in packets:
            if packet.kind is not PacketKind.PINGRESP:
                self._packets.append(packet)
                self._waiting_bytes += len(packet.body)
        if self._waiting_bytes > WAITING_BYTES_LIMIT:
            self._transport.pause_reading()
        self._changed.set()

    def connection_lost(self, error: Exception | None) -> None:
        """Let `receive` raise after the last packet."""
        self._lose(error or ConnectionError("the broker closed the connection"))

    # -- called by the source

    def send(self, packet: bytes) -> None:
        """Send a packet."""
        self._transport.write(packet)

    async def receive(self) -> Packet:
        """Return the next packet; wait for it, and raise when the connection is lost."""
        while not self._packets:
            if self._loss is not None:
                raise self._loss
            self._changed.clear()
            await self._changed.wait()
        packet = self._packets.popleft()
        self._waiting_bytes -= len(packet.body)
        if self._waiting_bytes <= WAITING_BYTES_LIMIT // 2 and not self._transport.is_closing():
            self._transport.resume_reading()
        return packet

    @property
    def has_packets(self) -> bool:
        """Whether `receive` would return at once."""
        return bool(self._packets)

    def close(self) -> None:
        """End the connection in good order: the broker keeps the session."""
        self._stop_pings()
        if not self._transport.is_closing():
            self.send(encode_packet(PacketKind.DISCONNECT))
            self._transport.close()

    # -- pings

    def _schedule_ping(self) -> None:
        # Real time: the broker counts it, too.
        self._ping_timer = asyncio.get_running_loop().call_later(PING_INTERVAL, self._ping)

    def _ping(self) -> None:
        """Ask for a sign of life. A broker that has not given one since the last ping is lost."""
        if not self._has_answered and self._transport.is_reading():
            self._lose(ConnectionError(f"the broker has not answered for {PING_INTERVAL:g} s"))
            return
        self._has_answered = False
        self.send(encode_packet(PacketKind.PINGREQ))
        self._schedule_ping()

    def _stop_pings(self) -> None:
        if self._ping_timer is not None:
            self._ping_timer.cancel()

    def _lose(self, error: Exception) -> None:
        self._stop_pings()
        self._loss = self._loss or error
        self._changed.set()
        self._transport.abort()


async def open_connection(url: str, client_id: str) -> tuple[MqttConnection, Packet]:
    """Connect, and return the connection with the broker's answer to CONNECT."""
    parts = urlsplit(url)
    if parts.scheme not in DEFAULT_PORTS or parts.hostname is None:
        raise Fail("the address of an MQTT broker cannot be read; write mqtt://USER:PASSWORD@HOST:PORT, or mqtts://...")
    tls = ssl.create_default_context() if parts.scheme == "mqtts" else None
    user, password = (None if text is None else unquote(text) for text in (parts.username, parts.password))
    async with asyncio.timeout(CONNECT_TIMEOUT):
        _, connection = await asyncio.get_running_loop().create_connection(
            MqttConnection, parts.hostname, parts.port or DEFAULT_PORTS[parts.scheme], ssl=tls
        )
        try:
            connection.send(encode_connect(client_id, user, password, KEEP_ALIVE))
            return connection, await connection.receive()
        except BaseException:
            connection.close()
            raise
