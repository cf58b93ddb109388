"""Explains runs: why a task has not run, how it ended, and why a run waits."""

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from tidemill.access.principal import Caller
from tidemill.engine.workflows.client.log_lines import find_loop_block
from tidemill.engine.workflows.client.nodes import count_live_nodes, list_nodes
from tidemill.engine.workflows.client.runs import RunReader
from tidemill.engine.workflows.leader.coordinator import RunCoordinator
from tidemill.engine.workflows.leader.state import LeaderState
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.versions import (
    LoadedCode,
    WorkflowVersions,
    code_note,
    find_code_problem,
    find_readable_spec,
    read_loaded_code,
)
from tidemill.storage.workflow_ports import RunFilter
from tidemill.workflows.definition import WORKER_EXECUTOR
from tidemill.workflows.explain import ExplainContext, WorkerView, explain_task, explain_waiting
from tidemill.workflows.lookup import resolve_task
from tidemill.workflows.records import WAITING_FOR_ANSWER, AttemptKey, RunRecord, TaskRow
from tidemill.workflows.run_draft import TaskRef
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import RunState, TaskState
from tidemill.workflows.unfinished import has_begun
from tidemill.workflows.waits import WaitRow

EXPLAINED_LOGS_LIMIT = 20  # elements of a task whose logs are read


class RunExplainer:
    """Says why tasks and runs wait, one sentence per reason."""

    def __init__(
        self, runtime: WorkflowRuntime, versions: WorkflowVersions, leader: LeaderState, runs: RunReader
    ) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._clock = runtime.clock
        self._versions = versions
        self._leader = leader
        self._runs = runs

    async def why(self, caller: Caller, run: str, task: str) -> list[str]:
        """Return why a task has not run, or how it ended: one sentence per reason."""
        return await self._explain(await self._runs.load_record(caller, run), task)

    async def why_queued(self, caller: Caller, run: str) -> list[str]:
        """Return why a run has not started: one sentence per reason; none if it has no task."""
        record = await self._runs.load_record(caller, run)
        return await self._explain(record, record.tasks[0].task) if record.tasks else []

    async def why_waiting(self, caller: Caller, run: str) -> dict[str, list[str]]:
        """Return why each task of a run that has not ended has not: one sentence per reason, by task."""
        record = await self._runs.load_record(caller, run)
        if record.run.state.is_terminal:
            return {}
        context, spec = await self._read_context(record)
        return explain_waiting(record, spec, partial(self._with_capacity, context, record.run.tenant))

    async def _explain(self, record: RunRecord, task: str) -> list[str]:
        name, _ = resolve_task(record, task)
        context, spec = await self._read_context(record)
        rows = record.by_task()[name]
        context = replace(context, loop_blocks=await self._loop_blocks(record, rows))
        return explain_task(record, spec, task, self._with_capacity(context, record.run.tenant, rows[0]))

    async def _read_context(self, record: RunRecord) -> tuple[ExplainContext, WorkflowSpec]:
        """Return what is known in addition to the run about why its tasks have not run, and the spec of the run."""
        if (coordinator := self._leader.coordinator) is not None:
            context = _leader_context(coordinator, self._runtime, self._versions, record)
        else:
            context = await self._explain_context(record)
        blocker, stuck = await self._store.find_write_blocker(), await self._stuck_pids(record)
        context = replace(
            await self._with_code_notes(context, record),
            write_blocker=blocker,
            stuck_pids=stuck,
            workers=await self._workers_for(record),
            waits=await self._open_waits(record),
        )
        spec, problem = await self._runs.load_spec_or_problem(record)
        return context if problem is None else replace(context, quarantine_reason=problem), spec

    def _with_capacity(self, context: ExplainContext, tenant: str, row: TaskRow) -> ExplainContext:
        """Add how many slots the executor of a task run has for a tenant; only the leader knows of full ones."""
        if (coordinator := self._leader.coordinator) is None:
            return context
        return replace(context, capacity=_executor_capacity(coordinator, row.executor, tenant))

    async def _with_code_notes(self, context: ExplainContext, record: RunRecord) -> ExplainContext:
        """Add what to do about a run that waits for code that no node has, or about those that it queues behind."""
        run = record.run
        if run.state.is_terminal:
            return context
        code = await read_loaded_code(self._store, self._runtime.liveness)
        if run.state is not RunState.QUEUED or has_begun(record.tasks):
            return replace(context, code_note=await self._code_note(record, code))
        running = RunFilter(tenant=run.tenant, workflow=run.workflow, states=[RunState.RUNNING], limit=run.max_active)
        others = await self._store.runs.load([row.id for row in await self._store.runs.find(running)])
        notes = [await self._code_note(other, code) for other in others]
        return replace(context, blocking_notes=[note for note in notes if note is not None])

    async def _open_waits(self, record: RunRecord) -> list[WaitRow]:
        """Read the open waits of a run if one of its tasks waits for an answer."""
        if not any(row.reason == WAITING_FOR_ANSWER for row in record.tasks):
            return []
        return [one for one in await self._store.waits.of_run(record.run.id) if one.state == "open"]

    async def _workers_for(self, record: RunRecord) -> list[WorkerView]:
        """Return the living workers, if a task of the run waits for one."""
        if not any(row.executor == WORKER_EXECUTOR and row.state is TaskState.SCHEDULED for row in record.tasks):
            return []
        loaded = await self._store.versions.list_loaded()
        owners = {one.owner for one in loaded if one.key == record.run.version_key}
        return [
            WorkerView(labels=one.labels, has_code=one.id in owners, free_slots=one.concurrency - running)
            for one, state, _, running, _ in await list_nodes(self._runtime)
            if one.is_worker and state == "alive"
        ]

    async def _code_note(self, record: RunRecord, code: LoadedCode) -> str | None:
        newest = await self._runs.newest_version(record)
        problem = await find_code_problem(self._versions, record.run.version_key)
        return code_note(record, code, newest, await find_readable_spec(self._versions, newest), problem)

    async def _stuck_pids(self, record: RunRecord) -> dict[TaskRef, int]:
        """Return the processes of tasks whose lease has expired, as far as they are seen to run on this host."""
        now = self._clock.now()
        silent = [row for row in record.tasks if row.lease_until is not None and row.lease_until < now]
        known = await self._store.owners.list_all() if silent else []
        owners = {owner.id: owner for owner in known if not owner.is_worker}
        return {
            (row.task, row.index): owner.pid
            for row in silent
            if (owner := owners.get(row.claimed_by or "")) is not None and self._runtime.liveness.is_running(owner)
        }

    async def _loop_blocks(self, record: RunRecord, rows: Sequence[TaskRow]) -> dict[TaskRef, str]:
        """Return how current attempts of some task runs have blocked the event loop of a node: their logs say so."""
        found = {}
        for row in [one for one in rows if one.attempt][:EXPLAINED_LOGS_LIMIT]:
            key = AttemptKey(record.run.id, row.task, row.index, row.attempt)
            if (reason := await find_loop_block(self._store.logs, key)) is not None:
                found[row.task, row.index] = reason
        return found

    async def _error_locations(self, record: RunRecord) -> dict[TaskRef, str]:
        """Return where in the author's code tasks of a run failed, as file:line."""
        errors = await self._runs.last_errors(record)
        return {(key.task, key.element): error.place for key, error in errors.items()}

    async def _explain_context(self, record: RunRecord) -> ExplainContext:
        """Return what the store knows in addition to the run about why a task of it has not run."""
        paused = (record.run.tenant, record.run.workflow) in await self._store.schedules.list_paused_workflows()
        running = RunFilter(
            tenant=record.run.tenant,
            workflow=record.run.workflow,
            states=[RunState.RUNNING],
            limit=record.run.max_active + 1,
        )
        others = [row for row in await self._store.runs.find(running) if row.id != record.run.id]
        return ExplainContext(
            now=self._clock.now(),
            paused=paused,
            active_runs=len(others),
            capacity=1,
            live_nodes=await count_live_nodes(self._runtime),
            error_locations=await self._error_locations(record),
        )


def _leader_context(
    coordinator: RunCoordinator, runtime: WorkflowRuntime, versions: WorkflowVersions, record: RunRecord
) -> ExplainContext:
    """Return what the leader knows in addition to the run about why tasks of it have not run, but for `capacity`."""
    run, admission = record.run, coordinator.slots.admission
    active = coordinator.active_runs.get(run.id)
    return ExplainContext(
        now=runtime.clock.now(),
        paused=admission.is_paused(run),
        active_runs=admission.running_count(run.tenant, run.workflow) - (run.state is RunState.RUNNING),
        pool_usage=_pool_usage(coordinator, runtime),
        quarantine_reason=active.quarantine_reason if active is not None else None,
        loaded_versions=[key.version for key in versions.loaded if key[:2] == (run.tenant, run.workflow)],
        poll_intervals=coordinator.deferral_polls.intervals(run.id),
        pending_poll_seconds=coordinator.deferral_polls.pending_seconds(run.id),
    )


def _executor_capacity(coordinator: RunCoordinator, executor: str, tenant: str) -> int | None:
    """Return how many slots of an executor are free for a tenant; None if there is no executor of that name."""
    slots = coordinator.slots.executor_slots
    return slots.free_slots_for(executor, tenant) if slots.has_executor(executor) else None


def _pool_usage(coordinator: RunCoordinator, runtime: WorkflowRuntime) -> dict[str, tuple[int, int]]:
    """Return how many slots of each pool are in use, and how many it has."""
    rows = [row for active in coordinator.active_runs.values() for row in active.rows.values()]
    used = [row.pool for row in rows if row.state.is_claimed]
    return {pool: (used.count(pool), size) for pool, size in runtime.pools.sizes.items()}
