"""Adoption: the leader takes over remote attempts whose node is gone. Their units live on, and must not be run again.

Adoption does no harm. It moves the claim, in one guarded change, and renews the lease. A node that was only silent
finds that it has lost the claim, and lets the attempt go without touching its unit.
"""

import logging

from tidemill.engine.workflows.executors.remote.executor import RemoteExecutor
from tidemill.engine.workflows.executors.remote.orders import decode_order
from tidemill.engine.workflows.leader.coordinator import RunCoordinator
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events
from tidemill.workflows.cluster_options import KUBERNETES_EXECUTOR, RAY_EXECUTOR
from tidemill.workflows.records import AttemptKey, TaskRow

logger = logging.getLogger(__name__)

REMOTE_EXECUTORS = frozenset([KUBERNETES_EXECUTOR, RAY_EXECUTOR])
"""The executors whose attempts outlive their node; a test node has others under these names."""


class Adoption:
    """Takes over the remote attempts of nodes that are gone."""

    def __init__(self, runtime: WorkflowRuntime, coordinator: RunCoordinator, attempts: LocalAttempts) -> None:
        self._orders = runtime.store.attempt_orders
        self._metrics = runtime.metrics
        self._coordinator = coordinator
        self._attempts = attempts

    def is_remote(self, row: TaskRow) -> bool:
        """Return whether the current attempt of a task run outlives the node that has claimed it."""
        executor = self._attempts.executors.get(row.executor)
        return row.executor in REMOTE_EXECUTORS if executor is None else executor.outlives_node

    def request_sweeps(self) -> None:
        """Let the executors of this node look for units that no attempt needs."""
        for executor in self._attempts.executors.values():
            if isinstance(executor, RemoteExecutor):
                executor.request_sweep()

    async def adopt(self, key: AttemptKey, row: TaskRow) -> None:
        """Take over an attempt, if this node has its executor; else it runs on, and its lease decides."""
        executor = self._attempts.executors.get(row.executor)
        if not isinstance(executor, RemoteExecutor) or row.claimed_by is None:
            return
        try:
            await self._adopt(key, row.claimed_by, executor)
        except Exception as error:  # the error concerns this attempt only
            traceback = None if isinstance(error, StoreError) else error
            logger.warning(
                events.TASK_NOT_ADOPTED, exc_info=traceback, extra={"attempt": str(key), "error": str(error)}
            )

    async def _adopt(self, key: AttemptKey, previous: str, executor: RemoteExecutor) -> None:
        order, active = await self._orders.get(key), self._coordinator.active_runs.get(key.run)
        if order is None or active is None:
            return
        request = decode_order(order.payload).request
        self._coordinator.mark_stale(key.run)
        adopted = self._coordinator.request(key.run, lambda draft: draft.adopt(key, previous), fail_fast=True)
        claimed: TaskRow | None = None if adopted is None else await adopted
        if claimed is not None:
            self._attempts.add_adopted(active.run, claimed, active.spec)
            executor.adopt(request)
            self._metrics.increment("adopted_attempts_total")
            logger.info(events.TASK_ADOPTED, extra={"attempt": str(key), "previous": previous})
