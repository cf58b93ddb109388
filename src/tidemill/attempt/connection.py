"""The connection of an attempt to its server: every call is repeated until a server answers, or the lease runs out.

The environment of its unit names the server, and has the token of the attempt.

Only a server of Tidemill can refuse a call: its refusals have a code. Those of a proxy before it may pass.
"""

import asyncio
import logging
from collections.abc import Callable, MutableMapping
from pathlib import Path
from random import random
from time import monotonic
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import httpx
import msgspec

from tidemill.engine.workflows.executors.remote.interface import (
    SERVER_URL_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
)
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
_TOO_LARGE = 413
_TOKEN_OVER = "invalid_attempt_token"
"""The code of a refusal whose order is gone: a while after its attempt was over, the server has deleted it."""


class AttemptEnvironment(NamedTuple):
    """The server and the token of an attempt."""

    url: str
    token: str


def take_environment(environment: MutableMapping[str, str]) -> AttemptEnvironment:
    """Return what the environment says, and remove the token from it: programs that the code starts do not need it."""
    url, token = environment.get(SERVER_URL_VARIABLE), environment.pop(TOKEN_VARIABLE, "")
    file = environment.pop(TOKEN_FILE_VARIABLE, "")
    if not token and file:
        try:
            token = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise OperationError(f"{TOKEN_FILE_VARIABLE} names {file}, which cannot be read: {error}") from error
    if not url or not token:
        missing = SERVER_URL_VARIABLE if not url else f"{TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE}"
        raise OperationError(f"the environment has no {missing}: an executor sets it for the units that it starts")
    return AttemptEnvironment(url, token)


START_PATIENCE = 90.0
"""Seconds to reach a server before the first answer says how long the lease is."""


class LeaseTimer:
    """Runs out unless it is renewed. It counts from the moment at which a request was sent: the server's is later."""

    def __init__(self, seconds: float = START_PATIENCE, now: Callable[[], float] = monotonic) -> None:
        self.seconds = seconds
        self._now = now
        self._renewed_at = now()

    def now(self) -> float:
        """Return the time by which the lease runs."""
        return self._now()

    def renew(self, sent_at: float, seconds: float | None = None) -> None:
        """Renew the lease by the answer to a request."""
        self.seconds = self.seconds if seconds is None else seconds
        self._renewed_at = max(self._renewed_at, sent_at)

    @property
    def left(self) -> float:
        """The seconds until it runs out; 0 if it has."""
        return max(0.0, self._renewed_at + self.seconds - self._now())


class NotWantedError(OperationError):
    """The server no longer wants the attempt."""


class LeaseLostError(OperationError):
    """No server answered until the lease had run out."""


class TooLargeError(OperationError):
    """A call has more bytes than the server takes, or a proxy before it."""


class ServerConnection:
    """Calls the routes of one attempt."""

    def __init__(self, url: str, token: str, lease: LeaseTimer) -> None:
        self.lease = lease
        self._url = url
        self._http = httpx.AsyncClient(
            base_url=f"{url.rstrip('/')}/api/v1/attempts",
            headers={"authorization": f"Bearer {token}", "content-type": _MSGPACK, "accept": _MSGPACK},
            timeout=CALL_TIMEOUT,
            verify=not url.startswith("http:"),  # without TLS, it need not load all authorities: that takes 20 ms
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
        failures, began = 0, self.lease.now()
        while True:
            try:
                response = await self._http.request(method, path, content=content, timeout=timeout)
                if response.is_success:
                    return response.content
                problem = _describe(response)
                _raise_final(response, problem, len(content), self.lease.now() - began >= self.lease.seconds)
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


def _raise_final(response: httpx.Response, problem: str, size: int, is_patience_over: bool) -> None:
    """Raise an error if repeating a call does not help: a server has refused it, or a proxy does for too long."""
    status = response.status_code
    if status == _TOO_LARGE:
        raise TooLargeError(f"its {size:,} bytes are more than the server takes, or a proxy before it: {problem}")
    if status >= 500 or status in _PASSING_STATUSES:
        return
    code = _read_code(response)
    if code is None:
        if is_patience_over:
            raise OperationError(f"a proxy before the server refuses a call of the attempt: {problem}")
    elif status == _NOT_WANTED or code == _TOKEN_OVER:
        raise NotWantedError(problem)
    else:
        raise OperationError(f"the server refused a call of the attempt: {problem}")


def _read_code(response: httpx.Response) -> str | None:
    """Return the code of a refusal of Tidemill, which each has; None if it is not one."""
    try:
        body = response.json()
    except ValueError:
        return None
    code = body.get("code") if isinstance(body, dict) else None
    return code if isinstance(code, str) else None


def _describe(response: httpx.Response) -> str:
    """Return what a server says about a call that it refused."""
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = response.text[:200]
    return f"{response.status_code}: {detail}"
