"""Tables of the graph engine: dead letters, recoveries, and reactors that are paused."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from tidemill.graphs.health import PartKind
from tidemill.graphs.state import Recovery
from tidemill.kernel.limits import make_storable
from tidemill.storage.tables.database import RowCodec, Statement, Table
from tidemill.storage.tables.declared import of_tenant


class StoredDeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter, as stored. Its id sorts by age."""

    id: str
    tenant: str
    owner: PartKind
    source: str
    at: datetime
    payload: bytes


_LETTER = RowCodec(StoredDeadLetter)
_PUT_LETTER = Statement(
    "INSERT INTO {schema}dead_letters ({columns}) VALUES ({parameters}) ON CONFLICT (id) DO UPDATE SET {updates}",
    _LETTER,
)
_DELETE_LETTER = Statement("DELETE FROM {schema}dead_letters WHERE id = :id")
_LETTERS_OF = Statement(
    """
    SELECT {columns} FROM {schema}dead_letters
    WHERE tenant = :tenant AND owner = :owner AND source = :source ORDER BY id
    """,
    _LETTER,
)
_ALL_LETTERS = Statement("SELECT {columns} FROM {schema}dead_letters ORDER BY id", _LETTER)


class DeadLetters(Table):
    """Events and firings that could not be processed."""

    tables = of_tenant("dead_letters")

    async def upsert(self, letters: Sequence[StoredDeadLetter]) -> None:
        """Write dead letters, each in place of the one with its id."""
        await self._database.execute_many(_PUT_LETTER, [_LETTER.values(one) for one in letters])

    async def delete(self, ids: Sequence[str]) -> None:
        """Delete dead letters; unknown ids are ignored."""
        await self._database.execute_many(_DELETE_LETTER, [{"id": one} for one in ids])

    async def for_source(self, tenant: str, owner: PartKind, source: str) -> list[StoredDeadLetter]:
        """Return the dead letters of one reactor or accumulator, oldest first."""
        return await self._list(_LETTER, _LETTERS_OF, tenant=tenant, owner=owner, source=source)

    async def list_all(self) -> list[StoredDeadLetter]:
        """Return every dead letter of every tenant, oldest first; for audits."""
        return await self._list(_LETTER, _ALL_LETTERS)


class StoredRecovery(Recovery, frozen=True, kw_only=True):
    """An action of the supervisor, as stored. Its id sorts by age."""

    id: str
    tenant: str


_RECOVERY = RowCodec(StoredRecovery)
_ADD_RECOVERY = Statement(
    "INSERT INTO {schema}recoveries ({columns}) VALUES ({parameters}) ON CONFLICT (id) DO NOTHING", _RECOVERY
)
_NEWEST_RECOVERIES = Statement(
    "SELECT {columns} FROM {schema}recoveries WHERE tenant = :tenant ORDER BY id DESC LIMIT :limit", _RECOVERY
)
_RECOVERIES_BY_ACTION = Statement(
    "SELECT {columns} FROM {schema}recoveries WHERE action = :action ORDER BY id", _RECOVERY
)
_DELETE_RECOVERIES = Statement("DELETE FROM {schema}recoveries WHERE at < :before")


class Recoveries(Table):
    """Restarts, restores and abandoned components, and why."""

    tables = of_tenant("recoveries")

    async def add(self, recoveries: Sequence[StoredRecovery]) -> None:
        """Add recoveries; an id that exists is ignored."""
        rows = [_RECOVERY.values(one) | {"reason": make_storable(one.reason)} for one in recoveries]
        await self._database.execute_many(_ADD_RECOVERY, rows)

    async def list_newest(self, tenant: str, limit: int) -> list[StoredRecovery]:
        """Return a tenant's newest recoveries, oldest first."""
        return (await self._list(_RECOVERY, _NEWEST_RECOVERIES, tenant=tenant, limit=limit))[::-1]

    async def list_by_action(self, action: str) -> list[StoredRecovery]:
        """Return the recoveries with this action, of every tenant, oldest first; for audits."""
        return await self._list(_RECOVERY, _RECOVERIES_BY_ACTION, action=action)

    async def delete_before(self, before: datetime) -> None:
        """Delete the recoveries before a time, of all tenants."""
        await self._put(_DELETE_RECOVERIES, before=before)


_PAUSE = Statement("INSERT INTO {schema}pauses (tenant, reactor) VALUES (:tenant, :reactor) ON CONFLICT DO NOTHING")
_RESUME = Statement("DELETE FROM {schema}pauses WHERE tenant = :tenant AND reactor = :reactor")
_IS_PAUSED = Statement("SELECT 1 FROM {schema}pauses WHERE tenant = :tenant AND reactor = :reactor")
_ALL_PAUSED = Statement("SELECT tenant, reactor FROM {schema}pauses ORDER BY tenant, reactor")


class Pauses(Table):
    """Reactors that an operator has paused."""

    tables = of_tenant("pauses")

    async def set_paused(self, tenant: str, reactor: str, *, paused: bool) -> None:
        """Record whether a reactor is paused."""
        await self._put(_PAUSE if paused else _RESUME, tenant=tenant, reactor=reactor)

    async def is_paused(self, tenant: str, reactor: str) -> bool:
        """Return whether a reactor is paused."""
        return bool(await self._database.fetch(_IS_PAUSED, tenant=tenant, reactor=reactor))

    async def list_paused(self) -> list[tuple[str, str]]:
        """Return (tenant, reactor) of every paused reactor, sorted."""
        return [(tenant, reactor) for tenant, reactor in await self._database.fetch(_ALL_PAUSED)]
