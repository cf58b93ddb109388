"""Backfills: runs for past slots of a schedule, a limited number at a time."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from tidemill.access.principal import Caller
from tidemill.engine.workflows.client.changes import RunChanges
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.starts.starter import RunOrigin, RunStarter, StartRequest
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.kernel.errors import RequestError
from tidemill.kernel.ids import new_sortable_id
from tidemill.kernel.limits import MAX_INTEGER, is_storable
from tidemill.storage.tables.backfills import Backfill, BackfillPage
from tidemill.storage.workflow_ports import RunFilter
from tidemill.workflows.lookup import WorkflowPausedError, quote_name
from tidemill.workflows.schedule import Schedule
from tidemill.workflows.slots import BackfillPlan
from tidemill.workflows.states import RunState, active_states
from tidemill.workflows.workflow import Workflow

SLOT_LIMIT = 10_000  # slots per backfill
YEARS = range(1900, 9999)
"""The years of a backfill: schedules begin in 1900 at the earliest, and no time zone leads out of the calendar."""


class BackfillRunner:
    """Starts, reads and cancels backfills."""

    def __init__(
        self, runtime: WorkflowRuntime, versions: WorkflowVersions, starter: RunStarter, changes: RunChanges
    ) -> None:
        self._store = runtime.store
        self._clock = runtime.clock
        self._versions = versions
        self._starter = starter
        self._changes = changes

    async def start(
        self,
        caller: Caller,
        workflow: str | Workflow,
        start: datetime,
        end: datetime,
        *,
        preview: bool = False,
        only_missing: bool = True,
        limit: int = 1,
        key: str | None = None,
        id: str | None = None,
    ) -> BackfillPlan:
        """Start a run for every past slot of a schedule in [start, end], at most `limit` running at a time.

        The workflow is the name of a loaded one, or a definition, which is stored first. Slots that have had a run are
        left out unless `only_missing` is False. With `preview` nothing is changed. A future slot gets no run: its
        schedule starts it. With the `id` of a backfill that was started before, it is completed.
        """
        if isinstance(workflow, str):
            workflow = self._versions.require_current(caller.tenant, workflow)
        elif not preview:
            await self._versions.set_current(caller.tenant, workflow)
        tenant = caller.tenant
        schedule, now = find_schedule(workflow, key), self._clock.now()
        slots, future = _past_slots(schedule, _check_bound(start, "start"), _check_bound(end, "end"), now)
        _check_limit(limit)
        started, runs = await self._read_started(tenant, id), self._store.runs
        present = await runs.read_fired_slots(tenant, workflow.name, schedule.key, start, end) - started.keys()
        wanted = tuple(slot for slot in slots if not only_missing or slot not in present)
        had_run = tuple(slot for slot in slots if slot in present)
        plan = BackfillPlan(id=None, workflow=workflow.name, slots=wanted, present=had_run, future=future)
        if preview or not wanted:
            return plan
        if (tenant, workflow.name) in await self._store.schedules.list_paused_workflows():
            raise WorkflowPausedError(workflow.name)
        backfill = Backfill(
            id=id or new_sortable_id(now),
            tenant=tenant,
            workflow=workflow.name,
            limit=min(limit, MAX_INTEGER),
            created_at=now,
            range_start=start,
            range_end=end,
        )
        return await self._run(caller, backfill, plan, workflow, schedule, started)

    async def _run(
        self,
        caller: Caller,
        backfill: Backfill,
        plan: BackfillPlan,
        workflow: Workflow,
        schedule: Schedule,
        started: Mapping[datetime, str],
    ) -> BackfillPlan:
        """Start the runs of a backfill that it has not started before."""
        backfill = await self._begin(backfill)
        repeated, missing = set(plan.present), [slot for slot in plan.slots if slot not in started]
        runs = await self._create_runs(caller, backfill, workflow, schedule, missing, repeated)
        return msgspec.structs.replace(plan, id=backfill.id, runs=(*started.values(), *runs))

    async def _begin(self, backfill: Backfill) -> Backfill:
        """Store a backfill, unless it is stored; return what is stored."""
        if (stored := await self._store.backfills.get(backfill.id)) is not None:
            return stored
        await self._store.backfills.upsert(backfill)
        return backfill

    async def _read_started(self, tenant: str, id: str | None) -> dict[datetime, str]:
        """Return the runs that a backfill has started before, by slot, oldest first."""
        runs = await self._store.runs.find(RunFilter(tenant=tenant, backfill=id, limit=SLOT_LIMIT)) if id else []
        return {run.slot: run.id for run in runs if run.slot is not None}

    async def _create_runs(
        self,
        caller: Caller,
        backfill: Backfill,
        workflow: Workflow,
        schedule: Schedule,
        slots: Sequence[datetime],
        repeated: Collection[datetime],
    ) -> list[str]:
        """Start the runs of a backfill, until it is cancelled; return their ids."""
        runs: list[str] = []
        for slot in () if await self._was_cancelled(backfill.id) else slots:
            try:
                run = await self._start_slot(backfill, workflow, schedule, slot, is_repeated=slot in repeated)
            except WorkflowPausedError as error:
                raise _paused_error(backfill, len(runs), len(slots)) from error
            if run is not None:
                runs.append(run)
            if await self._was_cancelled(backfill.id):  # after each start: the canceller may not have seen this run
                await self._cancel_runs(caller, runs[-1:])
                break
        return runs

    async def _was_cancelled(self, id: str) -> bool:
        backfill = await self._store.backfills.get(id)
        return backfill is not None and backfill.cancelled_at is not None

    async def _start_slot(
        self, backfill: Backfill, workflow: Workflow, schedule: Schedule, slot: datetime, *, is_repeated: bool
    ) -> str | None:
        return await self._starter.start(
            StartRequest(
                tenant=backfill.tenant,
                workflow=workflow,
                params=schedule.params_for(slot),
                origin=RunOrigin.BACKFILL,
                key=f"backfill:{backfill.id}" if is_repeated else schedule.key,
                slot=slot,
                backfill=backfill.id,
                about=schedule.key,
            )
        )

    async def list_page(self, caller: Caller, *, after: str | None = None, limit: int = 50) -> BackfillPage:
        """Return the tenant's backfills after one of them, newest first, and the number of all."""
        return await self._store.backfills.list_page(caller.tenant, after=after, limit=limit)

    async def count_runs(self, backfills: Collection[Backfill]) -> dict[str, dict[RunState, int]]:
        """Return how many runs of some loaded backfills are in each state, by backfill."""
        return await self._store.runs.count_backfill_states([one.id for one in backfills])

    async def get(self, caller: Caller, id: str) -> Backfill:
        """Return a backfill; RequestError if the tenant has none of that id."""
        backfill = await self._store.backfills.get(id) if is_storable(id) else None
        if backfill is None or backfill.tenant != caller.tenant:
            message = f"there is no backfill {quote_name(id)}"
            raise RequestError(message, code="backfill_not_found", status=404, backfill=id)
        return backfill

    async def cancel(self, caller: Caller, id: str) -> int:
        """Start no more runs of a backfill, and cancel its active runs; return how many these were."""
        backfill = await self.get(caller, id)
        await self._store.backfills.upsert(msgspec.structs.replace(backfill, cancelled_at=self._clock.now()))
        run_filter = RunFilter(tenant=backfill.tenant, backfill=id, states=active_states(), limit=SLOT_LIMIT)
        runs = await self._store.runs.find(run_filter)
        return await self._cancel_runs(caller, [run.id for run in runs])

    async def _cancel_runs(self, caller: Caller, runs: Sequence[str]) -> int:
        count = 0
        for run in reversed(runs):  # the newest first, so that none begins because another one made room
            try:
                await self._changes.cancel(caller, run, "its backfill was cancelled")
            except RequestError:
                continue  # it ended meanwhile
            count += 1
        return count


def _paused_error(backfill: Backfill, created: int, wanted: int) -> RequestError:
    message = (
        f"workflow '{backfill.workflow}' was paused when {created} of {wanted} runs of backfill {backfill.id} had been "
        f"made: resume it, and backfill the same range again for the rest"
    )
    return RequestError(message, code="workflow_paused", status=409, workflow=backfill.workflow, backfill=backfill.id)


def find_schedule(workflow: Workflow, key: str | None) -> Schedule:
    """Return the schedule of a backfill; RequestError unless `key` identifies one."""
    matching = [schedule for schedule in workflow.schedules if key is None or schedule.key == key]
    if len(matching) == 1:
        return matching[0]
    keys = ", ".join(f"'{schedule.key}'" for schedule in workflow.schedules)
    problem = f"has no schedule '{key}'" if key is not None and workflow.schedules else "has no schedule"
    if len(matching) > 1:
        problem = f"has several schedules ({keys}): say which one, as `key`, from the shell as `--key`"
    raise RequestError(f"workflow '{workflow.name}' {problem}", code="no_schedule", status=409)


def _past_slots(schedule: Schedule, start: datetime, end: datetime, now: datetime) -> tuple[tuple[datetime, ...], int]:
    """Return the slots in [start, end] that are not after `now`, and the number of the others."""
    if end < start:
        raise RequestError(f"end {end} is before start {start}", code="invalid_range")
    after = start - timedelta.resolution
    future = schedule.count(max(after, now), end)
    end = min(end, now)
    if (count := schedule.count(after, end)) > SLOT_LIMIT:
        message = f"there are {count} slots between {start} and {end}, more than {SLOT_LIMIT}: backfill in parts"
        raise RequestError(message, code="invalid_range")
    return tuple(schedule.slots(after, end)) if after < end else (), future


def _check_limit(limit: int) -> None:
    if type(limit) is not int or limit < 1:
        raise RequestError(f"limit is a number of runs, at least 1, not {limit!r}", code="invalid_limit")


def _check_bound(moment: datetime, what: str) -> datetime:
    """Return a datetime that a caller passed; RequestError unless it has a time zone and is in the years of slots."""
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        message = f"{what} is an aware datetime, such as datetime(2026, 1, 1, tzinfo=UTC), not {moment!r}"
        raise RequestError(message, code="invalid_range")
    if moment.year not in YEARS:
        message = f"{what} is a time in the years {YEARS.start} to {YEARS.stop - 1}, not {moment}"
        raise RequestError(message, code="invalid_range")
    return moment
