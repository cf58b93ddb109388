"""Idempotent requests: a request that is repeated with its key gets the first answer, and is not handled again."""

import hashlib
from collections.abc import Mapping
from datetime import timedelta

from msgspec.structs import replace

from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import RequestError
from tidemill.kernel.ids import new_instance_id
from tidemill.kernel.limits import WORD_RULE, is_word
from tidemill.storage.request_ports import RequestRecord, RequestRecords

ANSWER_LIFETIME = timedelta(hours=24)
HANDLING_LIFETIME = timedelta(minutes=1)
"""After which a request without an answer can be made again: the server that handled it is gone."""


class IdempotentRequests:
    """Requests that name an idempotency key, of all tenants."""

    def __init__(self, records: RequestRecords, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def begin(self, tenant: str, key: str, route: str, body: bytes) -> RequestRecord:
        """Begin to handle a request. A record with a status is the answer to give; else `finish` or `abandon` it.

        RequestError if the key was used for another request, or if the same one is being handled.
        """
        if not is_word(key):
            raise RequestError(f"an Idempotency-Key is {WORD_RULE}, not {key!r}", code="invalid_idempotency_key")
        now = self._clock.now()
        record = RequestRecord(
            tenant=tenant,
            key=key,
            route=route,
            digest=hashlib.sha256(body).digest(),
            owner=new_instance_id(),
            at=now,
        )
        stored = await self._records.begin(record, now - ANSWER_LIFETIME, now - HANDLING_LIFETIME)
        if (stored.route, stored.digest) != (record.route, record.digest):
            message = f"the Idempotency-Key {key!r} was used for another request: choose a new key for each request"
            raise RequestError(message, code="idempotency_conflict", status=409)
        if stored.owner != record.owner and stored.status is None:
            message = f"the request with the Idempotency-Key {key!r} is being handled: repeat it for its answer"
            raise RequestError(message, code="request_in_progress", status=409)
        return stored

    async def finish(self, record: RequestRecord, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Keep the answer to a request."""
        await self._records.finish(replace(record, status=status, headers=dict(headers), body=body))

    async def abandon(self, record: RequestRecord) -> None:
        """Forget a request that could not be handled, so that it can be made again."""
        await self._records.delete(record.tenant, record.key, record.owner)

    async def prune(self) -> int:
        """Delete the requests whose answers are too old; return their number."""
        return await self._records.prune(self._clock.now() - ANSWER_LIFETIME)
