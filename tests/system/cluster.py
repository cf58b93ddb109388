"""Several `tidemill server` processes on one store, and producers that push to all of them, for chaos tests."""

import asyncio
import json
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import combinations, count
from pathlib import Path
from typing import Any

import httpx

PATIENCE = 60.0  # seconds for anything at all
REQUEST_TIMEOUT = 2.0  # seconds after which a producer takes its server for dead


class Server:
    """One server of the cluster."""

    def __init__(self, url: str, process: Process) -> None:
        self.url = url
        self.process = process
        self.is_usable = True

    def stop_answering(self, how: signal.Signals) -> None:
        """Kill or freeze it."""
        self.is_usable = False
        self.process.send_signal(how)


@asynccontextmanager
async def cluster(store: str, packages: Path, size: int = 3) -> AsyncIterator[list[Server]]:
    """Run servers; kill those that still run in the end."""
    command = [sys.executable, "-m", "tidemill", "server", "--store", store, "--port", "0", "-o", "json", "--no-auth"]
    started = [
        await asyncio.create_subprocess_exec(*command, "--packages", str(packages), stdout=PIPE, stderr=DEVNULL)
        for _ in range(size)
    ]
    try:
        async with asyncio.timeout(PATIENCE):
            yield [Server(await _read_url(one), one) for one in started]
    finally:
        for one in started:
            if one.returncode is None:
                one.kill()
            await one.wait()


async def _read_url(process: Process) -> str:
    assert process.stdout is not None, "it is a pipe"
    url: str = json.loads(await process.stdout.readline())["url"]
    return url


async def get(server: Server, path: str) -> Any:
    """Return what a server answers, or None while it does not answer with success."""
    async with httpx.AsyncClient(base_url=f"{server.url}/api/v1", timeout=REQUEST_TIMEOUT) as client:
        try:
            answer = await client.get(path)
        except httpx.TransportError:
            return None
    return answer.json() if answer.is_success else None


async def push(server: Server, accumulator: str, event: Any) -> httpx.Response:
    """Push an event at a server."""
    async with httpx.AsyncClient(base_url=f"{server.url}/api/v1", timeout=REQUEST_TIMEOUT) as client:
        return await client.post(f"/accumulators/{accumulator}/events", json=event)


class LedgerProducer:
    """Pushes growing numbers, one after another, to one server, or to the next one if that does not answer."""

    def __init__(self, name: str, servers: list[Server], first: int) -> None:
        self.name = name
        self.acknowledged: list[int] = []
        self.unknown: list[int] = []
        self.acknowledged_at = 0.0
        self._servers = servers
        self._first = first

    async def run(self, stop: asyncio.Event) -> None:
        """Push until told to stop."""
        limits = httpx.Limits(max_keepalive_connections=1)
        async with httpx.AsyncClient(timeout=REQUEST_TIMEOUT, limits=limits) as client:
            numbers = count(1)
            number = next(numbers)
            while not stop.is_set():
                if await self._push(client, number):
                    number = next(numbers)

    async def _push(self, client: httpx.AsyncClient, number: int) -> bool:
        """Push a number; return whether to go on with the next one: what may have been applied is not repeated."""
        usable = [one for one in self._servers if one.is_usable]
        server = usable[self._first % len(usable)]
        event = {"producer": self.name, "number": number}
        try:
            answer = await client.post(f"{server.url}/api/v1/accumulators/entries/events", json=event)
        except httpx.TransportError:
            self.unknown.append(number)
            return True
        if answer.is_success:
            self.acknowledged.append(number)
            self.acknowledged_at = time.monotonic()
        elif answer.status_code == 503:
            self.unknown.append(number)
        else:
            assert answer.status_code in (404, 409, 429), answer.text  # nothing was applied
        return answer.is_success or answer.status_code == 503

    def check(self, account: dict[str, Any]) -> None:
        """Require that every acknowledged number was applied once, and no number twice.

        A push that got no answer in time may come late: a frozen server sends it on when it wakes up.
        """
        assert len(set(account["late"])) == len(account["late"]), (self.name, account)
        assert set(account["late"]) <= set(self.unknown), (self.name, account, self.unknown)
        applied = account["count"] - len(self.acknowledged)
        missing = account["total"] - sum(self.acknowledged)
        subsets = {sum(one) for one in combinations(self.unknown, applied)} if applied >= 0 else set()
        assert missing in subsets, (self.name, account, len(self.acknowledged), sum(self.acknowledged), self.unknown)
