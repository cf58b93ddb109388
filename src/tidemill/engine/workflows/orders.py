"""From a claimed task run to an order: which values go where."""

from collections.abc import Mapping

from tidemill.engine.workflows.executors.interface import Element, Input, Many, One, Order
from tidemill.workflows.draft import Place, key_of
from tidemill.workflows.plan import WHOLE
from tidemill.workflows.records import RunRow, TaskRow
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
    source = spec.by_name[edge.source]
    if source.each is not None:
        values = _elements(source.name, rows, outputs)
        return One(values[row.index]) if task.each == source.name else Many(values)
    place = source.name, WHOLE
    found = rows[place]
    if found.state is not TaskState.SUCCESS or (edge.takes is not None and found.variant not in edge.takes):
        return None
    return Element(outputs[place], row.index) if task.each == source.name else One(outputs[place])


def _elements(task: str, rows: Rows, outputs: Outputs) -> tuple[bytes, ...]:
    """Return the values of those elements of a mapped task that succeeded, in order."""
    places = sorted(
        place
        for place, row in rows.items()
        if place[0] == task and place[1] != WHOLE and row.state is TaskState.SUCCESS
    )
    return tuple(outputs[place] for place in places)
