"""Runs as a handle sees them: found, waited for, explained, wherever they are planned."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from tidemill.engine.workflows.client.operations import RunOperations, pool_usage
from tidemill.engine.workflows.leader.active_runs import FinishedRun
from tidemill.engine.workflows.leader.coordinator import RunCoordinator
from tidemill.engine.workflows.leader.notifications import RunNotifier
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.kernel.errors import RequestError, StoreError
from tidemill.storage.workflow_ports import WorkflowStore
from tidemill.workflows.explain import ExplainContext
from tidemill.workflows.lookup import resolve_task, unknown_task
from tidemill.workflows.records import RunRecord, TaskRow
from tidemill.workflows.states import RunState


class RunQueries:
    """What a node offers to whoever has the id of a run."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        operations: RunOperations,
        notifier: RunNotifier,
        get_coordinator: Callable[[], RunCoordinator | None],
    ) -> None:
        self.operations = operations
        self.notifier = notifier
        self._runtime = runtime
        self._get_coordinator = get_coordinator
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Take note that the node is closed: whoever waits here, or asks from now on, is told so."""
        self._closed.set()
        self.notifier.notify_all()

    @contextmanager
    def require_open(self) -> Iterator[None]:
        """Let the node be asked something; RequestError if it is closed, also if it is so before it has answered."""
        self._check_open()
        try:
            yield
        except StoreError:
            self._check_open()
            raise

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise RequestError("the node is not running any more", code="not_running", status=409)

    @property
    def store(self) -> WorkflowStore:
        """Where runs are kept."""
        return self._runtime.store

    async def wait_ended(self, run: str) -> FinishedRun:
        """Return a run when it has ended: from memory if that happens here meanwhile, else from the store."""
        while True:
            self._check_open()
            desk, end = self._get_coordinator(), self.notifier.end_signal(run)
            if desk is not None and run in desk.active_runs:
                await end.wait()  # the desk sees its end, wherever that comes from, and its own
                if end.finished is not None:
                    return end.finished
                continue
            news = self.notifier.change_signal(run)
            record = await self.operations.load_record(run)
            if record.run.state.is_terminal:
                return FinishedRun(record, None)
            await self.wait_for_change(news)

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds of the node's own time."""
        await _wait_first(self._runtime.clock.sleep(seconds), self._closed.wait())
        self._check_open()

    async def wait_for_change(self, signal: asyncio.Event) -> None:
        """Wait for news; where others may change a run, nobody need tell, so look every tick all the same."""
        if self._runtime.is_single_node and self._get_coordinator() is not None:
            await signal.wait()
        else:
            await _wait_first(signal.wait(), self._runtime.clock.sleep(self._runtime.settings.tick_interval))
        self._check_open()

    async def task_rows(self, run: str, task: str) -> list[TaskRow]:
        """Return the task runs of a task; RequestError if there are none."""
        record = await self.operations.load_record(run)
        rows = record.by_task()
        if task not in rows:
            raise unknown_task(record.run.workflow, [task], rows)
        return rows[task]

    async def why(self, run: str, task: str) -> list[str]:
        """Return why a task has not run."""
        desk = self._get_coordinator()
        if desk is None:
            return await self.operations.why(run, task)
        return await self.operations.why(run, task, lambda record, name: self._explain_context(desk, record, name))

    def _explain_context(self, coordinator: RunCoordinator, record: RunRecord, task: str) -> ExplainContext:
        run, admissions, places = record.run, coordinator.slots.admission, coordinator.slots.executor_slots
        active = coordinator.active_runs.get(run.id)
        name, _ = resolve_task(record, task)
        executor = record.by_task()[name][0].executor
        records = [RunRecord(one.run, list(one.rows.values())) for one in coordinator.active_runs.values()]
        return ExplainContext(
            now=self._runtime.clock.now(),
            paused=admissions.is_paused(run),
            active_runs=admissions.running_count(run.tenant, run.workflow) - (run.state is RunState.RUNNING),
            pool_usage=pool_usage(records, self._runtime.pools),
            capacity=max(0, places.free_slots(executor)) if places.has_executor(executor) else None,
            quarantine_reason=active.quarantine_reason if active is not None else None,
            loaded_versions=self.operations.loaded_versions(record),
            poll_intervals=coordinator.deferral_polls.intervals(run.id),
            pending_poll_seconds=coordinator.deferral_polls.pending_seconds(run.id),
        )


async def _wait_first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait for one thing or another."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one, name="news") for one in waits]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in tasks:
            one.cancel()
