"""Idempotent requests: a request that is repeated with its key has one effect and one answer, at any server.

The record of a request is written before the request is handled, and outlives the server that handles it. It gives the
effect an id, under which the effect is stored once: a server that handles a request again, because its answer was lost,
finds what the first one has done. So the record only decides who handles a request, and a wrong decision does no harm.
"""

import hashlib
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from tidemill.engine.workflows.process_identity import HostLiveness, ProcessLiveness, current_owner
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import FirstErrorGroup
from tidemill.kernel.errors import RequestError, StoreError
from tidemill.kernel.ids import derive_sortable_id, new_instance_id
from tidemill.kernel.limits import WORD_RULE, is_word
from tidemill.storage.tables.requests import RequestRecord, RequestRecords
from tidemill.storage.workflow_ports import NodeRow

logger = logging.getLogger(__name__)

ANSWER_LIFETIME = timedelta(hours=24)
LOOK_INTERVAL = 0.1
"""Seconds between two looks for the answer of another call."""
PATIENCE = 1.0
"""Seconds for which a repetition waits longer than a silent call lives. Then its caller has to come again."""
NO_OWNER, LOST_OWNER = "", "lost"
"""The owner of a request that had no effect, and of one that may have had one although its answer is not known."""


class _Call(msgspec.Struct, frozen=True, array_like=True):
    """The call that handles a request, as it is stored. A call that takes long renews it."""

    process: NodeRow
    id: str
    renewals: int = 0

    @classmethod
    def parse(cls, text: str) -> "_Call":
        return msgspec.json.decode(text, type=cls)

    def to_text(self) -> str:
        return msgspec.json.encode(self).decode()


class KeyedRequest:
    """A request with an idempotency key: either it has an answer, or the caller handles it."""

    def __init__(self, record: RequestRecord, *, is_repetition: bool = False, was_lost: bool = False) -> None:
        self.record = record
        self.is_repetition = is_repetition
        """Whether the request was made before: its effect may exist."""
        self.was_lost = was_lost
        """Whether the call that handled it is gone, and left no answer."""
        self.is_final: bool | None = None
        """Whether the answer is kept; None: if it is a success."""
        self.had_no_effect = False
        """Whether it is certain that it had no effect."""

    @property
    def effect(self) -> str:
        """The id of what the request makes: the same for each repetition, another one for each request."""
        return derive_sortable_id(self.record.at, self.record.tenant, self.record.key)

    @property
    def begun_at(self) -> datetime:
        """When it was made first."""
        return self.record.at


class IdempotentRequests:
    """Requests that name an idempotency key, of all tenants, as one process handles them.

    Another process takes a request over when the process that handles it is known to be gone, and otherwise when the
    call has been silent for `ttl` seconds.
    """

    def __init__(
        self,
        records: RequestRecords,
        clock: Clock,
        *,
        ttl: float,
        owner: NodeRow | None = None,
        liveness: ProcessLiveness | None = None,
    ) -> None:
        self._records = records
        self._clock = clock
        self._ttl = ttl
        self._owner = owner or current_owner(clock.now())
        self._liveness = liveness or HostLiveness()
        self._handled: set[str] = set()  # the calls of this process

    async def begin(self, tenant: str, key: str, route: str, body: bytes) -> KeyedRequest:
        """Begin to handle a request. If its record has no status, handle it: see `handling`.

        A repetition waits for the answer of the call that handles the request. RequestError if the key was used for
        another request, or if that call takes long.
        """
        if not is_word(key):
            raise RequestError(f"an Idempotency-Key is {WORD_RULE}, not {key!r}", code="invalid_idempotency_key")
        now, call = self._clock.now(), _Call(self._owner, new_instance_id())
        record = RequestRecord(
            tenant=tenant,
            key=key,
            route=route,
            digest=hashlib.sha256(body).digest(),
            owner=call.to_text(),
            at=now,
        )
        self._handled.add(call.id)
        try:
            stored = await self._records.begin(record, now - ANSWER_LIFETIME)
            if (stored.route, stored.digest) != (record.route, record.digest):
                message = f"the Idempotency-Key {key!r} was used for another request: choose a new key for each request"
                raise RequestError(message, code="idempotency_conflict", status=409)
            request = KeyedRequest(stored) if stored.owner == record.owner else await self._join(record, stored)
        except BaseException:
            self._handled.discard(call.id)
            raise
        if request.record.status is not None:
            self._handled.discard(call.id)
        return request

    async def _join(self, record: RequestRecord, stored: RequestRecord) -> KeyedRequest:
        """Return the answer of the call that handles a request, or take the request over once that call is gone."""
        started = heard = self._clock.monotonic()
        while stored.status is None:
            now = self._clock.monotonic()
            if self._is_gone(stored.owner) or now - heard >= self._ttl:
                taken = replace(stored, owner=record.owner)
                if await self._records.claim(taken, stored.owner):
                    return KeyedRequest(taken, is_repetition=True, was_lost=stored.owner != NO_OWNER)
            elif now - started >= self._ttl + PATIENCE:
                raise _in_progress(record.key)
            else:
                await self._clock.sleep(LOOK_INTERVAL)
            latest = await self._records.get(record.tenant, record.key)
            if latest is None or latest.at != stored.at:  # a day later
                raise _in_progress(record.key)
            if latest.owner != stored.owner:
                heard = self._clock.monotonic()
            stored = latest
        return KeyedRequest(stored, is_repetition=True)

    def _is_gone(self, owner: str) -> bool:
        if owner in (NO_OWNER, LOST_OWNER):
            return True
        try:
            call = _Call.parse(owner)
        except msgspec.DecodeError:  # of a server of an older version: it is gone when it has been silent
            return False
        if call.process.id == self._owner.id:
            return call.id not in self._handled
        return self._liveness.is_dead(call.process)

    @asynccontextmanager
    async def handling(self, request: KeyedRequest) -> AsyncIterator[None]:
        """Keep a request while it is handled; a request without an answer at the end can be made again at once."""
        call = _Call.parse(request.record.owner)
        try:
            async with FirstErrorGroup() as group:
                renewal = group.start(f"request of {request.record.key}: renewal", self._keep_renewing(request))
                try:
                    yield
                finally:
                    renewal.cancel()
        finally:
            self._handled.discard(call.id)
            if request.record.status is None:
                await self._release(request)

    async def _release(self, request: KeyedRequest) -> None:
        owner = NO_OWNER if request.had_no_effect and not request.was_lost else LOST_OWNER
        try:
            await self._records.claim(replace(request.record, owner=owner), request.record.owner)
        except StoreError as error:  # others take it over when it has been silent for long enough
            logger.warning("an idempotent request was not released: %s", error)

    async def _keep_renewing(self, request: KeyedRequest) -> None:
        """Say that the call goes on, until another one has taken the request over."""
        is_owner = True
        while is_owner:
            await self._clock.sleep(self._ttl / 3)
            call, previous = _Call.parse(request.record.owner), request.record.owner
            renewed = replace(request.record, owner=replace(call, renewals=call.renewals + 1).to_text())
            try:
                is_owner = await self._records.claim(renewed, previous)
            except StoreError as error:
                logger.warning("an idempotent request was not renewed: %s", error)
                continue
            if is_owner:
                request.record = renewed

    async def finish(self, request: KeyedRequest, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Keep the answer to a request. Its record has the answer to send then: that of the call that was first."""
        answered = replace(request.record, status=status, headers=dict(headers), body=body)
        request.record = await self._records.finish(answered)

    async def prune(self) -> int:
        """Delete the requests whose answers are too old; return their number."""
        return await self._records.prune(self._clock.now() - ANSWER_LIFETIME)


def _in_progress(key: str) -> RequestError:
    message = f"the request with the Idempotency-Key {key!r} is being handled: repeat it for its answer"
    return RequestError(message, code="request_in_progress", status=409, retry_after=1)
