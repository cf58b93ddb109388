"""Read-only views of the workflow engine, for tests."""

from collections.abc import Mapping
from typing import Self

from tidemill.engine.workflows.client.workflow_client import WorkflowClient
from tidemill.engine.workflows.engine import WorkflowEngine
from tidemill.engine.workflows.executors.interface import COMMON_SLOTS, Executor
from tidemill.engine.workflows.leader.coordinator import RunCoordinator
from tidemill.engine.workflows.leader.election import LeaderElector
from tidemill.engine.workflows.leader.scheduler import Scheduler
from tidemill.engine.workflows.notifications import RunNotifier
from tidemill.engine.workflows.starts.firing_subscriptions import FiringSubscriptions
from tidemill.engine.workflows.starts.starter import RunStarter
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.engine.workflows.worker.heartbeats import Heartbeats
from tidemill.node import Node
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import NodeRow
from tidemill.workflows.records import AttemptKey, VersionKey
from tidemill.workflows.run_draft import TaskRef


class WorkflowProbe:
    """Shows the parts of a node's workflow engine that the public API does not."""

    def __init__(self, engine: WorkflowEngine, store: Store) -> None:
        self.engine = engine
        self.store = store
        """The store that holds the node's runs."""

    @classmethod
    def of(cls, node: Node) -> Self:
        """Return the probe of any node, even of one that is not a TestNode."""
        return cls(node._workflows, node._run_store)

    # -- leading

    @property
    def is_leader(self) -> bool:
        """Whether the node leads."""
        return self.engine.leader.coordinator is not None

    @property
    def coordinator(self) -> RunCoordinator:
        """The coordinator of the current term; AssertionError while the node does not lead."""
        assert self.engine.leader.coordinator is not None, "the node does not lead"
        return self.engine.leader.coordinator

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler of the current term; AssertionError while the node does not lead."""
        assert self.engine.leader.scheduler is not None, "the node does not lead"
        return self.engine.leader.scheduler

    @property
    def pools(self) -> Mapping[str, int]:
        """The sizes of pools that the node knows."""
        return self.engine.runtime.pools.sizes

    @property
    def election(self) -> LeaderElector:
        """The node's part in the leader election."""
        return self.engine.election

    def step_down(self) -> None:
        """End the current term, as if another node had taken over."""
        self.engine.election.step_down(self.coordinator.term)

    @property
    def active_runs(self) -> set[str]:
        """The runs that the coordinator holds."""
        return set(self.coordinator.active_runs)

    def waiting_task_count(self) -> int:
        """Return how many tasks wait for a slot."""
        return len(self.coordinator.slots.executor_slots.waiting)

    def timer_count(self) -> int:
        """Return how many timers the coordinator holds, including outdated ones."""
        return len(self.coordinator.timers)

    def grant_slot(self, run: str, ref: TaskRef, executor: str) -> None:
        """Grant an executor slot to a task of a run, whatever its state."""
        active = self.coordinator.active_runs[run]
        active.grants[ref] = None
        self.coordinator.slots.executor_slots.reserve_for(run, ref, (executor, COMMON_SLOTS), active.run.tenant)
        self.coordinator.enqueue(active)

    @property
    def starter(self) -> RunStarter:
        """The component that creates runs."""
        return self.engine.starter

    @property
    def subscriptions(self) -> FiringSubscriptions:
        """The component that starts runs of firings."""
        return self.engine.subscriptions

    # -- working

    @property
    def owner(self) -> NodeRow:
        """The identity under which the node claims."""
        return self.engine.owner

    @property
    def attempts(self) -> LocalAttempts:
        """The attempts that the node has claimed, and their executors."""
        return self.engine.attempts

    @property
    def claimed(self) -> set[AttemptKey]:
        """The attempts that the node has claimed."""
        return set(self.engine.attempts.claimed)

    @property
    def executors(self) -> Mapping[str, Executor]:
        """The executors of the node by name."""
        return self.engine.executors

    @property
    def heartbeats(self) -> Heartbeats:
        """The component that renews the leases of attempts."""
        return self.engine.heartbeats

    @property
    def versions(self) -> WorkflowVersions:
        """The loaded workflow versions."""
        return self.engine.versions

    @property
    def loaded_versions(self) -> set[VersionKey]:
        """The versions whose code is loaded."""
        return set(self.engine.versions.loaded)

    # -- clients

    @property
    def client(self) -> WorkflowClient:
        """The client of the node."""
        return self.engine.client

    @property
    def notifier(self) -> RunNotifier:
        """The component that wakes callers that wait for a run."""
        return self.engine.leader.notifier

    def awaited_runs(self) -> set[str]:
        """Return the runs for which a caller waits."""
        return {*self.notifier.change_signals, *self.notifier.end_signals}

    def logging_attempts(self) -> set[AttemptKey]:
        """Return the attempts that the log writer tracks."""
        return self.attempts.task_logs.tracked

    def cached_runners(self) -> int:
        """Return for how many versions the client caches a decoder of outputs."""
        return len(self.client.runs.runners)

    def notify_remote_change(self) -> None:
        """Behave as if the store had reported a change by another process."""
        self.engine.on_remote_change()
