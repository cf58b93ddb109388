"""The table of key snapshots in SQLite."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from tidemill.storage.graph_ports import KeySnapshot, PartKey
from tidemill.storage.key_ports import KeySnapshots
from tidemill.storage.sqlite.database import SqliteTable


class SqliteKeySnapshots(SqliteTable, KeySnapshots):
    """The table `key_snapshots`."""

    async def read(self, reactor: PartKey, keys: Sequence[bytes]) -> list[KeySnapshot]:
        return await self._database.read(lambda connection: self._read(connection, reactor, keys))

    async def read_pending(self, reactor: PartKey) -> list[KeySnapshot]:
        def query(connection: sqlite3.Connection) -> list[KeySnapshot]:
            pending = connection.execute(self._queries.pending_keys, (reactor.tenant, reactor.name)).fetchall()
            return self._read(connection, reactor, [key for (key,) in pending])

        return await self._database.read(query)

    def _read(self, connection: sqlite3.Connection, reactor: PartKey, keys: Iterable[bytes]) -> list[KeySnapshot]:
        statement, owner = self._queries.key_snapshots_of, (reactor.tenant, reactor.name)
        return [_decode(reactor, *row) for key in keys for row in connection.execute(statement, (*owner, key))]

    async def list_keys(self, reactor: PartKey, after: bytes, limit: int) -> list[bytes]:
        rows = await self._fetch_all(self._queries.stored_keys, (reactor.tenant, reactor.name, after, limit))
        return [key for (key,) in rows]


def encode_key_snapshot(one: KeySnapshot) -> tuple[Any, ...]:
    """Return the columns of a row."""
    owner = (one.reactor.tenant, one.reactor.name)
    return (*owner, one.key, one.slot, one.moment, int(one.is_pending), one.checksum, one.payload)


def _decode(reactor: PartKey, key: bytes, slot: int, moment: int, pending: int, *rest: bytes) -> KeySnapshot:
    checksum, payload = rest
    return KeySnapshot(
        reactor=reactor,
        key=key,
        slot=slot,
        moment=moment,
        is_pending=bool(pending),
        checksum=checksum,
        payload=payload,
    )
