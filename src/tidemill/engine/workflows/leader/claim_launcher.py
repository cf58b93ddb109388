"""Launches the tasks that a change has claimed: at once if their inputs are cached, else after these are read."""

from tidemill.engine.workflows.leader.active_runs import ActiveRun, InFlightChange
from tidemill.engine.workflows.leader.slots import SlotAllocator
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.engine.workflows.worker.launcher import TaskLauncher, has_all_inputs
from tidemill.kernel.errors import StoreError
from tidemill.workflows.records import TaskRow


class ClaimLauncher:
    """Launches claimed tasks, and releases the slots that were reserved for them until then."""

    def __init__(self, runtime: WorkflowRuntime, attempts: LocalAttempts, slots: SlotAllocator) -> None:
        self._tasks = TaskLauncher(runtime, attempts)
        self._attempts = attempts
        self._slots = slots

    def launch(self, change: InFlightChange) -> None:
        """Track the claimed attempts of a change and launch them; those whose inputs are not cached wait for them."""
        active = change.active
        for row in change.claimed:
            self._attempts.add_claimed(active.run, row, active.spec)
        for request in change.requests:
            if request.report is not None:
                self._attempts.release(request.report[0])
        for row in change.claimed:
            if active.spec.value_sources[row.task] and not has_all_inputs(
                row, active.spec, active.rows, active.outputs
            ):
                active.awaiting_inputs.append(row)
                continue
            try:
                self._tasks.launch(active.run, row, active.spec, active.rows, active.outputs)
            finally:  # not before: the slot was reserved until it is used
                self._slots.executor_slots.release(active.run.id, (row.task, row.index))

    async def read_and_launch(self, active: ActiveRun, row: TaskRow) -> None:
        """Read the inputs of a claimed task, and launch it."""
        try:
            outputs = await self._tasks.read_outputs(active.run.id, active.spec.value_sources[row.task])
            for ref, value in outputs.items():
                active.cache_output(ref, value)
            self._tasks.launch(active.run, row, active.spec, active.rows, outputs)
        except StoreError as error:
            self._tasks.report_unreadable(active.run.id, row, error)
        finally:
            self._slots.release_claims(active, [row])
