"""From a claimed task run to an order: which values go where."""

from collections.abc import Mapping

from tidemill.engine.workflows.executors.interface import AttemptRequest, Input, ItemOfList, ListInput, SingleInput
from tidemill.kernel.errors import StoreError
from tidemill.workflows.attempt_results import AttemptResult, Failed, HandedBack
from tidemill.workflows.plan import UNMAPPED, carries
from tidemill.workflows.records import RunRow, TaskError, TaskRow, current_attempt_key
from tidemill.workflows.run_draft import TaskRef
from tidemill.workflows.spec import TaskEdge, TaskSpec, WorkflowSpec
from tidemill.workflows.states import TaskState

Rows = Mapping[TaskRef, TaskRow]
Outputs = Mapping[TaskRef, bytes]


def build_request(run: RunRow, row: TaskRow, spec: WorkflowSpec, rows: Rows, outputs: Outputs) -> AttemptRequest:
    """Return the order for a claimed task run; `outputs` holds what its sources returned."""
    task = spec.by_name[row.task]
    inputs = {
        edge.parameter: _build_input(edge, task, row, spec, rows, outputs) for edge in task.edges if edge.parameter
    }
    return AttemptRequest(
        key=current_attempt_key(run.id, row),
        tenant=run.tenant,
        workflow=run.workflow,
        version=run.version,
        executor=row.executor,
        number=row.tries,
        deferrals=row.deferrals,
        params=run.params,
        inputs={name: value for name, value in inputs.items() if value is not None},
        slot=run.slot,
        timeout=task.timeout,
        has_begun=row.state is TaskState.RUNNING,
    )


def _build_input(
    edge: TaskEdge, task: TaskSpec, row: TaskRow, spec: WorkflowSpec, rows: Rows, outputs: Outputs
) -> Input | None:
    place = edge.source, UNMAPPED
    found = rows.get(place)
    is_mapping = task.each == edge.source
    if found is None:
        values = _element_values(edge, rows, outputs)
        return SingleInput(values[row.index]) if is_mapping else ListInput(values)
    if not carries(edge, found):
        return None
    if spec.by_name[edge.source].each is not None:
        return ListInput(())  # it had nothing to map over
    return ItemOfList(outputs[place], row.index) if is_mapping else SingleInput(outputs[place])


def _element_values(edge: TaskEdge, rows: Rows, outputs: Outputs) -> tuple[bytes, ...]:
    """Return the values of those elements of a mapped task that go along an edge, in order."""
    places = sorted(place for place, row in rows.items() if place[0] == edge.source and carries(edge, row))
    return tuple(outputs[place] for place in places)


def unreadable_inputs_ending(error: Exception) -> AttemptResult:
    """Return how attempts end whose inputs could not be read: handed back, if it is the store that was away."""
    return (
        HandedBack(f"its inputs could not be read: {error}")
        if isinstance(error, StoreError)
        else unbuildable_request_ending(error)
    )


def unbuildable_request_ending(error: Exception) -> AttemptResult:
    """Return how an attempt ends whose order could not be put together: another try would find the same."""
    said = TaskError(type(error).__name__, f"its order could not be made: {error}")
    return Failed(error=said, may_retry=False)
