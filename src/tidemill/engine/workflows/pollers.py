"""Triggers: asked by the leader, each by its own clock, so that one that is slow or fails holds up nobody.

Only the leader asks, so that any number of nodes ask once per interval. What a trigger answers becomes a run of every
workflow that names it, unless a run with the same params is still active.
"""

import asyncio
import logging
from collections.abc import Callable

from tidemill.engine.service import stop
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.library import Library
from tidemill.engine.workflows.questions import Question
from tidemill.engine.workflows.starting import Starter, Wish, digest_of
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe, is_cut_off
from tidemill.kernel.errors import OperationError, TidemillError
from tidemill.telemetry import events
from tidemill.telemetry.streaks import Streaks
from tidemill.workflows.definition import Fire, Trigger
from tidemill.workflows.naming import PausedError
from tidemill.workflows.workflow import Workflow

logger = logging.getLogger(__name__)

FindTrigger = Callable[[str, str], Trigger | None]


class Pollers:
    """One loop per trigger that somebody names."""

    def __init__(
        self,
        environment: Environment,
        library: Library,
        find: FindTrigger,
        starter: Starter,
        is_paused: Callable[[str, str], bool],
    ) -> None:
        self._library = library
        self._find = find
        self._starter = starter
        self._tasks = environment.tasks
        self._clock = environment.clock
        self._figures = environment.figures
        self._is_paused = is_paused
        self.asking = 0
        """How many triggers are being asked."""
        self._polled: dict[tuple[str, str], tuple[Trigger, asyncio.Task[None]]] = {}
        self._streaks = Streaks()

    async def sync(self) -> None:
        """Ask the triggers that loaded workflows name, and no others."""
        wanted = self._wanted()
        for key, (trigger, task) in list(self._polled.items()):
            if wanted.get(key) is not trigger:
                del self._polled[key]
                self._streaks.end(key)
                await stop(task)
        for key in wanted.keys() - self._polled.keys():
            task = self._tasks.start(f"trigger: {key[1]}", self._poll(key[0], wanted[key]))
            self._polled[key] = wanted[key], task

    async def close(self) -> None:
        """Ask nothing more."""
        polled, self._polled = self._polled, {}
        for _, task in polled.values():
            await stop(task)

    def _wanted(self) -> dict[tuple[str, str], Trigger]:
        found: dict[tuple[str, str], Trigger] = {}
        for version, workflow in self._library.currents():
            for one in workflow.triggers:
                trigger = self._find(version.tenant, one) if isinstance(one, str) else one
                if isinstance(trigger, Trigger):
                    found[version.tenant, trigger.name] = trigger
        return found

    async def _poll(self, tenant: str, trigger: Trigger) -> None:
        question = Question(f"trigger '{trigger.name}'", trigger.function.call, self._clock, self._tasks)
        while True:
            await self._ask_safely(tenant, trigger, question)
            await self._clock.sleep(trigger.every)

    async def _ask_safely(self, tenant: str, trigger: Trigger, question: Question) -> None:
        self.asking += 1
        try:
            if all(self._is_paused(tenant, one.name) for one in self._subscribers(tenant, trigger)):
                return
            self._figures.count("trigger_polls_total", question.waits is None)
            fire = await self._ask(trigger, question)
            if failures := self._streaks.end((tenant, trigger.name)):
                logger.warning(events.TRIGGER_RECOVERED, extra={"trigger": trigger.name, "failures": failures})
            if fire is not None:
                await self._fire(tenant, trigger, fire)
        except AUTHOR_ERRORS as error:  # author code: a trigger that fails is asked again
            if is_cut_off(error):
                raise
            self._figures.count("trigger_errors_total")
            self._tell(tenant, trigger, error)
        finally:
            self.asking -= 1

    def _tell(self, tenant: str, trigger: Trigger, error: BaseException) -> None:
        """Log a failure: the first in a row with the author's own lines, and now and then how many there were."""
        failures = self._streaks.fail((tenant, trigger.name), type(error).__name__)
        if failures is not None:
            lines = error.__traceback__
            while lines is not None and lines.tb_frame.f_code.co_filename != trigger.location.file:
                lines = lines.tb_next
            facts = {"trigger": trigger.name, "error": describe(error), "failures": failures}
            shown = (type(error), error.with_traceback(lines), lines) if failures == 1 else None
            logger.warning(events.TRIGGER_FAILED, exc_info=shown, extra=facts)

    async def _ask(self, trigger: Trigger, question: Question) -> Fire | None:
        answer = await question.ask(trigger.timeout)
        if answer is not None and not isinstance(answer, Fire):
            raise OperationError(f"trigger '{trigger.name}' returned {answer!r}, neither tm.Fire(...) nor None")
        return answer

    async def _fire(self, tenant: str, trigger: Trigger, fire: Fire) -> None:
        digest = None if trigger.allow_concurrent else digest_of(fire.params)
        for workflow in self._subscribers(tenant, trigger):
            if self._is_paused(tenant, workflow.name):
                continue
            wish = Wish(
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
                self._streaks.end(key)
            except PausedError:  # a moment ago
                continue
            except TidemillError as error:  # params that one workflow refuses do not keep the next from its run
                self._figures.count("trigger_errors_total")
                if (failures := self._streaks.fail(key, type(error).__name__)) is not None:
                    facts = {"trigger": trigger.name, "workflow": workflow.name, "error": str(error)}
                    logger.warning(events.TRIGGER_FAILED, extra=facts | {"failures": failures})

    def _subscribers(self, tenant: str, trigger: Trigger) -> list[Workflow]:
        return [
            workflow
            for version, workflow in self._library.currents()
            if version.tenant == tenant
            and any(one == trigger.name if isinstance(one, str) else one is trigger for one in workflow.triggers)
        ]
