"""From a claim to a running attempt: the values that a task takes are put together, and the order is handed over."""

from collections.abc import Collection, Mapping

from tidemill.engine.workflows.allotment import Allotment
from tidemill.engine.workflows.board import ActiveRun
from tidemill.engine.workflows.crew import Crew
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.orders import make_order, unmakeable, unreadable
from tidemill.kernel.errors import StoreError
from tidemill.workflows.draft import Place
from tidemill.workflows.plan import WHOLE
from tidemill.workflows.records import TaskRow, key_of
from tidemill.workflows.states import TaskState


class Handover:
    """Lets claimed task runs of active runs be run here."""

    def __init__(self, environment: Environment, crew: Crew, allotment: Allotment) -> None:
        self._store = environment.store
        self._crew = crew
        self._allotment = allotment

    def take_on(self, active: ActiveRun, claimed: Collection[TaskRow]) -> None:
        """Let claimed task runs be run here: at once if all that they take is in mind, else when that is read."""
        for row in claimed:
            if not _is_ready(active, row):
                active.unread.append(row)
                continue
            try:
                self._hand_over(active, row, active.outputs)
            finally:
                self._allotment.unclaim(active, [row])  # not before: the place was promised until it was taken

    async def read_and_take_on(self, active: ActiveRun) -> None:
        """Let those be run here for which something must be read first."""
        while active.unread:
            row = active.unread.pop(0)
            try:
                await self._read_and_hand_over(active, row)
            finally:
                self._allotment.unclaim(active, [row])

    async def _read_and_hand_over(self, active: ActiveRun, row: TaskRow) -> None:
        try:
            stored = await self._store.runs.outputs(active.run.id, active.spec.givers[row.task])
        except StoreError as error:
            self._crew.ended(key_of(active.run.id, row), unreadable(error))
            return
        found = {(one.key.task, one.key.element): one.value for one in stored}
        for place, value in found.items():
            active.keep(place, value)
        self._hand_over(active, row, found)

    def _hand_over(self, active: ActiveRun, row: TaskRow, outputs: Mapping[Place, bytes]) -> None:
        """Put an order together and hand it over; what stands against that is reported as the end of the attempt."""
        try:
            order = make_order(active.run, row, active.spec, active.rows, outputs)
        except Exception as error:  # what cannot be put together cannot be run; the others go on
            self._crew.ended(key_of(active.run.id, row), unmakeable(error))
        else:
            self._crew.take_on(order)


def _is_ready(active: ActiveRun, row: TaskRow) -> bool:
    """Return whether everything that a task run takes is in mind."""
    sources = active.spec.givers[row.task]
    return not sources or all(place in active.outputs for source in sources for place in _places(active, source))


def _places(active: ActiveRun, task: str) -> list[Place]:
    """Return the task runs of a task that have a value."""
    whole = active.rows.get((task, WHOLE))
    if whole is not None:
        has_value = whole.state is TaskState.SUCCESS and active.spec.by_name[task].each is None
        return [(task, WHOLE)] if has_value else []
    return [place for place, row in active.rows.items() if place[0] == task and row.state is TaskState.SUCCESS]
