"""From the store to the board: runs that are new to a leader, and those that somebody else has changed."""

import logging
from collections.abc import Callable

from tidemill.engine.workflows.leader.active_runs import ActiveRun
from tidemill.engine.workflows.leader.slots import SlotAllocator
from tidemill.engine.workflows.leader.timers import RunTimers
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events
from tidemill.workflows.records import RunRecord, RunRow
from tidemill.workflows.spec import WorkflowSpec

logger = logging.getLogger(__name__)

PAGE_SIZE = 100  # runs that are read at a time
PAGES_PER_REFRESH = 5  # that are read before others have their turn


class RunRefresher:
    """Makes a board hold what the store holds."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        active_runs: dict[str, ActiveRun],
        versions: WorkflowVersions,
        attempts: LocalAttempts,
        slots: SlotAllocator,
        timers: RunTimers,
        *,
        replan: Callable[[str], None],
        mark_stale: Callable[[str], None],
    ) -> None:
        self._runs = runtime.store.runs
        self._active_runs = active_runs
        self._versions = versions
        self._attempts = attempts
        self._slots = slots
        self._timers = timers
        self._replan = replan
        self._mark_stale = mark_stale

    async def refresh(self) -> bool:
        """Make the board hold exactly the runs that are active, reading those that are new or have changed.

        Return whether it does: many new ones are read a few at a time, so that others have their turns in between.
        """
        board = self._active_runs
        known = set(board)  # what is made while the store answers is not in its answer, and yet there
        revisions = dict(await self._runs.list_active())
        for run in known - revisions.keys():
            if run in board and not board[run].is_busy:
                self._mark_stale(run)  # it has ended elsewhere: what of it runs here is stopped
        fresh = [run for run in revisions if run not in board]
        for first in range(0, min(len(fresh), PAGES_PER_REFRESH * PAGE_SIZE), PAGE_SIZE):
            for record in await self._runs.load(fresh[first : first + PAGE_SIZE]):
                await self._add(record)
        for run, revision in revisions.items():
            active = board.get(run)
            if active is not None and active.run.revision < revision and not active.is_busy:
                self._mark_stale(run)
        return len(fresh) <= PAGES_PER_REFRESH * PAGE_SIZE

    async def _add(self, record: RunRecord) -> None:
        run = record.run
        if run.id in self._active_runs or run.state.is_terminal:
            return
        spec = await self._spec_or_empty(run)
        await self._slots.load_backfill_limit(run)
        active = self._active_runs[run.id] = ActiveRun(record, spec)
        self._slots.admission.update(None, run)
        self._slots.update_pool_usage(active, {}, active.rows)
        if not spec.tasks:
            active.quarantine_reason = "its version cannot be read"
        self._enqueue_and_schedule(active)
        self._replan(run.id)

    async def _spec_or_empty(self, run: RunRow) -> WorkflowSpec:
        try:
            return await self._versions.load_spec(run.version_key)
        except StoreError:
            raise
        except Exception as error:  # a spec that cannot be read is the problem of its runs alone
            logger.error(events.RUN_QUARANTINED, extra={"run": run.id, "reason": str(error)})
            return WorkflowSpec(name=run.workflow, tasks=())

    async def reload(self, active: ActiveRun) -> bool:
        """Take a run as others have left it; False if it has ended, or is gone."""
        self._slots.release_grants(active)
        record = next(iter(await self._runs.load([active.run.id])), None)
        if record is None:
            return False
        self._slots.admission.update(active.run, record.run)
        if record.run.state.is_terminal:
            active.run = record.run
            return False
        before = active.rows
        active.load_record(record)
        self._attempts.stop_superseded(active.run.id, active.rows)
        self._slots.update_pool_usage(active, before, active.rows)
        active.outputs.clear()
        version = record.run.version_key
        if not active.spec.tasks or version != active.version:  # it had ended meanwhile, and goes on with another
            active.pin_version(version, await self._versions.load_spec(version))
        self._enqueue_and_schedule(active)
        return True

    def _enqueue_and_schedule(self, active: ActiveRun) -> None:
        """Let what waits for a place, or for a time, wait for it here."""
        self._slots.enqueue(active, active.waiting_tasks())
        self._timers.schedule(active.run.id, active.rows.values())
