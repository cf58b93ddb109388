"""Runs in memory."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from itertools import islice

from msgspec.structs import replace

from tidemill.access.audit import AuditRow
from tidemill.kernel.limits import LISTED_VALUE_LIMIT
from tidemill.storage.committer import CommitFuture, GroupCommitter
from tidemill.storage.memory.apply_changes import apply_change
from tidemill.storage.memory.claim_tasks import claim_tasks
from tidemill.storage.memory.tables import MemoryTable, MemoryUnit, Tables, times_to_utc, to_utc
from tidemill.storage.run_lists import (
    FiredSlot,
    RunPage,
    RunPosition,
    RunQuery,
    ScheduleName,
    TaskStateCount,
    WorkflowActivity,
    group_recent,
)
from tidemill.storage.run_overview import EndedCount, EndedRun, FirstFailure, OverviewQuery, RunOverview, hour_of
from tidemill.storage.state_sets import ACTIVE_RUNS
from tidemill.storage.workflow_ports import ClaimedTask, ClaimRequest, RunFilter, RunRevision, Runs
from tidemill.workflows.change import Applied, Change, Refused
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import (
    MISSING_TIME,
    AttemptKey,
    AttemptRow,
    EventRow,
    NumberedEvent,
    OutputRow,
    RunRecord,
    RunRow,
    TaskKey,
    TaskRow,
    current_attempt_row,
)
from tidemill.workflows.states import RunState, TaskState


class MemoryRuns(MemoryTable, Runs):
    """Runs by id, and everything of theirs by run."""

    def __init__(self, tables: Tables, committer: GroupCommitter[MemoryUnit], now: Callable[[], datetime]) -> None:
        super().__init__(tables, committer)
        self._now = now

    def apply(self, change: Change, audit: AuditRow | None = None) -> CommitFuture[Applied | Refused]:
        return self._committer.submit(lambda tables: apply_change(tables, change, self._now(), audit))

    async def claim(self, claim: ClaimRequest) -> list[ClaimedTask]:
        request = times_to_utc(claim)
        claimed: list[ClaimedTask] = await self._committer.commit(
            lambda tables: claim_tasks(tables, request, self._now())
        )
        return claimed

    async def renew_leases(self, owner: str, attempts: Collection[AttemptKey], ttl: float) -> set[AttemptKey]:
        def write(tables: Tables) -> set[AttemptKey]:
            until, renewed = self._now() + timedelta(seconds=ttl), set()
            for key in attempts:
                row = tables.tasks.get(key.run, {}).get(key.task_key)
                if row and row.state.is_claimed and (row.attempt, row.claimed_by) == (key.attempt, owner):
                    tables.put(tables.tasks[key.run], key.task_key, replace(row, lease_until=until))
                    renewed.add(key)
            return renewed

        renewed: set[AttemptKey] = await self._committer.commit(write)
        return renewed

    async def list_active(self) -> list[RunRevision]:
        rows = sorted((self._tables.runs[run] for run in self._tables.active_runs), key=_age_key)
        return [RunRevision(row.id, row.revision) for row in rows]

    async def load(self, ids: Collection[str]) -> list[RunRecord]:
        tables = self._tables
        return [
            RunRecord(tables.runs[run], _sorted_tasks(tables.tasks.get(run, {}))) for run in ids if run in tables.runs
        ]

    async def find_run(self, run: str) -> RunRow | None:
        return self._tables.runs.get(run)

    async def find_task(self, key: TaskKey) -> TaskRow | None:
        return self._tables.tasks.get(key.run, {}).get(key)

    async def list_elements(self, first: TaskKey, states: Collection[TaskState], limit: int) -> list[TaskRow]:
        rows = _sorted_tasks(self._tables.tasks.get(first.run, {}))
        elements = [row for row in rows if row.task == first.task and row.index >= max(0, first.element)]
        return [row for row in elements if not states or row.state in states][:limit]

    async def find(self, run_filter: RunFilter) -> list[RunRow]:
        rows = sorted((row for row in self._tables.runs.values() if _matches_filter(row, run_filter)), key=_age_key)
        return rows[max(len(rows) - run_filter.limit, 0) :]

    async def list_page(self, query: RunQuery) -> RunPage:
        rows = sorted((row for row in self._tables.runs.values() if self._is_listed(row, query)), key=_age_key)
        page = [row for row in reversed(rows) if _age_key(row) < query.end][: query.limit]
        large = {row.id: len(row.params) for row in page if len(row.params) > LISTED_VALUE_LIMIT}
        return RunPage([_without_params(row) if row.id in large else row for row in page], len(rows), large)

    def _is_listed(self, row: RunRow, query: RunQuery) -> bool:
        return (
            row.tenant == query.tenant
            and (query.workflows is None or row.workflow in query.workflows)
            and (not query.states or row.state in query.states)
            and query.since <= row.created_at <= query.until
            and (not query.cause or query.cause in (row.origin, row.cause))
            and (not query.key or query.key in (row.about, row.backfill))
            and (not query.text or self._has_text(row, query.text))
        )

    def _has_text(self, row: RunRow, text: str) -> bool:
        note = self._tables.notes.get(row.id, {}).get(None)
        words = (row.id, row.workflow, "" if note is None else note.text)
        return any(_lower(text) in _lower(word) for word in words) or text.encode() in row.params

    async def read_activity(
        self, tenant: str, workflows: Collection[str], *, recent: int = 1
    ) -> dict[str, WorkflowActivity]:
        rows = [row for row in self._tables.runs.values() if row.tenant == tenant]
        newest = group_recent(map(_without_params, rows))
        active = Counter(row.workflow for row in rows if not row.state.is_terminal)
        return {name: WorkflowActivity(active[name], newest.get(name, [])[:recent]) for name in workflows}

    async def read_overview(self, query: OverviewQuery, workflows: Collection[str]) -> RunOverview:
        mine = [row for row in self._tables.runs.values() if row.tenant == query.tenant]
        active = {state: [row for row in mine if row.state is state] for state in ACTIVE_RUNS}
        ended = sorted((row for row in mine if row.state.is_terminal), key=_age_key, reverse=True)
        by_workflow: dict[str, list[EndedRun]] = {name: [] for name in workflows}
        for row in ended:
            if len(listed := by_workflow.get(row.workflow, [])) < query.streak:
                listed.append(EndedRun(row.workflow, row.id, row.state, row.ended_at or row.created_at, row.reason))
        counts = Counter((hour_of(row.ended_at), row.state) for row in ended if row.ended_at is not None)
        oldest = [row for rows in active.values() for row in sorted(rows, key=_age_key)[: query.oldest]]
        return RunOverview(
            active={state: len(rows) for state, rows in active.items()},
            oldest=[_without_params(row) for row in sorted(oldest, key=_age_key)],
            ended=[EndedCount(*key, number) for key, number in sorted(counts.items()) if key[0] in query.hours],
            last_ended=[one for name in workflows for one in by_workflow[name]],
        )

    async def read_first_failures(self, runs: Collection[str]) -> dict[str, FirstFailure]:
        found: dict[str, FirstFailure] = {}
        for run in runs:
            rows = self._tables.tasks.get(run, {}).values()
            failed = [row for row in rows if row.state is TaskState.FAILED]
            if failed:
                first = min(failed, key=lambda row: (row.ended_at or MISSING_TIME, row.task, row.index))
                found[run] = FirstFailure(first.task, first.reason)
        return found

    async def count_task_states(self, runs: Collection[str]) -> list[TaskStateCount]:
        counted: dict[tuple[str, str, TaskState], list[TaskRow]] = {}
        for run in runs:
            for row in self._tables.tasks.get(run, {}).values():
                counted.setdefault((run, row.task, row.state), []).append(row)
        return [_count_state(*key, rows) for key, rows in sorted(counted.items())]

    async def count_backfill_states(self, backfills: Collection[str]) -> dict[str, dict[RunState, int]]:
        counts: dict[str, Counter[RunState]] = {}
        for row in self._tables.runs.values():
            if row.backfill is not None and row.backfill in backfills:
                counts.setdefault(row.backfill, Counter())[row.state] += 1
        return {backfill: dict(states) for backfill, states in counts.items()}

    async def list_lease_expired(self, limit: int) -> list[tuple[TaskKey, TaskRow]]:
        now = self._now()
        expired = [
            (row.lease_until, key)
            for key, row in self._claimed_tasks()
            if row.lease_until is not None and row.lease_until <= now
        ]
        return [(key, self._tables.tasks[key.run][key]) for _, key in sorted(expired)[:limit]]

    async def list_claimed_by(self, owners: Collection[str]) -> list[tuple[TaskKey, TaskRow]]:
        return sorted(
            ((key, row) for key, row in self._claimed_tasks() if row.claimed_by in owners), key=lambda item: item[0]
        )

    async def count_claims(self) -> dict[str, int]:
        return dict(Counter(row.claimed_by for _, row in self._claimed_tasks() if row.claimed_by is not None))

    def _claimed_tasks(self) -> list[tuple[TaskKey, TaskRow]]:
        return [(key, self._tables.tasks[key.run][key]) for key in self._tables.claimed_tasks]

    async def list_orphans(self, before: datetime, limit: int) -> list[str]:
        cutoff = to_utc(before)
        rows = sorted((self._tables.runs[run] for run in self._tables.active_runs), key=_age_key)
        return [row.id for row in rows if self._is_orphan(row, cutoff)][:limit]

    def _is_orphan(self, row: RunRow, before: datetime) -> bool:
        tables = self._tables
        return (
            row.state is RunState.RUNNING
            and row.created_at <= before
            and not any(task.state.is_active for task in tables.tasks.get(row.id, {}).values())
            and all(event.at <= before for event in tables.events.get(row.id, {}).values())
        )

    async def read_outputs(self, run: str, tasks: Collection[str]) -> list[OutputRow]:
        outputs = (output for output in self._tables.outputs.get(run, {}).values() if output.key.task in tasks)
        return sorted(outputs, key=lambda output: output.key)

    async def read_attempts(self, run: str) -> list[AttemptRow]:
        tables = self._tables
        claimed = [row for row in tables.tasks.get(run, {}).values() if row.state.is_claimed]
        attempts = [*tables.attempts.get(run, {}).values(), *(current_attempt_row(run, row) for row in claimed)]
        return sorted(attempts, key=lambda attempt: attempt.key)

    async def read_events(self, run: str) -> list[EventRow]:
        history = self._tables.events.get(run, {})
        return [history[number] for number in sorted(history)]

    async def read_events_after(self, number: int, limit: int) -> list[NumberedEvent]:
        tables = self._tables
        numbers = (one for one in range(number + 1, tables.event_number + 1) if one in tables.runs_of_events)
        return [self._numbered_event(one) for one in islice(numbers, limit)]

    def _numbered_event(self, number: int) -> NumberedEvent:
        row = self._tables.runs[self._tables.runs_of_events[number]]
        return NumberedEvent(number, row.tenant, row.workflow, self._tables.events[row.id][number])

    async def last_event_number(self) -> int:
        return self._tables.event_number

    async def read_fired_slots(
        self, tenant: str, workflow: str, key: str, start: datetime, end: datetime
    ) -> set[datetime]:
        source, first, last = (tenant, workflow, key), to_utc(start), to_utc(end)
        return {slot for *of, slot in self._tables.fired_slots if tuple(of) == source and first <= slot <= last}

    async def list_fired_slots(
        self, tenant: str, schedules: Collection[ScheduleName], start: datetime, end: datetime, limit: int
    ) -> dict[ScheduleName, list[FiredSlot]]:
        first, last, runs = to_utc(start), to_utc(end), self._tables.runs
        found: dict[ScheduleName, list[FiredSlot]] = {one: [] for one in schedules}
        for (owner, workflow, key, slot), run in self._tables.fired_slots.items():
            listed = found.get(ScheduleName(workflow, key))
            if owner == tenant and listed is not None and first <= slot <= last:
                listed.append(FiredSlot(slot, run, runs[run].state if run in runs else None))
        return {one: sorted(listed)[:limit] for one, listed in found.items()}

    async def find_fired(self, tenant: str, workflow: str, key: str, slot: datetime) -> str | None:
        return self._tables.fired_slots.get((tenant, workflow, key, to_utc(slot)))

    async def list_tenants(self) -> list[str]:
        return sorted({row.tenant for row in self._tables.runs.values()})

    async def prune(self, tenant: str, before: datetime, limit: int) -> int:
        cutoff = to_utc(before)

        def write(tables: Tables) -> int:
            ended = [
                (row.ended_at, row.id)
                for row in tables.runs.values()
                if row.tenant == tenant and row.id not in tables.active_runs and row.ended_at and row.ended_at < cutoff
            ]
            for _, run in sorted(ended)[:limit]:
                _delete_run(tables, run)
            return min(len(ended), limit)

        pruned: int = await self._committer.commit(write)
        return pruned


def _sorted_tasks(tasks: Mapping[TaskKey, TaskRow]) -> list[TaskRow]:
    return [tasks[key] for key in sorted(tasks)]


def _age_key(row: RunRow) -> RunPosition:
    return RunPosition(row.created_at, row.id)


def _without_params(row: RunRow) -> RunRow:
    return replace(row, params=b"")


def _lower(text: str) -> bytes:
    """Return a text with its ASCII letters in lower case, as databases compare it."""
    return text.encode().lower()


def _count_state(run: str, task: str, state: TaskState, rows: list[TaskRow]) -> TaskStateCount:
    return TaskStateCount(
        run=run,
        task=task,
        state=state,
        number=len(rows),
        is_mapped=rows[0].index != UNMAPPED,
        tries=max(row.tries for row in rows),
        started_at=min((row.started_at for row in rows if row.started_at), default=None),
        ended_at=max((row.ended_at for row in rows if row.ended_at), default=None),
    )


def _matches_filter(row: RunRow, run_filter: RunFilter) -> bool:
    return (
        row.tenant == run_filter.tenant
        and run_filter.workflow in (None, row.workflow)
        and run_filter.backfill in (None, row.backfill)
        and (not run_filter.states or row.state in run_filter.states)
    )


def _delete_run(tables: Tables, run: str) -> None:
    """Delete a run with everything of its own; fired slots stay."""
    for key in tables.tasks.get(run, {}):
        tables.delete(tables.scheduled_tasks, key)
        tables.delete(tables.claimed_tasks, key)
    for number in tables.events.get(run, {}):
        tables.delete(tables.runs_of_events, number)
    tables.delete(tables.runs, run)
    tables.delete(tables.tasks, run)
    tables.delete(tables.attempts, run)
    tables.delete(tables.outputs, run)
    tables.delete(tables.events, run)
    tables.delete(tables.notes, run)
    tables.delete(tables.logs, run)
    tables.delete(tables.fire_digests, run)
    tables.delete(tables.fire_dedups, run)
