"""A real MQTT broker for tests, and another implementation of the protocol to publish with.

The broker is the NATS server, which keeps sessions and messages on its disk. It speaks MQTT 3.1.1.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from paho.mqtt.client import Client, MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion

import tidemill as tm
from tests.system.brokers import NatsServer, free_port
from tests.system.sources.reading import SourceReading

ACK_WAIT = "500ms"  # after which the broker sends a message again that was not acknowledged
SETTINGS = """
server_name: one
mqtt {{ listen: "127.0.0.1:{port}", ack_wait: "{ack_wait}", {options} }}
jetstream {{ sync_interval: always }}
"""


class MqttBroker(NatsServer):
    """A broker whose sessions and messages outlive a kill."""

    def __init__(self, folder: Path, options: str = "") -> None:
        self.mqtt_port = free_port()
        self.mqtt_url = f"mqtt://127.0.0.1:{self.mqtt_port}"
        settings = folder / "nats.conf"
        settings.write_text(SETTINGS.format(port=self.mqtt_port, ack_wait=ACK_WAIT, options=options))
        self._monitor_port = free_port()
        super().__init__(folder / "data", "-c", str(settings), "-m", str(self._monitor_port))

    async def publish(self, topic: str, *payloads: bytes, qos: int = 1, retain: bool = False) -> None:
        """Publish messages; return when the broker has acknowledged all of them, or raise OSError if it is lost."""
        await asyncio.to_thread(self._publish, topic, payloads, qos, retain)

    async def count_connections(self) -> int:
        """Return how many clients of MQTT it has."""
        url = f"http://127.0.0.1:{self._monitor_port}/connz"
        async with httpx.AsyncClient() as client:
            connections = (await client.get(url)).json()["connections"]
        return sum(one["type"] == "mqtt" for one in connections)

    def _publish(self, topic: str, payloads: Iterable[bytes], qos: int, retain: bool) -> None:
        lost = threading.Event()
        client = Client(CallbackAPIVersion.VERSION2, reconnect_on_failure=False)
        client.on_disconnect = lambda *_: lost.set()
        client.max_inflight_messages_set(1000)
        client.connect("127.0.0.1", self.mqtt_port)
        client.loop_start()
        sent: list[MQTTMessageInfo] = [client.publish(topic, payload, qos, retain) for payload in payloads]
        try:
            for one in sent:
                while not one.is_published():
                    if lost.is_set():
                        raise ConnectionError("the broker was lost before it had acknowledged all messages")
                    one.wait_for_publish(0.05)
        except RuntimeError as error:  # it was lost before the message was sent
            raise ConnectionError(str(error)) from error
        finally:
            client.disconnect()
            client.loop_stop()


@asynccontextmanager
async def mqtt_broker(folder: Path, options: str = "") -> AsyncIterator[MqttBroker]:
    """Run a broker."""
    broker = MqttBroker(folder, options)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


async def open_session(source: tm.sources.Mqtt) -> None:
    """Let the source subscribe once: the broker keeps messages for it from then on."""
    deliveries: Any = await source.start(None, SourceReading().make_context())
    async with aclosing(deliveries):
        await anext(deliveries)
