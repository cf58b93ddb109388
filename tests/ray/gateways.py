"""Gateways under test: what they see is recorded."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.ray.cluster import RayCluster
from tidemill.engine.ray.gateway_client import ActorObserver, RayGateway
from tidemill.engine.ray.protocol import ProcessStatus
from tidemill.kernel.clock import SystemClock

TIMEOUT = 60.0

SLEEPER = [
    "-c",
    "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(600)",
]
"""Arguments of a process that writes its id into a file, the next argument, and runs until it is stopped."""


class Recorder(ActorObserver):
    """Records what a gateway sees."""

    def __init__(self) -> None:
        self.sessions: list[str] = []
        self.lists: list[set[str]] = []
        self.seen: list[tuple[str, ProcessStatus]] = []

    def on_connected(self, session: str) -> None:
        self.sessions.append(session)

    def on_listed(self, names: Sequence[str]) -> None:
        self.lists.append(set(names))

    def on_status(self, name: str, status: ProcessStatus) -> None:
        self.seen.append((name, status))

    def states(self, name: str) -> list[str]:
        """Return the states of an actor's process in order."""
        return [status.state for one, status in self.seen if one == name]

    async def wait_for_state(self, name: str, *states: str) -> ProcessStatus:
        """Wait until the last status of an actor has one of these states."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                found = [status for one, status in self.seen if one == name]
                if found and found[-1].state in states:
                    return found[-1]
                await asyncio.sleep(0.02)


class OpenGateway(Recorder):
    """A gateway with a recorder of its own."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.gateway = RayGateway(address, "tidemill", SystemClock(), self, silence_timeout=6.0)

    async def create(self, name: str, *arguments: str, **options: object) -> str:
        """Create an actor that takes no core unless told otherwise."""
        return await self.gateway.create(name, arguments, {"COLOUR": "blue"}, {"num_cpus": 0, **options})


@asynccontextmanager
async def opened(cluster: RayCluster, prefix: str, address: str | None = None) -> AsyncIterator[OpenGateway]:
    """A gateway that is connected."""
    recorder = OpenGateway(address or cluster.address)
    await recorder.gateway.open(prefix)
    try:
        await until(lambda: recorder.lists)
        yield recorder
    finally:
        await recorder.gateway.close()


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(TIMEOUT):
        while not condition():  # noqa: ASYNC110 - another process does not set events
            await asyncio.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def started_pid(path: Path) -> int:
    """Wait until a sleeper runs, and return its process id."""
    await until(lambda: path.exists() and path.read_text())
    return int(path.read_text())
