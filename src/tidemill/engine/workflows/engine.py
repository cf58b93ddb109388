"""The workflow engine of one node: what runs always, and an office that runs while this node plans."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from time import monotonic
from typing import Any

from tidemill.engine.tasks import TaskScope, wait_until
from tidemill.engine.wakeup import Wakeup
from tidemill.engine.workflows.client.backfills import BackfillPlan, BackfillRunner
from tidemill.engine.workflows.client.handle import RunHandle
from tidemill.engine.workflows.client.operations import RunOperations
from tidemill.engine.workflows.client.queries import RunQueries
from tidemill.engine.workflows.executors.code import WorkflowLookup
from tidemill.engine.workflows.executors.interface import AttemptListener, Executor
from tidemill.engine.workflows.leader.coordinator import RunCoordinator
from tidemill.engine.workflows.leader.election import LeaderElector
from tidemill.engine.workflows.leader.notifications import RunNotifier
from tidemill.engine.workflows.leader_services import LeaderServices
from tidemill.engine.workflows.metrics import WorkflowMetrics
from tidemill.engine.workflows.process_identity import ProcessLiveness, current_owner
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.scheduler import Scheduler
from tidemill.engine.workflows.starts.firing_subscriptions import FiringSubscriptions
from tidemill.engine.workflows.starts.starter import RunStarter, StartRequest
from tidemill.engine.workflows.starts.triggers import FindTrigger
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.engine.workflows.worker.claimer import Claimer
from tidemill.engine.workflows.worker.heartbeats import Heartbeats
from tidemill.engine.workflows.worker.task_logs import TaskLogWriter
from tidemill.engine.workflows.worker.version_collector import VersionCollector
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import DefinitionError, OperationError, Problem, RequestError, StoreError
from tidemill.kernel.limits import is_storable
from tidemill.kernel.settings import Settings
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import RunFilter, WorkflowStore
from tidemill.telemetry import events
from tidemill.workflows.attempt_results import HandedBack
from tidemill.workflows.change import LeaderFence
from tidemill.workflows.definition import OnFiring, Task
from tidemill.workflows.records import VersionKey
from tidemill.workflows.states import RunState
from tidemill.workflows.workflow import Workflow

logger = logging.getLogger(__name__)

MakeExecutors = Callable[[WorkflowLookup, AttemptListener], Mapping[str, Executor]]


class WorkflowEngine:
    """Everything about workflows on one node."""

    def __init__(
        self,
        store: WorkflowStore,
        make_executors: MakeExecutors,
        *,
        clock: Clock,
        settings: Settings,
        default_executor: str,
        pools: Mapping[str, int],
        liveness: ProcessLiveness,
        find_trigger: FindTrigger,
        is_single_node: bool,
        substitutes_executor: bool = False,
        make_heartbeat_store: Callable[[], Store] | None = None,
    ) -> None:
        self.metrics = WorkflowMetrics()
        self.executors: dict[str, Executor] = {}
        self._runtime = environment = WorkflowRuntime(
            store=store,
            owner=current_owner(clock.now()),
            clock=clock,
            settings=settings,
            metrics=self.metrics,
            tasks=TaskScope(),
            liveness=liveness,
            default_executor=default_executor,
            pools=pools,
            is_single_node=is_single_node,
            served_executors=self.executors if substitutes_executor else None,
            make_heartbeat_store=make_heartbeat_store,
        )
        self.owner = environment.owner
        self.versions = WorkflowVersions(store.versions, clock)
        self.attempts = LocalAttempts(environment, self.versions, self.executors)
        self.executors |= make_executors(self.versions.require_workflow, self.attempts)
        self._find_trigger = find_trigger
        self._build(environment)

    def _build(self, runtime: WorkflowRuntime) -> None:
        self._tasks = runtime.tasks
        self._leader_wakeup, self._claim_wakeup = Wakeup(runtime.clock), Wakeup(runtime.clock)
        self.election = LeaderElector(runtime)
        self.leader: LeaderServices | None = None
        self._ready = asyncio.Event()
        self._claimer = Claimer(
            runtime, self.versions, self.attempts, self._claim_wakeup, lambda: self.election.term is not None
        )
        self._collector = VersionCollector(runtime, self.versions, self.attempts)
        self._heartbeats = Heartbeats(runtime, self.attempts)
        self._notifier = RunNotifier()
        self._task_logs = TaskLogWriter(runtime, self._notifier.notify_changed)
        self.attempts.task_logs = self._task_logs
        self._starter = RunStarter(runtime, self.versions)
        self.subscriptions = FiringSubscriptions(runtime, self.versions, self._starter)
        operations = RunOperations(
            runtime.store,
            self.versions,
            runtime.clock,
            actor=self.owner.id,
            liveness=runtime.liveness,
            on_changed=self._on_run_changed,
        )
        self.queries = RunQueries(runtime, operations, self._notifier, lambda: self.coordinator)
        self.backfills = BackfillRunner(runtime, self._starter, operations)

    @property
    def coordinator(self) -> RunCoordinator | None:
        """Where runs are planned, if that is here."""
        return self.leader.coordinator if self.leader is not None else None

    @property
    def scheduler(self) -> Scheduler | None:
        """The loop that plans, if that is here."""
        return self.leader.scheduler if self.leader is not None else None

    # -- life

    async def open(self) -> None:
        """Introduce this node, begin to campaign, and return when it is known who is in office."""
        store = self._runtime.store
        await self._tasks.open()
        await store.owners.upsert(self.owner)
        for executor in self.executors.values():
            await executor.open()
        self.attempts.open(self._on_slot_freed)
        await store.listen(self._on_remote_change)
        self._tasks.start("heartbeats", self._heartbeats.run())
        await self.election.try_acquire_once()
        self._tasks.start("leadership", self.election.run(self._lead))
        if not self._runtime.is_single_node:
            self._tasks.start("claimer", self._claimer.run())
        if self.election.term is not None:
            await self._ready.wait()

    async def _lead(self, term: LeaderFence) -> None:
        desk = RunCoordinator(
            term,
            self._runtime,
            self.versions,
            self.attempts,
            on_leadership_lost=lambda: self.election.step_down(term),
            on_run_changed=self._notifier.notify_changed,
            on_run_ended=self._notifier.notify_ended,
            on_timer_set=self._leader_wakeup.notify,
        )
        self.leader = LeaderServices(
            self._runtime, desk, self.versions, self.attempts, self._starter, self._find_trigger, self._leader_wakeup
        )
        try:
            await self.leader.run(self._ready.set)
        finally:
            self.leader = None
            self._ready.set()  # whoever waits for that here would wait for the next term
            self._notifier.notify_all()  # from now on news come from elsewhere

    async def close(self, timeout: float) -> None:
        """Let what runs come to its end for a while, hand the rest back, and leave the office."""
        self._starter.coordinator = None
        self.attempts.is_closing = True
        self.attempts.dispatcher.drain()
        deadline = monotonic() + timeout  # real time: author code takes it
        last = timeout / 5  # for code to heed that it is stopped; of the same time, so that closing takes it once
        await wait_until(lambda: not self.attempts.running() and not self.is_writing, timeout - last)
        await asyncio.gather(*(executor.close(last) for executor in self.executors.values()))
        for key in (
            self.attempts.claimed.keys() - self.attempts.running()
        ):  # what cannot be stopped must not be begun elsewhere
            self.attempts.report_to_store(key, HandedBack("its node was closed"))
        await wait_until(lambda: not self.attempts.reports_in_flight and self._task_logs.is_idle, timeout)
        if self.leader is not None:
            self.leader.close()
        await asyncio.gather(self.election.resign(), self._deregister())  # one commit, or one wait for a dead store
        await self._tasks.close(max(last, deadline - monotonic()))
        await self._heartbeats.close(timeout)
        self.queries.close()

    async def _deregister(self) -> None:
        store = self._runtime.store
        try:
            if not await store.runs.list_claimed_by([self.owner.id]):
                await store.owners.delete([self.owner.id])
        except StoreError as error:
            logger.warning(events.NODE_DEREGISTER_FAILED, extra={"error": str(error)})

    async def abandon(self, timeout: float) -> None:
        """End as a killed process would: nothing is reported, handed back or resigned."""
        self.attempts.claimed.clear()
        if self.leader is not None:
            self.leader.coordinator.abandon()
        await self._tasks.close(timeout)
        await self._heartbeats.close(timeout)
        for executor in self.executors.values():
            await executor.close(timeout)
        self.queries.close()

    # -- news

    def _on_slot_freed(self) -> None:
        """Take note that a place may be free."""
        if self.coordinator is not None:
            self.coordinator.slots.assign()
        elif not self._runtime.is_single_node:
            self._claim_wakeup.notify()

    def _on_remote_change(self) -> None:
        """Take note that another process changed something."""
        if self.scheduler is not None:
            self.scheduler.on_remote_change()
        self._claim_wakeup.notify()
        self._notifier.notify_all()

    def _on_run_changed(self, run: str) -> None:
        """Take note that somebody here changed a run behind the desk's back."""
        if self.coordinator is not None and run in self.coordinator.active_runs:
            self.coordinator.mark_stale(run)
        elif self.scheduler is not None:
            self.scheduler.on_remote_change()
        self._notifier.notify_changed(run)

    # -- loading

    def check(self, workflow: Workflow) -> None:
        """Raise a DefinitionError if a workflow names a pool or an executor that there is not."""
        problems = [
            Problem(message=f"task '{task.name}': {said}", location=task.function.location, node=task.name)
            for task in workflow.tasks
            for said in self._problems(task)
        ]
        if problems:
            raise DefinitionError(problems, f"workflow '{workflow.name}'")

    def _problems(self, task: Task) -> list[str]:
        pools, found = self._runtime.pools, []
        if task.pool is not None and task.pool not in pools:
            hint = did_you_mean(task.pool, pools) or f": pass pools={{'{task.pool}': 2}} to the node"
            found.append(f"there is no pool '{task.pool}'{hint}")
        is_served = self._runtime.served_executors is not None or task.executor in self.executors
        if task.executor is not None and not is_served:
            known = ", ".join(sorted(self.executors))
            hint = did_you_mean(task.executor, self.executors) or f"; there are {known}"
            found.append(f"there is no executor '{task.executor}'{hint}")
        return found

    async def activate(self, tenant: str, workflow: Workflow) -> None:
        """Run a workflow from now on, in place of one of its name; what runs goes on with its own version."""
        current = self.versions.current_version(tenant, workflow.name)
        previous = None if current is None else self.versions.find_workflow(current)
        version = await self.versions.set_current(tenant, workflow)
        has_active_runs = self.coordinator is not None and len(self.coordinator.active_runs) > 0
        if self.coordinator is not None and has_active_runs:
            self.coordinator.slots.enqueue_version(version)
        triggers = (*workflow.triggers, *(previous.triggers if previous is not None else ()))
        if any(isinstance(one, OnFiring) for one in triggers):
            self.subscriptions.subscribe(tenant, workflow)
        if has_active_runs or triggers or workflow.schedules or (previous is not None and previous.schedules):
            self._leader_wakeup.notify()
        if self.election.term is None:  # a leader assigns tasks itself
            self._claim_wakeup.notify()

    async def deactivate(self, tenant: str, name: str) -> None:
        """Start no more runs of a workflow; what runs goes on."""
        self.subscriptions.unsubscribe(tenant, name)
        self.versions.remove_current(tenant, name)
        self._leader_wakeup.notify()

    async def collect_versions(self, on_collected: Callable[[], None]) -> None:
        """Forget versions that no run needs any more; `forgotten` is called now, and whenever one is forgotten."""
        self.versions.on_collected = on_collected
        await self._collector.collect()
        on_collected()

    def loaded_workflows(self, tenant: str) -> list[Workflow]:
        """Return the workflows whose code is here, also in versions that only runs which have begun still need."""
        return self.versions.loaded_workflows(tenant)

    def in_use_check(self, tenant: str, workflow: Workflow) -> Callable[[], bool]:
        """Return how to ask later whether runs begin or go on with this very declaration, or tasks of now still run.

        Tasks that were given up count until they have ended: nobody knows of which version they are.
        """
        key = VersionKey(tenant, workflow.name, workflow.wired().spec.version)
        held = self.attempts.claimed
        begun = {attempt for attempt, one in held.items() if one.run.version_key == key}
        begun |= self.attempts.running() - held.keys()

        def is_needed() -> bool:
            return self.versions.find_workflow(key) is workflow or not begun.isdisjoint(
                held.keys() | self.attempts.running()
            )

        return is_needed

    def hold_schedules(self, tenant: str, workflows: Iterable[str]) -> None:
        """Look at no slot of these workflows: it is not certain which version of them stays."""
        self.versions.schedules_on_hold.update((tenant, name) for name in workflows)

    def release_schedules(self, tenant: str, workflows: Iterable[str]) -> None:
        """Look at the schedules of these workflows again, and which of them are armed by now."""
        self.versions.schedules_on_hold.difference_update((tenant, name) for name in workflows)
        self._leader_wakeup.notify()

    # -- commands

    async def start(self, tenant: str, name: str, params: Mapping[str, Any]) -> RunHandle:
        """Start a run of a loaded workflow."""
        run = await self._starter.start(
            StartRequest(tenant=tenant, workflow=self._require_workflow(tenant, name), params=params)
        )
        if run is None:
            raise OperationError(f"workflow '{name}' could not be started")
        return self.run_handle(run)

    def run_handle(self, run: str) -> RunHandle:
        """Return a run by its id."""
        return RunHandle(run, self.queries)

    def _require_workflow(self, tenant: str, name: str) -> Workflow:
        version = self.versions.current_version(tenant, name)
        found = None if version is None else self.versions.find_workflow(version)
        if found is None:
            known = [workflow.name for key, workflow in self.versions.current_workflows() if key.tenant == tenant]
            there_are = f"; loaded: {', '.join(map(repr, sorted(known)))}" if known else "; none is"
            message = f"workflow '{name}' is not loaded{did_you_mean(name, known) or there_are}"
            raise RequestError(message, code="unknown_workflow", status=404, workflow=name)
        return found

    async def find_runs(
        self, tenant: str, workflow: str | None, states: Collection[RunState], limit: int
    ) -> list[RunHandle]:
        """Return runs, oldest first."""
        if workflow is not None and not is_storable(workflow):
            return []
        wanted = RunFilter(tenant=tenant, workflow=workflow, states=states, limit=limit)
        return [self.run_handle(row.id) for row in await self._runtime.store.runs.find(wanted)]

    async def pause(self, tenant: str, workflow: str, *, paused: bool) -> None:
        """Pause a workflow, or let it go on."""
        self._require_workflow(tenant, workflow)
        schedules = self._runtime.store.schedules
        if paused:
            await schedules.pause(tenant, workflow)
        else:
            await schedules.resume(tenant, workflow, self._runtime.clock.now())
        if self.coordinator is not None:
            self.coordinator.slots.apply_pauses(await schedules.list_paused_workflows())
        self._leader_wakeup.notify()

    async def backfill(self, tenant: str, name: str, start: datetime, end: datetime, **options: Any) -> BackfillPlan:
        """Make the runs of slots of the past; see Backfilling."""
        return await self.backfills.backfill(tenant, self._require_workflow(tenant, name), start, end, **options)

    # -- looking

    @property
    def is_writing(self) -> bool:
        """Whether something is on its way to the store, or from it, or waits for the store to recover."""
        is_backing_off = self.coordinator is not None and self.coordinator.backing_off > 0
        return self.is_using_store or is_backing_off or self.attempts.backing_off > 0 or self._task_logs.is_backing_off

    @property
    def is_using_store(self) -> bool:
        """Whether something is on its way to the store, or from it, at this moment."""
        is_planning = self.election.is_campaigning or (self.scheduler is not None and not self.scheduler.is_waiting)
        is_working = self.coordinator is not None and self.coordinator.runs_in_progress > self.coordinator.backing_off
        is_starting = self.subscriptions.is_busy
        is_telling = self.attempts.reports_in_flight > self.attempts.backing_off or self._heartbeats.is_renewing
        is_logging = not self._task_logs.is_idle and not self._task_logs.is_backing_off
        return is_planning or is_working or is_starting or is_telling or is_logging or self._claimer.is_busy

    @property
    def is_quiescent(self) -> bool:
        """Whether nothing is left to do now but what tasks and executors do."""
        return not (self.is_using_store or (self.scheduler is not None and self.scheduler.is_polling))

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do now."""
        return self.is_quiescent and not self.attempts.running() and self.attempts.dispatcher.is_idle
