"""From a claim to a running attempt: the values that a task takes are put together, and the order is handed over."""

from collections.abc import Mapping

from tidemill.engine.workflows.board import ActiveRun
from tidemill.engine.workflows.crew import Crew
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.orders import make_order, sources_of
from tidemill.kernel.errors import StoreError
from tidemill.workflows.draft import Place, key_of
from tidemill.workflows.endings import Failed, Returned
from tidemill.workflows.plan import WHOLE
from tidemill.workflows.records import TaskError, TaskRow
from tidemill.workflows.states import TaskState


class Handover:
    """Lets claimed task runs of active runs be run here."""

    def __init__(self, environment: Environment, crew: Crew) -> None:
        self._store = environment.store
        self._crew = crew

    async def take_on(self, active: ActiveRun, row: TaskRow) -> None:
        """Let a claimed task run be run here; what stands against that is reported as its end."""
        key = key_of(active.run.id, row)
        try:
            outputs = await self._outputs(active, row.task)
            order = make_order(active.run, row, active.spec, active.rows, outputs)
        except StoreError as error:
            self._crew.ended(key, Returned(f"its inputs could not be read: {error}"))
        except Exception as error:  # what cannot be put together cannot be run; the others go on
            said = TaskError(type(error).__name__, f"its order could not be made: {error}")
            self._crew.ended(key, Failed(error=said, may_retry=False))
        else:
            await self._crew.take_on(order)

    async def _outputs(self, active: ActiveRun, task: str) -> Mapping[Place, bytes]:
        """Return what the sources of a task returned: from memory if all of it is there, else from the store."""
        sources = sources_of(active.spec, task)
        wanted = [place for source in sources for place in _places(active, source)]
        if all(place in active.outputs for place in wanted):
            return active.outputs
        stored = await self._store.runs.outputs(active.run.id, sources)
        found = {(row.key.task, row.key.element): row.value for row in stored}
        for place, value in found.items():
            active.keep(place, value)
        return found


def _places(active: ActiveRun, task: str) -> list[Place]:
    """Return the task runs of a task that have a value."""
    whole = active.rows.get((task, WHOLE))
    if whole is not None:
        has_value = whole.state is TaskState.SUCCESS and active.spec.by_name[task].each is None
        return [(task, WHOLE)] if has_value else []
    return [place for place, row in active.rows.items() if place[0] == task and row.state is TaskState.SUCCESS]
