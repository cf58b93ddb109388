"""Claims in SQLite: which scheduled task runs an owner gets, and how they are marked as claimed."""

import json
import sqlite3
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tidemill.storage.queries import Queries
from tidemill.storage.sqlite.apply_changes import read_pool_usage
from tidemill.storage.sqlite.run_rows import decode_keyed_task, decode_run, encode_history, to_micros
from tidemill.storage.workflow_ports import ClaimedTask, ClaimRequest
from tidemill.workflows.records import RunEvent, RunEventBatch, TaskKey, TaskRow
from tidemill.workflows.run_draft import claim_events


class PreparedClaim:
    """A claim, ready to run inside a write transaction: no other claim runs at the same time."""

    def __init__(self, claim: ClaimRequest, queries: Queries, now: datetime) -> None:
        self._claim = claim
        self._queries = queries
        self._lease_until = to_micros(now) + round(claim.lease * 1_000_000)
        self._at = to_micros(claim.at)
        # Encoded before the transaction begins: no other process can write during it.
        queues = None if claim.queues is None else json.dumps(list(claim.queues))
        given = (claim.executors, claim.pools, claim.loaded, claim.excluded)
        executors, pools, loaded, excluded = (json.dumps(list(some)) for some in given)
        self._candidate_values = (executors, queues, queues, pools, loaded, excluded)

    def __call__(self, connection: sqlite3.Connection) -> list[ClaimedTask]:
        """Queue task runs for the owner, and return them."""
        keys = list(self._select_tasks(connection))
        if not keys:
            return []
        claimed = [self._mark_claimed(connection, *key) for key in keys]
        runs = sorted({key.run for key, _ in keys})
        touched = {run: connection.execute(self._queries.touch_run, (0, run)).fetchone() for run in runs}
        self._record_events(connection, claimed, {run: revision for run, (revision, _) in touched.items()})
        rows = {row[0]: decode_run(row) for row in connection.execute(self._queries.runs_of, (json.dumps(runs),))}
        return [ClaimedTask(rows[key.run], task) for key, task in claimed]

    def _select_tasks(self, connection: sqlite3.Connection) -> Iterator[tuple[TaskKey, str]]:
        """Yield the task runs that executors and pools have free slots for, and the executor of each.

        It reads no further than that.
        """
        free_slots = {executor: free for executor, free in self._claim.executors.items() if free > 0}
        free_in_pools: dict[tuple[str, str], int] = {}
        for executor, tenant, pool, *key in self._candidates(connection) if free_slots else ():
            if executor not in free_slots:
                continue
            if pool is not None:
                if (tenant, pool) not in free_in_pools:
                    used, size = read_pool_usage(connection, self._queries, tenant, pool)
                    free_in_pools[tenant, pool] = (self._claim.pools[pool] if size is None else size) - used
                if free_in_pools[tenant, pool] <= 0:
                    continue
                free_in_pools[tenant, pool] -= 1
            free_slots[executor] -= 1
            yield TaskKey(*key), executor
            if not free_slots[executor]:
                del free_slots[executor]
                if not free_slots:
                    return

    def _candidates(self, connection: sqlite3.Connection) -> Iterator[Any]:
        return connection.execute(self._queries.claimable, self._candidate_values)

    def _mark_claimed(self, connection: sqlite3.Connection, key: TaskKey, executor: str) -> tuple[TaskKey, TaskRow]:
        values = {
            "owner": self._claim.owner,
            "lease_until": self._lease_until,
            "at": self._at,
            "starts_now": executor in self._claim.immediate,
            **key._asdict(),
        }
        return decode_keyed_task(connection.execute(self._queries.claim_task, values).fetchone())

    def _record_events(
        self, connection: sqlite3.Connection, claimed: list[tuple[TaskKey, TaskRow]], revisions: dict[str, int]
    ) -> None:
        """Write the events of each claimed task run."""
        events: dict[str, list[RunEvent]] = {run: [] for run in revisions}
        for key, row in claimed:
            events[key.run] += claim_events(row)
        histories = {run: RunEventBatch(self._claim.at, self._claim.owner, some) for run, some in events.items()}
        rows = [(run, revisions[run], *encode_history(one)) for run, one in histories.items()]
        connection.executemany(self._queries.add_history, rows)
