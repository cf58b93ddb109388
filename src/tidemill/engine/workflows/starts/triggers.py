"""Triggers: asked by the leader, each by its own clock, so that one that is slow or fails holds up nobody.

Only the leader asks, so that any number of nodes ask once per interval. What a trigger answers becomes a run of every
workflow that names it, unless a run with the same params is still active.
"""

import asyncio
import logging
from collections.abc import Callable

from tidemill.engine.tasks import cancel_and_wait
from tidemill.engine.workflows.guarded_call import GuardedCall
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.starts.starter import RunStarter, StartRequest, params_digest
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe, is_cancelled_here
from tidemill.kernel.errors import OperationError, TidemillError
from tidemill.telemetry import events
from tidemill.telemetry.failure_streaks import FailureStreaks
from tidemill.workflows.definition import Fire, Trigger
from tidemill.workflows.lookup import WorkflowPausedError
from tidemill.workflows.workflow import Workflow

logger = logging.getLogger(__name__)

FindTrigger = Callable[[str, str], Trigger | None]


class TriggerPollers:
    """One loop per trigger that somebody names."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        versions: WorkflowVersions,
        find_trigger: FindTrigger,
        starter: RunStarter,
        is_paused: Callable[[str, str], bool],
    ) -> None:
        self._versions = versions
        self._find_trigger = find_trigger
        self._starter = starter
        self._tasks = runtime.tasks
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._is_paused = is_paused
        self.calls_in_flight = 0
        """How many triggers are being asked."""
        self._loops: dict[tuple[str, str], tuple[Trigger, asyncio.Task[None]]] = {}
        self._streaks = FailureStreaks()

    async def sync(self) -> None:
        """Ask the triggers that loaded workflows name, and no others."""
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
        """Ask nothing more."""
        polled, self._loops = self._loops, {}
        for _, task in polled.values():
            await cancel_and_wait(task)

    def _named_triggers(self) -> dict[tuple[str, str], Trigger]:
        found: dict[tuple[str, str], Trigger] = {}
        for version, workflow in self._versions.current_workflows():
            for one in workflow.triggers:
                trigger = self._find_trigger(version.tenant, one) if isinstance(one, str) else one
                if isinstance(trigger, Trigger):
                    found[version.tenant, trigger.name] = trigger
        return found

    async def _poll(self, tenant: str, trigger: Trigger) -> None:
        question = GuardedCall(f"trigger '{trigger.name}'", trigger.function.call, self._clock, self._tasks)
        while True:
            await self._poll_once(tenant, trigger, question)
            await self._clock.sleep(trigger.every)

    async def _poll_once(self, tenant: str, trigger: Trigger, call: GuardedCall) -> None:
        self.calls_in_flight += 1
        try:
            if all(self._is_paused(tenant, one.name) for one in self._subscribers(tenant, trigger)):
                return
            self._metrics.increment("trigger_polls_total", call.pending_seconds is None)
            fire = await self._call(trigger, call)
            if failures := self._streaks.reset((tenant, trigger.name)):
                logger.warning(events.TRIGGER_RECOVERED, extra={"trigger": trigger.name, "failures": failures})
            if fire is not None:
                await self._start_runs(tenant, trigger, fire)
        except AUTHOR_ERRORS as error:  # author code: a trigger that fails is asked again
            if is_cancelled_here(error):
                raise
            self._metrics.increment("trigger_errors_total")
            self._log_failure(tenant, trigger, error)
        finally:
            self.calls_in_flight -= 1

    def _log_failure(self, tenant: str, trigger: Trigger, error: BaseException) -> None:
        """Log a failure: the first in a row with the author's own lines, and now and then how many there were."""
        failures = self._streaks.record_failure((tenant, trigger.name), type(error).__name__)
        if failures is not None:
            lines = error.__traceback__
            while lines is not None and lines.tb_frame.f_code.co_filename != trigger.location.file:
                lines = lines.tb_next
            facts = {"trigger": trigger.name, "error": describe(error), "failures": failures}
            shown = (type(error), error.with_traceback(lines), lines) if failures == 1 else None
            logger.warning(events.TRIGGER_FAILED, exc_info=shown, extra=facts)

    async def _call(self, trigger: Trigger, call: GuardedCall) -> Fire | None:
        answer = await call.call(trigger.timeout)
        if answer is not None and not isinstance(answer, Fire):
            raise OperationError(f"trigger '{trigger.name}' returned {answer!r}, neither tm.Fire(...) nor None")
        return answer

    async def _start_runs(self, tenant: str, trigger: Trigger, fire: Fire) -> None:
        digest = None if trigger.allow_concurrent else params_digest(fire.params)
        for workflow in self._subscribers(tenant, trigger):
            if self._is_paused(tenant, workflow.name):
                continue
            wish = StartRequest(
                tenant=tenant,
                workflow=workflow,
                params=fire.params,
                origin="trigger",
                key=f"trigger:{trigger.name}",
                digest=digest,
            )
            key = tenant, trigger.name, workflow.name
            try:
                await self._starter.start(wish)
                self._streaks.reset(key)
            except WorkflowPausedError:  # a moment ago
                continue
            except TidemillError as error:  # params that one workflow refuses do not keep the next from its run
                self._metrics.increment("trigger_errors_total")
                if (failures := self._streaks.record_failure(key, type(error).__name__)) is not None:
                    facts = {"trigger": trigger.name, "workflow": workflow.name, "error": str(error)}
                    logger.warning(events.TRIGGER_FAILED, extra=facts | {"failures": failures})

    def _subscribers(self, tenant: str, trigger: Trigger) -> list[Workflow]:
        return [
            workflow
            for version, workflow in self._versions.current_workflows()
            if version.tenant == tenant
            and any(one == trigger.name if isinstance(one, str) else one is trigger for one in workflow.triggers)
        ]
