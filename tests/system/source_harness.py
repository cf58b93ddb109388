"""Real servers behind sources, and nodes that read them: both are killed under load.

A source comes with a `SourceUnderTest` whose server is another process, and with a function `make(argument)` that makes
the same source in the process of a node, named as "module:function". `kill_repeatedly` then proves what
`durability="boundary"` promises about it.
"""

import asyncio
import json
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tidemill.testing.sources import SourceUnderTest

ROOT = Path(__file__).parents[2]
START_TIMEOUT = 60.0  # seconds
LIVES = 3
BURST = 5  # events that are appended at once
PAUSE = 0.02  # seconds between two bursts
LONGEST_LIFE = 0.2  # seconds of a node, or of a server, after the first event
SERVER_KILLS = 0.7  # the share of lives in which the server is killed, too


class ServerProcess:
    """A server in a process of its own, on one port, which can be killed and started again."""

    def __init__(self, port: int, command: Sequence[str]) -> None:
        self.port = port
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        self._process = self._open()
        async with asyncio.timeout(START_TIMEOUT):
            while not _accepts_connections(self.port):
                assert self._process.poll() is None, f"the server ended at once: {' '.join(self._command)}"
                await asyncio.sleep(0.02)

    def _open(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self._command, cwd=ROOT, stdout=subprocess.DEVNULL)

    def freeze(self) -> None:
        """Stop it without closing its connections, as a machine that hangs."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


def _accepts_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Tally(msgspec.Struct, frozen=True):
    """What a node has counted, as `source_program` reports it."""

    count: int
    total: int
    last: int
    missing: int
    repeated: int


class NodeProcess:
    """A node that reads a source with `durability="boundary"`, in a process of its own."""

    def __init__(self, folder: Path, make: str, argument: Any) -> None:
        self._folder = folder
        self._make = make
        self._argument = argument
        self._process: subprocess.Popen[str] | None = None

    def start(self, until: int | None = None) -> None:
        """Start a life; with `until`, it ends when it has counted so many events."""
        order = {"store": f"sqlite:///{self._folder}/node.db", "make": self._make, "argument": self._argument}
        command = [sys.executable, "-m", "tests.system.source_program", json.dumps({**order, "until": until})]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    async def first_count(self) -> int:
        """Return how many events it had counted at its first event of this life."""
        return int(await self._read_line())

    async def end(self) -> Tally:
        """Wait for the end of the last life, and return its tally."""
        while not (line := await self._read_line()).startswith("{"):
            pass
        return msgspec.json.decode(line, type=Tally)

    async def _read_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(START_TIMEOUT):
            line = await asyncio.to_thread(self._process.stdout.readline)
        assert line, "the node ended without a report"
        return line

    def kill(self) -> None:
        """Kill it with SIGKILL, if it still runs."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


class _Load:
    """Appends events without a pause, until it is stopped."""

    def __init__(self, subject: SourceUnderTest) -> None:
        self._subject = subject
        self._is_running = True
        self.appended = 0

    async def run(self) -> None:
        """Append until stopped."""
        while self._is_running:
            numbers = range(self.appended, self.appended + BURST)
            await self._subject.append([{"number": number} for number in numbers])
            self.appended += BURST
            await asyncio.sleep(PAUSE)

    def stop(self) -> None:
        """Append no more after the burst in progress."""
        self._is_running = False


async def kill_repeatedly(
    subject: SourceUnderTest,
    folder: Path,
    make: str,
    argument: Any,
    *,
    server_kills: float = SERVER_KILLS,
    in_order: bool = True,
) -> None:
    """Kill server and node while events are appended; then every event has changed the state once, in order (G-6)."""
    chance = random.Random(15)
    node = NodeProcess(folder, make, argument)
    load = _Load(subject)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run(), name="load")
            for _ in range(LIVES):
                node.start()
                await node.first_count()
                await asyncio.sleep(chance.random() * LONGEST_LIFE)  # anywhere within the commits
                if chance.random() < server_kills:
                    await subject.stop_server()
                    await asyncio.sleep(chance.random() * LONGEST_LIFE)
                    await subject.start_server()
                    await asyncio.sleep(chance.random() * LONGEST_LIFE)
                node.kill()
            load.stop()
        node.start(until=load.appended)
        tally = await node.end()
    finally:
        node.kill()
    assert (tally.count, tally.total) == (load.appended, sum(range(load.appended)))
    if in_order:
        assert (tally.missing, tally.repeated) == (0, 0)
