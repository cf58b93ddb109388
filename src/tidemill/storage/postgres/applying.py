"""Changes of runs, written together: all their rows are locked, then judged, then written, a table at a time."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from tidemill.storage.postgres.accounts import Accounts, Guard, Standing
from tidemill.storage.postgres.writes import columns
from tidemill.storage.queries import Queries
from tidemill.workflows.change import Applied, Change, Refused
from tidemill.workflows.records import TaskKey
from tidemill.workflows.states import TaskState

Now = Callable[[], datetime | None]
"""What leases go by; None for the server's clock."""


class Applying:
    """The work that changes share in a transaction."""

    def __init__(self, queries: Queries, sender: str, now: Now) -> None:
        self._queries = queries
        self._sender = sender
        self._now = now

    async def __call__(self, connection: Any, changes: Sequence[Change]) -> list[Applied | Refused]:
        """Apply changes one after the other; return what became of each."""
        accounts = await self._locked(connection, changes)
        await self._look_up(connection, accounts, changes)
        results = [accounts.enter(change) for change in changes]
        await self._write(connection, accounts)
        return results

    async def _locked(self, connection: Any, changes: Sequence[Change]) -> Accounts:
        """Lock everything that changes are judged by, in the order that everybody keeps to."""
        epochs: dict[str, int] = {}
        if names := {change.fence.name for change in changes if change.fence is not None}:
            epochs = dict(await connection.fetch(self._queries.lock_leases, sorted(names)))
        if keys := {key for change in changes for key in _lock_keys(change)}:
            await connection.execute(self._queries.lock_keys, sorted(keys))
        tasks = await self._tasks(connection, self._queries.lock_task_runs, map(_found_keys, changes))
        rows = await connection.fetch(self._queries.lock_runs, sorted({change.run for change in changes}))
        runs = {run: Standing(*values) for run, *values in rows}
        added = await self._tasks(connection, self._queries.known_task_runs, map(_added_keys, changes))
        return Accounts(epochs, runs, added | tasks)

    async def _tasks(self, connection: Any, statement: str, keys: Iterable[Iterable[TaskKey]]) -> dict[TaskKey, Guard]:
        wanted = sorted({key for some in keys for key in some})
        rows = await connection.fetch(statement, *columns(wanted)) if wanted else []
        return {TaskKey(*row[:3]): Guard(TaskState(row[3]), *row[4:]) for row in rows}

    async def _look_up(self, connection: Any, accounts: Accounts, changes: Sequence[Change]) -> None:
        """Read what is guarded by keys, and pauses; this must not be in the statement that locked the keys."""
        created = {(run.tenant, run.workflow) for change in changes if (run := change.created) is not None}
        if created:
            rows = await connection.fetch(self._queries.pauses_of_workflows, *columns(list(created)))
            accounts.paused = {tuple(row) for row in rows}
        fires = [change.fire for change in changes if change.fire is not None]
        slots = {(one.tenant, one.workflow, one.key, one.slot) for one in fires if one.slot is not None}
        digests = {(one.tenant, one.workflow, one.key, one.digest) for one in fires if one.digest is not None}
        pools = {limit[:2] for change in changes for limit in change.pools}
        if slots:
            rows = await connection.fetch(self._queries.fires_of_slots, *columns(list(slots)))
            accounts.slots = {tuple(row) for row in rows}
        if digests:
            asked = (*columns(list(digests)), list(accounts.runs))
            for tenant, workflow, key, digest, run in await connection.fetch(self._queries.fires_of_digests, *asked):
                accounts.digests[tenant, workflow, key, digest].add(run)
        if pools:
            for tenant, pool, used in await connection.fetch(self._queries.used_slots, *columns(list(pools))):
                accounts.used[tenant, pool] = used

    async def _write(self, connection: Any, accounts: Accounts) -> None:
        queries, time = self._queries, self._now()
        outputs = [(*key, value) for key, value in accounts.outputs.items()]
        for statement, rows, more in (
            (queries.insert_runs, accounts.new_runs(), [self._sender]),
            (queries.update_runs, accounts.changed_runs(), [self._sender]),
            (queries.delete_task_runs, accounts.gone_tasks(), []),
            (queries.update_task_runs, accounts.changed_tasks(), [time]),
            (queries.insert_task_runs, accounts.new_tasks(), [time]),
            (queries.add_attempts, list(accounts.attempts.values()), []),
            (queries.forget_outputs, list(accounts.forgotten), []),
            (queries.put_outputs, outputs, []),
            (queries.add_events, accounts.events, []),
            (queries.add_fires, accounts.fires, []),
        ):
            if rows:
                await connection.execute(statement, *columns(rows), *more)


def lock_key(*words: str) -> int:
    """Return the number of a lock; two that happen to have the same only wait for one another."""
    digest = hashlib.blake2b("\0".join(words).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def pool_key(tenant: str, pool: str) -> int:
    """Return the number of the lock under which a pool is counted and filled."""
    return lock_key("pool", tenant, pool)


def _lock_keys(change: Change) -> Iterable[int]:
    if change.fire is not None:
        yield lock_key("fire", change.fire.tenant, change.fire.workflow, change.fire.key)
    if change.created is not None:  # so that of two with the same id the second is stale, not an error
        yield lock_key("run", change.run)
    for limit in change.pools:
        yield pool_key(limit.tenant, limit.pool)


def _found_keys(change: Change) -> Iterable[TaskKey]:
    for row in (*change.removed, *(one.found for one in change.tasks)):
        yield TaskKey(change.run, row.task, row.index)


def _added_keys(change: Change) -> Iterable[TaskKey]:
    if change.created is None:
        for row in change.added:
            yield TaskKey(change.run, row.task, row.index)
