"""Unfinished runs whose code has changed: every tick, the leader upgrades or cancels them, or reports that they wait.

Only a version that is no longer current on any living node counts as changed: while nodes are replaced one by one, the
runs of the old version are left to the nodes that still have it.
"""

import logging
from collections.abc import Iterator

from msgspec.structs import replace

from tidemill.engine.workflows.leader.active_runs import ActiveRun
from tidemill.engine.workflows.leader.coordinator import RunCoordinator
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.versions import LoadedCode, WorkflowVersions, load_version_switch, read_loaded_code
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events
from tidemill.workflows.change import Applied, Change
from tidemill.workflows.clearing import OperatorAction, build_cancel_change, plan_clear
from tidemill.workflows.records import RunRecord, VersionKey
from tidemill.workflows.unfinished import (
    Continuation,
    UnfinishedPolicy,
    decide_continuation,
    has_begun,
    missing_code_note,
    missing_tasks,
)

logger = logging.getLogger(__name__)

LOAD_GRACE = 30.0  # seconds that code gets to be loaded before a run that waits for it is reported


class UnfinishedRuns:
    """Decides about the runs of versions that are no longer current, by the policy of their workflow or of the node."""

    def __init__(self, runtime: WorkflowRuntime, versions: WorkflowVersions, coordinator: RunCoordinator) -> None:
        self.waiting: dict[str, str] = {}
        """The runs that wait for code that no node has, each with what to do about it."""
        self._first_seen: dict[str, float] = {}
        """When each run was first found without code, on the monotonic clock."""
        self._runtime = runtime
        self._versions = versions
        self._coordinator = coordinator

    async def review(self) -> None:
        """Decide about all unfinished runs of versions that are not current here; an error concerns one run only."""
        outdated = list(self._outdated_runs())
        for run in self._first_seen.keys() - {active.run.id for active in outdated}:
            del self._first_seen[run]
            self.waiting.pop(run, None)
        if not outdated:
            return
        code = await read_loaded_code(self._runtime.store, self._runtime.liveness)
        for active in outdated:
            try:
                await self._review_run(active, code)
            except StoreError:
                raise
            except Exception as error:  # the error concerns this run only
                reason = f"{type(error).__name__}: {error}"
                logger.error(events.RUN_CHANGE_FAILED, extra={"run": active.run.id, "error": reason})

    def _outdated_runs(self) -> Iterator[ActiveRun]:
        current = set(self._versions.current.values())
        for active in self._coordinator.active_runs.values():
            is_settled = not (active.is_busy or active.is_stale or active.creation)
            if is_settled and active.version not in current and has_begun(active.rows.values()):
                yield active

    async def _review_run(self, active: ActiveRun, code: LoadedCode) -> None:
        record = RunRecord(active.run, list(active.rows.values()))
        newest = self._versions.newer_version(active.version)
        spec = None if newest is None else self._versions.specs[newest]
        if active.version in code.current:
            continuation = Continuation.KEEP
        else:
            has_code = active.version in code.loaded
            continuation = decide_continuation(record, spec, self._policy(newest), has_code=has_code)
        if continuation is Continuation.WAIT:
            elsewhere = next((key for key in code.current if key[:2] == active.version[:2]), None)
            problem = self._versions.request_older(active.version)
            lost_tasks = [] if spec is None else missing_tasks(record, spec)
            self._report(record, newest or elsewhere, lost_tasks, problem)
            return
        self.waiting.pop(active.run.id, None)
        if continuation is Continuation.UPGRADE and newest is not None:
            await self._upgrade(record, newest)
        elif continuation is Continuation.CANCEL and newest is not None:
            await self._cancel(record, newest)

    def _policy(self, newest: VersionKey | None) -> UnfinishedPolicy:
        """Return what the author of the newest version has decided, or else the node."""
        workflow = None if newest is None else self._versions.find_workflow(newest)
        declared = None if workflow is None else workflow.unfinished_policy
        return declared or self._runtime.settings.unfinished

    def _report(self, record: RunRecord, newest: VersionKey | None, lost_tasks: list[str], problem: str | None) -> None:
        """Log once that a run waits for code that no node has.

        Without newer code, not before packages are loaded; and not while the code is being loaded, without a `problem`.
        """
        run, now = record.run, self._runtime.clock.monotonic()
        first_seen = self._first_seen.setdefault(run.id, now)
        if run.id in self.waiting or ((newest is None or problem is None) and now - first_seen < LOAD_GRACE):
            return
        self.waiting[run.id] = note = missing_code_note(run, newest and newest.version, lost_tasks, problem or "")
        fields = {"run": run.id, "workflow": run.workflow, "version": run.version, "lost_tasks": lost_tasks}
        logger.warning(events.RUN_CODE_MISSING, extra=fields | {"reason": note, "newest": newest and newest.version})

    async def _upgrade(self, record: RunRecord, newest: VersionKey) -> None:
        switch = await load_version_switch(self._runtime.store, self._versions, record, newest)
        action = self._action(f"its code has changed: it continues with version {newest.version}")
        if await self._apply(plan_clear(record, switch.new_spec, (), switch).build_change(action)):
            fields = {"run": record.run.id, "workflow": record.run.workflow, "version": newest.version}
            logger.info(events.RUN_UPGRADED, extra=fields)

    async def _cancel(self, record: RunRecord, newest: VersionKey) -> None:
        action = self._action(
            f"its code has changed to version {newest.version}, and its workflow is not to be continued"
        )
        await self._apply(build_cancel_change(record, action))

    def _action(self, reason: str) -> OperatorAction:
        return OperatorAction(at=self._runtime.clock.now(), actor=self._runtime.owner.id, reason=reason)

    async def _apply(self, change: Change) -> bool:
        """Write a change; if something got ahead of it, the next review decides again."""
        outcome = await self._runtime.store.runs.apply(replace(change, fence=self._coordinator.term))
        self._coordinator.mark_stale(change.run)
        return isinstance(outcome, Applied)
