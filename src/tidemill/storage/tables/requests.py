"""The table of idempotent requests: what was answered to a request with an idempotency key."""

from datetime import datetime

import msgspec

from tidemill.storage.tables.database import RowCodec, Statement, Table, Transaction
from tidemill.storage.tables.declared import of_tenant


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
    """When it first started: repetitions keep it."""
    status: int | None = None
    """The status of the answer; None while the request is being handled."""
    headers: dict[str, str] = {}
    body: bytes = b""


FIRE_PREFIX = "request:"
"""With which the keys of fires begin that requests have made; statements of databases spell it out."""

_REQUEST = RowCodec(RequestRecord)
_ADD = Statement(
    """
    INSERT INTO {schema}requests ({columns}) VALUES ({parameters}) ON CONFLICT (tenant, key) DO NOTHING RETURNING key
    """,
    _REQUEST,
)
_FIND = Statement("SELECT {columns} FROM {schema}requests WHERE tenant = :tenant AND key = :key", _REQUEST)
_LOCK = Statement(f"{_FIND.sql} {{for_update}}")
_REPLACE = Statement(
    "UPDATE {schema}requests SET ({columns}) = ({parameters}) WHERE tenant = :tenant AND key = :key", _REQUEST
)
_CLAIM = Statement("""
    UPDATE {schema}requests SET owner = :owner
    WHERE tenant = :tenant AND key = :key AND owner = :previous AND status IS NULL RETURNING key
""")
_FINISH = Statement("""
    UPDATE {schema}requests SET status = :status, headers = :headers, body = :body
    WHERE tenant = :tenant AND key = :key AND at = :at AND status IS NULL
""")
_PRUNE = Statement("DELETE FROM {schema}requests WHERE at < :before RETURNING key")
_PRUNE_FIRES = Statement("DELETE FROM {schema}fires WHERE key >= 'request:' AND key < 'request;' AND at < :before")


class RequestRecords(Table):
    """Requests by tenant and idempotency key."""

    tables = of_tenant("requests")

    async def begin(self, record: RequestRecord, expired_before: datetime) -> RequestRecord:
        """Write a request unless there is one with its key, and return what is stored then.

        It replaces one that started before a time.
        """
        values = _REQUEST.values(record)

        async def write(transaction: Transaction) -> RequestRecord:
            while not await transaction.fetch(_ADD, **values):
                for columns in await transaction.fetch(_LOCK, tenant=record.tenant, key=record.key):
                    stored = self._decode(_REQUEST, columns)
                    if stored.at >= expired_before:
                        return stored
                    await transaction.fetch(_REPLACE, **values)
                    return record
                # deleted meanwhile
            return record

        return await self._database.transact(write)

    async def get(self, tenant: str, key: str) -> RequestRecord | None:
        """Return the request with a key; None if there is none."""
        return await self._first(_REQUEST, _FIND, tenant=tenant, key=key)

    async def claim(self, record: RequestRecord, previous: str) -> bool:
        """Write the owner of a request without an answer, in place of `previous`; False if that does not own it."""
        return bool(await self._change(_CLAIM, **_REQUEST.values(record), previous=previous))

    async def finish(self, record: RequestRecord) -> RequestRecord:
        """Write the answer to a request, unless it has one, and return it with the answer that is stored then."""

        async def write(transaction: Transaction) -> RequestRecord:
            await transaction.fetch(_FINISH, **_REQUEST.values(record))
            for columns in await transaction.fetch(_FIND, tenant=record.tenant, key=record.key):
                stored = self._decode(_REQUEST, columns)
                return stored if stored.at == record.at else record
            return record

        return await self._database.transact(write)

    async def prune(self, before: datetime) -> int:
        """Delete the requests from before a time, and the fires under their keys; return the number of requests."""

        async def write(transaction: Transaction) -> int:
            await transaction.fetch(_PRUNE_FIRES, before=before)
            return len(await transaction.fetch(_PRUNE, before=before))

        return await self._database.transact(write)
