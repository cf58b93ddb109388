"""Claiming on nodes that do not lead: such a node claims tasks that the leader has scheduled and that it can run.

It claims when another process reports a change, when a slot becomes free, and every tick. It also cancels attempts that
are no longer wanted, and from time to time discards workflow versions that no run needs.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec.structs import replace

from tidemill.engine.tasks import run_forever
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.tenant_shares import ask_first
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.engine.workflows.worker.launcher import TaskLauncher
from tidemill.kernel.errors import StoreError
from tidemill.storage.workflow_ports import ClaimedTask, ClaimRequest, VersionTask
from tidemill.telemetry import events
from tidemill.workflows.records import AttemptKey, VersionKey
from tidemill.workflows.spec import TaskSpec, WorkflowSpec

logger = logging.getLogger(__name__)

VERSION_COLLECT_INTERVAL = 60.0  # seconds between collections of unused workflow versions


class Claimer:
    """Claims tasks for this node while another node leads."""

    def __init__(self, runtime: WorkflowRuntime, versions: WorkflowVersions, attempts: LocalAttempts) -> None:
        self._is_running = False
        self._store = runtime.store
        self._versions = versions
        self._attempts = attempts
        self._launcher = TaskLauncher(runtime, attempts)
        self._clock = runtime.clock
        self._settings = runtime.settings
        self._metrics = runtime.metrics
        self._pools = runtime.pools
        self._executor_for = runtime.executor_for
        self._wakeup = attempts.follower.wakeup
        self._last_served: Counter[str] = Counter()
        """The tenants of the task runs that the last claim got; empty if it left slots free: then no task waits."""
        self._collected_at = self._pools_read_at = self._clock.monotonic()

    def assign_slots(self) -> None:
        """Claim soon: there may be free slots, or new tasks for them."""
        self._wakeup.notify()

    @property
    def is_busy(self) -> bool:
        """Whether it is using the store, or about to."""
        return self._is_running and not self._wakeup.is_waiting

    async def run(self) -> None:
        """Claim until cancelled, whenever another node leads."""
        self._is_running = True
        try:
            await run_forever(self._wait_and_claim, self._on_error)
        finally:
            self._is_running = False

    async def _wait_and_claim(self) -> None:
        await self._wakeup.wait(self._settings.tick_interval)
        if self._attempts.is_led_here:
            return
        await self._claim()  # first: a free slot waits for it
        await self._stop_unwanted()
        await self._collect_versions()

    def _on_error(self, error: Exception) -> None:
        traceback = None if isinstance(error, StoreError) else error
        self._metrics.increment("scheduler_phase_errors_total", phase="claim")
        logger.warning(events.SCHEDULER_PHASE_FAILED, exc_info=traceback, extra={"phase": "claim", "error": str(error)})

    async def _stop_unwanted(self) -> None:
        """Cancel attempts that the store no longer lists as claimed by this node."""
        if not self._attempts.claimed:
            return
        tracked = set(self._attempts.claimed)
        stored = await self._store.runs.list_claimed_by([self._attempts.owner.id])
        await self._attempts.stop(tracked - {AttemptKey(*key, row.attempt) for key, row in stored})

    async def _claim(self) -> None:
        free = {name: slots for name in self._attempts.executors if (slots := self._attempts.free_slots(name)) > 0}
        loaded = list(self._versions.loaded)
        if self._pools.missing or (free and loaded):
            await self._refresh_pools()
        if not free or not loaded:
            return
        specs = {version: await self._versions.load_spec(version) for version in loaded}
        blocked = {name: self._attempts.executors[name].blocked_tenants() for name in free}
        request = ClaimRequest(
            owner=self._attempts.owner.id,
            executors=free,
            immediate=[name for name in free if self._attempts.executors[name].is_immediate],
            loaded=loaded,
            excluded=[
                *excluded_tasks(self._attempts.owner.labels, specs),
                *blocked_tasks(blocked, specs, self._executor_for),
            ],
            pools=self._pools.sizes,
            lease=self._settings.heartbeat_timeout,
            at=self._clock.now(),
        )
        claimed = await self._claim_fairly(request, specs)
        by_executor = Counter(one.task.executor for one in claimed)
        is_short = any(by_executor[name] >= slots for name, slots in free.items())
        self._last_served = Counter(one.run.tenant for one in claimed) if is_short else Counter()

    async def _claim_fairly(self, request: ClaimRequest, specs: Mapping[VersionKey, WorkflowSpec]) -> list[ClaimedTask]:
        """Claim task runs; while slots are short, first of the tenants that use less than the one that uses most."""
        first: list[VersionKey] = []
        if self._last_served:
            used = Counter(one.run.tenant for one in self._attempts.claimed.values()) or self._last_served
            first = ask_first(request.loaded, used, self._settings.tenant_weights)
        if not first:
            return await self._claim_and_launch(request, specs)
        claimed = await self._claim_and_launch(replace(request, loaded=first), specs)
        by_executor = Counter(one.task.executor for one in claimed)
        left = {name: slots - by_executor[name] for name, slots in request.executors.items()}
        if free := {name: slots for name, slots in left.items() if slots > 0}:
            claimed += await self._claim_and_launch(replace(request, executors=free), specs)
        return claimed

    async def _claim_and_launch(
        self, request: ClaimRequest, specs: Mapping[VersionKey, WorkflowSpec]
    ) -> list[ClaimedTask]:
        """Claim task runs, start their attempts, and return them."""
        by_run: dict[str, list[ClaimedTask]] = {}
        for claimed in await self._store.runs.claim(request):  # track all first: each must be run or handed back
            self._attempts.add_claimed(claimed.run, claimed.task, specs[claimed.run.version_key])
            by_run.setdefault(claimed.run.id, []).append(claimed)
        for batch in by_run.values():
            run = batch[0].run
            await self._launcher.read_and_launch(run, [claimed.task for claimed in batch], specs[run.version_key])
        return [one for batch in by_run.values() for one in batch]

    async def _refresh_pools(self) -> None:
        now = self._clock.monotonic()
        if now - self._pools_read_at >= self._settings.tick_interval:
            self._pools_read_at = now
            await self._pools.refresh()

    async def _collect_versions(self) -> None:
        now = self._clock.monotonic()
        if now - self._collected_at < VERSION_COLLECT_INTERVAL:
            return
        self._collected_at = now
        in_use = {attempt.run.version_key for attempt in self._attempts.claimed.values()}
        await self._versions.collect(self._store.runs, in_use)


def excluded_tasks(labels: Iterable[str], specs: Mapping[VersionKey, WorkflowSpec]) -> list[VersionTask]:
    """Return the tasks that need a label which is not among these."""
    offered = set(labels)
    return [
        VersionTask(*version, task.name)
        for version, spec in specs.items()
        for task in spec.labelled_tasks
        if not offered.issuperset(task.labels)
    ]


def blocked_tasks(
    blocked: Mapping[str, Collection[str]],
    specs: Mapping[VersionKey, WorkflowSpec],
    executor_for: Callable[[TaskSpec], str],
) -> list[VersionTask]:
    """Return the tasks whose executor takes none of their tenant, by the blocked tenants of each executor."""
    tenants = {tenant for some in blocked.values() for tenant in some}
    return [
        VersionTask(*version, task.name)
        for version, spec in specs.items()
        if version.tenant in tenants
        for task in spec.tasks
        if version.tenant in blocked.get(executor_for(task), ())
    ]
