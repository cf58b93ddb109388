"""From a claimed task run to an order: which values go where."""

from collections.abc import Mapping

from tidemill.engine.workflows.executors.interface import Element, Input, Many, One, Order
from tidemill.kernel.errors import StoreError
from tidemill.workflows.draft import Place
from tidemill.workflows.endings import Ending, Failed, Returned
from tidemill.workflows.plan import WHOLE, carries
from tidemill.workflows.records import RunRow, TaskError, TaskRow, key_of
from tidemill.workflows.spec import Edge, TaskSpec, WorkflowSpec
from tidemill.workflows.states import TaskState

Rows = Mapping[Place, TaskRow]
Outputs = Mapping[Place, bytes]


def make_order(run: RunRow, row: TaskRow, spec: WorkflowSpec, rows: Rows, outputs: Outputs) -> Order:
    """Return the order for a claimed task run; `outputs` holds what its sources returned."""
    task = spec.by_name[row.task]
    inputs = {edge.parameter: _input(edge, task, row, spec, rows, outputs) for edge in task.edges if edge.parameter}
    return Order(
        key=key_of(run.id, row),
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


def _input(edge: Edge, task: TaskSpec, row: TaskRow, spec: WorkflowSpec, rows: Rows, outputs: Outputs) -> Input | None:
    place = edge.source, WHOLE
    found = rows.get(place)
    is_mapping = task.each == edge.source
    if found is None:
        values = _elements(edge, rows, outputs)
        return One(values[row.index]) if is_mapping else Many(values)
    if not carries(edge, found):
        return None
    if spec.by_name[edge.source].each is not None:
        return Many(())  # it had nothing to map over
    return Element(outputs[place], row.index) if is_mapping else One(outputs[place])


def _elements(edge: Edge, rows: Rows, outputs: Outputs) -> tuple[bytes, ...]:
    """Return the values of those elements of a mapped task that go along an edge, in order."""
    places = sorted(place for place, row in rows.items() if place[0] == edge.source and carries(edge, row))
    return tuple(outputs[place] for place in places)


def unreadable(error: Exception) -> Ending:
    """Return how attempts end whose inputs could not be read: handed back, if it is the store that was away."""
    return Returned(f"its inputs could not be read: {error}") if isinstance(error, StoreError) else unmakeable(error)


def unmakeable(error: Exception) -> Ending:
    """Return how an attempt ends whose order could not be put together: another try would find the same."""
    said = TaskError(type(error).__name__, f"its order could not be made: {error}")
    return Failed(error=said, may_retry=False)
