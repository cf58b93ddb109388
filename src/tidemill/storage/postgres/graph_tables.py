"""Tables of the graph engine in PostgreSQL: checkpoints, journals, producers."""

from collections.abc import Collection, Sequence
from datetime import datetime
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
from tidemill.storage.postgres.database import PostgresTable
from tidemill.storage.postgres.errors import check_timezones
from tidemill.storage.postgres.writes import FoldableWrite, StatementRows, to_columns
from tidemill.storage.queries import build_block, build_part, check_timezone


class PostgresCheckpoints(PostgresTable, Checkpoints):
    """The tables `parts` and `journal`."""

    async def save(
        self,
        parts: Sequence[SnapshotPart],
        trims: Sequence[JournalTrim] = (),
        fences: Collection[PartFence] = (),
        keys: Sequence[KeySnapshot] = (),
    ) -> None:
        check_timezones(*parts)
        saved = StatementRows(self._queries.save_parts, [_encode_part(part) for part in parts])
        trimmed = StatementRows(self._queries.trim_journal, [(*one.key, one.position) for one in trims])
        steps = [saved, trimmed]
        if keys:
            steps.append(StatementRows(self._queries.save_keys, [_encode_key(one) for one in keys], as_arrays=True))
        await self._write_fenced(steps, fences)

    async def append(
        self,
        blocks: Sequence[JournalBlock],
        fences: Collection[PartFence] = (),
        pushes: Sequence[StoredPush] = (),
    ) -> None:
        rows = [(*one.key, one.position, one.layout, one.checksum, one.payload) for one in blocks]
        steps = [StatementRows(self._queries.append_blocks, rows, as_arrays=True)]
        if pushes:
            check_timezones(*pushes)
            stored = [(*one.key, one.client, one.sequence, one.answer, one.at) for one in pushes]
            steps.append(StatementRows(self._queries.put_pushes, stored, as_arrays=True))
        await self._write_fenced(steps, fences)

    async def _write_fenced(self, steps: Sequence[StatementRows], fences: Collection[PartFence]) -> None:
        """Run statements, each for its rows, if all fences hold."""
        if not fences:
            await self._write(*steps)
            return
        columns = to_columns(sorted((*key, epoch) for key, epoch in fences))

        async def write(connection: Any) -> bool:
            if len(await connection.fetch(self._queries.lock_owned_parts, *columns)) < len(fences):
                return False
            await FoldableWrite(tuple(steps))(connection)
            return True

        if not await self._committer.commit(write):
            raise fenced_error()

    async def read_parts(self, keys: Sequence[PartKey]) -> list[SnapshotPart]:
        columns = [[key[index] for key in keys] for index in range(len(PartKey._fields))]
        return [build_part(*row) for row in await self._read(self._queries.parts, *columns)]

    async def read_blocks(self, journals: Sequence[JournalKey]) -> list[JournalBlock]:
        columns = [[key[index] for key in journals] for index in range(len(JournalKey._fields))]
        return [build_block(*row) for row in await self._read(self._queries.blocks, *columns)]

    async def read_high_water_marks(self) -> HighWaterMarks:
        [row] = await self._read(self._queries.high_water_marks)
        return HighWaterMarks(row["moment"], row["position"])

    async def read_all_parts(self) -> list[SnapshotPart]:
        return [build_part(*row) for row in await self._read(self._queries.all_parts)]

    async def read_all_blocks(self) -> list[JournalBlock]:
        return [build_block(*row) for row in await self._read(self._queries.all_blocks)]


def _encode_part(part: SnapshotPart) -> tuple[Any, ...]:
    slot = part.generation % 2
    return *part.key, slot, part.generation, part.moment, part.taken_at, part.digest, part.checksum, part.payload


def _encode_key(one: KeySnapshot) -> tuple[Any, ...]:
    owner = (one.reactor.tenant, one.reactor.name)
    return *owner, one.key, one.slot, one.moment, one.is_pending, one.checksum, one.payload


class PostgresProducers(PostgresTable, Producers):
    """The table `pushes`."""

    async def newest_push(self, key: JournalKey, client: str) -> StoredPush | None:
        rows = await self._read(self._queries.newest_push, *key, client)
        return StoredPush(key=key, client=client, **rows[0]) if rows else None

    async def delete_before(self, before: datetime, kept: str) -> None:
        check_timezone(before)
        await self._write(StatementRows(self._queries.delete_pushes, [(before, kept)]))


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
