"""The leader's desk: every active run, one change at a time for each of them.

Whatever concerns a run is asked of the desk: a report, a retry whose time has come, a place that became free. While a
change of a run is being written, what else is asked about it gathers, and makes the next change. So a run never races
with itself, and a task's end, the plan that follows and the claim of what became ready are one transaction. Changes of
different runs are written at the same time, and the store folds them into one commit.

What can go wrong with a change, and what the desk does:

* it is stale, because another process has changed the run: the run is read again, and what was asked is asked again;
* a pool is full: the task run waits until something leaves the pool;
* it is fenced: this term is over, and the desk with it;
* the store does not answer: the same again, after a while;
* anything raises: that run is set aside with the reason, what was reported is written without a plan, and all other
  runs go on. It is looked at again later, in case the reason was passing.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from msgspec.structs import replace

from tidemill.engine.workflows.allotment import Allotment
from tidemill.engine.workflows.board import (
    ActiveRun,
    Ask,
    Birth,
    Outcome,
    Step,
    Writing,
    answer,
    came_of,
    do_nothing,
    refuse,
)
from tidemill.engine.workflows.crew import Crew
from tidemill.engine.workflows.environment import STORE_RETRY, Environment
from tidemill.engine.workflows.handover import Handover
from tidemill.engine.workflows.library import Library
from tidemill.engine.workflows.polls import Polls
from tidemill.engine.workflows.reading import Reading
from tidemill.engine.workflows.timers import Timers
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events
from tidemill.workflows.change import Applied, Fence, Refused
from tidemill.workflows.draft import Draft
from tidemill.workflows.endings import Deferred, Ending, Succeeded
from tidemill.workflows.naming import PausedError
from tidemill.workflows.records import AttemptKey, FireRow, RunRecord, RunRow
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import RunState

logger = logging.getLogger(__name__)

_ASIDE = Backoff(1.0, 60.0)

GONE = "its run is no longer planned here"

Report = tuple[AttemptKey, Ending]


class DeposedError(StoreError):
    """Somebody else is in office."""


class Desk:
    """The work of one term in office."""

    def __init__(
        self,
        term: Fence,
        environment: Environment,
        library: Library,
        crew: Crew,
        *,
        deposed: Callable[[], None],
        changed: Callable[[str], None],
        ended: Callable[[str, Outcome | None], None],
        timed: Callable[[], None],
    ) -> None:
        self.term = term
        self.board: dict[str, ActiveRun] = {}
        self.allotment = Allotment(environment, self.board, library, crew, nudge=self.nudge, have_claimed=self._claim)
        self.timers = Timers(timed)
        self.polls = Polls(environment.clock, environment.tasks, self._polled)
        self._handover = Handover(environment, crew, self.allotment)
        parts = self.board, library, crew, self.allotment, self.timers
        self._reading = Reading(environment, *parts, nudge=self.nudge, look_again=self.look_again)
        self.broken: set[str] = set()
        """Runs with which everything fails, on purpose: for tests."""
        self.working = 0
        self.backing_off = 0
        """How many of those that work wait for a while, because the store failed."""
        self.is_closed = self._is_abandoned = False
        self._due: list[ActiveRun] = []
        self._environment = environment
        self._store = environment.store
        self._clock = environment.clock
        self._tasks = environment.tasks
        self._figures = environment.figures
        self._crew = crew
        self._deposed = deposed
        self._told, self._told_end = changed, ended

    # -- what may be asked

    async def create(self, run: RunRow, spec: WorkflowSpec, fire: FireRow | None = None) -> bool:
        """Make a run, and begin it if it may; False if its slot or payload has one already, PausedError in a pause.

        Who stops waiting does not stop it: what was claimed with it is ours to run, once that is written.
        """
        await self.allotment.learn_limit(run)
        if self.is_closed:
            raise DeposedError(GONE)
        active = self.board[run.id] = ActiveRun(RunRecord(run, []), spec, Birth(fire))
        self.allotment.admissions.note(None, run)
        return bool(await self._ask(active, Ask(lambda draft: True, once=True)))  # noqa: ARG005

    def report(self, key: AttemptKey, ending: Ending) -> bool:
        """Take a report of an attempt; False if its run is not on the desk."""
        active = self.board.get(key.run)
        if active is None or self.is_closed:
            return False
        budgets = self._crew.budgets(active.version, key.task)
        active.asks.append(Ask(lambda draft: draft.conclude(key, ending, budgets), report=(key, ending)))
        self._work_on(active)
        return True

    def begin(self, key: AttemptKey) -> "asyncio.Future[bool] | None":
        """Record that an attempt begins; None if its run is not on the desk."""
        return self.ask(key.run, lambda draft: draft.begin(key))

    def ask(self, run: str, step: Step, *, once: bool = False) -> "asyncio.Future[Any] | None":
        """Have a step done with a run; the answer comes when it is written. None if the run is not on the desk.

        While the store fails, the same is asked again and again, unless it is to be asked `once`.
        """
        active = self.board.get(run)
        return None if active is None or self.is_closed else self._ask(active, Ask(step, once=once))

    def _ask(self, active: ActiveRun, ask: Ask) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        active.asks.append(ask._replace(answer=answer))
        self._work_on(active)
        return answer

    def nudge(self, run: str) -> None:
        """Plan a run: something about it may have changed, if only the time."""
        self.ask(run, do_nothing)

    def _claim(self, active: ActiveRun) -> None:
        active.asks.append(Ask(do_nothing, is_claim=True))
        self._work_on(active)

    def look_again(self, run: str) -> None:
        """Read a run again: somebody else has changed it."""
        active = self.board.get(run)
        if active is not None:
            active.is_stale = True
            self.nudge(run)

    async def refresh(self) -> bool:
        """Make the board hold exactly the runs that are active; False if some are yet to be read."""
        return await self._reading.refresh()

    def wake_due(self) -> None:
        """Plan the runs in which a retry or a deferral is over."""
        now = self._clock.now()
        for run in self.timers.due(now):
            active = self.board.get(run)
            if active is not None and not active.retries_later:  # else it is looked at then, and not again and again
                later = [row for row in active.rows.values() if row.wake_at is not None and row.wake_at > now]
                self.timers.remember(run, later)
                self.nudge(run)

    def close(self) -> None:
        """Leave everything as it is; reports that were not written yet are written without a plan."""
        self.is_closed = True
        self.polls.close()
        for active in self.board.values():
            self._drop(active)

    def abandon(self) -> None:
        """Do nothing more, not even with what comes of the changes that are on their way."""
        self.is_closed = self._is_abandoned = True

    # -- one change after the other

    def _work_on(self, active: ActiveRun) -> None:
        """Work on a run, once everybody has asked who is about to in this turn of the loop."""
        if not active.is_working and (active.asks or active.grants) and not self.is_closed:
            active.is_working = True
            self.working += 1
            self._due.append(active)
            if len(self._due) == 1:
                asyncio.get_running_loop().call_soon(self.go_on)

    def go_on(self) -> None:
        """Work on whatever was asked for, at once: whoever calls knows that nobody else is about to ask."""
        due, self._due = self._due, []
        for active in due:
            self._go_on(active)

    def _go_on(self, active: ActiveRun) -> None:
        """Make the next change of a run; rest when nothing more is asked about it."""
        while not self._is_gone and (active.unread or self._has_work(active)):
            if active.unread or active.is_stale:
                self._tasks.start(f"run: {active.run.id}: read", self._read_up(active))
                return
            asks, active.asks = active.asks, []
            try:
                if self._advance(active, asks):
                    return
            except Exception as error:  # whatever is wrong with this run, the others go on
                self._failed(active, asks, error)
        self._drop(active)
        active.is_working = False
        self.working -= 1

    def _has_work(self, active: ActiveRun) -> bool:
        return bool(active.asks or active.grants) and not self.is_closed and active.run.id in self.board

    def _advance(self, active: ActiveRun, asks: list[Ask]) -> bool:
        """Have a change of a run written; False if there is none, so that there is nothing to wait for."""
        if active.run.id in self.broken:
            raise RuntimeError("broken on purpose")
        draft = active.draft(self._clock.now(), self._crew.owner.id, self._environment.executor_of)
        answers = [ask.step(draft) for ask in asks]
        self._plan(active, draft, asks)
        writing = Writing(active, draft, self.allotment.claim(active, draft), asks, answers)
        if draft.is_empty:
            active.settle()
            self._answer(writing)
            return False
        try:
            lease, pools = self._environment.settings.heartbeat_timeout, self._environment.pools
            answer = self._store.runs.apply(draft.change(fence=self.term, lease=lease, pools=pools))
        except Exception:
            self._take_back(writing)
            raise
        answer.then = partial(self._written, writing)
        return True

    def _plan(self, active: ActiveRun, draft: Draft, asks: Collection[Ask]) -> None:
        if self.allotment.admissions.may_begin(draft.run):
            draft.admit()
        if active.may_follow(draft, asks):
            draft.plan(held=self.polls.places(active.run.id, draft.rows), changed=active.changed_by(asks))
        self.allotment.admissions.note(active.run, draft.run)

    def _written(self, writing: Writing, told: "asyncio.Future[Applied | Refused]") -> None:
        """Go on after a change: it was written or refused, or the store failed."""
        active, outcome = writing.active, came_of(told)
        try:
            if isinstance(outcome, Applied) and not self._is_gone:
                self._adopt(writing, outcome)
            else:
                self._take_back(writing)
                if isinstance(outcome, Exception):
                    raise outcome
                active.asks = writing.asks + active.asks
                if isinstance(outcome, Refused):
                    self._refused(active, outcome)
        except Exception as error:  # whatever is wrong with this run, the others go on
            self._failed(active, writing.asks, error)
        self._go_on(active)

    @property
    def _is_gone(self) -> bool:
        """Whether nothing is begun here any more, and nothing said."""
        return self._is_abandoned or self._tasks.is_closed

    # -- before the next change

    async def _read_up(self, active: ActiveRun) -> None:
        """Read what is to be known first: what claimed task runs take, or the run itself, as others have left it."""
        try:
            await self._handover.read_and_take_on(active)
            if active.is_stale and self._has_work(active):
                await self._back_off(active)
                if await self._reading.read_again(active):
                    self.nudge(active.run.id)  # whatever others have done to it is to be planned
                else:
                    self._leave(active)
                    asks, active.asks = active.asks, []
                    answer(asks, [None] * len(asks))
                    self._hand_back(asks)
        except Exception as error:  # whatever is wrong with this run, the others go on
            asks, active.asks = active.asks, []
            self._failed(active, asks, error)
        finally:
            self._go_on(active)

    async def _back_off(self, active: ActiveRun) -> None:
        """Wait for a while if the store has failed."""
        if active.store_failed:
            active.store_failed = False
            self.backing_off += 1
            try:
                await self._clock.sleep(STORE_RETRY.delay(active.failures))
            finally:
                self.backing_off -= 1

    def _leave(self, active: ActiveRun) -> None:
        """Take leave of a run that somebody else has ended, or deleted."""
        self._crew.stop_unwanted(active.run.id, {})
        self._ended(active)
        self._told_end(active.run.id, None)

    # -- after the change

    def _adopt(self, writing: Writing, applied: Applied) -> None:
        active, draft, before = writing.active, writing.draft, writing.active.rows
        is_alone, is_new = applied.revision <= active.run.revision + 1, active.birth is not None
        if active.run.state is RunState.QUEUED and draft.run.state is not RunState.QUEUED:
            logger.info(events.RUN_STARTED, extra={"run": draft.run.id, "workflow": draft.run.workflow})
        active.put(replace(draft.run, revision=applied.revision), draft.rows)
        active.settle()
        if not is_alone:  # what somebody else did meanwhile is in the revision, but not in these rows
            self.look_again(active.run.id)
        if draft.put_off:
            self.timers.remember(active.run.id, draft.put_off)
        self._keep(active, writing.reported)
        self.allotment.count_pools(active, before, active.rows)
        for row in writing.claimed:
            self._crew.hold(active.run, row, active.spec)
        for key in writing.ended:
            self._crew.let_go(key)
        if is_new:
            self._crew.stirred()
        self._handover.take_on(active, writing.claimed)  # before the rest: a thread takes its time to wake
        self._tell(active)
        self._answer(writing)

    def _tell(self, active: ActiveRun) -> None:
        """Tell whoever waits for news of a run, and take leave of it if it has ended."""
        if active.run.state.is_terminal:
            self._ended(active)
            self._told_end(active.run.id, active.outcome())
        else:
            self._told(active.run.id)

    def _answer(self, writing: Writing) -> None:
        """Tell those who asked what came of it; whoever reported too late is told nothing, but let go."""
        answer(writing.asks, writing.answers)
        for ask, is_current in zip(writing.asks, writing.answers, strict=True):
            if ask.report is not None and not is_current:
                self._crew.let_go(ask.report[0])
                self._crew.too_late(*ask.report)

    def _keep(self, active: ActiveRun, reported: Collection[Report]) -> None:
        """Keep in mind what was reported and may be needed soon."""
        for key, ending in reported:
            self._figures.count("tasks_total", state=active.rows[key.task, key.element].state)
            if isinstance(ending, Succeeded):
                active.keep((key.task, key.element), ending.value)
            if isinstance(ending, Deferred) and ending.poll is not None:
                self.polls.add(key, ending.poll, ending.every)

    def _ended(self, active: ActiveRun) -> None:
        """Take leave of a run that has ended, here or elsewhere."""
        run = active.run
        self._forget(active)
        if run.state.is_terminal:
            self._figures.count("runs_total", state=run.state)
        logger.info(events.RUN_ENDED, extra={"run": run.id, "workflow": run.workflow, "state": str(run.state)})

    def _forget(self, active: ActiveRun) -> None:
        """Take a run off the board, and let the next of its workflow begin."""
        run = active.run
        if self.board.pop(run.id, None) is None:
            return
        self.allotment.take_back(active)
        self.allotment.count_pools(active, active.rows, {})
        self.allotment.admissions.note(run, None)
        self.polls.drop(run.id)
        self.timers.forget(run.id)
        if run.state is not RunState.QUEUED:
            self.allotment.admit_next(run.tenant, run.workflow)

    # -- when it was refused

    def _take_back(self, writing: Writing) -> None:
        self.allotment.admissions.note(writing.draft.run, writing.active.run)
        self.allotment.unclaim(writing.active, writing.claimed)

    def _refused(self, active: ActiveRun, refused: Refused) -> None:
        match refused.why:
            case "fenced":
                self._figures.count("fenced_writes_total")
                self._deposed()
                self.close()
            case "stale":
                active.is_stale = True
            case "full":
                active.is_crowded = True
            case "fired":
                answer(active.asks, [False] * len(active.asks))
                self._forget(active)
            case "paused":
                refuse(active.asks, PausedError(active.run.workflow))
                self._forget(active)

    def _failed(self, active: ActiveRun, asks: list[Ask], error: Exception) -> None:
        if self._is_gone:
            refuse(asks, error)
        elif not isinstance(error, StoreError):
            self._set_aside(active, asks, error)
        else:
            refuse([ask for ask in asks if ask.once], error)
            active.asks = [ask for ask in asks if not ask.once] + active.asks
            active.is_stale = active.store_failed = True
            active.failures += 1
            logger.warning(events.CHANGE_FAILED, extra={"run": active.run.id, "error": str(error)})
        if active.birth is not None:  # nobody but whoever wanted it knows of it
            self._forget(active)

    def _set_aside(self, active: ActiveRun, asks: list[Ask], error: Exception) -> None:
        active.failures += 1
        active.set_aside = f"{type(error).__name__}: {error}"
        active.is_stale = True
        self.allotment.take_back(active)
        self._figures.count("run_errors_total")
        logger.error(events.RUN_SET_ASIDE, exc_info=error, extra={"run": active.run.id, "reason": active.set_aside})
        refuse(asks, error)
        self._hand_back(asks)
        if not active.retries_later:
            active.retries_later = True
            self._tasks.start(f"run: {active.run.id} again", self._try_later(active))

    async def _try_later(self, active: ActiveRun) -> None:
        await self._clock.sleep(_ASIDE.delay(active.failures))
        active.retries_later = False
        if self.board.get(active.run.id) is active:
            self.nudge(active.run.id)

    def _drop(self, active: ActiveRun) -> None:
        """Do no more of what was asked about a run: it has left the desk, or the desk is closed."""
        asks, active.asks = active.asks, []
        refuse(asks, DeposedError(GONE))
        if not self._is_gone:
            self._hand_back(asks)

    def _hand_back(self, asks: Collection[Ask]) -> None:
        """Have reports written without a plan."""
        for ask in asks:
            if ask.report is not None:
                self._crew.report(*ask.report)

    def _polled(self, key: AttemptKey) -> None:
        self.ask(key.run, lambda draft: draft.wake(key))
