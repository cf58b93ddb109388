"""The attempts that this node has claimed: handed to executors, kept alive by heartbeats, reported on.

Where a report goes depends on who plans. If this node does, the report, the plan that follows from it and the claim of
what became ready are one change. If another node does, the report is a change of its own, and the leader hears of it.
Either way a report is refused if the attempt is no longer the one that the store knows, and it is never given up: while
the store does not answer, it is said again.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from tidemill.engine.workflows.dispatcher import Dispatcher
from tidemill.engine.workflows.environment import STORE_RETRY, Environment
from tidemill.engine.workflows.executors.interface import Executor, LogRecord, Order, Reports
from tidemill.engine.workflows.library import Library
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events
from tidemill.workflows.change import Applied
from tidemill.workflows.draft import Draft, Place
from tidemill.workflows.endings import Budgets, Deferred, Ending, Stopped
from tidemill.workflows.records import AttemptKey, RunRow, TaskRow, VersionKey, key_of
from tidemill.workflows.spec import WorkflowSpec

logger = logging.getLogger(__name__)


class Held(msgspec.Struct, kw_only=True):
    """An attempt that this node has claimed, and its task run as it was last written."""

    run: RunRow
    row: TaskRow
    spec: WorkflowSpec
    is_handed_over: bool = False
    """Whether it has been put into the hands of the dispatcher."""


class Superior(Protocol):
    """Whoever plans here."""

    def begin(self, key: AttemptKey) -> "asyncio.Future[bool] | None":
        """Record that an attempt begins; None if its run is not planned here."""

    def report(self, key: AttemptKey, ending: Ending) -> bool:
        """Take a report of an attempt; False if its run is not planned here."""

    def go_on(self) -> None:
        """Go on from what was reported, at once."""


class Log(Protocol):
    """Where what attempts say is kept."""

    def add(self, key: AttemptKey, records: Sequence[LogRecord]) -> None:
        """Take what an attempt said."""

    def when_written(self, key: AttemptKey, then: Callable[[], None]) -> None:
        """Call back when everything that an attempt has said is written: at once, if it is."""

    def forget(self, key: AttemptKey) -> None:
        """Take note that an attempt says nothing more."""


class Crew(Reports):
    """Everything that runs here."""

    def __init__(self, environment: Environment, library: Library, executors: Mapping[str, Executor]) -> None:
        self.owner = environment.owner
        self.executors = executors
        self.held: dict[AttemptKey, Held] = {}
        self.is_busy = asyncio.Event()
        """Set while something is held."""
        self.is_closing = False
        """Whether nothing more is begun here."""
        self.reporting = 0
        """How many reports are on their way to the store without a desk."""
        self.backing_off = 0
        """How many of these wait for a while, because the store failed."""
        self._desk: Superior | None = None
        self.moved: Callable[[], None] = lambda: None
        self.stirred: Callable[[], None] = lambda: None
        """Called when there is something to do after a while without anything: whoever plans here hears it."""
        self.log: Log | None = None
        """Where what attempts say is kept; None if nowhere."""
        self.dispatcher = Dispatcher(environment, executors, self.ended)
        self._store = environment.store
        self._library = library
        self._clock = environment.clock
        self._settings = environment.settings
        self._chance = environment.chance
        self._figures = environment.figures
        self._tasks = environment.tasks

    def open(self, moved: Callable[[], None]) -> None:
        """Begin to work; `moved` is called whenever a place becomes free."""
        self.moved = moved
        self.dispatcher.open(moved)

    def report_to(self, desk: Superior | None, stirred: Callable[[], None] = lambda: None) -> None:
        """Report to whoever plans here, and call `stirred` when a quiet time ends; None if nobody plans."""
        self._desk, self.stirred = desk, stirred

    def living(self) -> set[AttemptKey]:
        """Return the attempts that executors still have."""
        return {key for executor in self.executors.values() for key in executor.living()}

    def in_hand(self) -> set[AttemptKey]:
        """Return the attempts of which a report is still to be expected: they run, or wait to be handed over."""
        living = self.living()
        return {
            key
            for key, held in self.held.items()
            if key in living or self.dispatcher.has(key) or not held.is_handed_over
        }

    def budgets(self, version: VersionKey, task: str) -> Budgets:
        """Return how often a task is tried again; after failures not at all, if its code is not here."""
        workflow = self._library.workflow(version)
        wired = workflow.wired().tasks.get(task) if workflow is not None else None
        retry = wired.task.retry if wired is not None else None
        return Budgets(retry, self._settings.task_max_recoveries, self._chance)

    # -- taking on

    def hold(self, run: RunRow, row: TaskRow, spec: WorkflowSpec) -> None:
        """Remember an attempt that was claimed for this node."""
        self.held[key_of(run.id, row)] = Held(run=run, row=row, spec=spec)
        if not self.is_busy.is_set():
            self.is_busy.set()
            self.stirred()
        self._figures.count("claims_total")

    def let_go(self, key: AttemptKey) -> Held | None:
        """Forget an attempt: its end is written, or is nobody's business any more."""
        held = self.held.pop(key, None)
        if not self.held:
            self.is_busy.clear()
        if self.log is not None:
            self.log.forget(key)
        return held

    def take_on(self, order: Order) -> None:
        """Let an attempt be run."""
        self.dispatcher.put(order)
        if (held := self.held.get(order.key)) is not None:
            held.is_handed_over = True

    async def stop(self, keys: Sequence[AttemptKey], reason: str) -> None:
        """End attempts that are no longer wanted."""
        for key in keys:
            held = self.held.get(key)
            if held is not None and held.row.executor in self.executors:
                await self.executors[held.row.executor].cancel(key, reason)
        self.forget_vanished(keys)

    def stop_unwanted(self, run: str, rows: Mapping[Place, TaskRow]) -> None:
        """End attempts at a run that the store no longer knows as current: these are its task runs."""
        gone = [
            key
            for key, held in self.held.items()
            if key.run == run and not self._is_ours(rows.get((held.row.task, held.row.index)), key)
        ]
        if gone:
            self._tasks.start("stop attempts", self.stop(gone, "no longer wanted"))

    def _is_ours(self, row: TaskRow | None, key: AttemptKey) -> bool:
        is_current = row is not None and row.attempt == key.attempt and row.state.is_claimed
        return is_current and row is not None and row.claimed_by == self.owner.id

    def forget_vanished(self, keys: Collection[AttemptKey]) -> None:
        """Let go of attempts that are neither waiting nor running here any more: nobody will report on them."""
        for key in self.held.keys() & set(keys) - self.in_hand():
            self.let_go(key)

    # -- reports

    async def begins(self, key: AttemptKey) -> bool:
        held = self.held.get(key)
        if held is None:
            return False
        if not await self._begin(key, held):
            self.let_go(key)
            return False
        return True

    async def _begin(self, key: AttemptKey, held: Held) -> bool:
        answer = self._desk.begin(key) if self._desk is not None else None
        try:
            if answer is not None:
                return bool(await answer)
        except Exception as error:  # its run cannot be planned at present; that it begins can be written all the same
            logger.warning(events.REPORT_FAILED, extra={"run": key.run, "error": str(error)})
        self.reporting += 1
        try:
            return await self._write(held, lambda draft: draft.begin(key))
        finally:
            self.reporting -= 1

    def logged(self, key: AttemptKey, records: Sequence[LogRecord]) -> None:
        if self.log is not None and key in self.held:  # what code says that was given up is nobody's business
            self.log.add(key, records)

    def ended(self, key: AttemptKey, ending: Ending) -> None:
        if self.log is None or key not in self.held:
            self._ended(key, ending)
        else:  # whoever sees the end then finds everything that was said before
            self.log.when_written(key, lambda: self._ended(key, ending))

    def go_on(self) -> None:
        if self._desk is not None:
            self._desk.go_on()

    def _ended(self, key: AttemptKey, ending: Ending) -> None:
        held = self.held.get(key)
        if held is None:  # nobody waits for it any more
            self.moved()
            return
        if self._desk is not None and self._desk.report(key, ending):
            return  # the free place is given away with the change that the report makes: best to what follows from it
        self.report(key, ending)
        self.moved()

    def report(self, key: AttemptKey, ending: Ending) -> None:
        """Report how an attempt ended without planning what follows."""
        self.reporting += 1
        self._tasks.start(f"report: {key}", self._report(key, ending))

    async def _report(self, key: AttemptKey, ending: Ending) -> None:
        try:
            held = self.held.get(key)
            if held is None:
                return
            budgets = self.budgets(held.run.version_key, key.task)
            if isinstance(ending, Deferred):  # its poll cannot be asked from another node: so the task is
                ending = msgspec.structs.replace(ending, poll=None)
            if not await self._write(held, lambda draft: draft.conclude(key, ending, budgets)):
                self.too_late(key, ending)
            self.let_go(key)
        finally:
            self.reporting -= 1

    def too_late(self, key: AttemptKey, ending: Ending) -> None:
        """Take note of a report that was refused; that something ended which was to be stopped is no news."""
        if isinstance(ending, Stopped):
            return
        self._figures.count("late_reports_total")
        logger.warning(events.REPORT_TOO_LATE, extra={"attempt": str(key)})

    async def _write(self, held: Held, step: Callable[[Draft], bool]) -> bool:
        """Write a step of one attempt, however long the store takes; False if it is no longer the current one."""
        failures = 0
        while True:
            place = held.row.task, held.row.index
            draft = Draft(held.run, {place: held.row}, held.spec, now=self._clock.now(), actor=self.owner.id)
            if not step(draft):
                return False
            try:
                change = draft.change(lease=self._settings.heartbeat_timeout, is_guarded=False)
                if isinstance(await self._store.runs.apply(change), Applied):
                    held.row = draft.rows[place]
                    return True
                if not await self._is_still_ours(held):
                    return False
            except StoreError as error:
                logger.warning(events.REPORT_FAILED, extra={"run": held.run.id, "error": str(error)})
            failures += 1
            self.backing_off += 1
            try:
                await self._clock.sleep(STORE_RETRY.delay(failures))
            finally:
                self.backing_off -= 1

    async def _is_still_ours(self, held: Held) -> bool:
        """Read the task run of an attempt again; return whether the attempt is still the current one, and ours."""
        for record in await self._store.runs.load([held.run.id]):
            for row in record.tasks:
                is_same = (row.task, row.index, row.attempt) == (held.row.task, held.row.index, held.row.attempt)
                if is_same and row.claimed_by == self.owner.id and row.state.is_claimed:
                    held.row = row
                    return True
        return False
