"""Refreshes the cache of active runs from the store: adds new runs, reloads those that other processes changed."""

import logging
from collections.abc import Callable, Collection
from typing import NamedTuple

from tidemill.engine.workflows.leader.active_runs import ActiveRun
from tidemill.engine.workflows.leader.slots import Rows, SlotAllocator
from tidemill.engine.workflows.leader.timers import RunTimers
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events
from tidemill.workflows.records import RunRecord, RunRow, VersionKey
from tidemill.workflows.run_draft import RunDraft
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.unfinished import has_begun

logger = logging.getLogger(__name__)

PAGE_SIZE = 100  # runs per read
PAGES_PER_REFRESH = 5  # reads before other work gets its turn


class Refresh(NamedTuple):
    """The result of a refresh."""

    added: list[str]
    """Runs that are new in the cache."""
    stale: list[str]
    """Runs that another process has changed or ended."""
    is_complete: bool
    """Whether the cache holds all active runs: many new ones are read in several refreshes."""


class RunRefresher:
    """Keeps the cache of active runs in step with the store."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        active_runs: dict[str, ActiveRun],
        versions: WorkflowVersions,
        attempts: LocalAttempts,
        slots: SlotAllocator,
        timers: RunTimers,
    ) -> None:
        self._runs = runtime.store.runs
        self._work = runtime.metrics.work
        self._active_runs = active_runs
        self._versions = versions
        self._attempts = attempts
        self._slots = slots
        self._timers = timers

    async def refresh(self) -> Refresh:
        """Add new runs to the cache, and find those that other processes have changed or ended."""
        cached = set(self._active_runs)  # before the read: a run that is created meanwhile is not in its result
        revisions = dict(await self._runs.list_active())
        stale = [run for run in cached - revisions.keys() if self._is_idle(run)]
        fresh = [run for run in revisions if run not in self._active_runs]
        limit = PAGES_PER_REFRESH * PAGE_SIZE
        added: list[str] = []
        for first in range(0, min(len(fresh), limit), PAGE_SIZE):
            added += await self.add(fresh[first : first + PAGE_SIZE])
        for run, revision in revisions.items():
            if self._is_idle(run) and self._active_runs[run].run.revision < revision:
                stale.append(run)
        return Refresh(added, stale, len(fresh) <= limit)

    def _is_idle(self, run: str) -> bool:
        """Return whether a run is cached, and no change of it is being written."""
        active = self._active_runs.get(run)
        return active is not None and not active.is_busy

    async def add(self, runs: Collection[str]) -> list[str]:
        """Read runs and add them to the cache; return those that were added: not ended ones."""
        return [run for record in await self._runs.load(runs) for run in await self._add(record)]

    async def _add(self, record: RunRecord) -> list[str]:
        run = record.run
        if run.state.is_terminal:
            return []
        spec = await self._spec_or_empty(run)
        await self._slots.load_backfill_limit(run)
        if run.id in self._active_runs:
            return []
        active = self._active_runs[run.id] = ActiveRun(record, run.version_key, spec)
        self._slots.admission.put(run)
        self._slots.update_pool_usage(active, {}, active.rows)
        if not spec.tasks:
            active.quarantine_reason = "its version cannot be read"
        self._enqueue_and_schedule(active)
        return [run.id]

    async def _spec_or_empty(self, run: RunRow) -> WorkflowSpec:
        try:
            return await self._versions.load_spec(run.version_key)
        except StoreError:
            raise
        except Exception as error:  # an unreadable spec concerns the runs of its version only
            logger.error(events.RUN_QUARANTINED, extra={"run": run.id, "reason": str(error)})
            return WorkflowSpec(name=run.workflow, tasks=())

    async def reload(self, active: ActiveRun) -> bool:
        """Read a run that another process has changed; False if it has ended or was deleted."""
        self._slots.release_grants(active)
        record = next(iter(await self._runs.load([active.run.id])), None)
        if record is None:
            return False
        self._slots.admission.put(record.run)
        self._work.count_changes(record.run, active.rows, record.tasks)
        if record.run.state.is_terminal:
            active.run = record.run
            return False
        before = active.rows
        active.load_record(record)
        self._attempts.stop_superseded(active.run.id, active.rows)
        self._slots.update_pool_usage(active, before, active.rows)
        active.outputs.clear()
        version = record.run.version_key
        if not active.spec.tasks or version != active.version:  # it had ended, and was cleared to run another version
            active.pin_version(version, await self._versions.load_spec(version))
        self._enqueue_and_schedule(active)
        return True

    def take_newest_version(self, active: ActiveRun, draft: RunDraft, rows_of: Callable[[VersionKey], Rows]) -> None:
        """Pin a run that has not started to the version that new runs get, if that is newer than its own."""
        newer = self._versions.newer_version(active.version)
        if newer is None or active.creation is not None or has_begun(draft.rows.values()):
            return
        active.pin_version(newer, self._versions.specs[newer])
        draft.take_version(newer.version, rows_of(newer), active.spec)

    def _enqueue_and_schedule(self, active: ActiveRun) -> None:
        """Queue the scheduled tasks of a run, and set its timers."""
        self._slots.enqueue(active, active.waiting_tasks())
        active.has_timers = True
        self._timers.schedule(active.run.id, active.rows.values())
