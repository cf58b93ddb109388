"""Counts and durations of runs and tasks by workflow and task, within a bound of series."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from tidemill.telemetry.metrics import Histogram, Labels, Sample
from tidemill.workflows.records import RunRow, TaskRow
from tidemill.workflows.run_draft import TaskRef
from tidemill.workflows.states import RunState, TaskState

OTHER = "other"
"""The workflow and the task of what exceeds the bound."""
DURATION_BOUNDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
_TIMED_STATES = frozenset([TaskState.SUCCESS, TaskState.FAILED, TaskState.UP_FOR_RETRY])
_COUNTED_STATES = frozenset(
    [TaskState.UP_FOR_RETRY, TaskState.DEFERRED, *(state for state in TaskState if state.is_terminal)]
)
"""The states that end a try, or a task without one."""


class _RunSeries:
    """The runs of one workflow."""

    __slots__ = ("durations", "last_success", "states")

    def __init__(self) -> None:
        self.states: dict[RunState, int] = {state: 0 for state in RunState if state.is_terminal}
        """From 0: Prometheus sees no increase in a counter that first appears with 1, the first failure."""
        self.durations = Histogram(DURATION_BOUNDS)
        self.last_success: float | None = None


class _TaskSeries:
    """The task runs of one task."""

    __slots__ = ("durations", "states")

    def __init__(self) -> None:
        self.states: dict[TaskState, int] = {TaskState.SUCCESS: 0, TaskState.FAILED: 0}
        self.durations = Histogram(DURATION_BOUNDS)


class WorkSeries:
    """Counts ended runs and tasks; the first `limit` workflows, and as many tasks, have series of their name."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tenants: set[str] = set()
        """Those with series of what exceeds the bound."""
        self._runs: dict[tuple[str, str], _RunSeries] = {}
        self._tasks: dict[tuple[str, str, str], _TaskSeries] = {}

    def expect(self, workflows: Iterable[tuple[str, str]]) -> None:
        """Let the counters of workflows begin, by tenant and name."""
        for tenant, workflow in workflows:
            if (tenant, workflow) not in self._runs and len(self._runs) < self._limit:
                self._runs[tenant, workflow] = _RunSeries()

    def count_run(self, run: RunRow) -> None:
        """Count a run that has ended."""
        series = self._runs.get((run.tenant, run.workflow)) or self._add_run(run.tenant, run.workflow)
        series.states[run.state] += 1
        if run.ended_at is None:
            return
        if run.started_at is not None:
            series.durations.observe((run.ended_at - run.started_at).total_seconds())
        if run.state is RunState.SUCCESS:
            series.last_success = max(series.last_success or 0.0, run.ended_at.timestamp())

    def count_task(self, run: RunRow, row: TaskRow, started_at: datetime | None = None) -> None:
        """Count a task run whose try has ended, or that ended without one. `started_at` is that of the try."""
        key = run.tenant, run.workflow, row.task
        series = self._tasks.get(key) or self._add_task(*key)
        state = row.state
        series.states[state] = series.states.get(state, 0) + 1
        began = row.started_at or started_at
        if began is not None and row.since is not None and state in _TIMED_STATES:
            series.durations.observe((row.since - began).total_seconds())

    def count_changes(self, run: RunRow, before: Mapping[TaskRef, TaskRow], after: Iterable[TaskRow]) -> None:
        """Count what another process has done to the tasks of a run."""
        for row in after:
            old = before.get((row.task, row.index))
            is_new = old is None or (old.state, old.attempt) != (row.state, row.attempt)
            if is_new and row.state in _COUNTED_STATES:
                self.count_task(run, row, None if old is None else old.started_at)

    def _add_run(self, tenant: str, workflow: str) -> _RunSeries:
        key = (tenant, workflow) if len(self._runs) < self._limit else (self._known(tenant), OTHER)
        return self._runs.setdefault(key, _RunSeries())

    def _add_task(self, tenant: str, workflow: str, task: str) -> _TaskSeries:
        key = (tenant, workflow, task) if len(self._tasks) < self._limit else (self._known(tenant), OTHER, OTHER)
        return self._tasks.setdefault(key, _TaskSeries())

    def _known(self, tenant: str) -> str:
        """Return a tenant as a label: the first ones; all others share one."""
        if len(self._tenants) < self._limit:
            self._tenants.add(tenant)
        return tenant if tenant in self._tenants else OTHER

    def samples(self) -> Iterator[Sample]:
        """Yield all samples."""
        for (tenant, workflow), run in self._runs.items():
            labels: Labels = (("tenant", tenant), ("workflow", workflow))
            yield from (Sample("runs_total", count, (*labels, ("state", state))) for state, count in run.states.items())
            yield from run.durations.samples("run_duration_seconds", labels)
            if run.last_success is not None:
                yield Sample("run_last_success_timestamp_seconds", run.last_success, labels)
        for (tenant, workflow, task), found in self._tasks.items():
            labels = (("tenant", tenant), ("workflow", workflow), ("task", task))
            for state, count in found.states.items():
                yield Sample("tasks_total", count, (*labels, ("state", state)))
            yield from found.durations.samples("task_duration_seconds", labels)
