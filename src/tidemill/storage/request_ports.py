"""The port of idempotent requests: what was answered to a request with an idempotency key."""

from datetime import datetime
from typing import Protocol

import msgspec


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A request with an idempotency key, and its answer."""

    tenant: str
    key: str
    route: str
    """The method and the path."""
    digest: bytes
    """Of the body."""
    owner: str
    """The call that handles the request; empty if none does."""
    at: datetime
    """When it was begun first: repetitions keep it."""
    status: int | None = None
    """The status of the answer; None while the request is being handled."""
    headers: dict[str, str] = {}
    body: bytes = b""


FIRE_PREFIX = "request:"
"""With which the keys of fires begin that requests have made; statements of databases spell it out."""


class RequestRecords(Protocol):
    """Requests by tenant and idempotency key."""

    async def begin(self, record: RequestRecord, expired_before: datetime) -> RequestRecord:
        """Write a request unless there is one with its key, and return what is stored then.

        It replaces one that was begun before a time.
        """

    async def get(self, tenant: str, key: str) -> RequestRecord | None:
        """Return the request with a key; None if there is none."""

    async def claim(self, record: RequestRecord, previous: str) -> bool:
        """Write the owner of a request without an answer, in place of `previous`; False if that does not own it."""

    async def finish(self, record: RequestRecord) -> RequestRecord:
        """Write the answer to a request, unless it has one, and return it with the answer that is stored then."""

    async def prune(self, before: datetime) -> int:
        """Delete the requests from before a time, and the fires under their keys; return the number of requests."""
