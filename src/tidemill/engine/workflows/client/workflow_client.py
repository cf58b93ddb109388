"""The workflow client: everything that a node, the CLI or a server does with workflows and runs.

A client is built on a node, where it uses what the node knows, or on a bare store, where the leader picks up its
changes. Methods about workflows and runs take the caller first, and see only what belongs to the caller's tenant.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import MappingProxyType
from typing import Any

from tidemill.access.audit import AuditRow
from tidemill.access.principal import Caller
from tidemill.engine.workflows.client.backfills import BackfillRunner
from tidemill.engine.workflows.client.calendar import CalendarEntries, read_calendar
from tidemill.engine.workflows.client.catalog import WorkflowCatalog
from tidemill.engine.workflows.client.log_lines import (
    EVERY_LINE,
    LOG_START,
    LogFilter,
    LogLine,
    LogPage,
    LogPosition,
    TaskLogReader,
    merge_by_time,
    read_log_page,
)
from tidemill.engine.workflows.client.nodes import Leader, NodeLoad, list_nodes, read_leader
from tidemill.engine.workflows.client.operations import RunOperations
from tidemill.engine.workflows.client.overview import WorkflowOverview, read_overview
from tidemill.engine.workflows.client.pool_operations import PoolOperations
from tidemill.engine.workflows.client.values import (
    WatchedRun,
)
from tidemill.engine.workflows.client.waiting import WaitingWork, find_waiting
from tidemill.engine.workflows.client.watch import RunWatch
from tidemill.engine.workflows.leader.retention import PrunePass
from tidemill.engine.workflows.leader.state import LeaderState
from tidemill.engine.workflows.notifications import FinishedRun
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.starts.starter import ONCE_SLOT, RunCause, RunOrigin, RunStarter, StartRequest
from tidemill.engine.workflows.versions import WorkflowVersions, read_loaded_code
from tidemill.kernel.errors import NotFoundError, OperationError, RequestError, StoreError
from tidemill.kernel.limits import MAX_INTEGER, is_storable
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.run_lists import (
    EARLIEST,
    LATEST,
    RunPage,
    RunPosition,
    RunQuery,
    TaskStateCount,
    clamp_to_calendar,
)
from tidemill.storage.tables.backfills import Backfill, BackfillPage
from tidemill.storage.workflow_ports import NodeRow, RunFilter
from tidemill.workflows.definition import Trigger
from tidemill.workflows.lookup import unknown_run
from tidemill.workflows.records import RunRow, TaskKey
from tidemill.workflows.result import RunResult
from tidemill.workflows.slots import BackfillPlan
from tidemill.workflows.states import RunState
from tidemill.workflows.workflow import Workflow

BATCH = 500  # runs that are dismissed in one transaction
SEARCH_LIMIT = 10_000  # runs searched for a part of an id


class WorkflowClient(RunOperations):
    """Starts, reads and changes workflows and runs."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        versions: WorkflowVersions,
        leader: LeaderState,
        starter: RunStarter,
        *,
        is_node: bool,
        find_trigger: Callable[[str, str], Trigger | None] = lambda tenant, name: None,  # noqa: ARG005
    ) -> None:
        super().__init__(runtime, versions, leader)
        self._starter = starter
        self._is_node = is_node
        self._backfills = BackfillRunner(runtime, starter, self)
        self.catalog = WorkflowCatalog(runtime, versions, leader, find_trigger)
        self.pools = PoolOperations(runtime, versions, leader)
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Fail all calls that wait, and all later ones."""
        self._closed.set()
        self._leader.notifier.notify_all()

    @contextmanager
    def require_open(self) -> Iterator[None]:
        """Raise a RequestError if the client is closed, even if it is closed during the block."""
        self._check_open()
        try:
            yield
        except StoreError:
            self._check_open()
            raise

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise RequestError("the node is no longer running", code="not_running", status=503)

    # -- runs

    async def start(
        self,
        caller: Caller,
        workflow: str,
        params: Mapping[str, Any],
        *,
        once: str | None = None,
        origin: RunOrigin = RunOrigin.MANUAL,
        cause: RunCause | None = None,
        is_repeated: bool = False,
        audit: Callable[[str], AuditRow] | None = None,
    ) -> str:
        """Start a run of a loaded workflow; return its id. The entry of `audit` is written with it.

        With `once`, the key of a call that may be repeated, a repetition returns the run that the first has started.
        If the call is known to be repeated, it does so also while the workflow is paused or not loaded.
        """
        if once is not None and is_repeated and (found := await self._find_started(caller, workflow, once)) is not None:
            return found
        version = self._versions.current.get((caller.tenant, workflow))
        loaded = None if version is None else self._versions.loaded.get(version)
        if loaded is None:
            raise self._versions.not_loaded_error(caller.tenant, workflow)
        request = StartRequest(
            tenant=caller.tenant,
            workflow=loaded,
            params=params,
            origin=origin,
            cause=cause or RunCause(id=caller.actor),
            key=once,
            once_per_key=once is not None,
            audit=audit,
        )
        run = await self._starter.start(request)
        if run is None and once is not None:
            run = await self._find_started(caller, workflow, once)
        if run is None:
            raise OperationError(f"workflow '{workflow}' could not be started")
        return run

    async def _find_started(self, caller: Caller, workflow: str, once: str) -> str | None:
        if not is_storable(workflow):
            return None
        return await self._store.runs.find_fired(caller.tenant, workflow, once, ONCE_SLOT)

    async def find_runs(
        self,
        caller: Caller,
        workflow: str | None = None,
        states: Collection[RunState] = (),
        limit: int = 1000,
    ) -> list[RunRow]:
        """Return the newest runs, oldest first."""
        if type(limit) is not int or limit < 1:
            raise RequestError(f"limit is at least 1, not {limit!r}", code="invalid_limit")
        if workflow is not None and not is_storable(workflow):
            return []
        run_filter = RunFilter(tenant=caller.tenant, workflow=workflow, states=states, limit=min(limit, MAX_INTEGER))
        return await self._store.runs.find(run_filter)

    async def list_runs(
        self,
        caller: Caller,
        *,
        workflow: str | None = None,
        states: Collection[RunState] = (),
        since: datetime = EARLIEST,
        until: datetime = LATEST,
        text: str = "",
        tag: str = "",
        cause: str = "",
        key: str = "",
        started_by: str = "",
        unresolved: bool = False,
        after: RunPosition | None = None,
        limit: int = 50,
    ) -> RunPage:
        """Return a page of the list of runs, newest first: those after a position, created in [since, until]."""
        if not all(map(is_storable, (text, cause, key, started_by, workflow or ""))):
            return RunPage([], 0, {})  # no run has what no store can hold
        workflows = None if workflow is None else {workflow}
        if tag:
            tagged = await self.catalog.names_with_tag(caller, tag)
            workflows = tagged if workflows is None else tagged & workflows
        query = RunQuery(
            tenant=caller.tenant,
            workflows=workflows,
            states=states,
            since=clamp_to_calendar(since),
            until=clamp_to_calendar(until),
            text=text,
            cause=cause,
            key=key,
            started_by=started_by,
            is_unresolved=unresolved,
            after=None if after is None else after._replace(created_at=clamp_to_calendar(after.created_at)),
            limit=limit,
        )
        return await self._store.runs.list_page(query)

    async def runs_of_firings(self, caller: Caller, firings: Collection[str]) -> dict[str, list[str]]:
        """Return the runs that some firings have started, by firing; those that have started none are left out."""
        found: dict[str, list[str]] = {}
        for firing, run in await self._store.runs.list_started_by(caller.tenant, firings):
            found.setdefault(firing, []).append(run)
        return found

    async def dismiss_all(self, caller: Caller, **filters: Any) -> int:
        """Dismiss the unresolved failures that match the filters of `list_runs`; return how many there were."""
        number, after = 0, None
        while (found := await self.list_runs(caller, **filters, unresolved=True, after=after, limit=BATCH)).runs:
            number += await self.dismiss(caller, [row.id for row in found.runs])
            after = RunPosition(found.runs[-1].created_at, found.runs[-1].id)
        return number

    async def count_task_states(self, runs: Collection[RunRow]) -> list[TaskStateCount]:
        """Return how many task runs of each task of listed runs are in each state, by run and task."""
        return await self._store.runs.count_task_states([row.id for row in runs])

    async def resolve_run_id(self, caller: Caller, part: str) -> str:
        """Return the id of a run from its id, or from a beginning or end of it that only one run has."""
        if not is_storable(part):
            raise unknown_run(part)
        if any(record.run.tenant == caller.tenant for record in await self._store.runs.load([part])):
            return part
        rows = await self._store.runs.find(RunFilter(tenant=caller.tenant, limit=SEARCH_LIMIT))
        matching = [row.id for row in rows if part and (row.id.startswith(part) or row.id.endswith(part))]
        if len(matching) == 1:
            return matching[0]
        if not matching:
            raise unknown_run(part)
        message = f"{len(matching)} runs have an id that begins or ends with '{part}': give more of it"
        raise RequestError(message, code="ambiguous_run", status=409, run=part)

    async def wait(self, caller: Caller, run: str, timeout: float | None = None) -> RunResult:
        """Return the result of a run when it has ended; TimeoutError after the timeout."""
        async with asyncio.timeout(timeout):
            finished = await self._wait_ended(caller, run)
        return await self._build_result(finished)

    async def _wait_ended(self, caller: Caller, run: str) -> FinishedRun:
        """Return a run when it has ended: from memory if this node ends it, else from the store."""
        notifier = self._leader.notifier
        while True:
            self._check_open()
            coordinator = self._leader.coordinator
            active = None if coordinator is None else coordinator.active_runs.get(run)
            if active is not None:
                if active.run.tenant != caller.tenant:
                    raise unknown_run(run)
                ended = notifier.end_signal(run)
                await ended.wait()  # the coordinator learns of every end, and of those that it causes
                if ended.finished is not None:
                    return ended.finished
                continue
            changed = notifier.change_signal(run)
            record = await self.load_record(caller, run)
            if record.run.state.is_terminal:
                return FinishedRun(record, None)
            await self._wait_for_change(changed)

    async def watch(
        self,
        caller: Caller,
        run: str,
        *,
        tasks: Collection[str] | None = None,
        events: bool = False,
        every: float = 0.1,
    ) -> AsyncIterator[WatchedRun]:
        """Yield a snapshot of a run whenever it changes, at most one per `every` seconds; ends with the run.

        With `tasks` the snapshots hold the log lines of these tasks only.
        """
        watch = RunWatch(self._store, run, tasks=tasks, events=events)
        while True:
            changed = self._leader.notifier.change_signal(run)
            snapshot = await watch.read(await self.load_record(caller, run))
            yield snapshot
            if snapshot.record.run.state.is_terminal:
                yield await watch.read(await self.load_record(caller, run), is_last=True)
                return
            await self._sleep(every)
            await self._wait_for_change(changed)

    async def logs(
        self,
        caller: Caller,
        run: str,
        task: str,
        *,
        follow: bool = True,
        after: Mapping[int, LogPosition] = MappingProxyType({}),
    ) -> AsyncIterator[LogLine]:
        """Yield the log lines of a task, or of one of its elements; with `follow` until the task has ended.

        They begin after a position of each element. The lines of an element are in the order of their positions. The
        lines of a task that was cancelled or cleared may be written after its end: without a node, one tick is waited.
        """
        final_delay = 0.0 if self._is_node else self._runtime.settings.tick_interval
        readers: dict[TaskKey, TaskLogReader] = {}
        is_last = not follow
        while True:
            changed = self._leader.notifier.change_signal(run)
            rows = (await self.load_task(caller, run, task)).tasks
            lines: list[list[LogLine]] = []
            for row in rows:
                key = TaskKey(run, row.task, row.index)
                begin = after.get(row.index, LOG_START)
                reader = readers.setdefault(key, TaskLogReader(self._store.logs, key, begin))
                lines.append([line async for line in reader.read_new()])
            for line in merge_by_time(lines):
                yield line
            has_ended = all(row.state.is_terminal for row in rows)
            if is_last or (has_ended and not final_delay):
                return
            is_last = has_ended
            await (self._sleep(final_delay) if has_ended else self._wait_for_change(changed))

    async def list_logs(
        self,
        caller: Caller,
        run: str,
        task: str,
        wanted: LogFilter = EVERY_LINE,
        *,
        after: tuple[int, LogPosition] | None = None,
        limit: int = 50,
    ) -> LogPage:
        """Return log lines of a task, or of one of its elements, after an element and position; and their number."""
        rows = (await self.load_task(caller, run, task)).tasks
        keys = [TaskKey(run, row.task, row.index) for row in rows]
        return await read_log_page(self._store.logs, keys, wanted, after=after, limit=limit)

    async def _sleep(self, seconds: float) -> None:
        """Wait some seconds of the node's time; RequestError if the client is closed meanwhile."""
        await _wait_first(self._clock.sleep(seconds), self._closed.wait())
        self._check_open()

    async def _wait_for_change(self, signal: asyncio.Event) -> None:
        """Wait until a run changes; where other processes may change it unnoticed, one tick at most."""
        if self._runtime.is_single_node and self._leader.coordinator is not None:
            await signal.wait()
        else:
            await _wait_first(signal.wait(), self._clock.sleep(self._runtime.settings.tick_interval))
        self._check_open()

    # -- workflows

    async def overview(self, caller: Caller) -> WorkflowOverview:
        """Return what the workflows of the tenant do: what runs, fails, is late, and comes next."""
        return await read_overview(self.catalog, self._store.runs, caller)

    async def waiting(self, caller: Caller) -> list[WaitingWork]:
        """Return what has waited for long for code, a pool, a worker, a slot or an answer; the longest first."""
        code = await read_loaded_code(self._store, self._runtime.liveness)
        return await find_waiting(self._store.runs, caller.tenant, code.loaded, self._clock.now())

    async def calendar(self, caller: Caller, start: datetime, end: datetime) -> CalendarEntries:
        """Return the slots of all schedules of the tenant in [start, end]."""
        return await read_calendar(self.catalog, self._store.runs, caller, start, end)

    async def pause(self, caller: Caller, workflow: str) -> None:
        """Pause a workflow: none of its runs begins, none of its tasks starts; running tasks continue."""
        await self._check_known(caller, workflow)
        await self._store.schedules.pause(caller.tenant, workflow)
        await self._apply_pauses()

    async def resume(self, caller: Caller, workflow: str) -> None:
        """Resume a paused workflow; slots that passed meanwhile get no run."""
        await self._check_known(caller, workflow)
        await self._store.schedules.resume(caller.tenant, workflow, self._clock.now())
        await self._apply_pauses()

    async def _apply_pauses(self) -> None:
        """Apply the stored pauses on this node immediately; a leader on another node reads them with its next tick."""
        if self._leader.coordinator is not None:
            self._leader.coordinator.apply_pauses(await self._store.schedules.list_paused_workflows())
        if self._leader.scheduler is not None:
            self._leader.scheduler.wake()

    async def _check_known(self, caller: Caller, workflow: str) -> None:
        """Raise a RequestError unless the node has loaded a workflow, or the store knows it."""
        if (caller.tenant, workflow) in self._versions.current:
            return
        known = [entry.name for entry in await self.catalog.entries(caller)]
        if workflow not in known and self._is_node:
            raise self._versions.not_loaded_error(caller.tenant, workflow)
        if workflow not in known:
            message = f"the store knows no workflow '{workflow}'{did_you_mean(workflow, known)}"
            raise NotFoundError("workflow", workflow, message, known)

    # -- nodes

    @property
    def owner(self) -> NodeRow:
        """The process of this client, as the store knows it."""
        return self._runtime.owner

    async def leader(self) -> Leader | None:
        """Return the node that plans the runs of the store; None if no node has led."""
        return await read_leader(self._runtime)

    def last_prune(self) -> PrunePass | None:
        """Return the last pass that deleted old runs; None unless this node leads, and has made one."""
        return None if self._leader.scheduler is None else self._leader.scheduler.retention.last_pass

    async def nodes(self) -> list[NodeLoad]:
        """Return the nodes and workers of the store, which serve all its tenants."""
        return await list_nodes(self._runtime)

    # -- backfills

    async def backfill(
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
        left out unless `only_missing` is False. With `preview` nothing is changed. With the `id` of a backfill that was
        started before, it is completed.
        """
        if isinstance(workflow, str):
            workflow = self._versions.require_current(caller.tenant, workflow)
        elif not preview:
            await self._versions.set_current(caller.tenant, workflow)
        return await self._backfills.backfill(
            caller, workflow, start, end, preview=preview, only_missing=only_missing, limit=limit, key=key, id=id
        )

    async def list_backfills(self, caller: Caller, *, after: str | None = None, limit: int = 50) -> BackfillPage:
        """Return the tenant's backfills after one of them, newest first, and the number of all."""
        return await self._store.backfills.list_page(caller.tenant, after=after, limit=limit)

    async def get_backfill(self, caller: Caller, id: str) -> Backfill:
        """Return a backfill; RequestError if the tenant has none of that id."""
        return await self._backfills.get(caller, id)

    async def count_backfill_runs(self, backfills: Collection[Backfill]) -> dict[str, dict[RunState, int]]:
        """Return how many runs of some loaded backfills are in each state, by backfill."""
        return await self._store.runs.count_backfill_states([one.id for one in backfills])

    async def cancel_backfill(self, caller: Caller, id: str) -> int:
        """Start no more runs of a backfill, and cancel its active runs; return how many these were."""
        return await self._backfills.cancel(caller, id)


async def _wait_first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait for the first of several coroutines, and cancel the others."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(wait, name="workflow client: wait") for wait in waits]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
