"""Tables of the graph engine in SQLite: checkpoints, journals, producers."""

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import starmap
from typing import Any

from tidemill.storage.graph_ports import (
    Checkpoints,
    HighWaterMarks,
    JournalBlock,
    JournalKey,
    JournalTrim,
    KeySnapshot,
    KeySnapshots,
    PartFence,
    PartKey,
    Producers,
    SnapshotPart,
    StoredPush,
    fenced_error,
)
from tidemill.storage.queries import build_block, build_part
from tidemill.storage.sqlite.database import SqliteTable
from tidemill.storage.sqlite.run_rows import from_micros, to_micros

_StatementRows = Sequence[tuple[str, Sequence[tuple[Any, ...]]]]


class SqliteCheckpoints(SqliteTable, Checkpoints):
    """The tables `parts` and `journal`."""

    async def save(
        self,
        parts: Sequence[SnapshotPart],
        trims: Sequence[JournalTrim] = (),
        fences: Collection[PartFence] = (),
        keys: Sequence[KeySnapshot] = (),
    ) -> None:
        rows = [_encode_part(part) for part in parts]
        trimmed = [(*key, position) for key, position in trims]
        writes = [(self._queries.save_part, rows), (self._queries.trim_journal, trimmed)]
        writes.append((self._queries.save_key, [encode_key_snapshot(one) for one in keys]))
        await self._write_fenced(writes, fences)

    async def append(
        self,
        blocks: Sequence[JournalBlock],
        fences: Collection[PartFence] = (),
        pushes: Sequence[StoredPush] = (),
    ) -> None:
        rows = [(*one.key, one.position, one.layout, one.checksum, one.payload) for one in blocks]
        stored = [(*one.key, one.client, one.sequence, one.answer, to_micros(one.at)) for one in pushes]
        await self._write_fenced([(self._queries.append_block, rows), (self._queries.put_push, stored)], fences)

    async def _write_fenced(self, writes: _StatementRows, fences: Collection[PartFence]) -> None:
        """Run statements, each for its rows, if all fences hold: no other transaction runs meanwhile."""
        owned = self._queries.owns_part

        def write(connection: sqlite3.Connection) -> bool:
            if not all(connection.execute(owned, (*key, epoch)).fetchone()[0] for key, epoch in fences):
                return False
            for statement, rows in writes:
                if rows:
                    connection.executemany(statement, rows)
            return True

        if not await self._write(write):
            raise fenced_error()

    async def read_parts(self, keys: Sequence[PartKey]) -> list[SnapshotPart]:
        def query(connection: sqlite3.Connection) -> list[Any]:
            return [row for key in set(keys) for row in connection.execute(self._queries.parts_of, key)]

        parts = map(_decode_part, await self._database.read(query))
        return sorted(parts, key=lambda part: (-part.moment, part.key))

    async def read_blocks(self, journals: Sequence[JournalKey]) -> list[JournalBlock]:
        def query(connection: sqlite3.Connection) -> list[Any]:
            return [row for key in set(journals) for row in connection.execute(self._queries.blocks_of, key)]

        blocks = starmap(build_block, await self._database.read(query))
        return sorted(blocks, key=lambda block: block.position)

    async def read_high_water_marks(self) -> HighWaterMarks:
        (row,) = await self._fetch_all(self._queries.high_water_marks)
        return HighWaterMarks(*row)

    async def read_all_parts(self) -> list[SnapshotPart]:
        return [_decode_part(row) for row in await self._fetch_all(self._queries.all_parts)]

    async def read_all_blocks(self) -> list[JournalBlock]:
        return list(starmap(build_block, await self._fetch_all(self._queries.all_blocks)))


def _encode_part(part: SnapshotPart) -> tuple[Any, ...]:
    slot, taken_at = part.generation % 2, to_micros(part.taken_at)
    return (*part.key, slot, part.generation, part.moment, taken_at, part.digest, part.checksum, part.payload)


def _decode_part(row: Any) -> SnapshotPart:
    tenant, kind, name, generation, moment, taken_at, *rest = row
    return build_part(tenant, kind, name, generation, moment, from_micros(taken_at), *rest)


class SqliteProducers(SqliteTable, Producers):
    """The table `pushes`."""

    async def newest_push(self, key: JournalKey, client: str) -> StoredPush | None:
        rows = await self._fetch_all(self._queries.newest_push, (*key, client))
        for sequence, answer, at in rows:
            return StoredPush(key=key, client=client, sequence=sequence, answer=answer, at=from_micros(at))
        return None

    async def delete_before(self, before: datetime, kept: str) -> None:
        await self._execute_many(self._queries.delete_pushes, [(to_micros(before), kept)])


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
        return [_decode_key(reactor, *row) for key in keys for row in connection.execute(statement, (*owner, key))]

    async def list_keys(self, reactor: PartKey, after: bytes, limit: int) -> list[bytes]:
        rows = await self._fetch_all(self._queries.stored_keys, (reactor.tenant, reactor.name, after, limit))
        return [key for (key,) in rows]


def encode_key_snapshot(one: KeySnapshot) -> tuple[Any, ...]:
    """Return the columns of a row."""
    owner = (one.reactor.tenant, one.reactor.name)
    return (*owner, one.key, one.slot, one.moment, int(one.is_pending), one.checksum, one.payload)


def _decode_key(reactor: PartKey, key: bytes, slot: int, moment: int, pending: int, *rest: bytes) -> KeySnapshot:
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
