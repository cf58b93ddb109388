"""The table of idempotent requests in SQLite."""

import sqlite3
from datetime import datetime

from tidemill.storage.request_ports import RequestRecord, RequestRecords
from tidemill.storage.row_codec import RowCodec, make_fragments
from tidemill.storage.sqlite.database import SqliteTable
from tidemill.storage.sqlite.run_rows import from_micros, to_micros

_REQUEST = RowCodec(RequestRecord, to_micros, from_micros)

REQUEST_FRAGMENTS = make_fragments({"request": _REQUEST}, lambda _: "?")
"""What statements may name in braces."""


class SqliteRequestRecords(SqliteTable, RequestRecords):
    """The table `requests`."""

    async def begin(self, record: RequestRecord, expired_before: datetime) -> RequestRecord:
        row, key = _REQUEST.encode(record), (record.tenant, record.key)

        def write(connection: sqlite3.Connection) -> RequestRecord:
            stored = self._find(connection, key)
            if stored is not None and stored.at >= expired_before:
                return stored
            connection.execute(self._queries.put_request, row)
            return record

        return await self._write(write)

    async def get(self, tenant: str, key: str) -> RequestRecord | None:
        found = await self._fetch_all(self._queries.request_of, (tenant, key))
        return _REQUEST.decode(found[0]) if found else None

    async def claim(self, record: RequestRecord, previous: str) -> bool:
        values = (record.owner, record.tenant, record.key, previous)

        def write(connection: sqlite3.Connection) -> bool:
            return connection.execute(self._queries.claim_request, values).rowcount == 1

        return await self._write(write)

    async def finish(self, record: RequestRecord) -> RequestRecord:
        *_, status, headers, body = _REQUEST.encode(record)
        values = (status, headers, body, record.tenant, record.key, to_micros(record.at))

        def write(connection: sqlite3.Connection) -> RequestRecord:
            connection.execute(self._queries.finish_request, values)
            stored = self._find(connection, (record.tenant, record.key))
            return record if stored is None or stored.at != record.at else stored

        return await self._write(write)

    def _find(self, connection: sqlite3.Connection, key: tuple[str, str]) -> RequestRecord | None:
        found = connection.execute(self._queries.request_of, key).fetchone()
        return None if found is None else _REQUEST.decode(found)

    async def prune(self, before: datetime) -> int:
        values = (to_micros(before),)

        def write(connection: sqlite3.Connection) -> int:
            connection.execute(self._queries.prune_request_fires, values)
            return connection.execute(self._queries.prune_requests, values).rowcount

        return await self._write(write)
