"""SIGTERM before the code of an attempt runs: it ends at once, without a report."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tidemill.attempt.attempt import Attempt
from tidemill.attempt.connection import LeaseTimer, ServerConnection
from tidemill.engine.workflows.executors.interface import AttemptRequest
from tidemill.engine.workflows.executors.remote.orders import BundledCode, Order
from tidemill.engine.workflows.executors.remote.unit_results import TERMINATED
from tidemill.workflows.records import AttemptKey

ORDER = Order(
    request=AttemptRequest(
        key=AttemptKey("run", "task", -1, 1),
        tenant="public",
        workflow="flow",
        version="1",
        executor="kubernetes",
        number=1,
        deferrals=0,
        params=b"",
        inputs={},
    ),
    code=BundledCode(digest="x", shown="", tops=("flow",), modules=("flow",)),
    lease=90.0,
    heartbeat_interval=15.0,
)


class _SilentServer(ServerConnection):
    """Answers some calls; the others wait without end."""

    def __init__(self, *answered: str) -> None:
        super().__init__("http://127.0.0.1:1", "token", LeaseTimer())
        self._answered = answered
        self.called: asyncio.Queue[str] = asyncio.Queue()
        self.reports: list[Any] = []

    async def post(self, path: str, body: dict[str, Any] | None, kind: type[Any], timeout: float) -> Any:
        await self._call(path)
        if path == "/result":
            self.reports.append(body)
        return {"order": ORDER.encode()}

    async def get(self, path: str) -> bytes:
        await self._call(path)
        return b""

    async def _call(self, path: str) -> None:
        self.called.put_nowait(path)
        if path not in self._answered:
            await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("answered", "awaited"), [(["/result"], "/start"), (["/start", "/result"], "/code")], ids=["start", "download"]
)
async def test_an_attempt_whose_code_does_not_run_yet_ends_at_once(
    tmp_path: Path, answered: list[str], awaited: str
) -> None:
    """Tasks: a drained pod ends within its grace period, and the cluster says why."""
    server = _SilentServer(*answered)
    attempt = Attempt(server, tmp_path)
    async with asyncio.timeout(10.0), asyncio.TaskGroup() as group:
        running = group.create_task(attempt.run(), name="attempt")
        while await server.called.get() != awaited:
            pass
        attempt.terminate()
    assert (running.result(), server.reports) == (TERMINATED, [])
