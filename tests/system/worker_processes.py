"""Workers in processes of their own, as an operator starts them, and the journal of what their tasks did."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import tidemill as tm
from tests.architecture.sources import ROOT
from tests.system.workflow_nodes import Execution
from tidemill.api.handles import AsyncRun

FLOW = Path(__file__).with_name("worker_flow.py")
PATIENCE = 30.0  # seconds for anything at all


class Line(NamedTuple):
    """What a task noted."""

    what: str  # "begin" or "end"
    token: str
    worker: int
    pid: int
    at: float


class WorkerProcess:
    """One worker, and its output."""

    def __init__(self, process: asyncio.subprocess.Process, number: int) -> None:
        self.process = process
        self.number = number
        self.ended_at: float | None = None
        """The moment before it was killed."""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    async def first_line(self) -> str:
        """Return the first line that it prints."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            return (await self.process.stdout.readline()).decode()

    def signal(self, sent: signal.Signals) -> float:
        """Send it a signal; return the moment before."""
        moment = time.monotonic()
        self.process.send_signal(sent)
        return moment

    async def kill(self) -> float:
        """Kill it with SIGKILL; return the moment before."""
        self.ended_at = self.signal(signal.SIGKILL)
        await self.process.wait()
        return self.ended_at

    async def exit_code(self) -> int:
        """Wait until it has ended, and return its exit code."""
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()


class Workshop:
    """A node that plans, the workers on its store, and their journal."""

    def __init__(self, node: tm.Node, address: str, folder: Path, settings: dict[str, str]) -> None:
        self.node = node
        self.folder = folder
        self.journal = folder / "journal"
        self.gate = folder / "gate"
        self.workers: list[WorkerProcess] = []
        self.address = address
        self._settings = settings
        self._numbers = count(1)

    async def add(self, *options: str, concurrency: int = 2, store: str | None = None) -> WorkerProcess:
        """Start a worker, and wait until it is ready; `store` is another way to the same database."""
        number = next(self._numbers)
        arguments = (
            "--store",
            store or self.address,
            "--concurrency",
            str(concurrency),
            "--load",
            str(FLOW),
            "-o",
            "json",
        )
        with (self.folder / f"worker {number}").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tidemill", "worker", *arguments, "--name", f"w{number}", *options),
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "WORKER": str(number), **self._settings},
            )
        worker = WorkerProcess(process, number)
        self.workers.append(worker)
        assert json.loads(await worker.first_line()) == {"worker": f"w{number}"}
        return worker

    async def start(self, runs: int, *, seconds: float | None = None) -> list[AsyncRun]:
        """Start runs whose task takes so many seconds; without a number, it waits for the gate."""
        ends = {"gate": str(self.gate)} if seconds is None else {"seconds": seconds}
        return [await self.node.start("held", file=str(self.journal), **ends) for _ in range(runs)]

    def lines(self) -> list[Line]:
        """Return the journal."""
        text = self.journal.read_text("utf-8") if self.journal.exists() else ""
        fields = [line.split(" ") for line in text.splitlines()]
        return [Line(what, token, int(worker), int(pid), float(at)) for what, token, worker, pid, at in fields]

    def begun(self, worker: WorkerProcess | None = None) -> list[Line]:
        """Return what has begun, on one worker or on all."""
        return [
            line for line in self.lines() if line.what == "begin" and worker in (None, self.workers[line.worker - 1])
        ]

    def busy(self) -> list[WorkerProcess]:
        """Return the living workers on which an attempt has begun and not ended."""
        ended = {line.token for line in self.lines() if line.what == "end"}
        running = {line.worker for line in self.begun() if line.token not in ended}
        return [one for one in self.workers if one.number in running and one.process.returncode is None]

    def executions(self) -> list[Execution]:
        """Return every execution; one without an end lasted until the death of its worker, or is left out."""
        ends = {line.token: line.at for line in self.lines() if line.what == "end"}
        found = []
        for line in self.begun():
            task, _, number = line.token.rpartition("#")
            end = ends.get(line.token, self.workers[line.worker - 1].ended_at)
            if end is not None:
                has_ended = line.token in ends
                found.append(Execution(task, int(number), line.worker, line.at, end, has_ended))
        return found

    async def end(self) -> None:
        """Kill every worker that is left."""
        for worker in self.workers:
            with suppress(ProcessLookupError):
                worker.process.kill()
            await worker.process.wait()


@asynccontextmanager
async def workshop_on(address: str, folder: Path, settings: dict[str, str] | None = None) -> AsyncIterator[Workshop]:
    """Yield a node with the workflow, and no worker yet; `settings` are for all of them."""
    given = settings or {}
    async with tm.Node(address, load=[FLOW], settings=given) as node:
        environment = {f"TIDEMILL_{name.upper()}": value for name, value in given.items()}
        workshop = Workshop(node, address, folder, environment)
        try:
            yield workshop
        finally:
            await workshop.end()


def is_running(pid: int) -> bool:
    """Return whether a process runs, and is not one whose parent has not waited for it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
