"""The table of idempotent requests in memory."""

from datetime import datetime

from msgspec.structs import replace

from tidemill.storage.memory.tables import MemoryTable, Tables, times_to_utc, to_utc
from tidemill.storage.request_ports import FIRE_PREFIX, RequestRecord, RequestRecords


class MemoryRequestRecords(MemoryTable, RequestRecords):
    """Requests by tenant and key."""

    async def begin(self, record: RequestRecord, expired_before: datetime) -> RequestRecord:
        row, key, expired = times_to_utc(record), (record.tenant, record.key), to_utc(expired_before)

        def write(tables: Tables) -> RequestRecord:
            stored = tables.requests.get(key)
            if stored is not None and stored.at >= expired:
                return stored
            tables.put(tables.requests, key, row)
            return row

        begun: RequestRecord = await self._committer.commit(write)
        return begun

    async def get(self, tenant: str, key: str) -> RequestRecord | None:
        return self._tables.requests.get((tenant, key))

    async def claim(self, record: RequestRecord, previous: str) -> bool:
        key = (record.tenant, record.key)

        def write(tables: Tables) -> bool:
            stored = tables.requests.get(key)
            if stored is None or stored.status is not None or stored.owner != previous:
                return False
            tables.put(tables.requests, key, replace(stored, owner=record.owner))
            return True

        is_claimed: bool = await self._committer.commit(write)
        return is_claimed

    async def finish(self, record: RequestRecord) -> RequestRecord:
        row, key = times_to_utc(record), (record.tenant, record.key)

        def write(tables: Tables) -> RequestRecord:
            stored = tables.requests.get(key)
            if stored is None or stored.at != row.at:
                return record
            if stored.status is None:
                stored = replace(stored, status=row.status, headers=row.headers, body=row.body)
                tables.put(tables.requests, key, stored)
            return stored

        finished: RequestRecord = await self._committer.commit(write)
        return finished

    async def prune(self, before: datetime) -> int:
        until = to_utc(before)

        def write(tables: Tables) -> int:
            keys = [key for key, row in tables.requests.items() if row.at < until]
            for key in keys:
                tables.delete(tables.requests, key)
            requested = [one for one in tables.fired_slots if one[2].startswith(FIRE_PREFIX)]
            for fire in requested:
                if tables.fired_slots[fire] not in tables.runs:
                    tables.delete(tables.fired_slots, fire)
            return len(keys)

        number: int = await self._committer.commit(write)
        return number
