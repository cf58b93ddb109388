"""Firing subscriptions: runs that firings of reactors start, on the node that runs the reactor.

Each subscription, a workflow and a reactor, has a queue of its own, in the order of the firings, so that a blocked
queue blocks no other. A firing whose condition cannot be evaluated, or whose values the workflow refuses, is retried a
few times, then dropped, and the queue continues. While the store fails, the queue waits. The store guarantees that a
firing starts at most one run of a workflow: the fire's key is the firing's id.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidemill.engine.tasks import TaskScope, wait_until
from tidemill.engine.wakeup import Wakeup
from tidemill.engine.workflows.runtime import STORE_RETRY, WorkflowRuntime
from tidemill.engine.workflows.starts.starter import RunOrigin, RunStarter, StartRequest
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.graphs.result import Firing, to_jsonable
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe, is_cancelled_here
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import StoreError, TidemillError
from tidemill.telemetry import events
from tidemill.workflows.definition import OnFiring
from tidemill.workflows.firing_trigger import Condition, build_firing_params
from tidemill.workflows.lookup import WorkflowPausedError
from tidemill.workflows.workflow import Workflow

logger = logging.getLogger(__name__)

START_ATTEMPT_LIMIT = 5
BACKLOG_LIMIT = 64  # firings behind one that fails; with more, it is dropped without a retry

Done = Callable[[str | None], None]


class _Key(NamedTuple):
    tenant: str
    reactor: str
    workflow: str


class _DeliveryQueue:
    """One subscription, and its pending firings, oldest first."""

    def __init__(self, key: _Key, condition: Condition | None, clock: Clock) -> None:
        self.key = key
        self.condition = condition
        self.waiting: deque[tuple[Firing, Done]] = deque()
        self.retry_wakeup = Wakeup(clock)
        self.failures = 0  # of the first pending firing
        self.consecutive_dropped = 0
        self.is_closed = False

    @property
    def is_backlogged(self) -> bool:
        return len(self.waiting) > BACKLOG_LIMIT

    @property
    def labels(self) -> dict[str, str]:
        return {"workflow": self.key.workflow, "reactor": self.key.reactor}


class FiringSubscriptions:
    """Starts the runs that subscribe to firings on this node."""

    def __init__(self, runtime: WorkflowRuntime, versions: WorkflowVersions, starter: RunStarter) -> None:
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        settings = runtime.settings
        shortest = STORE_RETRY.initial_delay  # whatever the settings say: else a failed store is called in a tight loop
        self._backoff = Backoff(max(settings.backoff_base, shortest), max(settings.backoff_max, shortest))
        self._versions = versions
        self._starter = starter
        self._tasks = runtime.tasks
        self._on_subscribers_changed: Callable[[str, str], None] = lambda tenant, reactor: None  # noqa: ARG005
        self._queues: dict[_Key, _DeliveryQueue] = {}
        self._active: set[_DeliveryQueue] = set()

    def connect(self, tasks: TaskScope, on_subscribers_changed: Callable[[str, str], None]) -> None:
        """Run in these tasks, which must outlive the reactors; call back when the subscribers of a reactor change."""
        self._tasks = tasks
        self._on_subscribers_changed = on_subscribers_changed

    # -- subscriptions

    def subscribe(self, tenant: str, workflow: Workflow) -> None:
        """Subscribe a workflow to the reactors that it names, and no others; pending firings are kept."""
        wanted = {_Key(tenant, trigger.reactor, workflow.name): trigger.when for trigger in _firing_triggers(workflow)}
        self._close_queues(key for key in self._keys_of(tenant, workflow.name) if key not in wanted)
        for key, when in wanted.items():
            condition = None if when is None else Condition(when)
            if key in self._queues:
                self._queues[key].condition = condition
            else:
                self._queues[key] = _DeliveryQueue(key, condition, self._clock)
                self._on_subscribers_changed(tenant, key.reactor)

    def unsubscribe(self, tenant: str, workflow: str) -> None:
        """Remove all subscriptions of a workflow."""
        self._close_queues(iter(self._keys_of(tenant, workflow)))

    def _keys_of(self, tenant: str, workflow: str) -> list[_Key]:
        return [key for key in self._queues if (key.tenant, key.workflow) == (tenant, workflow)]

    def _close_queues(self, keys: Iterator[_Key]) -> None:
        for key in keys:
            queue = self._queues.pop(key)
            queue.is_closed = True
            queue.retry_wakeup.notify()
            self._on_subscribers_changed(key.tenant, key.reactor)

    def workflows_for(self, tenant: str, reactor: str) -> frozenset[str]:
        """Return the workflows that subscribe to a reactor's firings."""
        return frozenset(key.workflow for key in self._queues if (key.tenant, key.reactor) == (tenant, reactor))

    # -- deliveries

    def deliver(self, tenant: str, workflow: str, firing: Firing, done: Done) -> None:
        """Queue a firing for a workflow, which starts a run if its condition holds; then call `done`."""
        queue = self._queues[_Key(tenant, firing.reactor, workflow)]
        queue.waiting.append((firing, done))
        if queue not in self._active:
            self._active.add(queue)
            self._tasks.start(f"firings of {firing.reactor} to {workflow}", self._drain_queue(queue))
        elif queue.failures and queue.is_backlogged:
            queue.retry_wakeup.notify()

    async def _drain_queue(self, queue: _DeliveryQueue) -> None:
        try:
            while queue.waiting and not queue.is_closed:
                firing, done = queue.waiting[0]
                reason = await self._deliver_one(queue, firing)
                queue.waiting.popleft()
                queue.failures = 0
                done(reason)
        finally:
            self._active.discard(queue)

    async def _deliver_one(self, queue: _DeliveryQueue, firing: Firing) -> str | None:
        """Start the run of a firing, with retries; return why it was dropped, if that must be recorded."""
        attempts = 0
        while not queue.is_closed:
            try:
                await self._start_run(queue, firing)
                queue.consecutive_dropped = 0
                return None
            except StoreError as error:  # no fault of the firing: it is retried without a limit
                self._log_failure(queue, firing, error)
            except AUTHOR_ERRORS as error:  # author code: the class of the params may raise anything
                if is_cancelled_here(error):
                    raise
                queue.failures += 1
                self._log_failure(queue, firing, error)
                if queue.failures >= START_ATTEMPT_LIMIT or queue.is_backlogged:
                    return self._drop_firing(queue, firing, error)
            attempts += 1
            await queue.retry_wakeup.wait(self._backoff.delay(attempts))
        return None

    async def _start_run(self, queue: _DeliveryQueue, firing: Firing) -> None:
        tenant, reactor, name = queue.key
        version = self._versions.current.get((tenant, name))
        workflow = None if version is None else self._versions.find_workflow(version)
        payload = {source: to_jsonable(value) for source, value in firing.inputs.items()}
        if workflow is None or not (queue.condition is None or queue.condition.holds(payload, reactor, tenant)):
            return
        request = StartRequest(
            tenant=tenant,
            workflow=workflow,
            params=build_firing_params(workflow.params, payload, firing.id),
            origin=RunOrigin.FIRING,
            key=f"firing:{reactor}:{firing.id}",
            once_per_key=True,
        )
        try:
            if await self._starter.start(request) is not None:
                self._metrics.increment("subscription_runs_total", 1, **queue.labels)
        except WorkflowPausedError:  # a firing during a pause starts no run, also not later
            return

    # -- failures

    def _log_failure(self, queue: _DeliveryQueue, firing: Firing, error: BaseException) -> None:
        self._metrics.increment("subscription_errors_total", 1, **queue.labels)
        details = {**queue.labels, "firing": firing.id, "error": _error_text(error)}
        logger.warning(events.SUBSCRIPTION_FAILED, extra=details)

    def _drop_firing(self, queue: _DeliveryQueue, firing: Firing, error: BaseException) -> str | None:
        """Count and log a dropped firing; return the reason for the first in a row: later ones have the same."""
        queue.consecutive_dropped += 1
        self._metrics.increment("subscription_dead_letters_total", 1, **queue.labels)
        details = {**queue.labels, "firing": firing.id, "error": _error_text(error)}
        logger.error(events.SUBSCRIPTION_DEAD_LETTERED, extra=details)
        return _error_text(error) if queue.consecutive_dropped == 1 else None

    # -- state

    @property
    def is_busy(self) -> bool:
        """Whether a run is being started; queues that wait for a retry do not count."""
        return any(not queue.retry_wakeup.is_waiting for queue in self._active)

    async def drain(self, timeout: float) -> None:
        """Wait in real time, up to `timeout` seconds, until every firing has started its runs."""
        await wait_until(lambda: not self.is_busy, timeout)


def _firing_triggers(workflow: Workflow) -> list[OnFiring]:
    return [trigger for trigger in workflow.triggers if isinstance(trigger, OnFiring)]


def _error_text(error: BaseException) -> str:
    return str(error) if isinstance(error, TidemillError) else describe(error)
