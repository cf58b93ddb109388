"""The table of idempotent requests in SQLite."""

import sqlite3
from datetime import datetime

from tidemill.storage.request_ports import RequestRecord, RequestRecords, gives_way
from tidemill.storage.row_codec import RowCodec, make_fragments
from tidemill.storage.sqlite.database import SqliteTable
from tidemill.storage.sqlite.run_rows import from_micros, to_micros

_REQUEST = RowCodec(RequestRecord, to_micros, from_micros)

REQUEST_FRAGMENTS = make_fragments({"request": _REQUEST}, lambda _: "?")
"""What statements may name in braces."""


class SqliteRequestRecords(SqliteTable, RequestRecords):
    """The table `requests`."""

    async def begin(self, record: RequestRecord, answered_before: datetime, begun_before: datetime) -> RequestRecord:
        row, key = _REQUEST.encode(record), (record.tenant, record.key)

        def write(connection: sqlite3.Connection) -> RequestRecord:
            found = connection.execute(self._queries.request_of, key).fetchone()
            stored = None if found is None else _REQUEST.decode(found)
            if stored is not None and not gives_way(stored, answered_before, begun_before):
                return stored
            connection.execute(self._queries.put_request, row)
            return record

        return await self._write(write)

    async def finish(self, record: RequestRecord) -> None:
        *_, status, headers, body = _REQUEST.encode(record)
        values = (status, headers, body, record.tenant, record.key, record.owner)
        await self._execute_many(self._queries.finish_request, [values])

    async def delete(self, tenant: str, key: str, owner: str) -> None:
        await self._execute_many(self._queries.delete_request, [(tenant, key, owner)])

    async def prune(self, before: datetime) -> int:
        values = (to_micros(before),)
        return await self._write(lambda connection: connection.execute(self._queries.prune_requests, values).rowcount)
