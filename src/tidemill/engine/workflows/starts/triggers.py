"""Triggers: the leader polls each in a separate loop, so that one that is slow or fails delays no other.

Only the leader polls, so that any number of nodes call a trigger once per interval. The result of a trigger starts a
run of every workflow that names it, unless a run with the same params is still active.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from datetime import datetime

from tidemill.engine.guarded_call import GuardedCall
from tidemill.engine.tasks import cancel_and_wait
from tidemill.engine.workflows.leader.run_admission import RunAdmission
from tidemill.engine.workflows.leader.scheduler import DueWork
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.starts.starter import RunCause, RunOrigin, RunStarter, StartRequest, params_digest
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe, is_cancelled_here
from tidemill.kernel.errors import OperationError, TidemillError
from tidemill.telemetry import events
from tidemill.telemetry.logs import FailureStreaks
from tidemill.workflows.definition import Fire, Trigger
from tidemill.workflows.lookup import WorkflowPausedError
from tidemill.workflows.workflow import Workflow

logger = logging.getLogger(__name__)

FindTrigger = Callable[[str, str], Trigger | None]


class TriggerPollers(DueWork):
    """Polls the triggers that loaded workflows name, each in a separate loop."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        versions: WorkflowVersions,
        find_trigger: FindTrigger,
        starter: RunStarter,
        admission: RunAdmission,
    ) -> None:
        self._versions = versions
        self._find_trigger = find_trigger
        self._starter = starter
        self._tasks = runtime.tasks
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._admission = admission
        self._schedules = runtime.store.schedules
        self._paused: set[tuple[str, str]] = set()
        self._calls_in_flight = 0
        self._loops: dict[tuple[str, str], tuple[Trigger, asyncio.Task[None]]] = {}
        self._streaks = FailureStreaks()

    @property
    def watched_keys(self) -> Collection[tuple[str, str]]:
        """The triggers that it polls."""
        return self._loops.keys()

    @property
    def next_time(self) -> datetime | None:
        """None: the loops have their own timers."""
        return None

    @property
    def calls_in_flight(self) -> int:
        """The number of triggers that are being polled."""
        return self._calls_in_flight

    async def run_due(self) -> None:
        """Do nothing: the loops run by themselves."""

    async def refresh(self) -> None:
        """Read which triggers are paused, if there are any to poll."""
        if self._named_triggers():
            self._paused = await self._schedules.list_paused_triggers()

    async def sync(self) -> None:
        """Poll the triggers that loaded workflows name, and no others."""
        wanted = self._named_triggers()
        for key, (trigger, task) in list(self._loops.items()):
            if wanted.get(key) is not trigger:
                del self._loops[key]
                self._streaks.reset(key)
                await cancel_and_wait(task)
        for key in wanted.keys() - self._loops.keys():
            task = self._tasks.start(f"trigger: {key[1]}", self._poll(key[0], wanted[key]))
            self._loops[key] = wanted[key], task

    async def close(self) -> None:
        """Stop all polls."""
        loops, self._loops = self._loops, {}
        for _, task in loops.values():
            await cancel_and_wait(task)

    def _named_triggers(self) -> dict[tuple[str, str], Trigger]:
        named: dict[tuple[str, str], Trigger] = {}
        for version, workflow in self._versions.current_workflows():
            for reference in workflow.triggers:
                trigger = reference if not isinstance(reference, str) else self._find_trigger(version.tenant, reference)
                if isinstance(trigger, Trigger):
                    named[version.tenant, trigger.name] = trigger
        return named

    async def _poll(self, tenant: str, trigger: Trigger) -> None:
        call = GuardedCall(f"trigger '{trigger.name}'", trigger.function.call, self._clock, self._tasks)
        while True:
            await self._poll_once(tenant, trigger, call)
            await self._clock.sleep(trigger.every)

    async def _poll_once(self, tenant: str, trigger: Trigger, call: GuardedCall) -> None:
        self._calls_in_flight += 1
        try:
            is_paused = (tenant, trigger.name) in self._paused
            if is_paused or all(self._is_paused(tenant, one) for one in self._subscribers(tenant, trigger)):
                return
            self._metrics.increment("trigger_polls_total", call.pending_seconds is None)
            fire = await self._call(trigger, call)
            if failures := self._streaks.reset((tenant, trigger.name)):
                logger.warning(events.TRIGGER_RECOVERED, extra={"trigger": trigger.name, "failures": failures})
            if fire is not None:
                await self._start_runs(tenant, trigger, fire)
        except AUTHOR_ERRORS as error:  # author code: a trigger that fails is polled again
            if is_cancelled_here(error):
                raise
            self._metrics.increment("trigger_errors_total")
            self._log_failure(tenant, trigger, error)
        finally:
            self._calls_in_flight -= 1

    def _log_failure(self, tenant: str, trigger: Trigger, error: BaseException) -> None:
        """Log a failure: the first in a row with the author's part of the traceback, later ones from time to time."""
        failures = self._streaks.record_failure((tenant, trigger.name), type(error).__name__)
        if failures is not None:
            traceback = error.__traceback__
            while traceback is not None and traceback.tb_frame.f_code.co_filename != trigger.location.file:
                traceback = traceback.tb_next
            details = {"trigger": trigger.name, "error": describe(error), "failures": failures}
            exc_info = (type(error), error.with_traceback(traceback), traceback) if failures == 1 else None
            logger.warning(events.TRIGGER_FAILED, exc_info=exc_info, extra=details)

    async def _call(self, trigger: Trigger, call: GuardedCall) -> Fire | None:
        fire = await call.call(trigger.timeout)
        if fire is not None and not isinstance(fire, Fire):
            raise OperationError(f"trigger '{trigger.name}' returned {fire!r}, neither tm.Fire(...) nor None")
        return fire

    async def _start_runs(self, tenant: str, trigger: Trigger, fire: Fire) -> None:
        digest = None if trigger.allow_concurrent else params_digest(fire.params)
        for workflow in self._subscribers(tenant, trigger):
            if self._is_paused(tenant, workflow):
                continue
            request = StartRequest(
                tenant=tenant,
                workflow=workflow,
                params=fire.params,
                origin=RunOrigin.TRIGGER,
                cause=RunCause(trigger.name),
                key=f"trigger:{trigger.name}",
                digest=digest,
            )
            key = tenant, trigger.name, workflow.name
            try:
                await self._starter.start(request)
                self._streaks.reset(key)
            except WorkflowPausedError:  # since the check above
                continue
            except TidemillError as error:  # params that one workflow refuses may suit the next
                self._metrics.increment("trigger_errors_total")
                if (failures := self._streaks.record_failure(key, type(error).__name__)) is not None:
                    details = {"trigger": trigger.name, "workflow": workflow.name, "error": str(error)}
                    logger.warning(events.TRIGGER_FAILED, extra=details | {"failures": failures})

    def _is_paused(self, tenant: str, workflow: Workflow) -> bool:
        return (tenant, workflow.name) in self._admission.paused

    def _subscribers(self, tenant: str, trigger: Trigger) -> list[Workflow]:
        return [
            workflow
            for version, workflow in self._versions.current_workflows()
            if version.tenant == tenant and any(_is_same(reference, trigger) for reference in workflow.triggers)
        ]


def _is_same(reference: object, trigger: Trigger) -> bool:
    """Return whether a workflow's reference, a name or the trigger itself, means a trigger."""
    return reference == trigger.name if isinstance(reference, str) else reference is trigger
