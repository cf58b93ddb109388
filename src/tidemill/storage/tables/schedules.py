"""Tables of schedules: how far their slots have been evaluated, and which workflows and triggers are paused."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from tidemill.storage.tables.database import RowCodec, Statement, Table, Transaction
from tidemill.storage.tables.declared import of_tenant


class ScheduleKey(NamedTuple):
    """Identifies a schedule: a workflow may have several."""

    tenant: str
    workflow: str
    key: str


class ScheduleCursor(msgspec.Struct, frozen=True, kw_only=True):
    """How far the slots of a schedule have been evaluated."""

    tenant: str
    workflow: str
    key: str
    rule: str
    """The rule of the schedule at the last evaluation."""
    last: datetime
    dropped: int = 0
    """How many slots were dropped on purpose, in total."""
    armed: bool = True
    """Whether slots get runs: not before everything that the runs need is loaded."""

    @property
    def schedule(self) -> ScheduleKey:
        """The schedule that this cursor belongs to."""
        return ScheduleKey(self.tenant, self.workflow, self.key)


_CURSOR = RowCodec(ScheduleCursor)
_IS_SCHEDULE = "tenant = :tenant AND workflow = :workflow AND key = :key"

_ADD_CURSOR = Statement(
    """
    INSERT INTO {schema}schedules ({columns}) VALUES ({parameters})
    ON CONFLICT (tenant, workflow, key) DO NOTHING RETURNING tenant, workflow, key
    """,
    _CURSOR,
)
_ARM = Statement(f"UPDATE {{schema}}schedules SET armed = true WHERE {_IS_SCHEDULE} AND NOT armed")
_DELETE = Statement(f"DELETE FROM {{schema}}schedules WHERE {_IS_SCHEDULE}")
_CURSORS_OF = Statement(
    "SELECT {columns} FROM {schema}schedules WHERE tenant = :tenant ORDER BY workflow, key", _CURSOR
)
_CURSOR_OF = Statement(f"SELECT {{columns}} FROM {{schema}}schedules WHERE {_IS_SCHEDULE}", _CURSOR)
_ADVANCE = Statement(
    """
    INSERT INTO {schema}schedules AS known ({columns}) VALUES ({parameters})
    ON CONFLICT (tenant, workflow, key) DO UPDATE SET
        rule = excluded.rule,
        last = CASE WHEN known.rule = excluded.rule THEN {greatest}(known.last, excluded.last) ELSE excluded.last END,
        dropped = {greatest}(known.dropped, excluded.dropped)
    """,
    _CURSOR,
)
_PAUSE = Statement("""
    INSERT INTO {schema}workflow_pauses (tenant, workflow) VALUES (:tenant, :workflow) ON CONFLICT DO NOTHING
""")
_LOCK_CURSORS = Statement("""
    SELECT key FROM {schema}schedules WHERE tenant = :tenant AND workflow = :workflow ORDER BY key {for_update}
""")
# Slots of the pause get no run: the schedules of a resumed workflow continue from its resumption.
_SKIP_PAUSE = Statement("""
    UPDATE {schema}schedules SET last = {greatest}(last, :at) WHERE tenant = :tenant AND workflow = :workflow
""")
_RESUME = Statement("""
    DELETE FROM {schema}workflow_pauses WHERE tenant = :tenant AND workflow = :workflow RETURNING workflow
""")
_PAUSED_WORKFLOWS = Statement("SELECT tenant, workflow FROM {schema}workflow_pauses")
_PAUSE_TRIGGER = Statement("""
    INSERT INTO {schema}trigger_pauses (tenant, trigger_name) VALUES (:tenant, :trigger) ON CONFLICT DO NOTHING
""")
_RESUME_TRIGGER = Statement("DELETE FROM {schema}trigger_pauses WHERE tenant = :tenant AND trigger_name = :trigger")
_PAUSED_TRIGGERS = Statement("SELECT tenant, trigger_name FROM {schema}trigger_pauses")


class Schedules(Table):
    """Cursors of schedules, and what is paused: workflows and triggers.

    Nodes that load the same package write the same rows at the same time: always in the order of their keys.
    """

    tables = of_tenant("schedules", "workflow_pauses", "trigger_pauses")

    async def insert_missing(self, cursors: Sequence[ScheduleCursor]) -> list[ScheduleKey]:
        """Insert cursors of schedules that have none; return the keys of the inserted ones, sorted.

        Existing cursors stay as they are.
        """
        rows = [_CURSOR.values(one) for one in sorted(cursors, key=lambda one: one.schedule)]

        async def write(transaction: Transaction) -> list[ScheduleKey]:
            return [ScheduleKey(*key) for row in rows for key in await transaction.fetch(_ADD_CURSOR, **row)]

        return await self._database.transact(write)

    async def arm(self, keys: Sequence[ScheduleKey]) -> None:
        """Let slots have runs from now on; unknown schedules are ignored."""
        await self._database.execute_many(_ARM, [key._asdict() for key in sorted(keys)])

    async def delete(self, keys: Sequence[ScheduleKey]) -> None:
        """Delete schedules, but neither the fires of their slots nor the pauses of their workflows.

        Unknown schedules are ignored.
        """
        await self._database.execute_many(_DELETE, [key._asdict() for key in sorted(keys)])

    async def list_cursors(self, tenant: str) -> list[ScheduleCursor]:
        """Return the cursors of a tenant's schedules, by workflow and key."""
        return await self._list(_CURSOR, _CURSORS_OF, tenant=tenant)

    async def get_cursor(self, tenant: str, workflow: str, key: str) -> ScheduleCursor | None:
        """Return the cursor of a schedule; None if it has none."""
        return await self._first(_CURSOR, _CURSOR_OF, tenant=tenant, workflow=workflow, key=key)

    async def advance_cursor(self, cursor: ScheduleCursor) -> None:
        """Move a cursor forward; while the rule is the same, `last` never goes back.

        An existing cursor keeps its `armed`; a missing one is inserted as given.
        """
        await self._put(_ADVANCE, **_CURSOR.values(cursor))

    async def pause(self, tenant: str, workflow: str) -> None:
        """Pause a workflow."""
        await self._put(_PAUSE, tenant=tenant, workflow=workflow)

    async def resume(self, tenant: str, workflow: str, at: datetime) -> None:
        """Resume a workflow; if it was paused, its schedules continue from `at`."""
        name = {"tenant": tenant, "workflow": workflow}

        async def write(transaction: Transaction) -> None:
            await transaction.fetch(_LOCK_CURSORS, **name)
            if await transaction.fetch(_RESUME, **name):
                await transaction.fetch(_SKIP_PAUSE, **name, at=at)

        await self._database.transact(write)

    async def list_paused_workflows(self) -> set[tuple[str, str]]:
        """Return (tenant, workflow) of every paused workflow."""
        return {(tenant, workflow) for tenant, workflow in await self._database.fetch(_PAUSED_WORKFLOWS)}

    async def pause_trigger(self, tenant: str, trigger: str) -> None:
        """Pause a trigger."""
        await self._put(_PAUSE_TRIGGER, tenant=tenant, trigger=trigger)

    async def resume_trigger(self, tenant: str, trigger: str) -> None:
        """Resume a trigger; one that is not paused stays as it is."""
        await self._put(_RESUME_TRIGGER, tenant=tenant, trigger=trigger)

    async def list_paused_triggers(self) -> set[tuple[str, str]]:
        """Return (tenant, trigger) of every paused trigger."""
        return {(tenant, trigger) for tenant, trigger in await self._database.fetch(_PAUSED_TRIGGERS)}
