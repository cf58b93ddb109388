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
    """Names the call that handles the request."""
    at: datetime
    status: int | None = None
    """The status of the answer; None while the request is being handled."""
    headers: dict[str, str] = {}
    body: bytes = b""


class RequestRecords(Protocol):
    """Requests by tenant and idempotency key."""

    async def begin(self, record: RequestRecord, answered_before: datetime, begun_before: datetime) -> RequestRecord:
        """Write a request unless there is one with its key, and return what is stored then.

        It replaces one that was answered before a time, or was begun before a time and not answered.
        """

    async def finish(self, record: RequestRecord) -> None:
        """Write the answer to a request, unless another owner has replaced it."""

    async def delete(self, tenant: str, key: str, owner: str) -> None:
        """Delete a request that its owner could not answer, so that it can be made again."""

    async def prune(self, before: datetime) -> int:
        """Delete the requests from before a time; return their number."""


def gives_way(record: RequestRecord, answered_before: datetime, begun_before: datetime) -> bool:
    """Return whether a stored request is too old to count: see `RequestRecords.begin`."""
    return record.at < (begun_before if record.status is None else answered_before)
