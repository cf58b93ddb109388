"""The table of idempotent requests in PostgreSQL."""

from datetime import datetime
from typing import Any

from tidemill.storage.postgres.database import PostgresTable
from tidemill.storage.postgres.row_codecs import make_codec, parameter
from tidemill.storage.postgres.writes import StatementRows
from tidemill.storage.queries import check_timezone
from tidemill.storage.request_ports import RequestRecord, RequestRecords
from tidemill.storage.row_codec import make_fragments

_REQUEST = make_codec(RequestRecord)

REQUEST_FRAGMENTS = make_fragments({"request": _REQUEST}, parameter)
"""What statements may name in braces."""


class PostgresRequestRecords(PostgresTable, RequestRecords):
    """The table `requests`."""

    async def begin(self, record: RequestRecord, expired_before: datetime) -> RequestRecord:
        row, queries = _REQUEST.encode(record), self._queries

        async def write(connection: Any) -> RequestRecord:
            while not await connection.fetch(queries.add_request, *row):
                found = await connection.fetchrow(queries.lock_request, record.tenant, record.key)
                if found is None:
                    continue  # deleted meanwhile
                stored = _REQUEST.decode(tuple(found))
                if stored.at >= expired_before:
                    return stored
                await connection.execute(queries.replace_request, *row)
                break
            return record

        begun: RequestRecord = await self._committer.commit(write)
        return begun

    async def get(self, tenant: str, key: str) -> RequestRecord | None:
        found = await self._read(self._queries.request_of, tenant, key)
        return _REQUEST.decode(tuple(found[0])) if found else None

    async def claim(self, record: RequestRecord, previous: str) -> bool:
        values = (record.owner, record.tenant, record.key, previous)
        return bool(await self._write_returning(self._queries.claim_request, *values))

    async def finish(self, record: RequestRecord) -> RequestRecord:
        *_, status, headers, body = _REQUEST.encode(record)
        values = (status, headers, body, record.tenant, record.key, record.at)

        async def write(connection: Any) -> RequestRecord:
            await connection.execute(self._queries.finish_request, *values)
            found = await connection.fetchrow(self._queries.request_of, record.tenant, record.key)
            stored = None if found is None else _REQUEST.decode(tuple(found))
            return record if stored is None or stored.at != record.at else stored

        finished: RequestRecord = await self._committer.commit(write)
        return finished

    async def prune(self, before: datetime) -> int:
        check_timezone(before)
        await self._write(StatementRows(self._queries.prune_request_fires, [(before,)]))
        return len(await self._write_returning(self._queries.prune_requests, before))
