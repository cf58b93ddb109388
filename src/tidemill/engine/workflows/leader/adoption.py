"""Adoption: the leader takes over remote attempts whose node is gone. Their units live on, and must not be run again.

Adoption does no harm. It moves the claim, in one guarded change, and renews the lease. A node that was only silent
finds that it has lost the claim, and lets the attempt go without touching its unit.
"""

import logging

from msgspec.structs import replace

from tidemill.engine.workflows.executors.interface import Executor
from tidemill.engine.workflows.executors.remote.orders import decode_order
from tidemill.engine.workflows.executors.remote.registry import LAUNCHER_KINDS
from tidemill.engine.workflows.leader.coordinator import RunCoordinator
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events
from tidemill.workflows.attempt_results import HandedBack
from tidemill.workflows.records import AttemptKey, TaskRow
from tidemill.workflows.run_draft import RunDraft
from tidemill.workflows.states import TaskState

logger = logging.getLogger(__name__)


class Adoption:
    """Takes over the remote attempts of nodes that are gone."""

    def __init__(self, runtime: WorkflowRuntime, coordinator: RunCoordinator, attempts: LocalAttempts) -> None:
        self._orders = runtime.store.attempt_orders
        self._metrics = runtime.metrics
        self._coordinator = coordinator
        self._attempts = attempts

    def is_remote(self, row: TaskRow) -> bool:
        """Return whether the current attempt of a task run outlives the node that has claimed it."""
        executor = self._attempts.executors.get(row.executor)  # a test node has another one under this name
        return row.executor in LAUNCHER_KINDS if executor is None else executor.outlives_node

    def request_sweeps(self) -> None:
        """Let the executors of this node look for units that no attempt needs."""
        for executor in self._attempts.executors.values():
            executor.request_sweep()

    async def adopt(self, key: AttemptKey, row: TaskRow) -> bool:
        """Take over an attempt, if this node has its executor; return whether that or its end was recorded."""
        executor = self._attempts.executors.get(row.executor)
        if executor is None or not executor.outlives_node or row.claimed_by is None:
            return False
        try:
            return await self._adopt(key, row, executor)
        except Exception as error:  # the error concerns this attempt only
            traceback = None if isinstance(error, StoreError) else error
            logger.warning(
                events.TASK_NOT_ADOPTED, exc_info=traceback, extra={"attempt": str(key), "error": str(error)}
            )
            return False

    async def _adopt(self, key: AttemptKey, row: TaskRow, executor: Executor) -> bool:
        order, previous = await self._orders.get(key), row.claimed_by or ""
        active = self._coordinator.active_runs.get(key.run)
        if active is None:
            return False  # not cached yet, or ended meanwhile
        self._coordinator.mark_stale(key.run)
        if order is None:
            return await self._hand_back(key, previous)
        request = decode_order(order.payload).request
        adopted = self._coordinator.request(key.run, lambda draft: draft.adopt(key, previous), fail_fast=True)
        claimed: TaskRow | None = None if adopted is None else await adopted
        if claimed is None:
            return False
        self._attempts.add_adopted(active.run, claimed, active.spec)
        executor.adopt(replace(request, has_begun=claimed.state is TaskState.RUNNING))
        self._metrics.increment("adopted_attempts_total")
        logger.info(events.TASK_ADOPTED, extra={"attempt": str(key), "previous": previous})
        return True

    async def _hand_back(self, key: AttemptKey, previous: str) -> bool:
        """Let an attempt be claimed again that waited in the queue of its node: without an order, it has no unit."""
        budgets = self._attempts.retry_budgets(self._coordinator.active_runs[key.run].version, key.task)
        result = HandedBack("its node ended before it had launched its unit")

        def hand_back(draft: RunDraft) -> bool:
            row = draft.rows.get((key.task, key.element))
            if row is None or row.state is not TaskState.QUEUED or draft.adopt(key, previous) is None:
                return False
            return draft.apply_result(key, result, budgets)

        written = self._coordinator.request(key.run, hand_back, fail_fast=True)
        return written is not None and bool(await written)
