"""The table of idempotent requests in PostgreSQL."""

from datetime import datetime
from typing import Any

from tidemill.storage.postgres.database import PostgresTable
from tidemill.storage.postgres.row_codecs import make_codec, parameter
from tidemill.storage.postgres.writes import StatementRows
from tidemill.storage.queries import check_timezone
from tidemill.storage.request_ports import RequestRecord, RequestRecords, gives_way
from tidemill.storage.row_codec import make_fragments

_REQUEST = make_codec(RequestRecord)

REQUEST_FRAGMENTS = make_fragments({"request": _REQUEST}, parameter)
"""What statements may name in braces."""


class PostgresRequestRecords(PostgresTable, RequestRecords):
    """The table `requests`."""

    async def begin(self, record: RequestRecord, answered_before: datetime, begun_before: datetime) -> RequestRecord:
        row, queries = _REQUEST.encode(record), self._queries

        async def write(connection: Any) -> RequestRecord:
            while not await connection.fetch(queries.add_request, *row):
                found = await connection.fetchrow(queries.lock_request, record.tenant, record.key)
                if found is None:
                    continue  # deleted meanwhile
                stored = _REQUEST.decode(tuple(found))
                if not gives_way(stored, answered_before, begun_before):
                    return stored
                await connection.execute(queries.replace_request, *row)
                break
            return record

        begun: RequestRecord = await self._committer.commit(write)
        return begun

    async def finish(self, record: RequestRecord) -> None:
        *_, status, headers, body = _REQUEST.encode(record)
        values = (status, headers, body, record.tenant, record.key, record.owner)
        await self._write(StatementRows(self._queries.finish_request, [values]))

    async def delete(self, tenant: str, key: str, owner: str) -> None:
        await self._write(StatementRows(self._queries.delete_request, [(tenant, key, owner)]))

    async def prune(self, before: datetime) -> int:
        check_timezone(before)
        return len(await self._write_returning(self._queries.prune_requests, before))
