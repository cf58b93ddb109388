"""The runs of handlers: made with the change that ends a run, and written in one transaction with it.

So each end calls its handlers once: no leader can stop between the two.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from msgspec.structs import replace

from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.kernel.errors import StoreError
from tidemill.storage.committer import CommitFuture
from tidemill.telemetry import events
from tidemill.workflows.change import Applied, Change, Refused
from tidemill.workflows.handlers import RunReport, build_report, handler_run
from tidemill.workflows.records import VersionKey
from tidemill.workflows.run_draft import RunDraft, new_task_rows
from tidemill.workflows.states import TaskState

logger = logging.getLogger(__name__)

Outcome = CommitFuture[Applied | Refused]
ApplyChange = Callable[[Change], Outcome]
OnDone = Callable[[Outcome], None]


class HandlerRuns:
    """Makes the runs of handlers."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        versions: WorkflowVersions,
        add: Callable[[Collection[str]], Awaitable[list[str]]],
        replan: Callable[[str], None],
    ) -> None:
        self._runtime = runtime
        self._versions = versions
        self._add, self._replan = add, replan
        self.in_progress = 0
        """The number of ends that are being written, or whose handlers are yet to be added."""

    async def write_end(
        self, draft: RunDraft, end: Change, version: VersionKey, apply: ApplyChange, on_done: OnDone
    ) -> None:
        """Write the end of a run with a run of these handlers, then add that one to the active runs."""
        starting = self._versions.starting
        starting[version] += 1  # until the run is active: its version must not be discarded
        self.in_progress += 1
        try:
            called = await self._submit(draft, end, version, apply, on_done)
            for run in [] if called is None else await self._add([called]):
                self._replan(run)
        except StoreError as error:  # the next tick finds the run
            logger.warning(events.RUN_CHANGE_FAILED, extra={"run": end.run, "error": str(error)})
        finally:
            starting[version] -= 1
            self.in_progress -= 1

    async def _submit(
        self, draft: RunDraft, end: Change, version: VersionKey, apply: ApplyChange, on_done: OnDone
    ) -> str | None:
        """Write the end; return the id of the run that was written with it."""
        try:
            called = await self._make(draft, version)
            future = apply(replace(end, handlers=called))
        except Exception as error:  # the error concerns this run only
            failed = Outcome()
            failed.set_exception(error)
            on_done(failed)
            return None
        future.on_done = on_done
        await asyncio.wait([future])
        is_written = not future.cancelled() and future.exception() is None and isinstance(future.result(), Applied)
        return called.run if called is not None and is_written else None

    async def _make(self, draft: RunDraft, version: VersionKey) -> Change | None:
        """Return the change that creates the run of some handlers; None if they cannot be called."""
        try:
            spec = await self._versions.load_spec(version)
            run = handler_run(draft.run, version, await self._read_report(draft), self._runtime.clock.now())
        except StoreError:
            raise
        except Exception as error:  # what handles its end must not keep a run from ending
            logger.exception(events.HANDLERS_NOT_CALLED, extra={"run": draft.run.id, "reason": str(error)})
            return None
        rows = new_task_rows(spec, self._runtime.executor_for)
        return RunDraft.for_new_run(run, rows, spec, actor=self._runtime.owner.id).build_change()

    async def _read_report(self, draft: RunDraft) -> RunReport:
        run, rows, runtime = draft.run, list(draft.rows.values()), self._runtime
        has_failures = any(row.state is TaskState.FAILED for row in rows)
        stored = await runtime.store.runs.read_attempts(run.id) if has_failures else []
        return build_report(run, rows, [*stored, *draft.ended_attempts], public_url=runtime.settings.public_url)
