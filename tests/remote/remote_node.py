"""A served node whose remote executor starts local processes, for tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec

from tests.remote import flow
from tests.remote.local_launcher import LocalLauncher
from tests.service.server.serving_node import served
from tidemill.api.handles import AsyncRun
from tidemill.node import Node
from tidemill.node_arguments import NodeProfile
from tidemill.server.authentication import NoAuthentication
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.records import AttemptKey, AttemptRow, TaskKey
from tidemill.workflows.states import TaskState

TIMEOUT = 30.0
"""Seconds to wait for something that should take a second."""

QUICK = {"heartbeat_interval": 0.3, "heartbeat_timeout": 20.0, "tick_interval": 0.1, "lease_ttl": 1.0}
"""Settings under which a node acts soon; a lease outlasts the start of a unit on a busy machine."""

SHORT_LEASE = {"heartbeat_timeout": 5.0}
"""For tests that wait until a lease would have run out."""


class RemoteServer(NamedTuple):
    """A running node with a server that its units reach."""

    node: Node
    url: str
    http: httpx.AsyncClient
    launcher: Any = None

    @property
    def port(self) -> int:
        """The port of the server."""
        return httpx.URL(self.url).port or 0

    async def begin(self, folder: Path, workflow: str = "remote") -> AsyncRun:
        """Start a run whose task says in a folder that it runs."""
        return await self.node.start(workflow, folder=str(folder))

    async def attempts_of(self, run: AsyncRun, task: str = "count") -> list[AttemptRow]:
        """Return the attempts of a task, in order."""
        rows = await self.node.store.runs.read_attempts(run.id)
        return sorted((row for row in rows if row.key.task == task), key=lambda row: row.key)

    async def messages_of(self, run: AsyncRun, task: str = "count") -> list[str]:
        """Return what a task has logged so far."""
        chunks = await self.node.store.logs.read(TaskKey(run.id, task, -1))
        records = [msgspec.msgpack.decode(chunk.payload, type=list[LogRecord]) for chunk in chunks]
        return [record.message for batch in records for record in batch]

    async def until_renewed(self, run: AsyncRun, times: int = 4, task: str = "count") -> None:
        """Wait until the lease of a task's attempt was renewed so many times."""
        seen: set[datetime | None] = set()
        async with asyncio.timeout(TIMEOUT):
            while len(seen) <= times:
                (record,) = await self.node.store.runs.load([run.id])
                seen.add(next(row.lease_until for row in record.tasks if row.task == task))
                await asyncio.sleep(0.02)  # real time: another process renews it

    async def recoveries_of(self, run: AsyncRun, task: str = "count") -> int:
        """Return how many recoveries a task has used up."""
        (record,) = await self.node.store.runs.load([run.id])
        return next(row.recoveries for row in record.tasks if row.task == task)

    async def state_of(self, run: AsyncRun, task: str = "count") -> TaskState:
        """Return the stored state of a task."""
        (record,) = await self.node.store.runs.load([run.id])
        return next(row.state for row in record.tasks if row.task == task)


@asynccontextmanager
async def remote_node(
    store: str, launcher: LocalLauncher, port: int = 0, load: Any = flow.ALL, **settings: Any
) -> AsyncIterator[RemoteServer]:
    """A running node with a server that its units reach."""
    profile = NodeProfile(make_launchers=lambda _settings, _clock: [launcher], is_single_node=False)
    node = Node(store, load=load, settings=QUICK | settings, _profile=profile)
    authentication = NoAuthentication(node.access.tickets, node.access.attempts)
    async with node, served(node, authentication, port=port) as server:
        node.suggest_server_url(server.url)
        yield RemoteServer(node, server.url, server.http, launcher)


def key_of(run: AsyncRun, task: str = "count", attempt: int = 1) -> AttemptKey:
    """Return the key of an attempt of a run."""
    return AttemptKey(run.id, task, -1, attempt)


def starts(folder: Path) -> list[int]:
    """Return the tries that the task of a run has begun."""
    path = folder / "starts"
    return [int(line) for line in path.read_text(encoding="utf-8").split()] if path.exists() else []
