"""Changes of runs in SQLite: written step by step inside a savepoint, which is taken back if one step is refused.

A write transaction is the only one at a time, so whatever was read inside it is still so when it commits. The guards
are the statements' own: an update that finds fewer rows than it was given tells that something has changed.

Nearly always nothing has. Whoever plans a run knows its revision, and if that is still the same, so is everything of
the run. Then no step can be refused, and no savepoint is needed. Should one be all the same, the whole transaction goes
again, and that change with the care of the others.
"""

import sqlite3
from typing import Any

from tidemill.storage.queries import Queries
from tidemill.storage.sqlite.connections import RetryTransactionError
from tidemill.storage.sqlite.run_rows import (
    Columns,
    encode_attempt,
    encode_history,
    encode_progress,
    encode_run,
    encode_task,
    guard_columns,
    has_same_placement,
)
from tidemill.storage.sqlite.times import to_micros, to_micros_or_none
from tidemill.workflows.change import Applied, Change, RefusalReason, Refused
from tidemill.workflows.records import FireRow, RunRow


class PreparedChange:
    """A change as columns, ready to be written; what cannot be stored has been refused before it gets here."""

    def __init__(self, change: Change, queries: Queries, lease_until: int) -> None:
        self._change = change
        self._queries = queries
        self._is_optimistic = _can_write_optimistically(change)
        run, row = change.run, change.updated_run
        self._created = None if change.new_run is None else encode_run(change.new_run)
        self._run_update = None if row is None else (*_encode_run_update(row), run)
        self._removed = [guard_columns(run, found) for found in change.removed]
        self._progress_updates: list[Columns] = []
        self._task_updates: list[Columns] = []
        for one in change.tasks:
            guard = guard_columns(run, one.expected)
            if one.expired_lease is None and has_same_placement(one.expected, one.updated):
                self._progress_updates.append((*encode_progress(one.updated, lease_until), *guard))
            else:
                self._task_updates.append(
                    (*encode_task(one.updated, lease_until), *guard, to_micros_or_none(one.expired_lease))
                )
        self._added = [(one.task, one.index, *encode_task(one, lease_until)) for one in change.added]
        self._attempts = [(*encode_attempt(one), change.outputs.get(one.key)) for one in change.attempts]
        self._history = None if change.history is None else encode_history(change.history)
        self._fire = None if change.fire is None else _encode_fire(change.fire)

    def __call__(self, connection: sqlite3.Connection) -> Applied | Refused:
        """Write the change, or nothing at all."""
        if self._is_optimistic and (revision := self._write_optimistically(connection)) is not None:
            return Applied(revision)
        connection.execute("SAVEPOINT change")
        result = self._write_checked(connection)
        if isinstance(result, Refused):
            connection.execute("ROLLBACK TO change")
        connection.execute("RELEASE change")
        return result

    def _write_optimistically(self, connection: sqlite3.Connection) -> int | None:
        """Write the change to a run that nobody else has changed; return its revision, or None if somebody has."""
        found, fence = self._change.expected_run, self._change.fence
        assert found is not None, "a change is not trusted without it"
        assert fence is not None, "nor without this"
        guard = (found.id, found.revision, str(found.state), found.clears, *fence)
        if not connection.execute(self._queries.advance_run, guard).rowcount:
            return None
        if self._run_update is not None:
            connection.execute(self._queries.change_run, self._run_update)
        if not self._write_tasks(connection, found.tenant):
            self._is_optimistic = False
            raise RetryTransactionError
        self._write_rest(connection, found.revision + 1)
        return found.revision + 1

    def _write_checked(self, connection: sqlite3.Connection) -> Applied | Refused:
        fence = self._change.fence
        if fence is not None and not _query_bool(connection, self._queries.holds_office, fence):
            return Refused("fenced")
        if self._created is not None and (why := self._add_run(connection, self._created)) is not None:
            return Refused(why)
        touched = self._write_run(connection)
        if touched is None or not self._write_tasks(connection, touched[1]):
            return Refused("stale")
        if self._fire is not None and not self._write_fire(connection, self._fire):
            return Refused("fired")
        if not all(self._has_free_slots(connection, *limit) for limit in self._change.pools):
            return Refused("full")
        self._write_rest(connection, touched[0])
        return Applied(touched[0])

    def _add_run(self, connection: sqlite3.Connection, columns: Columns) -> RefusalReason | None:
        """Make the run; return why not, if it was not made."""
        if connection.execute(self._queries.add_run, columns).rowcount:
            return None
        _, tenant, workflow, *_ = columns
        return "paused" if _query_bool(connection, self._queries.is_workflow_paused, (tenant, workflow)) else "stale"

    def _write_run(self, connection: sqlite3.Connection) -> tuple[int, str] | None:
        """Write the run itself; return its revision and tenant, or None if it is not as it was found."""
        change = self._change
        guard: tuple[Any, ...] = (change.run, int(change.is_operator_action))
        if change.expected_run is None:
            statement = self._queries.touch_run
        else:
            statement = self._queries.touch_found_run
            guard += (str(change.expected_run.state), change.expected_run.clears)
        touched: tuple[int, str] | None = connection.execute(statement, guard).fetchone()
        if touched is not None and self._run_update is not None:
            connection.execute(self._queries.change_run, self._run_update)
        return touched

    def _write_tasks(self, connection: sqlite3.Connection, tenant: str) -> bool:
        """Write the task runs; return whether all of them were as they were found."""
        queries, run = self._queries, self._change.run
        added = [(run, tenant, *columns) for columns in self._added]
        return (
            _updates_all_rows(connection, queries.remove_task, self._removed)
            and _updates_all_rows(connection, queries.move_task, self._progress_updates)
            and _updates_all_rows(connection, queries.change_task, self._task_updates)
            and _updates_all_rows(connection, queries.add_task, added)
        )

    def _write_fire(self, connection: sqlite3.Connection, fire: tuple[Any, ...]) -> bool:
        tenant, workflow, key, *_, digest = fire
        payload = (tenant, workflow, key, digest)
        if digest is not None and _query_bool(connection, self._queries.is_digest_active, payload):
            return False
        return connection.execute(self._queries.add_fire, fire).rowcount == 1

    def _has_free_slots(self, connection: sqlite3.Connection, tenant: str, pool: str, slots: int) -> bool:
        return count_pool_claims(connection, self._queries, tenant, pool) <= slots

    def _write_rest(self, connection: sqlite3.Connection, revision: int) -> None:
        queries, change = self._queries, self._change
        if change.cleared_outputs:
            connection.executemany(queries.forget_outputs, [(change.run, task) for task in change.cleared_outputs])
        if self._attempts:
            connection.executemany(queries.add_attempt, self._attempts)
        if self._history is not None:
            connection.execute(queries.add_history, (change.run, revision, *self._history))


def _can_write_optimistically(change: Change) -> bool:
    """Return whether nothing can stand against a change but what shows in the run's revision."""
    is_planned = change.fence is not None and change.expected_run is not None
    is_limited = change.pools or change.fire is not None or any(one.expired_lease is not None for one in change.tasks)
    return is_planned and not is_limited and not change.is_operator_action


def count_pool_claims(connection: sqlite3.Connection, queries: Queries, tenant: str, pool: str) -> int:
    """Return how many task runs of a pool are queued or running in a tenant."""
    (count,) = connection.execute(queries.count_pool, (tenant, pool)).fetchone()
    return int(count)


def _updates_all_rows(connection: sqlite3.Connection, statement: str, rows: list[tuple[Any, ...]]) -> bool:
    return not rows or connection.executemany(statement, rows).rowcount == len(rows)


def _query_bool(connection: sqlite3.Connection, statement: str, values: tuple[Any, ...]) -> bool:
    (answer,) = connection.execute(statement, values).fetchone()
    return bool(answer)


def _encode_run_update(row: RunRow) -> tuple[Any, ...]:
    return (row.version, str(row.state), to_micros_or_none(row.started_at), to_micros_or_none(row.ended_at), row.reason)


def _encode_fire(fire: FireRow) -> tuple[Any, ...]:
    return (
        fire.tenant,
        fire.workflow,
        fire.key,
        fire.run,
        to_micros(fire.at),
        to_micros_or_none(fire.slot),
        fire.digest,
    )
