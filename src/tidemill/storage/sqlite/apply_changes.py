"""Changes of runs in SQLite: written step by step inside a savepoint, which is rolled back if one step is refused.

Only one write transaction runs at a time, so what it has read still holds when it commits. The guards are part of the
statements: an update that matches fewer rows than it was given shows that something has changed.

Nearly always nothing has. The planner of a run knows its revision, and if that is still the same, so is everything of
the run. Then no step can be refused, and no savepoint is needed. Should one be refused all the same, the whole
transaction runs again, and that change inside a savepoint.
"""

import sqlite3
from typing import Any

import msgspec

from tidemill.access.audit import AuditRow
from tidemill.storage.queries import Queries
from tidemill.storage.sqlite.connections import RetryTransactionError
from tidemill.storage.sqlite.plain_tables import SQLITE, Inside, finish
from tidemill.storage.sqlite.run_rows import Columns, EncodedChange, to_micros
from tidemill.storage.tables.access import APPEND_AUDIT_ENTRY, AUDIT_ROWS
from tidemill.storage.tables.waits import close_waits, write_waits
from tidemill.workflows.change import Applied, Change, RefusalReason, Refused
from tidemill.workflows.records import FireRow

_APPEND_AUDIT_ENTRY = SQLITE.prepare(APPEND_AUDIT_ENTRY).sql
_NEWEST = 2**63 - 1  # the sequence number of a run that is about to be created: after all others


class PreparedChange:
    """A change and its encoded rows, ready to be written."""

    def __init__(self, change: Change, rows: EncodedChange, queries: Queries, audit: AuditRow | None) -> None:
        self._change = change
        self._rows = rows
        self._queries = queries
        self._audit = audit
        self._sequence: int | None = None
        """The sequence number of the run, once it is inserted."""
        # A change that nothing can prevent but what shows in the run's revision is written without a savepoint.
        self._is_optimistic = (
            change.fence is not None
            and change.expected_run is not None
            and not change.pools
            and change.fire is None
            and not change.is_operator_action
            and change.waits is None
            and (not rows.task_updates or all(columns[-1] is None for columns in rows.task_updates))  # expired leases
        )

    def __call__(self, connection: sqlite3.Connection) -> Applied | Refused:
        """Write the change, or nothing at all."""
        if self._is_optimistic and (self._change.passes_over is None or not self._is_overtaking(connection)):
            revision = self._write_optimistically(connection)
            if revision is not None:
                return Applied(revision)
        connection.execute("SAVEPOINT change")
        result = self._write_checked(connection)
        if isinstance(result, Refused):
            connection.execute("ROLLBACK TO change")
        connection.execute("RELEASE change")
        return result

    def _write_optimistically(self, connection: sqlite3.Connection) -> int | None:
        """Write the change if the run has the expected revision; return the new revision, or None if it has not."""
        expected, fence = self._change.expected_run, self._change.fence
        assert expected is not None, "checked by _is_optimistic"
        assert fence is not None, "as above"
        guard = (expected.id, expected.revision, str(expected.state), expected.clears, *fence)
        if not connection.execute(self._queries.advance_run, guard).rowcount:
            return None
        if self._rows.run_update is not None:
            connection.execute(self._queries.update_run, self._rows.run_update)
        if not self._write_tasks(connection, expected.tenant):
            self._is_optimistic = False
            raise RetryTransactionError
        self._write_rest(connection, expected.revision + 1)
        return expected.revision + 1

    def _write_checked(self, connection: sqlite3.Connection) -> Applied | Refused:
        fence, rows = self._change.fence, self._rows
        if fence is not None and not _query_bool(connection, self._queries.holds_lease, fence):
            return Refused("fenced")
        if rows.new_run is not None and (reason := self._add_run(connection, rows.new_run)) is not None:
            return Refused(reason)
        if self._is_overtaking(connection):
            return Refused("not_next")
        touched = self._write_run(connection)
        if touched is None or not self._write_tasks(connection, touched[1]):
            return Refused("stale")
        if rows.fire is not None and not self._write_fire(connection, rows.fire):
            return Refused("fired")
        if self._change.fire is not None and self._is_suppressed(connection, self._change.fire):
            return Refused("suppressed")
        if not all(self._has_free_slots(connection, *limit) for limit in self._change.pools):
            return Refused("full")
        has_waits = self._change.waits is not None
        if has_waits and not finish(close_waits(Inside(connection), self._change)):
            return Refused("stale")
        self._write_rest(connection, touched[0])
        is_overtaken = has_waits and finish(write_waits(Inside(connection), self._change))
        return Applied(touched[0], self._sequence, is_overtaken)

    def _add_run(self, connection: sqlite3.Connection, columns: Columns) -> RefusalReason | None:
        """Insert the run; return the reason if it was not inserted."""
        _, tenant, workflow, *_ = columns
        inserted = connection.execute(self._queries.add_run, (*columns, tenant, workflow)).fetchone()
        if inserted is not None:
            self._sequence = inserted[0]
            return None
        return "paused" if _query_bool(connection, self._queries.is_workflow_paused, (tenant, workflow)) else "stale"

    def _is_overtaking(self, connection: sqlite3.Connection) -> bool:
        """Return whether the change begins a run before an older one of its workflow."""
        run, passed_over = self._change.new_run or self._change.expected_run, self._change.passes_over
        if run is None or passed_over is None:
            return False
        values = (run.tenant, run.workflow, run.sequence or _NEWEST, msgspec.json.encode(passed_over).decode())
        return _query_bool(connection, self._queries.has_older_queued_run, values)

    def _write_run(self, connection: sqlite3.Connection) -> tuple[int, str] | None:
        """Write the run itself; return its revision and tenant, or None if it is not as expected."""
        change = self._change
        guard: tuple[Any, ...] = (int(change.is_operator_action), change.run)
        if change.expected_run is None:
            statement = self._queries.touch_run
        else:
            statement = self._queries.touch_expected_run
            guard += (str(change.expected_run.state), change.expected_run.clears)
        touched: tuple[int, str] | None = connection.execute(statement, guard).fetchone()
        if touched is not None and self._rows.run_update is not None:
            connection.execute(self._queries.update_run, self._rows.run_update)
        return touched

    def _write_tasks(self, connection: sqlite3.Connection, tenant: str) -> bool:
        """Write the task runs; return whether all of them were as expected."""
        queries, rows = self._queries, self._rows
        added = [(tenant, *columns) for columns in rows.added] if rows.added else ()
        for statement, written in (
            (queries.delete_expected_task, rows.removed),
            (queries.update_progress, rows.progress_updates),
            (queries.update_task, rows.task_updates),
            (queries.add_task, added),
        ):
            if written and connection.executemany(statement, written).rowcount != len(written):
                return False
        return True

    def _write_fire(self, connection: sqlite3.Connection, fire: Columns) -> bool:
        tenant, workflow, key, *_, digest, _ = fire
        payload = (tenant, workflow, key, digest)
        if digest is not None and _query_bool(connection, self._queries.is_digest_active, payload):
            return False
        return connection.execute(self._queries.add_fire, fire).rowcount == 1

    def _is_suppressed(self, connection: sqlite3.Connection, fire: FireRow) -> bool:
        """Return whether an earlier fire about the same suppresses this one, which is written already."""
        if fire.dedup is None:
            return False
        about = (fire.tenant, fire.workflow, fire.dedup, fire.run)
        if fire.cooldown is None:
            return _query_bool(connection, self._queries.is_dedup_active, about)
        limits = (to_micros(fire.at - fire.cooldown), to_micros(fire.at + fire.cooldown))
        return _query_bool(connection, self._queries.is_cooling_down, (*about, *limits))

    def _has_free_slots(self, connection: sqlite3.Connection, tenant: str, pool: str, slots: int) -> bool:
        used, size = read_pool_usage(connection, self._queries, tenant, pool)
        return used <= (slots if size is None else size)

    def _write_rest(self, connection: sqlite3.Connection, revision: int) -> None:
        queries, change = self._queries, self._change
        if change.cleared_outputs:
            connection.executemany(queries.delete_outputs, [(change.run, task) for task in change.cleared_outputs])
        if change.forgotten_steps:
            connection.executemany(queries.forget_steps, [(change.run, task) for task in change.forgotten_steps])
        if self._rows.attempts:
            connection.executemany(queries.add_attempt, self._rows.attempts)
        if self._rows.history is not None:
            connection.execute(queries.add_history, (change.run, revision, *self._rows.history))
        if self._audit is not None:
            connection.execute(_APPEND_AUDIT_ENTRY, AUDIT_ROWS.values(self._audit, to_micros))


class PreparedEnd:
    """The end of a run, and the change that creates the run of its handlers: written with it, if it is not refused."""

    def __init__(self, end: PreparedChange, handlers: PreparedChange) -> None:
        self._end = end
        self._handlers = handlers

    def __call__(self, connection: sqlite3.Connection) -> Applied | Refused:
        """Write both, or nothing at all."""
        result = self._end(connection)
        if isinstance(result, Applied):
            self._handlers(connection)
        return result


def read_pool_usage(connection: sqlite3.Connection, queries: Queries, tenant: str, pool: str) -> tuple[int, int | None]:
    """Return how many task runs of a pool are queued or running in a tenant, and the stored size of the pool."""
    used, size = connection.execute(queries.pool_usage, {"tenant": tenant, "pool": pool}).fetchone()
    return used, size


def _query_bool(connection: sqlite3.Connection, statement: str, values: Columns) -> bool:
    (found,) = connection.execute(statement, values).fetchone()
    return bool(found)
