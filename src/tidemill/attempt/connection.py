"""The connection of an attempt to its server: every call is repeated until a server answers, or the lease runs out."""

import asyncio
import logging
from random import random
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import msgspec

from tidemill.attempt.lease import LeaseTimer
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.errors import OperationError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

CALL_TIMEOUT = 60.0
"""Seconds for one answer: a push into a full queue takes its time."""
HEARTBEAT_TIMEOUT = 10.0
_BACKOFF = Backoff(0.1, 3.0)
_MSGPACK = "application/msgpack"
_PASSING_STATUSES = frozenset([408, 425, 429])
_NOT_WANTED = 409


class NotWantedError(OperationError):
    """The server does not want the attempt any more."""


class LeaseLostError(OperationError):
    """No server answered until the lease had run out."""


class ServerConnection:
    """Calls the routes of one attempt."""

    def __init__(self, url: str, token: str, lease: LeaseTimer) -> None:
        self.lease = lease
        self._url = url
        self._http = httpx.AsyncClient(
            base_url=f"{url.rstrip('/')}/api/v1/attempts",
            headers={"authorization": f"Bearer {token}", "content-type": _MSGPACK, "accept": _MSGPACK},
            timeout=CALL_TIMEOUT,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def post(self, path: str, body: dict[str, Any] | None, kind: type[Answer], timeout: float) -> Answer:
        """Send a request until a server answers it, and return the answer."""
        content = msgspec.msgpack.encode({} if body is None else body)
        answer = await self._repeat("POST", path, content, timeout)
        return msgspec.msgpack.decode(answer, type=kind) if answer else msgspec.convert(None, kind)

    async def get(self, path: str) -> bytes:
        """Return the content at a path."""
        return await self._repeat("GET", path, b"", CALL_TIMEOUT)

    async def _repeat(self, method: str, path: str, content: bytes, timeout: float) -> bytes:
        failures = 0
        while True:
            try:
                response = await self._http.request(method, path, content=content, timeout=timeout)
                if response.is_success:
                    return response.content
                problem = _describe(response)
                _raise_final(response.status_code, problem)
            except httpx.TransportError as error:
                problem = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            failures += 1
            logger.warning(events.SERVER_UNREACHABLE, extra={"server": self._url, "call": path, "error": problem})
            await self._wait(failures, problem)

    async def _wait(self, failures: int, problem: str) -> None:
        """Wait before a call is repeated; LeaseLostError if the lease runs out meanwhile."""
        left = self.lease.left
        if left <= 0:
            raise LeaseLostError(f"{self._url} did not answer until the lease had run out: {problem}")
        pause = _BACKOFF.delay(failures) * (0.5 + random() / 2)  # many units miss the same server
        await asyncio.sleep(min(pause, left))  # real time: that of the server


def _raise_final(status: int, problem: str) -> None:
    """Raise an error if repeating a call does not help."""
    if status == _NOT_WANTED:
        raise NotWantedError(problem)
    if status < 500 and status not in _PASSING_STATUSES:
        raise OperationError(f"the server refused a call of the attempt: {problem}")


def _describe(response: httpx.Response) -> str:
    """Return what a server says about a call that it refused."""
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = response.text[:200]
    return f"{response.status_code}: {detail}"
