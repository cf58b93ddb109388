"""The table of key snapshots in PostgreSQL."""

from collections.abc import Sequence

from tidemill.storage.graph_ports import KeySnapshot, PartKey
from tidemill.storage.key_ports import KeySnapshots
from tidemill.storage.postgres.database import PostgresTable


class PostgresKeySnapshots(PostgresTable, KeySnapshots):
    """The table `key_snapshots`."""

    async def read(self, reactor: PartKey, keys: Sequence[bytes]) -> list[KeySnapshot]:
        rows = await self._read(self._queries.key_snapshots_of, reactor.tenant, reactor.name, list(keys))
        return [KeySnapshot(reactor=reactor, **row) for row in rows]

    async def read_pending(self, reactor: PartKey) -> list[KeySnapshot]:
        rows = await self._read(self._queries.pending_key_snapshots, reactor.tenant, reactor.name)
        return [KeySnapshot(reactor=reactor, **row) for row in rows]

    async def list_keys(self, reactor: PartKey, after: bytes, limit: int) -> list[bytes]:
        rows = await self._read(self._queries.stored_keys, reactor.tenant, reactor.name, after, limit)
        return [row["key"] for row in rows]
