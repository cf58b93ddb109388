"""The processes of the installation: servers and workers, and a service manager that starts again what has ended."""

import asyncio
import json
import os
import random
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import uuid4

from tests.architecture.sources import ROOT

RESTART_DELAY = 0.3  # seconds between the end of a process and its next start
STOP_LIMIT = 60.0  # seconds for an orderly end
PORTS = range(20_000, 32_000)  # no system gives them to outgoing connections, so a restarted server gets its port back
MARK = "TEST_INSTALLATION"  # the variable that marks every process of an installation, also children
SETTINGS = {
    "TIDEMILL_HEARTBEAT_TIMEOUT": "4s",
    "TIDEMILL_TASK_MAX_RECOVERIES": "1000000",
    "TIDEMILL_PACKAGE_POLL_INTERVAL": "500ms",
    "TIDEMILL_REBALANCE_DELAY": "500ms",
}

Kind = Literal["server", "worker"]


class Exit(NamedTuple):
    """The end of a process."""

    name: str
    code: int
    was_asked: bool
    """Whether it was killed, or asked to stop."""
    was_ready: bool

    @property
    def is_fault(self) -> bool:
        """Whether it is no consequence of a fault: a process that starts may find the store away, and end."""
        if self.was_asked:
            return self.code not in (0, -signal.SIGKILL)
        return self.was_ready


class Place:
    """A place for one server or worker, in which one process follows another."""

    def __init__(self, name: str, kind: Kind, store: str, folder: Path, mark: str) -> None:
        self.name = name
        self.kind: Kind = kind
        self.is_wanted = False
        self.is_asked = False
        """Whether the present process was asked to stop, or killed."""
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()
        self.ended.set()
        self.exits: list[Exit] = []
        self.url = ""
        self._changed = asyncio.Event()
        self._process: Process | None = None
        self._log = folder / f"{name}.log"
        self._environment = {**os.environ, **SETTINGS, MARK: mark}
        options = ["--port", str(port := _quiet_port())] if kind == "server" else ["--name", name]
        if kind == "server":
            self.url = f"http://127.0.0.1:{port}"
        self._command = [sys.executable, "-m", "tidemill", kind, "--store", store, "-o", "json", *options]

    @property
    def pid(self) -> int | None:
        """The id of the present process; None if none runs."""
        return None if self._process is None else self._process.pid

    def want(self, *, is_wanted: bool) -> None:
        """Let the service manager keep a process here, or not; one that runs goes on."""
        self.is_wanted = is_wanted
        self._changed.set()

    def signal(self, sent: signal.Signals) -> None:
        """Send a signal to the present process, if there is one."""
        if self._process is not None:
            self.is_asked = self.is_asked or sent in (signal.SIGTERM, signal.SIGKILL)
            with suppress(ProcessLookupError):
                self._process.send_signal(sent)

    async def stop(self) -> None:
        """Ask the present process, which is ready, to stop, wait for its end, and start no other."""
        self.want(is_wanted=False)
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        async with asyncio.timeout(STOP_LIMIT):
            await self.ended.wait()

    async def manage(self) -> None:
        """Run processes, one after another, while they are wanted; until cancelled."""
        try:
            while True:
                while not self.is_wanted:
                    self._changed.clear()
                    await self._changed.wait()
                await self._live()
                await asyncio.sleep(RESTART_DELAY)  # real time: as a service manager does
        finally:
            if self._process is not None:
                self._process.kill()
                await self._process.wait()

    async def _live(self) -> None:
        self.ended.clear()
        self.is_asked = False
        with self._log.open("ab") as log:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command, stdout=PIPE, stderr=log, cwd=ROOT, env=self._environment
            )
        assert process.stdout is not None
        if line := await process.stdout.readline():
            assert json.loads(line) in ({"url": self.url}, {"worker": self.name})
            self.ready.set()
        code = await process.wait()
        self.exits.append(Exit(self.name, code, self.is_asked, self.ready.is_set()))
        self._process = None
        self.ready.clear()
        self.ended.set()


class Installation:
    """Servers and workers on one store; the last server joins and leaves."""

    def __init__(self, store: str, folder: Path, servers: int, workers: int) -> None:
        self.store = store
        self.mark = uuid4().hex
        names = [f"server-{number}" for number in range(1, servers + 1)]
        self.servers = [Place(name, "server", store, folder, self.mark) for name in names]
        self.joiner = Place("joiner", "server", store, folder, self.mark)
        names = [f"worker-{number}" for number in range(1, workers + 1)]
        self.workers = [Place(name, "worker", store, folder, self.mark) for name in names]

    @property
    def places(self) -> list[Place]:
        """All places."""
        return [*self.servers, self.joiner, *self.workers]

    @property
    def exits(self) -> list[Exit]:
        """How all processes have ended."""
        return [one for place in self.places for one in place.exits]

    def place(self, name: str) -> Place:
        """Return a place by its name."""
        return next(one for one in self.places if one.name == name)

    async def until_ready(self, places: Sequence[Place], within: float) -> None:
        """Wait until processes answer."""
        for place in places:
            place.want(is_wanted=True)
        async with asyncio.timeout(within):
            for place in places:
                await place.ready.wait()

    async def stop(self) -> None:
        """Ask all processes to stop, and wait for their ends."""
        async with asyncio.TaskGroup() as group:
            for place in self.places:
                group.create_task(place.stop(), name=f"stop {place.name}")

    def orphans(self) -> list[str]:
        """Return the processes of the installation that still run."""
        return [f"{pid}: {command}" for pid, command in _marked_processes(self.mark)]


@asynccontextmanager
async def installed(store: str, folder: Path, servers: int, workers: int) -> AsyncIterator[Installation]:
    """Run the service manager of an installation; kill what still runs in the end."""
    installation = Installation(store, folder, servers, workers)
    async with asyncio.TaskGroup() as group:
        managers = [group.create_task(one.manage(), name=one.name) for one in installation.places]
        try:
            yield installation
        finally:
            for manager in managers:
                manager.cancel()


def descriptors(place: Place) -> int:
    """Return the number of open files of the present process."""
    return len(os.listdir(f"/proc/{place.pid}/fd"))


def resident(place: Place) -> float:
    """Return the megabytes of memory that the present process holds."""
    pages = int(Path(f"/proc/{place.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1_000_000


def _marked_processes(mark: str) -> list[tuple[int, str]]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with suppress(OSError):
                if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found.append((int(folder.name), command))
    return found


def _quiet_port() -> int:
    while True:
        port = random.choice(PORTS)
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
