"""From a claim to a running attempt: the values that a task takes are put together, and the order is handed over."""

from collections.abc import Collection, Mapping

from tidemill.engine.workflows.leader.active_runs import ActiveRun
from tidemill.engine.workflows.leader.slots import SlotAllocator
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.engine.workflows.worker.requests import (
    build_request,
    unbuildable_request_ending,
    unreadable_inputs_ending,
)
from tidemill.kernel.errors import StoreError
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import TaskRow, current_attempt_key
from tidemill.workflows.run_draft import TaskRef
from tidemill.workflows.states import TaskState


class TaskLauncher:
    """Lets claimed task runs of active runs be run here."""

    def __init__(self, runtime: WorkflowRuntime, attempts: LocalAttempts, slots: SlotAllocator) -> None:
        self._store = runtime.store
        self._attempts = attempts
        self._slots = slots

    def launch(self, active: ActiveRun, claimed: Collection[TaskRow]) -> None:
        """Let claimed task runs be run here: at once if all that they take is in mind, else when that is read."""
        for row in claimed:
            if not _has_all_inputs(active, row):
                active.awaiting_inputs.append(row)
                continue
            try:
                self._dispatch(active, row, active.outputs)
            finally:
                self._slots.release_claims(active, [row])  # not before: the place was promised until it was taken

    async def load_and_launch(self, active: ActiveRun) -> None:
        """Let those be run here for which something must be read first."""
        while active.awaiting_inputs:
            row = active.awaiting_inputs.pop(0)
            try:
                await self._load_and_dispatch(active, row)
            finally:
                self._slots.release_claims(active, [row])

    async def _load_and_dispatch(self, active: ActiveRun, row: TaskRow) -> None:
        try:
            stored = await self._store.runs.read_outputs(active.run.id, active.spec.value_sources[row.task])
        except StoreError as error:
            self._attempts.on_ended(current_attempt_key(active.run.id, row), unreadable_inputs_ending(error))
            return
        found = {(one.key.task, one.key.element): one.value for one in stored}
        for place, value in found.items():
            active.cache_output(place, value)
        self._dispatch(active, row, found)

    def _dispatch(self, active: ActiveRun, row: TaskRow, outputs: Mapping[TaskRef, bytes]) -> None:
        """Put an order together and hand it over; what stands against that is reported as the end of the attempt."""
        try:
            order = build_request(active.run, row, active.spec, active.rows, outputs)
        except Exception as error:  # what cannot be put together cannot be run; the others go on
            self._attempts.on_ended(current_attempt_key(active.run.id, row), unbuildable_request_ending(error))
        else:
            self._attempts.dispatch(order)


def _has_all_inputs(active: ActiveRun, row: TaskRow) -> bool:
    """Return whether everything that a task run takes is in mind."""
    sources = active.spec.value_sources[row.task]
    return not sources or all(
        place in active.outputs for source in sources for place in _refs_with_value(active, source)
    )


def _refs_with_value(active: ActiveRun, task: str) -> list[TaskRef]:
    """Return the task runs of a task that have a value."""
    whole = active.rows.get((task, UNMAPPED))
    if whole is not None:
        has_value = whole.state is TaskState.SUCCESS and active.spec.by_name[task].each is None
        return [(task, UNMAPPED)] if has_value else []
    return [place for place, row in active.rows.items() if place[0] == task and row.state is TaskState.SUCCESS]
