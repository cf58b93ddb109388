"""Tables of the graph engine in PostgreSQL: checkpoints, journals, producers, dead letters, recoveries, pauses."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from tidemill.kernel.limits import make_storable
from tidemill.storage.graph_ports import (
    Checkpoints,
    DeadLetters,
    HighWaterMarks,
    JournalBlock,
    JournalKey,
    JournalTrim,
    KeySnapshot,
    PartFence,
    PartKey,
    PartKind,
    Pauses,
    Producers,
    Recoveries,
    SnapshotPart,
    StoredDeadLetter,
    StoredPush,
    StoredRecovery,
    fenced_error,
)
from tidemill.storage.postgres.database import PostgresTable
from tidemill.storage.postgres.errors import check_timezones
from tidemill.storage.postgres.writes import FoldableWrite, StatementRows, to_columns
from tidemill.storage.queries import block_columns, build_block, build_part, check_timezone


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
        rows = [block_columns(block) for block in blocks]
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


class PostgresDeadLetters(PostgresTable, DeadLetters):
    """The table `dead_letters`."""

    async def upsert(self, letters: Sequence[StoredDeadLetter]) -> None:
        check_timezones(*letters)
        rows = [(one.id, one.tenant, one.owner, one.source, one.at, one.payload) for one in letters]
        await self._write(StatementRows(self._queries.upsert_dead_letters, rows))

    async def delete(self, ids: Sequence[str]) -> None:
        rows = [(letter,) for letter in ids]
        await self._write(StatementRows(self._queries.delete_dead_letters, rows, as_arrays=True))

    async def for_source(self, tenant: str, owner: PartKind, source: str) -> list[StoredDeadLetter]:
        rows = await self._read(self._queries.dead_letters_of, tenant, owner, source)
        return [StoredDeadLetter(**row) for row in rows]

    async def list_all(self) -> list[StoredDeadLetter]:
        return [StoredDeadLetter(**row) for row in await self._read(self._queries.all_dead_letters)]


class PostgresPauses(PostgresTable, Pauses):
    """The table `pauses`."""

    async def set_paused(self, tenant: str, reactor: str, *, paused: bool) -> None:
        statement = self._queries.pause if paused else self._queries.resume
        await self._write(StatementRows(statement, [(tenant, reactor)]))

    async def is_paused(self, tenant: str, reactor: str) -> bool:
        return bool(await self._read(self._queries.is_paused, tenant, reactor))

    async def list_paused(self) -> list[tuple[str, str]]:
        return [(tenant, reactor) for tenant, reactor in await self._read(self._queries.all_paused)]


class PostgresRecoveries(PostgresTable, Recoveries):
    """The table `recoveries`."""

    async def add(self, recoveries: Sequence[StoredRecovery]) -> None:
        check_timezones(*recoveries)
        rows = [
            (one.id, one.tenant, one.component, one.name, one.at, one.action, make_storable(one.reason), one.failures)
            for one in recoveries
        ]
        await self._write(StatementRows(self._queries.add_recoveries, rows, as_arrays=True))

    async def list_newest(self, tenant: str, limit: int) -> list[StoredRecovery]:
        rows = await self._read(self._queries.newest_recoveries, tenant, limit)
        return [StoredRecovery(**row) for row in rows]

    async def list_by_action(self, action: str) -> list[StoredRecovery]:
        return [StoredRecovery(**row) for row in await self._read(self._queries.recoveries_by_action, action)]

    async def delete_before(self, before: datetime) -> None:
        check_timezone(before)
        await self._write(StatementRows(self._queries.delete_recoveries, [(before,)]))
