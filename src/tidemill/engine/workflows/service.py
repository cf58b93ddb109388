"""The workflow engine of one node: what runs always, and an office that runs while this node plans."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from time import monotonic
from typing import Any

from tidemill.engine.service import Tasks, wait_until
from tidemill.engine.wakeups import Alarm
from tidemill.engine.workflows.access import RunAccess
from tidemill.engine.workflows.backfilling import Backfilling, BackfillPlan
from tidemill.engine.workflows.claimer import Claimer
from tidemill.engine.workflows.commands import RunHandle
from tidemill.engine.workflows.crew import Crew
from tidemill.engine.workflows.desk import Desk
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.executors.interface import Executor, Reports
from tidemill.engine.workflows.executors.source import Lookup
from tidemill.engine.workflows.figures import Figures
from tidemill.engine.workflows.heartbeats import Heartbeats
from tidemill.engine.workflows.leadership import Leadership
from tidemill.engine.workflows.library import Library
from tidemill.engine.workflows.logbook import Logbook
from tidemill.engine.workflows.notices import Notices
from tidemill.engine.workflows.office import Office
from tidemill.engine.workflows.operations import Operations
from tidemill.engine.workflows.owners import Liveness, this_process
from tidemill.engine.workflows.pollers import FindTrigger
from tidemill.engine.workflows.scheduler import Scheduler
from tidemill.engine.workflows.starting import Starter, Wish
from tidemill.engine.workflows.subscriptions import Subscriptions
from tidemill.engine.workflows.tidying import Tidying
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import DefinitionError, OperationError, Problem, RequestError, StoreError
from tidemill.kernel.settings import Settings
from tidemill.kernel.storable import is_storable
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.ports import Store
from tidemill.storage.run_ports import RunFilter, WorkflowStore
from tidemill.telemetry import events
from tidemill.workflows.change import Fence
from tidemill.workflows.definition import Task
from tidemill.workflows.endings import Returned
from tidemill.workflows.records import VersionKey
from tidemill.workflows.states import RunState
from tidemill.workflows.workflow import Workflow

logger = logging.getLogger(__name__)

MakeExecutors = Callable[[Lookup, Reports], Mapping[str, Executor]]


class WorkflowService:
    """Everything about workflows on one node."""

    def __init__(
        self,
        store: WorkflowStore,
        make_executors: MakeExecutors,
        *,
        clock: Clock,
        settings: Settings,
        executor: str,
        pools: Mapping[str, int],
        liveness: Liveness,
        find_trigger: FindTrigger,
        is_alone: bool,
        stands_in: bool = False,
        make_spare: Callable[[], Store] | None = None,
    ) -> None:
        self.figures = Figures()
        self.executors: dict[str, Executor] = {}
        self._environment = environment = Environment(
            store=store,
            owner=this_process(clock.now()),
            clock=clock,
            settings=settings,
            figures=self.figures,
            tasks=Tasks(),
            liveness=liveness,
            executor=executor,
            pools=pools,
            is_alone=is_alone,
            served=self.executors if stands_in else None,
            make_spare=make_spare,
        )
        self.owner = environment.owner
        self.library = Library(store.versions, clock)
        self.crew = Crew(environment, self.library, self.executors)
        self.executors |= make_executors(self.library.code, self.crew)
        self._find_trigger = find_trigger
        self._put_together(environment)

    def _put_together(self, environment: Environment) -> None:
        self._tasks = environment.tasks
        self._alarm, self._claim_alarm = Alarm(environment.clock), Alarm(environment.clock)
        self.leadership = Leadership(environment)
        self.office: Office | None = None
        self._settled_in = asyncio.Event()
        self._claimer = Claimer(
            environment, self.library, self.crew, self._claim_alarm, lambda: self.leadership.term is not None
        )
        self._tidying = Tidying(environment, self.library, self.crew)
        self._heartbeats = Heartbeats(environment, self.crew)
        self._notices = Notices()
        self._logbook = Logbook(environment, self._notices.tell)
        self.crew.log = self._logbook
        self._starter = Starter(environment, self.library)
        self.subscriptions = Subscriptions(environment, self.library, self._starter)
        operations = Operations(
            environment.store,
            self.library,
            environment.clock,
            actor=self.owner.id,
            liveness=environment.liveness,
            touched=self._touched,
        )
        self.access = RunAccess(environment, operations, self._notices, lambda: self.desk)
        self.backfilling = Backfilling(environment, self._starter, operations)

    @property
    def desk(self) -> Desk | None:
        """Where runs are planned, if that is here."""
        return self.office.desk if self.office is not None else None

    @property
    def scheduler(self) -> Scheduler | None:
        """The loop that plans, if that is here."""
        return self.office.scheduler if self.office is not None else None

    # -- life

    async def open(self) -> None:
        """Introduce this node, begin to campaign, and return when it is known who is in office."""
        store = self._environment.store
        await self._tasks.open()
        await store.owners.put(self.owner)
        for executor in self.executors.values():
            await executor.open()
        self.crew.open(self._moved)
        await store.listen(self._heard)
        self._tasks.start("heartbeats", self._heartbeats.run())
        await self.leadership.try_once()
        self._tasks.start("leadership", self.leadership.run(self._serve))
        if not self._environment.is_alone:
            self._tasks.start("claimer", self._claimer.run())
        if self.leadership.term is not None:
            await self._settled_in.wait()

    async def _serve(self, term: Fence) -> None:
        desk = Desk(
            term,
            self._environment,
            self.library,
            self.crew,
            deposed=lambda: self.leadership.step_down(term),
            changed=self._notices.tell,
            ended=self._notices.tell_end,
            timed=self._alarm.ring,
        )
        self.office = Office(
            self._environment, desk, self.library, self.crew, self._starter, self._find_trigger, self._alarm
        )
        try:
            await self.office.run(self._settled_in.set)
        finally:
            self.office = None
            self._settled_in.set()  # whoever waits for that here would wait for the next term
            self._notices.tell_all()  # from now on news come from elsewhere

    async def close(self, patience: float) -> None:
        """Let what runs come to its end for a while, hand the rest back, and leave the office."""
        self._starter.desk = None
        self.crew.is_closing = True
        self.crew.dispatcher.drain()
        deadline = monotonic() + patience  # real time: author code takes it
        last = patience / 5  # for code to heed that it is stopped; of the same time, so that closing takes it once
        await wait_until(lambda: not self.crew.living() and not self.is_writing, patience - last)
        await asyncio.gather(*(executor.close(last) for executor in self.executors.values()))
        for key in self.crew.held.keys() - self.crew.living():  # what cannot be stopped must not be begun elsewhere
            self.crew.report(key, Returned("its node was closed"))
        await wait_until(lambda: not self.crew.reporting and self._logbook.is_idle, patience)
        if self.office is not None:
            self.office.close()
        await asyncio.gather(self.leadership.resign(), self._say_goodbye())  # one commit, or one wait for a dead store
        await self._tasks.close(max(last, deadline - monotonic()))
        await self._heartbeats.close(patience)
        self.access.close()

    async def _say_goodbye(self) -> None:
        store = self._environment.store
        try:
            if not await store.runs.claimed([self.owner.id]):
                await store.owners.forget([self.owner.id])
        except StoreError as error:
            logger.warning(events.GOODBYE_FAILED, extra={"error": str(error)})

    async def abandon(self, patience: float) -> None:
        """End as a killed process would: nothing is reported, handed back or resigned."""
        self.crew.held.clear()
        if self.office is not None:
            self.office.desk.abandon()
        await self._tasks.close(patience)
        await self._heartbeats.close(patience)
        for executor in self.executors.values():
            await executor.close(patience)
        self.access.close()

    # -- news

    def _moved(self) -> None:
        """Take note that a place may be free."""
        if self.desk is not None:
            self.desk.allotment.give()
        elif not self._environment.is_alone:
            self._claim_alarm.ring()

    def _heard(self) -> None:
        """Take note that another process changed something."""
        if self.scheduler is not None:
            self.scheduler.hear()
        self._claim_alarm.ring()
        self._notices.tell_all()

    def _touched(self, run: str) -> None:
        """Take note that somebody here changed a run behind the desk's back."""
        if self.desk is not None and run in self.desk.board:
            self.desk.look_again(run)
        elif self.scheduler is not None:
            self.scheduler.hear()
        self._notices.tell(run)

    # -- loading

    def check(self, workflow: Workflow) -> None:
        """Raise a DefinitionError if a workflow names a pool or an executor that there is not."""
        problems = [
            Problem(message=f"task '{task.name}': {said}", location=task.function.location, node=task.name)
            for task in workflow.tasks
            for said in self._complaints(task)
        ]
        if problems:
            raise DefinitionError(problems, f"workflow '{workflow.name}'")

    def _complaints(self, task: Task) -> list[str]:
        pools, found = self._environment.pools, []
        if task.pool is not None and task.pool not in pools:
            hint = did_you_mean(task.pool, pools) or f": pass pools={{'{task.pool}': 2}} to the node"
            found.append(f"there is no pool '{task.pool}'{hint}")
        is_served = self._environment.served is not None or task.executor in self.executors
        if task.executor is not None and not is_served:
            known = ", ".join(sorted(self.executors))
            hint = did_you_mean(task.executor, self.executors) or f"; there are {known}"
            found.append(f"there is no executor '{task.executor}'{hint}")
        return found

    async def put_in_place(self, tenant: str, workflow: Workflow) -> None:
        """Run a workflow from now on, in place of one of its name; what runs goes on with its own version."""
        version = await self.library.put(tenant, workflow)
        if self.desk is not None:
            self.desk.allotment.offer_version(version)
        self.subscriptions.put(tenant, workflow)
        self._alarm.ring()
        self._claim_alarm.ring()

    async def withdraw(self, tenant: str, name: str) -> None:
        """Start no more runs of a workflow; what runs goes on."""
        self.subscriptions.drop(tenant, name)
        self.library.drop(tenant, name)
        self._alarm.ring()

    async def tidy(self, forgotten: Callable[[], None]) -> None:
        """Forget versions that no run needs any more; `forgotten` is called now, and whenever one is forgotten."""
        self.library.forgotten = forgotten
        await self._tidying.tidy()
        forgotten()

    def known(self, tenant: str) -> list[Workflow]:
        """Return the workflows whose code is here, also in versions that only runs which have begun still need."""
        return self.library.workflows(tenant)

    def need_for(self, tenant: str, workflow: Workflow) -> Callable[[], bool]:
        """Return how to ask later whether runs begin or go on with this very declaration, or tasks of now still run.

        Tasks that were given up count until they have ended: nobody knows of which version they are.
        """
        key = VersionKey(tenant, workflow.name, workflow.wired().spec.version)
        held = self.crew.held
        begun = {attempt for attempt, one in held.items() if one.run.version_key == key}
        begun |= self.crew.living() - held.keys()

        def is_needed() -> bool:
            return self.library.workflow(key) is workflow or not begun.isdisjoint(held.keys() | self.crew.living())

        return is_needed

    def hold_schedules(self, tenant: str, workflows: Iterable[str]) -> None:
        """Look at no slot of these workflows: it is not certain which version of them stays."""
        self.library.held.update((tenant, name) for name in workflows)

    def free_schedules(self, tenant: str, workflows: Iterable[str]) -> None:
        """Look at the schedules of these workflows again, and which of them are armed by now."""
        self.library.held.difference_update((tenant, name) for name in workflows)
        self._alarm.ring()

    # -- commands

    async def start(self, tenant: str, name: str, params: Mapping[str, Any]) -> RunHandle:
        """Start a run of a loaded workflow."""
        run = await self._starter.start(Wish(tenant=tenant, workflow=self._current(tenant, name), params=params))
        if run is None:
            raise OperationError(f"workflow '{name}' could not be started")
        return self.handle(run)

    def handle(self, run: str) -> RunHandle:
        """Return a run by its id."""
        return RunHandle(run, self.access)

    def _current(self, tenant: str, name: str) -> Workflow:
        version = self.library.current(tenant, name)
        found = None if version is None else self.library.workflow(version)
        if found is None:
            known = [workflow.name for key, workflow in self.library.currents() if key.tenant == tenant]
            there_are = f"; loaded: {', '.join(map(repr, sorted(known)))}" if known else "; none is"
            message = f"workflow '{name}' is not loaded{did_you_mean(name, known) or there_are}"
            raise RequestError(message, code="unknown_workflow", status=404, workflow=name)
        return found

    async def find(
        self, tenant: str, workflow: str | None, states: Collection[RunState], limit: int
    ) -> list[RunHandle]:
        """Return runs, oldest first."""
        if workflow is not None and not is_storable(workflow):
            return []
        wanted = RunFilter(tenant=tenant, workflow=workflow, states=states, limit=limit)
        return [self.handle(row.id) for row in await self._environment.store.runs.find(wanted)]

    async def pause(self, tenant: str, workflow: str, *, paused: bool) -> None:
        """Pause a workflow, or let it go on."""
        self._current(tenant, workflow)
        schedules = self._environment.store.schedules
        if paused:
            await schedules.pause(tenant, workflow)
        else:
            await schedules.resume(tenant, workflow, self._environment.clock.now())
        if self.desk is not None:
            self.desk.allotment.heed_pauses(await schedules.paused())
        self._alarm.ring()

    async def backfill(self, tenant: str, name: str, start: datetime, end: datetime, **options: Any) -> BackfillPlan:
        """Make the runs of slots of the past; see Backfilling."""
        return await self.backfilling.backfill(tenant, self._current(tenant, name), start, end, **options)

    # -- looking

    @property
    def is_writing(self) -> bool:
        """Whether something is on its way to the store, or from it, or waits for the store to recover."""
        is_backing_off = self.desk is not None and self.desk.backing_off > 0
        return self.is_in_touch or is_backing_off or self.crew.backing_off > 0 or self._logbook.is_backing_off

    @property
    def is_in_touch(self) -> bool:
        """Whether something is on its way to the store, or from it, at this moment."""
        is_planning = self.leadership.is_asking or (self.scheduler is not None and not self.scheduler.is_asleep)
        is_working = self.desk is not None and self.desk.working > self.desk.backing_off
        is_starting = self.subscriptions.is_busy
        is_telling = self.crew.reporting > self.crew.backing_off or self._heartbeats.is_beating
        is_logging = not self._logbook.is_idle and not self._logbook.is_backing_off
        return is_planning or is_working or is_starting or is_telling or is_logging or self._claimer.is_busy

    @property
    def is_resting(self) -> bool:
        """Whether nothing is left to do now but what tasks and executors do."""
        return not (self.is_in_touch or (self.scheduler is not None and self.scheduler.is_asking))

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do now."""
        return self.is_resting and not self.crew.living() and self.crew.dispatcher.is_idle
