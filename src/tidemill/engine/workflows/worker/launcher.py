"""Launches claimed tasks on this node: resolves their inputs, builds the request, dispatches it."""

from collections.abc import Collection, Mapping
from typing import Any

from tidemill.engine.workflows.executors.interface import AttemptRequest, Input, ItemOfList, ListInput, SingleInput
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.spans import new_attempt_trace
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.kernel.errors import StoreError
from tidemill.kernel.settings import Settings
from tidemill.workflows.attempt_results import AttemptResult, Failed, HandedBack
from tidemill.workflows.capabilities import Grants
from tidemill.workflows.plan import UNMAPPED, carries
from tidemill.workflows.records import AttemptKey, RunRow, TaskError, TaskRow, VersionKey, current_attempt_key
from tidemill.workflows.run_draft import TaskRef
from tidemill.workflows.spec import TaskEdge, TaskSpec, WorkflowSpec
from tidemill.workflows.states import TaskState

Rows = Mapping[TaskRef, TaskRow]
Outputs = Mapping[TaskRef, bytes]


class TaskLauncher:
    """Turns claimed tasks into dispatched attempts. A task that cannot be launched is reported as ended."""

    def __init__(self, runtime: WorkflowRuntime, attempts: LocalAttempts) -> None:
        self._runs = runtime.store.runs
        self._settings = runtime.settings
        self._attempts = attempts
        self._loaded = attempts.versions.loaded
        self._element_inputs: dict[tuple[Any, ...], tuple[Rows, Outputs]] = {}
        """The inputs of the elements that were read last: a wide task is claimed element by element."""

    def launch(self, run: RunRow, row: TaskRow, spec: WorkflowSpec, rows: Rows, outputs: Outputs) -> None:
        """Dispatch a claimed task; `outputs` holds the values of the tasks that it takes."""
        try:
            workflow = self._loaded.get(VersionKey(run.tenant, run.workflow, run.version))
            grants = None if workflow is None else workflow.grants
            request = build_request(run, row, spec, rows, outputs, self._settings, grants)
        except Exception as error:  # the error concerns this attempt only; the others are launched
            self._attempts.on_ended(current_attempt_key(run.id, row), _unbuildable_request(error))
        else:
            self._attempts.dispatch(request)

    async def read_outputs(self, run: str, tasks: Collection[str]) -> dict[TaskRef, bytes]:
        """Read the stored outputs of some tasks of a run."""
        stored = await self._runs.read_outputs(run, sorted(tasks)) if tasks else []
        return {(output.key.task, output.key.element): output.value for output in stored}

    async def read_and_launch(self, run: RunRow, claimed: Collection[TaskRow], spec: WorkflowSpec) -> None:
        """Dispatch claimed tasks of one run, reading its rows and their inputs once for all of them."""
        try:
            rows, outputs = await self._read_inputs(run, claimed, spec)
        except Exception as error:  # a task that is not reported would stay claimed
            for row in claimed:
                self.report_unreadable(run.id, row, error)
            return
        for row in claimed:
            self.launch(run, row, spec, rows, outputs)

    async def _read_inputs(self, run: RunRow, claimed: Collection[TaskRow], spec: WorkflowSpec) -> tuple[Rows, Outputs]:
        """Read the source tasks of claimed tasks, and their outputs; elements of one task share what was read last."""
        tasks = {row.task for row in claimed}
        key = run.id, run.clears, *sorted(tasks)  # the sources have ended, and only a clear can change them
        if key in self._element_inputs:
            return self._element_inputs[key]
        sources = {edge.source for task in tasks for edge in spec.by_name[task].edges}
        [record] = await self._runs.load([run.id])
        rows = {(row.task, row.index): row for row in record.tasks if row.task in sources}
        outputs = await self.read_outputs(run.id, {source for task in tasks for source in spec.value_sources[task]})
        if all(row.index != UNMAPPED for row in claimed):
            self._element_inputs = {key: (rows, outputs)}
        return rows, outputs

    def report_unreadable(self, run: str, row: TaskRow, error: Exception) -> None:
        """Report a claimed task whose inputs could not be read: handed back if the store failed, else failed."""
        is_temporary = isinstance(error, StoreError)
        result = HandedBack(f"its inputs could not be read: {error}") if is_temporary else _unbuildable_request(error)
        self._attempts.on_ended(current_attempt_key(run, row), result)


def has_all_inputs(row: TaskRow, spec: WorkflowSpec, rows: Rows, outputs: Outputs) -> bool:
    """Return whether `outputs` holds every value that a claimed task takes."""
    refs = [ref for source in spec.value_sources[row.task] for ref in _refs_with_value(source, spec, rows)]
    return outputs.keys() >= set(refs)


def _refs_with_value(task: str, spec: WorkflowSpec, rows: Rows) -> list[TaskRef]:
    """Return the task, or the elements of a mapped task, that returned a value."""
    whole = rows.get((task, UNMAPPED))
    if whole is not None:
        has_value = whole.state is TaskState.SUCCESS and spec.by_name[task].each is None
        return [(task, UNMAPPED)] if has_value else []
    return [ref for ref, row in rows.items() if ref[0] == task and row.state is TaskState.SUCCESS]


def build_request(
    run: RunRow,
    row: TaskRow,
    spec: WorkflowSpec,
    rows: Rows,
    outputs: Outputs,
    settings: Settings,
    grants: Grants | None = None,
) -> AttemptRequest:
    """Return the request for a claimed task; `outputs` holds the values of the tasks that it takes."""
    task = spec.by_name[row.task]
    inputs: dict[str, Input] = {}
    for edge in task.edges:
        if edge.parameter and (value := _build_input(edge, task, row, spec, rows, outputs)) is not None:
            inputs[edge.parameter] = value
    return AttemptRequest(
        key=AttemptKey(run.id, row.task, row.index, row.attempt),
        tenant=run.tenant,
        workflow=run.workflow,
        version=run.version,
        executor=row.executor,
        number=row.tries,
        deferrals=row.deferrals,
        params=run.params,
        inputs=inputs,
        slot=run.slot,
        timeout=task.timeout,
        has_begun=row.state is TaskState.RUNNING,
        trace=None if run.trace is None else new_attempt_trace(run),
        grants=grants,
        captures_output=settings.capture_output,
        value_limit=settings.result_limit,
    )


def _build_input(
    edge: TaskEdge, task: TaskSpec, row: TaskRow, spec: WorkflowSpec, rows: Rows, outputs: Outputs
) -> Input | None:
    ref = edge.source, UNMAPPED
    source_row = rows.get(ref)
    is_mapping = task.each == edge.source
    if source_row is None:
        values = _element_values(edge, rows, outputs)
        return SingleInput(values[row.index]) if is_mapping else ListInput(values)
    if not carries(edge, source_row):
        return None
    if spec.by_name[edge.source].each is not None:
        return ListInput(())  # it was mapped over an empty list
    return ItemOfList(outputs[ref], row.index) if is_mapping else SingleInput(outputs[ref])


def _element_values(edge: TaskEdge, rows: Rows, outputs: Outputs) -> tuple[bytes, ...]:
    """Return the values of those elements of a mapped task that an edge carries, in order."""
    refs = sorted(ref for ref, row in rows.items() if ref[0] == edge.source and carries(edge, row))
    return tuple(outputs[ref] for ref in refs)


def _unbuildable_request(error: Exception) -> AttemptResult:
    """Return the result of an attempt whose request could not be built: a retry would fail in the same way."""
    return Failed(error=TaskError(type(error).__name__, f"its request could not be built: {error}"), may_retry=False)
