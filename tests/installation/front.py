"""The way of clients to the installation: a random server for each request, repeated until it is acknowledged."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.installation.journal import GivenUp, Journal
from tests.installation.processes import Installation
from tidemill.client import AsyncClient
from tidemill.kernel.errors import NotFoundError, OperationError

REQUEST_TIMEOUT = 3.0  # seconds after which a client takes its server for dead
UPLOAD_TIMEOUT = 20.0
PAUSES = (0.01, 0.1)  # seconds between two tries


class Answer(NamedTuple):
    """The answer of a server: its status, its code if it is a problem, and its body."""

    status: int
    code: str
    body: Any

    def __str__(self) -> str:
        return f"{self.status} {self.code}".strip()

    @property
    def is_refusal(self) -> bool:
        """Whether it says that the request had no effect, and not that it may have one yet."""
        return self.status in (404, 409) and self.code != "request_in_progress"


class Front:
    """Sends requests to random servers, without asking whether they are well."""

    def __init__(self, installation: Installation, journal: Journal, key: str) -> None:
        self.journal = journal
        self.key = key
        self.is_closing = asyncio.Event()
        """Set when clients shall finish the request that they repeat, and begin no other."""
        self.is_over = asyncio.Event()
        """Set when they shall give it up."""
        self._urls = [one.url for one in (*installation.servers, installation.joiner)]
        self._steady = [one.url for one in installation.servers]
        self._http = httpx.AsyncClient(
            headers={"authorization": f"Bearer {key}"},
            timeout=REQUEST_TIMEOUT,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        )

    def url(self) -> str:
        """Return the address of a random server."""
        return random.choice(self._urls)

    def client(self, **options: Any) -> AsyncClient:
        """Return a client of the library, of a random server that is meant to stay."""
        return AsyncClient(random.choice(self._steady), key=self.key, timeout=REQUEST_TIMEOUT, **options)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def pause(self) -> None:
        """Wait a moment before another try."""
        await asyncio.sleep(random.uniform(*PAUSES))  # real time: other processes work

    async def get(self, path: str) -> Any:
        """Return what a server answers, once one does."""
        while True:
            with suppress(httpx.TransportError):
                response = await self._http.get(f"{self.url()}/api/v1{path}")
                if response.is_success:
                    return response.json()
            await self.pause()

    async def post(self, path: str, key: str, **content: Any) -> Answer | None:
        """Send a request once; return None if there is no answer."""
        headers = {"idempotency-key": key, **content.pop("headers", {})}
        try:
            response = await self._http.post(f"{self.url()}/api/v1{path}", headers=headers, **content)
            body = response.json() if response.content else None
        except (httpx.TransportError, ValueError):
            return None
        return Answer(response.status_code, body.get("code", "") if isinstance(body, dict) else "", body)

    async def post_until_answered(self, path: str, key: str, *, refusal_limit: float, **content: Any) -> Answer | None:
        """Repeat a request with its key until it is acknowledged; return None if it is given up.

        A refusal is returned that is the same for so many seconds: servers load packages, and a frozen one wakes up.
        """
        last, since = None, 0.0
        while not self.is_over.is_set():
            answer = await self.post(path, key, **content)
            if answer is not None:
                assert answer.status not in (400, 401, 403, 413, 422), answer
                if answer.status < 300:
                    return answer
                if str(answer) != str(last):
                    last, since = answer, time.monotonic()
                if answer.is_refusal and time.monotonic() > since + refusal_limit:
                    return answer
            await self.pause()
        self.journal.write(GivenUp(f"POST {path} {key}", str(last or "none at all")))
        return None

    async def upload(self, package: Path) -> None:
        """Upload a package."""
        await self._until_done(lambda client: client.upload(package))

    async def withdraw(self, name: str) -> None:
        """Withdraw a package, so that every node unloads it."""
        await self._until_done(lambda client: client.unload(name))

    async def _until_done(self, call: Callable[[AsyncClient], Awaitable[object]]) -> None:
        """Call one server after another until one has answered."""
        while not self.is_over.is_set():
            async with AsyncClient(self.url(), key=self.key, timeout=UPLOAD_TIMEOUT) as client:
                try:
                    await call(client)
                except NotFoundError:  # a withdrawal that is repeated
                    return
                except OperationError:
                    await self.pause()
                else:
                    return
