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
from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec.structs import replace

from tidemill.engine.workflows.allotment import Allotment
from tidemill.engine.workflows.board import ActiveRun, Ask, Step
from tidemill.engine.workflows.crew import Crew
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.handover import Handover
from tidemill.engine.workflows.library import Library
from tidemill.engine.workflows.polls import Polls
from tidemill.engine.workflows.timers import Timers
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events
from tidemill.workflows.change import Applied, Change, Fence, Refused
from tidemill.workflows.draft import Draft, Place
from tidemill.workflows.endings import Deferred, Ending, Succeeded
from tidemill.workflows.plan import WHOLE
from tidemill.workflows.records import AttemptKey, FireRow, RunRecord, RunRow, TaskRow
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import RunState

logger = logging.getLogger(__name__)

_AGAIN = Backoff(0.05, 1.0)
_ASIDE = Backoff(1.0, 60.0)

PAGE = 100  # runs that are read at a time
PAGES = 5  # that are read before others have their turn

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
        timed: Callable[[], None],
    ) -> None:
        self.term = term
        self.board: dict[str, ActiveRun] = {}
        self.allotment = Allotment(environment, self.board, library, crew, self.nudge)
        self.timers = Timers(timed)
        self.polls = Polls(environment.clock, environment.tasks, self._polled)
        self._handover = Handover(environment, crew)
        self.broken: set[str] = set()
        """Runs with which everything fails, on purpose: for tests."""
        self.working = 0
        self.backing_off = 0
        """How many of those that work wait for a while, because the store failed."""
        self.is_closed = False
        self._environment = environment
        self._store = environment.store
        self._clock = environment.clock
        self._tasks = environment.tasks
        self._figures = environment.figures
        self._library = library
        self._crew = crew
        self._deposed = deposed
        self._changed = changed

    # -- what may be asked

    async def create(self, run: RunRow, spec: WorkflowSpec, fire: FireRow | None = None) -> bool:
        """Make a run, and begin it if it may; False if its slot or payload has one already.

        Who stops waiting does not stop it: what was claimed with it is ours to run, once that is written.
        """
        await self.allotment.learn_limit(run)
        return await self._tasks.see_through(f"run: {run.id}: create", self._create(run, spec, fire))

    async def _create(self, run: RunRow, spec: WorkflowSpec, fire: FireRow | None) -> bool:
        active = ActiveRun(RunRecord(run, []), spec)
        active.is_working = True
        self.board[run.id] = active
        self.allotment.admissions.note(None, run)
        self.working += 1
        outcome: Applied | Refused | None = None
        try:
            outcome = await self._make(active, self._new_draft(run, spec, fire))
            if outcome == Refused("full"):
                outcome = await self._make(active, self._new_draft(run, spec, fire))
        finally:
            self.working -= 1
            active.is_working = False
            if isinstance(outcome, Applied):
                self._work_on(active)
                self._crew.stirred()
            else:
                self._forget(active)
        if isinstance(outcome, Refused) and outcome.why != "fired":
            raise DeposedError("this node is no longer in office")
        return isinstance(outcome, Applied)

    def _new_draft(self, run: RunRow, spec: WorkflowSpec, fire: FireRow | None) -> Draft:
        return Draft.of_new(run, spec, executor_of=self._environment.executor_of, actor=self._crew.owner.id, fire=fire)

    def report(self, key: AttemptKey, ending: Ending) -> bool:
        """Take a report of an attempt; False if its run is not on the desk."""
        active = self.board.get(key.run)
        if active is None or self.is_closed:
            return False
        terms = self._crew.terms(active.version, key.task)
        active.asks.append(Ask(lambda draft: draft.conclude(key, ending, terms), report=(key, ending)))
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
        if active is None or self.is_closed:
            return None
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        active.asks.append(Ask(step, answer, once=once))
        self._work_on(active)
        return answer

    def nudge(self, run: str) -> None:
        """Plan a run: something about it may have changed, if only the time."""
        self.ask(run, lambda draft: None)  # noqa: ARG005

    def look_again(self, run: str) -> None:
        """Read a run again: somebody else has changed it."""
        active = self.board.get(run)
        if active is not None:
            active.is_stale = True
            self.nudge(run)

    async def refresh(self) -> bool:
        """Make the board hold exactly the runs that are active, reading those that are new or have changed.

        Return whether it does: many new ones are read a few at a time, so that others have their turns in between.
        """
        known = set(self.board)  # what is made while the store answers is not in its answer, and yet there
        revisions = dict(await self._store.runs.active())
        for run in known - revisions.keys():
            if run in self.board and not self.board[run].is_working:
                self.look_again(run)  # it has ended elsewhere: what of it runs here is stopped
        fresh = [run for run in revisions if run not in self.board]
        for first in range(0, min(len(fresh), PAGES * PAGE), PAGE):
            for record in await self._store.runs.load(fresh[first : first + PAGE]):
                await self._put_on(record.run, {(row.task, row.index): row for row in record.tasks})
        for run, revision in revisions.items():
            active = self.board.get(run)
            if active is not None and active.run.revision < revision and not active.is_working:
                self.look_again(run)
        return len(fresh) <= PAGES * PAGE

    async def _put_on(self, run: RunRow, rows: dict[Place, TaskRow]) -> None:
        if run.id in self.board or run.state.is_terminal:
            return
        spec = await self._spec_or_nothing(run)
        await self.allotment.learn_limit(run)
        active = ActiveRun(RunRecord(run, list(rows.values())), spec)
        self.board[run.id] = active
        self.allotment.admissions.note(None, run)
        self.allotment.count_pools(active, {}, active.rows)
        if not spec.tasks:
            active.set_aside = "its version cannot be read"
        self.allotment.offer(active, active.waiting())
        self.timers.remember(run.id, active.rows.values())
        self.nudge(run.id)

    async def _spec_or_nothing(self, run: RunRow) -> WorkflowSpec:
        try:
            return await self._library.spec(run.version_key)
        except StoreError:
            raise
        except Exception as error:  # a spec that cannot be read is the problem of its runs alone
            logger.error(events.RUN_SET_ASIDE, extra={"run": run.id, "reason": str(error)})
            return WorkflowSpec(name=run.workflow, tasks=())

    def wake_due(self) -> None:
        """Plan the runs in which a retry or a deferral is over."""
        now = self._clock.now()
        for run in self.timers.due(now):
            if (active := self.board.get(run)) is not None:
                later = [row for row in active.rows.values() if row.wake_at is not None and row.wake_at > now]
                self.timers.remember(run, later)
                self.nudge(run)

    def close(self) -> None:
        """Leave everything as it is; reports that were not written yet are written without a plan."""
        self.is_closed = True
        self.polls.close()
        for active in self.board.values():
            self._drop(active)

    # -- one change after the other

    def _work_on(self, active: ActiveRun) -> None:
        if not active.is_working and (active.asks or active.grants) and not self.is_closed:
            active.is_working = True
            self._tasks.start(f"run: {active.run.id}", self._work(active))

    async def _work(self, active: ActiveRun) -> None:
        self.working += 1
        try:
            while (active.asks or active.grants) and not self.is_closed and active.run.id in self.board:
                await self._advance_safely(active)
            self._drop(active)
        finally:
            self.working -= 1
            active.is_working = False

    async def _advance_safely(self, active: ActiveRun) -> None:
        asks, active.asks = active.asks, []
        try:
            if active.is_stale and not await self._reread(active):
                _answer(asks, [None] * len(asks))
                self._hand_back(asks)
                return
            await self._advance(active, asks)
            active.failures, active.set_aside = 0, None
        except StoreError as error:
            _refuse([ask for ask in asks if ask.once], error)
            active.asks = [ask for ask in asks if not ask.once] + active.asks
            active.is_stale = True
            active.failures += 1
            logger.warning(events.REPORT_FAILED, extra={"run": active.run.id, "error": str(error)})
            await self._back_off(_AGAIN.delay(active.failures))
        except Exception as error:  # whatever is wrong with this run, the others go on
            self._set_aside(active, asks, error)

    async def _back_off(self, seconds: float) -> None:
        self.backing_off += 1
        try:
            await self._clock.sleep(seconds)
        finally:
            self.backing_off -= 1

    async def _reread(self, active: ActiveRun) -> bool:
        self.allotment.take_back(active)
        record = next(iter(await self._store.runs.load([active.run.id])), None)
        if record is None:
            self._leave(active)
            return False
        self.allotment.admissions.note(active.run, record.run)
        if record.run.state.is_terminal:
            active.run = record.run
            self._leave(active)
            return False
        before = active.rows
        active.adopt(record)
        self._stop_unwanted(active, active.rows)
        self.allotment.count_pools(active, before, active.rows)
        active.outputs.clear()
        if not active.spec.tasks:
            active.spec = await self._library.spec(active.version)
        self.allotment.offer(active, active.waiting())
        self.timers.remember(active.run.id, active.rows.values())
        return True

    def _leave(self, active: ActiveRun) -> None:
        """Take leave of a run that somebody else has ended, or deleted."""
        self._stop_unwanted(active, {})
        self._ended(active)
        self._changed(active.run.id)

    def _stop_unwanted(self, active: ActiveRun, rows: Mapping[Place, TaskRow]) -> None:
        """End attempts of ours that the store no longer knows as current."""
        gone = [
            key
            for key, held in self._crew.held.items()
            if key.run == active.run.id and not self._is_ours(rows.get((held.row.task, held.row.index)), key)
        ]
        if gone:
            self._tasks.start("stop attempts", self._crew.stop(gone, "no longer wanted"))

    def _is_ours(self, row: TaskRow | None, key: AttemptKey) -> bool:
        is_current = row is not None and row.attempt == key.attempt and row.state.is_claimed
        return is_current and row is not None and row.claimed_by == self._crew.owner.id

    async def _advance(self, active: ActiveRun, asks: list[Ask]) -> None:
        if active.run.id in self.broken:
            raise RuntimeError("broken on purpose")
        draft = Draft(active.run, active.rows, active.spec, now=self._clock.now(), actor=self._crew.owner.id)
        answers = [ask.step(draft) for ask in asks]
        reported = [ask.report for ask, answer in zip(asks, answers, strict=True) if ask.report is not None and answer]
        if not isinstance(await self._make(active, draft, asks, reported), Applied):
            active.asks = asks + active.asks
            return
        _answer(asks, answers)
        for ask, is_current in zip(asks, answers, strict=True):
            if ask.report is not None and not is_current:
                self._crew.too_late(*ask.report)

    async def _make(
        self, active: ActiveRun, draft: Draft, asks: Collection[Ask] = (), reported: Collection[Report] = ()
    ) -> Applied | Refused:
        """Plan a draft, claim what became ready and has a place, and write all of it; `reported` is what it holds."""
        before = active.run
        if self.allotment.admissions.may_begin(draft.run):
            draft.admit()
        if _may_follow(draft, asks):
            draft.plan(held=self.polls.places(before.id, draft.rows))
        self.allotment.admissions.note(before, draft.run)
        claimed = self.allotment.claim(active, draft)
        if draft.is_empty:
            active.is_crowded = False
            self._done_with(asks)
            return Applied(before.revision)
        try:
            outcome = await self._store.runs.apply(self._change(draft))
        except BaseException:
            self._take_back(active, draft, claimed)
            raise
        if isinstance(outcome, Applied):
            self._done_with(asks)
            await self._adopt(active, draft, claimed, outcome, reported)
        else:
            self._take_back(active, draft, claimed)
            self._refused(active, outcome)
        return outcome

    def _change(self, draft: Draft) -> Change:
        return draft.change(
            fence=self.term, lease=self._environment.settings.heartbeat_timeout, pools=self._environment.pools
        )

    # -- after the change

    async def _adopt(
        self, active: ActiveRun, draft: Draft, claimed: list[TaskRow], applied: Applied, reported: Collection[Report]
    ) -> None:
        is_alone, before = applied.revision <= active.run.revision + 1, active.rows
        active.put(replace(draft.run, revision=applied.revision), draft.rows)
        active.is_crowded = False
        if not is_alone:  # what somebody else did meanwhile is in the revision, but not in these rows
            self.look_again(active.run.id)
        self.timers.remember(active.run.id, draft.put_off)
        self._keep(active, reported)
        self.allotment.count_pools(active, before, active.rows)
        for row in claimed:
            self._crew.hold(active.run, row, active.spec)
        if active.run.state.is_terminal:
            self._ended(active)
        self._changed(active.run.id)
        for row in claimed:
            try:
                await self._handover.take_on(active, row)
            finally:
                self.allotment.unclaim(active, [row])  # not before: the place was promised until it was taken

    def _done_with(self, asks: Collection[Ask]) -> None:
        for ask in asks:
            if ask.report is not None:
                self._crew.let_go(ask.report[0])

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

    def _take_back(self, active: ActiveRun, draft: Draft, claimed: list[TaskRow]) -> None:
        self.allotment.admissions.note(draft.run, active.run)
        self.allotment.unclaim(active, claimed)

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
                pass

    def _set_aside(self, active: ActiveRun, asks: list[Ask], error: Exception) -> None:
        active.failures += 1
        active.set_aside = f"{type(error).__name__}: {error}"
        active.is_stale = True
        self.allotment.take_back(active)
        self._figures.count("run_errors_total")
        logger.error(events.RUN_SET_ASIDE, exc_info=error, extra={"run": active.run.id, "reason": active.set_aside})
        _refuse(asks, error)
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
        _refuse(asks, StoreError("its run is no longer planned here"))
        self._hand_back(asks)

    def _hand_back(self, asks: Collection[Ask]) -> None:
        """Have reports written without a plan."""
        for ask in asks:
            if ask.report is not None:
                self._crew.report(*ask.report)

    def _polled(self, key: AttemptKey) -> None:
        self.ask(key.run, lambda draft: draft.wake(key))


def _may_follow(draft: Draft, asks: Collection[Ask]) -> bool:
    """Return whether a plan could say anything: not if all that happened is that some of many elements ended."""
    ended = [ask.report[0] for ask in asks if ask.report is not None]
    if not ended or len(ended) < len(asks):
        return True
    return any(key.element == WHOLE or not draft.has_open_element(key.task) for key in ended)


def _refuse(asks: Collection[Ask], error: Exception) -> None:
    for ask in asks:
        if ask.answer is not None and not ask.answer.done():
            ask.answer.set_exception(error)
            ask.answer.exception()  # whoever asked may have gone


def _answer(asks: Collection[Ask], answers: Collection[Any]) -> None:
    for ask, answer in zip(asks, answers, strict=True):
        if ask.answer is not None and not ask.answer.done():
            ask.answer.set_result(answer)
