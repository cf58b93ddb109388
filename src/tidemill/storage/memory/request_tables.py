"""The table of idempotent requests in memory."""

from datetime import datetime

from msgspec.structs import replace

from tidemill.storage.memory.tables import MemoryTable, Tables, times_to_utc, to_utc
from tidemill.storage.request_ports import RequestRecord, RequestRecords, gives_way


class MemoryRequestRecords(MemoryTable, RequestRecords):
    """Requests by tenant and key."""

    async def begin(self, record: RequestRecord, answered_before: datetime, begun_before: datetime) -> RequestRecord:
        row, key = times_to_utc(record), (record.tenant, record.key)

        def write(tables: Tables) -> RequestRecord:
            stored = tables.requests.get(key)
            if stored is not None and not gives_way(stored, answered_before, begun_before):
                return stored
            tables.put(tables.requests, key, row)
            return row

        begun: RequestRecord = await self._committer.commit(write)
        return begun

    async def finish(self, record: RequestRecord) -> None:
        key = (record.tenant, record.key)

        def write(tables: Tables) -> None:
            stored = tables.requests.get(key)
            if stored is not None and stored.owner == record.owner:
                answer = replace(stored, status=record.status, headers=record.headers, body=record.body)
                tables.put(tables.requests, key, answer)

        await self._committer.commit(write)

    async def delete(self, tenant: str, key: str, owner: str) -> None:
        def write(tables: Tables) -> None:
            stored = tables.requests.get((tenant, key))
            if stored is not None and stored.owner == owner:
                tables.delete(tables.requests, (tenant, key))

        await self._committer.commit(write)

    async def prune(self, before: datetime) -> int:
        until = to_utc(before)

        def write(tables: Tables) -> int:
            keys = [key for key, row in tables.requests.items() if row.at < until]
            for key in keys:
                tables.delete(tables.requests, key)
            return len(keys)

        number: int = await self._committer.commit(write)
        return number
