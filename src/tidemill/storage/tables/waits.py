"""The table of waits: what tasks have asked, and the answers."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tidemill.storage.tables.database import RowCodec, Statement, Table, Transaction
from tidemill.storage.tables.declared import DeclaredTable
from tidemill.workflows.change import Change
from tidemill.workflows.records import TaskKey
from tidemill.workflows.waits import WaitRow

WAITS = RowCodec(WaitRow)
_IS_TASK = "run = :run AND task = :task AND element = :element"

_OPEN = Statement("INSERT INTO {schema}waits ({columns}) VALUES ({parameters}) ON CONFLICT DO NOTHING", WAITS)
_WAKE = Statement(f"""
    UPDATE {{schema}}task_runs SET wake_at = :at WHERE {_IS_TASK} AND (
        SELECT count(*) FROM {{schema}}waits AS w
        WHERE w.run = :run AND w.task = :task AND w.element = :element
            AND NOT w.is_forgotten AND w.state IN (:answered, :expired)
    ) > :seen RETURNING run
""")
_ANSWER = Statement("""
    UPDATE {schema}waits SET state = :answered, closed_at = :at, answer = :answer
    WHERE id = :id AND state = :open RETURNING id
""")
_EXPIRE = Statement(f"""
    UPDATE {{schema}}waits SET state = :expired, closed_at = :at
    WHERE {_IS_TASK} AND state = :open AND expires_at <= :at
""")
_CANCEL = Statement(
    f"UPDATE {{schema}}waits SET state = :cancelled, closed_at = :at WHERE {_IS_TASK} AND state = :open"
)
_CANCEL_ALL = Statement(
    "UPDATE {schema}waits SET state = :cancelled, closed_at = :at WHERE run = :run AND state = :open"
)
_FORGET = Statement("UPDATE {schema}waits SET is_forgotten = true WHERE run = :run AND task = :task")
_MOVE = Statement("UPDATE {schema}waits SET expires_at = expires_at + :step WHERE run = :run AND state = :open")
_WAIT = Statement("SELECT {columns} FROM {schema}waits WHERE id = :id", WAITS)
_WAITS_OF_TASK = Statement(
    f"SELECT {{columns}} FROM {{schema}}waits WHERE {_IS_TASK} AND NOT is_forgotten ORDER BY try_number, opened_at, id",
    WAITS,
)
_WAITS_OF_RUN = Statement("SELECT {columns} FROM {schema}waits WHERE run = :run ORDER BY opened_at, id", WAITS)
_OF_LIST = """
    tenant = :tenant AND (:workflow = '' OR workflow = :workflow) AND (:run = '' OR run = :run)
"""
_IN_STATE = "(:state = '' OR state = :state)"
_IS_OPEN = "closed_at IS NULL AND state = :state"  # named so that its index is used
_AFTER = "(opened_at, id) > (:after, :after_id) ORDER BY opened_at, id LIMIT :limit"
_LISTED = Statement(f"SELECT {{columns}} FROM {{schema}}waits WHERE {_OF_LIST} AND {_IN_STATE} AND {_AFTER}", WAITS)
_LISTED_OPEN = Statement(f"SELECT {{columns}} FROM {{schema}}waits WHERE {_OF_LIST} AND {_IS_OPEN} AND {_AFTER}", WAITS)
_COUNT = Statement(f"SELECT count(*) FROM {{schema}}waits WHERE {_OF_LIST} AND {_IN_STATE}")
_COUNT_OPEN = Statement(f"SELECT count(*) FROM {{schema}}waits WHERE {_OF_LIST} AND {_IS_OPEN}")
_CLOSED = Statement("SELECT id FROM {schema}waits WHERE id {in:ids} AND state <> :open")
_LOCKED = Statement("SELECT id FROM {schema}waits WHERE id {in:ids} ORDER BY id {for_update}")


async def read_closed_waits(transaction: Transaction, changes: Sequence[Change]) -> set[str]:
    """Lock the waits that changes answer, and return those that are closed, or gone."""
    ids = sorted({wait for one in changes if one.waits is not None for wait, _ in one.waits.answered})
    if not ids:
        return set()
    found = {wait for (wait,) in await transaction.fetch(_LOCKED, ids=ids)}
    closed = {wait for (wait,) in await transaction.fetch(_CLOSED, ids=ids, open="open")}
    return closed | set(ids) - found


async def close_waits(transaction: Transaction, change: Change) -> bool:
    """Write the answers of a change; False if one of the waits is no longer open."""
    if change.waits is None:
        return True
    for wait, answer in change.waits.answered:
        encoded = WAITS.encode_field("answer", answer)
        values = {"id": wait, "at": answer.at, "answer": encoded, "open": "open", "answered": "answered"}
        if not await transaction.fetch(_ANSWER, **values):
            return False
    return True


async def write_waits(transaction: Transaction, change: Change) -> bool:
    """Write what else a change does with waits; return whether an answer overtook a deferral."""
    waits, run = change.waits, change.run
    if waits is None:
        return False
    await _end_waits(transaction, run, change)
    if waits.moved:
        await transaction.execute_many(_MOVE, [{"run": run, "open": "open", "step": waits.moved}])
    if waits.opened:
        await transaction.execute_many(_OPEN, [WAITS.values(row) for row in waits.opened])
    is_overtaken = False
    for (task, element), seen in waits.seen.items():
        values: dict[str, Any] = {"run": run, "task": task, "element": element, "seen": seen, "at": waits.at}
        is_overtaken |= bool(await transaction.fetch(_WAKE, **values, answered="answered", expired="expired"))
    return is_overtaken


async def _end_waits(transaction: Transaction, run: str, change: Change) -> None:
    waits = change.waits
    assert waits is not None, "checked by the caller"
    ends: dict[str, Any] = {"run": run, "at": waits.at, "open": "open"}
    if waits.expired:
        keys = [{"task": task, "element": element, "expired": "expired"} for task, element in waits.expired]
        await transaction.execute_many(_EXPIRE, [ends | key for key in keys])
    if waits.cancelled is None:
        await transaction.execute_many(_CANCEL_ALL, [ends | {"cancelled": "cancelled"}])
    elif waits.cancelled:
        keys = [{"task": task, "element": element, "cancelled": "cancelled"} for task, element in waits.cancelled]
        await transaction.execute_many(_CANCEL, [ends | key for key in keys])
    if change.forgotten_steps:
        await transaction.execute_many(_FORGET, [{"run": run, "task": task} for task in change.forgotten_steps])


class Waits(Table):
    """Waits of tasks. Changes of runs open and close them."""

    tables = (DeclaredTable("waits", ends_with="run"),)

    async def get(self, id: str) -> WaitRow | None:
        """Return a wait."""
        return await self._first(WAITS, _WAIT, id=id)

    async def of_task(self, key: TaskKey) -> Sequence[WaitRow]:
        """Return the waits that a task run sees, by try, oldest first."""
        return await self._list(WAITS, _WAITS_OF_TASK, **key._asdict())

    async def of_run(self, run: str) -> Sequence[WaitRow]:
        """Return the waits of a run, oldest first."""
        return await self._list(WAITS, _WAITS_OF_RUN, run=run)

    async def list_page(
        self, tenant: str, *, state: str, workflow: str, run: str, after: tuple[datetime, str], limit: int
    ) -> Sequence[WaitRow]:
        """Return waits of a tenant after a time and an id, oldest first; an empty text selects all."""
        values = {"tenant": tenant, "state": state, "workflow": workflow, "run": run}
        statement = _LISTED_OPEN if state == "open" else _LISTED
        return await self._list(WAITS, statement, **values, after=after[0], after_id=after[1], limit=limit)

    async def count(self, tenant: str, *, state: str, workflow: str, run: str) -> int:
        """Return the number of such waits."""
        statement = _COUNT_OPEN if state == "open" else _COUNT
        rows = await self._database.fetch(statement, tenant=tenant, state=state, workflow=workflow, run=run)
        return int(rows[0][0])
