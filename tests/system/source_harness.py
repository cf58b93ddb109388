"""Real servers behind sources, and nodes that read them: both are killed under load.

A source comes with a `SourceUnderTest` whose server is another process, and with a function `make(argument)` that makes
the same source in the process of a node. `kill_repeatedly` then proves what each durability promises about it.
"""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.system.killing import seed
from tidemill.graphs.definition import Durability, Source
from tidemill.testing.sources import SourceUnderTest

ROOT = Path(__file__).parents[2]
START_TIMEOUT = 60.0  # seconds
LIVES = 2  # at least
SECONDS = float(os.environ.get("TIDEMILL_TEST_SOAK_SECONDS", "0"))  # that the lives last at least
BURST = 5  # events that are appended at once
LARGE_BURST = 300  # more than the events after which a stream gives the event loop a turn
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
    """A node that reads a source, in a process of its own."""

    def __init__(self, folder: Path, make: Callable[[Any], Source], argument: Any, durability: Durability) -> None:
        self._order = {
            "store": f"sqlite:///{folder}/node.db",
            "make": f"{make.__module__}:{make.__name__}",
            "argument": argument,
            "durability": durability,
        }
        self._process: subprocess.Popen[str] | None = None

    def start(self, until: int | None = None) -> None:
        """Start a life; with `until`, it ends when it has counted so many events."""
        command = [sys.executable, "-m", "tests.system.source_program", json.dumps({**self._order, "until": until})]
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
    """Appends numbered events in bursts."""

    def __init__(self, subject: SourceUnderTest, burst: int) -> None:
        self._subject = subject
        self._burst = burst
        self.appended = 0

    async def append_burst(self) -> None:
        """Append the next events; return when the server has them."""
        numbers = range(self.appended, self.appended + self._burst)
        await self._subject.append([{"number": number} for number in numbers])
        self.appended += self._burst

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Append bursts within the block, and finish the last one after it."""
        ended = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._append_until(ended), name="load")
            yield
            ended.set()

    async def _append_until(self, ended: asyncio.Event) -> None:
        while not ended.is_set():
            await self.append_burst()
            await asyncio.sleep(PAUSE)


async def kill_repeatedly(
    subject: SourceUnderTest,
    folder: Path,
    make: Callable[[Any], Source],
    argument: Any,
    *,
    durability: Durability = "boundary",
    server_kills: float = SERVER_KILLS,
    in_order: bool = True,
) -> None:
    """Kill server and node while events are appended; then every event has changed the state once, in order (G-6).

    Each life finds events that were appended while no node ran. Without a commit per event the load is heavy: then a
    snapshot may come between any two of them.
    """
    chance = random.Random(chosen := seed())
    node = NodeProcess(folder, make, argument, durability)
    load = _Load(subject, BURST if durability == "boundary" else LARGE_BURST)
    loop = asyncio.get_running_loop()
    deadline, lives = loop.time() + SECONDS, 0
    try:
        while lives < LIVES or loop.time() < deadline:
            await load.append_burst()
            node.start()
            await node.first_count()
            kills_server = lives == 0 < server_kills or chance.random() < server_kills
            async with load.running():
                await _live(subject, chance, kills_server=kills_server)
                node.kill()
            lives += 1
        node.start(until=load.appended)
        tally = await node.end()
    finally:
        node.kill()
    assert (tally.count, tally.total) == (load.appended, sum(range(load.appended))), f"seed {chosen}"
    if in_order:
        assert (tally.missing, tally.repeated) == (0, 0), f"seed {chosen}"


async def _live(subject: SourceUnderTest, chance: random.Random, *, kills_server: bool) -> None:
    """Let a node read until a random moment, which is anywhere within its commits."""
    await asyncio.sleep(chance.random() * LONGEST_LIFE)
    if kills_server:
        await subject.stop_server()
        await asyncio.sleep(chance.random() * LONGEST_LIFE)
        await subject.start_server()
        await asyncio.sleep(chance.random() * LONGEST_LIFE)
