"""Claiming without planning: a node that is not in office takes what the leader has scheduled and it can run.

It asks when it hears that something changed, when a place becomes free, and every tick. It also looks whether what it
runs is still wanted, and now and then which versions of workflows no run needs any more.
"""

import logging
from collections.abc import Callable, Collection, Sequence

from tidemill.engine.tasks import run_forever
from tidemill.engine.wakeup import Wakeup
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.engine.workflows.worker.requests import (
    build_request,
    unbuildable_request_ending,
    unreadable_inputs_ending,
)
from tidemill.engine.workflows.worker.slots import ExecutorSlots
from tidemill.engine.workflows.worker.version_collector import VersionCollector
from tidemill.kernel.errors import StoreError
from tidemill.storage.workflow_ports import ClaimedTask, ClaimRequest
from tidemill.telemetry import events
from tidemill.workflows.records import AttemptKey, RunRow, TaskRow, current_attempt_key
from tidemill.workflows.run_draft import TaskRef
from tidemill.workflows.spec import WorkflowSpec

logger = logging.getLogger(__name__)

VERSION_COLLECT_INTERVAL = 60.0  # seconds between looks at which versions are still needed


class Claimer:
    """Claims for this node while another one plans."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        versions: WorkflowVersions,
        attempts: LocalAttempts,
        wakeup: Wakeup,
        is_leader: Callable[[], bool],
    ) -> None:
        self._store = runtime.store
        self._versions = versions
        self._attempts = attempts
        self._wakeup = wakeup
        self._clock = runtime.clock
        self._settings = runtime.settings
        self._metrics = runtime.metrics
        self._pools = runtime.pools
        self._is_leader = is_leader
        self._slots = ExecutorSlots(attempts)
        self._collector = VersionCollector(runtime, versions, attempts)
        self._collected_at = self._clock.monotonic()
        self.is_busy = False

    async def run(self) -> None:
        """Claim until cancelled, whenever this node is not in office."""
        await run_forever(self._wait_and_claim, self._on_error)

    async def _wait_and_claim(self) -> None:
        await self._wakeup.wait(self._settings.tick_interval)
        if self._is_leader():
            return
        self.is_busy = True
        try:
            await self._stop_unwanted()
            await self._claim()
            await self._collect_versions()
        finally:
            self.is_busy = False

    def _on_error(self, error: Exception) -> None:
        trace = None if isinstance(error, StoreError) else error
        self._metrics.increment("scheduler_phase_errors_total", phase="claim")
        logger.warning(events.SCHEDULER_PHASE_FAILED, exc_info=trace, extra={"phase": "claim", "error": str(error)})

    async def _stop_unwanted(self) -> None:
        if not self._attempts.claimed:
            return
        held = set(self._attempts.claimed)
        claimed = await self._store.runs.list_claimed_by([self._attempts.owner.id])
        ours = {AttemptKey(*key, row.attempt) for key, row in claimed}
        await self._attempts.stop(sorted(held - ours), "no longer wanted")

    async def _claim(self) -> None:
        executors, loaded = self._slots.free_by_executor(), self._versions.loaded_versions()
        if not executors or not loaded:
            return
        specs = {version: await self._versions.load_spec(version) for version in loaded}
        claim = ClaimRequest(
            owner=self._attempts.owner.id,
            executors=executors,
            loaded=loaded,
            pools=self._pools,
            lease=self._settings.heartbeat_timeout,
            at=self._clock.now(),
        )
        given = await self._store.runs.claim(claim)
        for run, row in given:  # all of them first: from now on each is ours to run, or to hand back
            self._attempts.add_claimed(run, row, specs[run.version_key])
        batches: dict[str, list[ClaimedTask]] = {}
        for claimed in given:
            batches.setdefault(claimed.run.id, []).append(claimed)
        for batch in batches.values():
            run = batch[0].run
            await self._launch(run, [claimed.task for claimed in batch], specs[run.version_key])

    async def _launch(self, run: RunRow, rows: Sequence[TaskRow], spec: WorkflowSpec) -> None:
        """Let claimed task runs of one run be run here; what they take is read once for all of them."""
        try:
            known, outputs = await self._load_inputs(
                run.id, {source for row in rows for source in spec.value_sources[row.task]}
            )
        except Exception as error:  # whatever it is, what is held and neither run nor reported would be kept for ever
            for row in rows:
                self._attempts.on_ended(current_attempt_key(run.id, row), unreadable_inputs_ending(error))
            return
        for row in rows:
            try:
                order = build_request(run, row, spec, known, outputs)
            except Exception as error:  # what cannot be put together cannot be run; the others go on
                self._attempts.on_ended(current_attempt_key(run.id, row), unbuildable_request_ending(error))
            else:
                self._attempts.dispatch(order)

    async def _load_inputs(
        self, run: str, sources: Collection[str]
    ) -> tuple[dict[TaskRef, TaskRow], dict[TaskRef, bytes]]:
        """Return the task runs of a run, and what some of its tasks returned."""
        [record] = await self._store.runs.load([run])
        stored = await self._store.runs.read_outputs(run, sorted(sources)) if sources else []
        known = {(one.task, one.index): one for one in record.tasks}
        return known, {(one.key.task, one.key.element): one.value for one in stored}

    async def _collect_versions(self) -> None:
        now = self._clock.monotonic()
        if now - self._collected_at < VERSION_COLLECT_INTERVAL:
            return
        self._collected_at = now
        await self._collector.collect()
