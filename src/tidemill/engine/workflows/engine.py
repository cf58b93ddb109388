"""The workflow engine of one node: the parts that always run, and those that run while the node leads."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import monotonic

import msgspec

from tidemill.engine.loop_watch import HeldLeases
from tidemill.engine.tasks import TaskScope, wait_until
from tidemill.engine.workflows.client.workflow_client import WorkflowClient
from tidemill.engine.workflows.executors.code import LoadedWorkflows
from tidemill.engine.workflows.executors.interface import AttemptListener, Executor
from tidemill.engine.workflows.executors.remote.registry import explain_missing
from tidemill.engine.workflows.leader.coordinator import RunCoordinator
from tidemill.engine.workflows.leader.election import LeaderElector
from tidemill.engine.workflows.leader.scheduler import Scheduler
from tidemill.engine.workflows.leader.state import LeaderState
from tidemill.engine.workflows.leader.ticks import TickTimer
from tidemill.engine.workflows.notifications import RunNotifier
from tidemill.engine.workflows.remote_reports import RemoteReports
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.starts.firing_subscriptions import FiringSubscriptions, MakeHandle
from tidemill.engine.workflows.starts.schedules import ScheduleRunner
from tidemill.engine.workflows.starts.starter import RunStarter
from tidemill.engine.workflows.starts.triggers import FindTrigger, TriggerPollers
from tidemill.engine.workflows.step_records import StepRecords
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.engine.workflows.worker.claimer import Claimer
from tidemill.engine.workflows.worker.heartbeats import Heartbeats, Presence
from tidemill.engine.workflows.worker.task_logs import TaskLogWriter
from tidemill.kernel.errors import DefinitionError, Problem
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.tables.versions import NO_ARCHIVE, CodeArchive
from tidemill.telemetry.metrics import Sample
from tidemill.workflows.attempt_results import HandedBack
from tidemill.workflows.change import LeaderFence
from tidemill.workflows.definition import WORKER_EXECUTOR, Task
from tidemill.workflows.firing_trigger import select_firing_triggers
from tidemill.workflows.records import VersionKey
from tidemill.workflows.workflow import Workflow

logger = logging.getLogger(__name__)

MakeExecutors = Callable[[LoadedWorkflows, AttemptListener], Mapping[str, Executor]]


class NodeHooks(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine needs of its node."""

    make_executors: MakeExecutors
    """Makes the executors, by name, for the workflows that are loaded and for who listens to attempts."""
    find_trigger: FindTrigger
    make_handle: MakeHandle
    delivery_tasks: TaskScope
    """Where firings are delivered: these tasks outlive the reactors."""


class WorkflowEngine:
    """Runs workflows on one node."""

    def __init__(self, runtime: WorkflowRuntime, hooks: NodeHooks) -> None:
        self.runtime, self.owner, self._tasks = runtime, runtime.owner, runtime.tasks
        self.metrics, self.notifier, self.executors = runtime.metrics, RunNotifier(), runtime.executors
        decides_newest = runtime.owner.plans
        self.versions = WorkflowVersions(
            runtime.store.versions, runtime.clock, runtime.owner.id, decides_newest=decides_newest
        )
        self._task_logs = TaskLogWriter(runtime, self.notifier)
        self.attempts = LocalAttempts(runtime, self.versions, self.executors, self._task_logs)
        self.executors |= hooks.make_executors(self.versions.loaded, self.attempts)
        self._find_trigger = hooks.find_trigger
        self.ticks = TickTimer(runtime)
        self.election = LeaderElector(runtime)
        self.leader = LeaderState(self.notifier)
        self.starter = RunStarter(runtime, self.versions, self.leader)
        self.subscriptions = FiringSubscriptions(
            runtime, self.versions, self.starter, hooks.delivery_tasks, hooks.make_handle
        )
        self.client = WorkflowClient(
            runtime, self.versions, self.leader, self.starter, is_node=True, find_trigger=hooks.find_trigger
        )
        self.heartbeats = Heartbeats(runtime, self.attempts)
        self.remote_reports = RemoteReports(runtime, self.versions, self.leader, self.attempts)
        self.step_records = StepRecords(runtime)
        self._presence = Presence(runtime)
        self._claimer = Claimer(runtime, self.versions, self.attempts)
        self._ready = asyncio.Event()

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics; the counters of loaded workflows begin at 0."""
        self.metrics.work.expect(self.versions.current)
        yield from self.metrics.samples()

    # -- lifecycle

    async def open(self) -> None:
        """Register this node and start to campaign; return when this node leads, or another one does."""
        store = self.runtime.store
        await self._tasks.open()
        await self._presence.register()
        await self.runtime.pools.open()
        for executor in self.executors.values():
            await executor.open()
        self.attempts.dispatcher.open()
        await store.listen(self.on_remote_change)
        self._tasks.start("heartbeats", self.heartbeats.run())
        if self.owner.plans:
            await self.election.try_acquire_once()
            self._tasks.start("leadership", self.election.run(self._lead))
        if not self.runtime.is_single_node:
            self._start_shared_loops()
        if self.election.term is not None:
            await self._ready.wait()

    def share_store(self) -> None:
        """Expect other nodes on the store from now on: keep the lease short, tick regularly, and claim."""
        if self.runtime.sharing.is_shared:
            return
        self.runtime.sharing.begin()
        self.election.renew_soon()
        self.ticks.speed_up()
        self._start_shared_loops()

    def _start_shared_loops(self) -> None:
        self._tasks.start("claimer", self._claimer.run())
        self._tasks.start("presence", self._presence.run())

    def on_remote_change(self) -> None:
        """Refresh and claim: another process changed the store."""
        self.leader.on_remote_change()
        self._claimer.assign_slots()

    async def _lead(self, term: LeaderFence) -> None:
        """Lead for one term, until cancelled."""
        runtime, versions, attempts, leader = self.runtime, self.versions, self.attempts, self.leader
        coordinator = RunCoordinator(
            term,
            runtime,
            versions,
            attempts,
            elector=self.election,
            notifier=self.notifier,
            ticks=self.ticks,
        )
        admission = coordinator.slots.admission
        schedules = ScheduleRunner(runtime, versions, self.starter, admission)
        triggers = TriggerPollers(runtime, versions, self._find_trigger, self.starter, admission)
        scheduler = Scheduler(runtime, versions, coordinator, attempts, [schedules, triggers], self.ticks)
        leader.begin(coordinator, scheduler)
        attempts.observe(coordinator)
        self.metrics.set_gauge("scheduler_leader", 1)
        try:
            await scheduler.tick()
            self._ready.set()
            await scheduler.run()
        finally:
            self._stop_leading(coordinator)
            leader.end()
            await triggers.close()
            self._ready.set()  # `open` must not wait for the next term
            self.notifier.notify_all()  # from now on, changes are found in the store

    def _stop_leading(self, coordinator: RunCoordinator) -> None:
        """Stop all changes of the coordinator; attempts report to the store from now on."""
        coordinator.close()
        self.attempts.observe(None)
        for gauge in ("scheduler_leader", "runs_waiting_for_code"):
            self.metrics.set_gauge(gauge, 0)

    async def close(self, timeout: float) -> None:
        """Let running attempts end for a while, hand the rest back, and resign. Drained before, they had their time."""
        coordinator = self.leader.coordinator
        if coordinator is not None:
            coordinator.accepts_runs = False
        is_draining = self.attempts.is_closing
        self.stop_claiming()
        deadline = monotonic() + timeout  # real time: author code takes it
        grace = timeout / 5  # for code to react to its cancellation; part of the timeout, so that closing keeps to it
        if not is_draining:
            await wait_until(lambda: not self._is_working_here and not self.is_writing, timeout - grace)
        await asyncio.gather(*(executor.close(grace) for executor in self.executors.values()))
        left = max(grace / 10, deadline - monotonic())  # a closed executor hands back what it is given
        await wait_until(lambda: self.attempts.dispatcher.is_idle, left)
        for key in self.attempts.claimed.keys() - self.attempts.running():  # code that runs must not start elsewhere
            self.attempts.report_to_store(key, HandedBack("its node was closed"))
        await wait_until(lambda: not self.attempts.reports_in_flight and self._task_logs.is_idle, timeout)
        if self.leader.coordinator is not None:
            self._stop_leading(self.leader.coordinator)
        await asyncio.gather(self.election.resign(), self.deregister())  # one commit, or one wait for a dead store
        await self._tasks.close(max(grace, deadline - monotonic()))
        self.client.watcher.close()

    def held_leases(self) -> list[HeldLeases]:
        """Return what the watch of the loop renews while the loop is blocked."""
        return [self.heartbeats.held, self._presence.held, *([self.election.held] if self.owner.plans else [])]

    def stop_claiming(self) -> None:
        """Start no further attempt here, and hand back those that have not started."""
        self.attempts.stop_claiming()

    @property
    def is_drained(self) -> bool:
        """Whether every claimed attempt has ended, and its end is written."""
        return not self.attempts.claimed and not self.attempts.running() and not self.is_writing

    async def deregister(self) -> None:
        """Delete this node's owner row, unless attempts of it are still claimed."""
        await self._presence.deregister()

    # -- loading

    async def read_new_pools(self, workflows: Iterable[Workflow]) -> None:
        """Read the pools again if a workflow names one that is unknown: another process may have added it."""
        named = {task.pool for workflow in workflows for task in workflow.tasks} - {None}
        if named - self.runtime.pools.sizes.keys():
            await self.runtime.pools.refresh()

    def check(self, workflow: Workflow) -> None:
        """Raise a DefinitionError if a workflow names a pool or an executor that this node does not have.

        Workers and hosts need neither: they do not plan.
        """
        if not self.owner.plans:
            return
        problems = [
            Problem(message=f"task '{task.name}': {problem}", location=task.function.location, node=task.name)
            for task in workflow.tasks
            for problem in self._problems(task)
        ]
        if problems:
            raise DefinitionError(problems, f"workflow '{workflow.name}'")

    def _problems(self, task: Task) -> list[str]:
        pools, problems = self.runtime.pools.sizes, []
        if task.pool is not None and task.pool not in pools:
            self.runtime.pools.missing.add(task.pool)
            hint = did_you_mean(task.pool, pools) or f": {self._pool_remedy(task.pool)}"
            problems.append(f"there is no pool '{task.pool}'{hint}")
        known = {*self.executors, WORKER_EXECUTOR}
        is_served = self.runtime.substitutes_executor or task.executor in known
        if task.executor is not None and not is_served:
            hint = did_you_mean(task.executor, known) or f"; there are {', '.join(sorted(known))}"
            problems.append(explain_missing(task.executor) or f"there is no executor '{task.executor}'{hint}")
        return problems

    def _pool_remedy(self, pool: str) -> str:
        if self.runtime.settings.load_published:  # a server: its pools are those of the store
            return f"make it with `tidemill pool set {pool} 2`"
        return f"pass pools={{'{pool}': 2}} to a node, or --pool {pool}=2 to `tidemill dev`"

    async def activate(self, tenant: str, workflow: Workflow, archive: CodeArchive = NO_ARCHIVE) -> None:
        """Make a workflow the current one of its name; runs that have started keep their version."""
        current = self.versions.current.get((tenant, workflow.name))
        previous = None if current is None else self.versions.find_workflow(current)
        version = await self.versions.set_current(tenant, workflow, archive)
        coordinator = self.leader.coordinator
        has_active_runs = coordinator is not None and len(coordinator.active_runs) > 0
        if coordinator is not None and has_active_runs:
            coordinator.on_version_loaded(version)
            self.leader.on_remote_change()  # what becomes of its unfinished runs is decided with the next refresh
        triggers = (*workflow.triggers, *(previous.triggers if previous is not None else ()))
        if select_firing_triggers(triggers):
            self.subscriptions.subscribe(tenant, workflow)
        if has_active_runs or triggers or workflow.schedules or (previous is not None and previous.schedules):
            self.ticks.notify()
        if coordinator is None:  # a leader assigns tasks itself
            self._claimer.assign_slots()

    async def load_older(self, tenant: str, workflow: Workflow) -> None:
        """Keep an older version of a workflow for the runs that need it, and run their tasks."""
        version = await self.versions.add_older(tenant, workflow)
        if (coordinator := self.leader.coordinator) is not None:
            coordinator.on_version_loaded(version)
            self.leader.on_remote_change()
        else:
            self._claimer.assign_slots()

    async def deactivate(self, tenant: str, name: str) -> None:
        """Start no more runs of a workflow; those that have started continue."""
        self.subscriptions.unsubscribe(tenant, name)
        await self.versions.remove_current(tenant, name)
        self.ticks.notify()

    async def collect_versions(self) -> None:
        """Discard versions that no run needs."""
        in_use = {attempt.run.version_key for attempt in self.attempts.claimed.values()}
        await self.versions.collect(self.runtime.store.runs, in_use)

    def loaded_workflows(self, tenant: str) -> list[Workflow]:
        """Return the code of a tenant's workflows, in every version that is loaded here."""
        return [workflow for key, workflow in self.versions.loaded.items() if key.tenant == tenant]

    def in_use_check(self, tenant: str, workflow: Workflow) -> Callable[[], bool]:
        """Return a check whether this very definition is loaded, or attempts that run now have not ended.

        Abandoned attempts count until they have ended: their version is not known.
        """
        key = VersionKey(tenant, workflow.name, workflow.wired().spec.version)
        claimed = self.attempts.claimed
        held = {attempt_key for attempt_key, attempt in claimed.items() if attempt.run.version_key == key}
        held |= self.attempts.running() - claimed.keys()

        def is_in_use() -> bool:
            is_loaded = self.versions.find_workflow(key) is workflow
            return is_loaded or not held.isdisjoint(claimed.keys() | self.attempts.running())

        return is_in_use

    def hold_schedules(self, tenant: str, workflows: Iterable[str]) -> None:
        """Start no scheduled runs of these workflows: it is not certain which version of them stays."""
        self.versions.schedules_on_hold.update((tenant, name) for name in workflows)

    def release_schedules(self, tenant: str, workflows: Iterable[str]) -> None:
        """Resume the schedules of these workflows."""
        self.versions.schedules_on_hold.difference_update((tenant, name) for name in workflows)
        self.ticks.notify()

    # -- state

    @property
    def _is_working_here(self) -> bool:
        """Whether code runs that ends with this node, or an executor is about to accept an attempt."""
        return bool(self.attempts.running_here()) or not self.attempts.dispatcher.is_idle

    @property
    def is_writing(self) -> bool:
        """Whether a store call is in flight, or waits for a retry."""
        coordinator = self.leader.coordinator
        is_backing_off = coordinator is not None and coordinator.store_retry.waiting > 0
        is_backing_off = is_backing_off or self.attempts.store_retry.waiting > 0 or self._task_logs.is_backing_off
        return self.is_using_store or is_backing_off

    @property
    def is_using_store(self) -> bool:
        """Whether a store call is in flight."""
        coordinator, scheduler = self.leader.coordinator, self.leader.scheduler
        is_leading = self.election.is_using_store or (scheduler is not None and not scheduler.is_waiting)
        is_changing = coordinator is not None and (
            coordinator.runs_in_progress > coordinator.store_retry.waiting or coordinator.handler_runs.in_progress > 0
        )
        is_reporting = self.attempts.reports_in_flight > self.attempts.store_retry.waiting
        is_logging = not self._task_logs.is_idle and not self._task_logs.is_backing_off
        is_beating = self.heartbeats.is_renewing or self._presence.is_writing
        is_working = self.subscriptions.is_busy or is_beating or self._claimer.is_busy
        return is_leading or is_changing or is_reporting or is_logging or is_working

    @property
    def is_quiescent(self) -> bool:
        """Whether nothing is left to do now, apart from tasks that run."""
        scheduler = self.leader.scheduler
        return not (self.is_using_store or (scheduler is not None and scheduler.is_polling))

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do now."""
        return self.is_quiescent and not self.attempts.running() and self.attempts.dispatcher.is_idle
