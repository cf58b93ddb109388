"""Firing subscriptions: runs that firings of reactors start, on the node that runs the reactor.

Each subscription, of a workflow to a reactor or to a node of a graph, has its own queue, in the order of the
firings, so that a blocked queue blocks no other. A firing whose condition cannot be evaluated, or whose values the
workflow refuses, is retried a few times, then dropped, and the queue continues. While the store fails, the queue waits.

The store guarantees that a firing starts at most one run per subscription: the fire's key has the firing's id. It also
decides which values `cooldown=` and `dedup=` suppress.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from tidemill.engine.tasks import TaskScope, Wakeup, wait_until
from tidemill.engine.workflows.runtime import STORE_RETRY, WorkflowRuntime
from tidemill.engine.workflows.starts.starter import RunCause, RunOrigin, RunStarter, StartRequest
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.graphs.key_forms import format_key
from tidemill.graphs.outcomes import to_jsonable
from tidemill.graphs.result import Firing
from tidemill.graphs.subscription import FailedDelivery, GraphNodeOutput, Subscription
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe, is_cancelled_here
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError, RequestError, StoreError, TidemillError
from tidemill.telemetry import events
from tidemill.telemetry.tracing import Span, TraceContext
from tidemill.workflows.firing_trigger import Decide, FiringFacts, FiringTrigger, select_firing_triggers
from tidemill.workflows.lookup import StartSuppressedError, WorkflowPausedError
from tidemill.workflows.workflow import Workflow

logger = logging.getLogger(__name__)

START_ATTEMPT_LIMIT = 5
BACKLOG_LIMIT = 64  # firings behind one that fails; with more, it is dropped without a retry

Done = Callable[[FailedDelivery | None], None]
MakeHandle = Callable[..., Any]
"""`make_handle(run, tenant=...)` returns the handle of a run."""

ReactorKey = tuple[str, str]
"""The tenant and the name of a reactor."""
QueueKey = tuple[Subscription, ReactorKey]


class _Delivery(NamedTuple):
    firing: Firing
    output: GraphNodeOutput | None
    done: Done
    trace: TraceContext | None = None


class _DeliveryQueue:
    """One subscription to a reactor, and its pending firings, oldest first."""

    def __init__(self, subscription: Subscription, reactor: ReactorKey, decide: Decide, clock: Clock) -> None:
        self.subscription = subscription
        self.reactor = reactor
        self.decide = decide
        self.waiting: deque[_Delivery] = deque()
        self.retry_wakeup = Wakeup(clock)
        self.failures = 0  # of the first pending firing
        self.is_closed = False

    @property
    def is_backlogged(self) -> bool:
        return len(self.waiting) > BACKLOG_LIMIT

    @property
    def labels(self) -> dict[str, str]:
        tenant, reactor = self.reactor
        return {"workflow": self.subscription.workflow, "reactor": reactor, "tenant": tenant}


class FiringSubscriptions:
    """Starts the runs that subscribe to firings on this node."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        versions: WorkflowVersions,
        starter: RunStarter,
        tasks: TaskScope,
        make_handle: MakeHandle,
    ) -> None:
        """Deliver firings in these tasks, which must outlive the reactors."""
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._spans = runtime.spans
        settings = runtime.settings
        shortest = STORE_RETRY.initial_delay  # whatever the settings say: else a failed store is called in a tight loop
        self._backoff = Backoff(max(settings.backoff_base, shortest), max(settings.backoff_max, shortest))
        self._versions = versions
        self._starter = starter
        self._tasks = tasks
        self._make_handle = make_handle
        self._listeners: list[Callable[[str, str], None]] = []
        self._queues: dict[QueueKey, _DeliveryQueue] = {}
        self._active: set[_DeliveryQueue] = set()

    def listen(self, listener: Callable[[str, str], None]) -> None:
        """Call a listener with a tenant and a reactor when the subscribers of the reactor have changed."""
        self._listeners.append(listener)

    def _on_changed(self, reactor: ReactorKey) -> None:
        for listener in self._listeners:
            listener(*reactor)

    # -- subscriptions

    def subscribe(self, tenant: str, workflow: Workflow) -> None:
        """Subscribe a workflow as its triggers say, and not otherwise; pending firings are kept."""
        wanted = {_subscription_of(one, tenant, workflow): one for one in select_firing_triggers(workflow.triggers)}
        self._close_queues([key for key in self._keys_of(tenant, workflow.name) if key not in wanted])
        for key, trigger in wanted.items():
            decide = trigger.decision(workflow.params)
            if key in self._queues:
                self._queues[key].decide = decide
            else:
                self._queues[key] = _DeliveryQueue(*key, decide, self._clock)
                self._on_changed(key[1])

    def unsubscribe(self, tenant: str, workflow: str) -> None:
        """Remove all subscriptions of a workflow."""
        self._close_queues(self._keys_of(tenant, workflow))

    def _keys_of(self, tenant: str, workflow: str) -> list[QueueKey]:
        return [key for key in self._queues if key[0][:2] == (tenant, workflow)]

    def _close_queues(self, keys: Iterable[QueueKey]) -> None:
        for key in keys:
            queue = self._queues.pop(key)
            queue.is_closed = True
            queue.retry_wakeup.notify()
            self._on_changed(queue.reactor)

    def subscriptions_to(self, tenant: str, reactor: str) -> frozenset[Subscription]:
        """Return the subscriptions of workflows to a reactor, or to nodes of graphs that are bound to it."""
        return frozenset(subscription for subscription, of in self._queues if of == (tenant, reactor))

    # -- deliveries

    def deliver(
        self,
        tenant: str,
        subscription: Subscription,
        firing: Firing,
        output: GraphNodeOutput | None,
        done: Done,
        trace: TraceContext | None = None,
    ) -> None:
        """Queue a firing, or a value that a node returned in it; it starts a run if it should; then call `done`."""
        queue = self._queues[subscription, (tenant, firing.reactor)]
        queue.waiting.append(_Delivery(firing, output, done, trace))
        if queue not in self._active:
            self._active.add(queue)
            self._tasks.start(f"firings of {firing.reactor} to {subscription.workflow}", self._drain_queue(queue))
        elif queue.failures and queue.is_backlogged:
            queue.retry_wakeup.notify()

    async def _drain_queue(self, queue: _DeliveryQueue) -> None:
        try:
            while queue.waiting and not queue.is_closed:
                delivery = queue.waiting[0]
                failed = await self._deliver_one(queue, delivery)
                queue.waiting.popleft()
                queue.failures = 0
                delivery.done(failed)
        finally:
            self._active.discard(queue)

    async def _deliver_one(self, queue: _DeliveryQueue, delivery: _Delivery) -> FailedDelivery | None:
        """Start the run of a firing, with retries; return why it failed for good, if it did."""
        attempts, firing = 0, delivery.firing
        while not queue.is_closed:
            try:
                await self._try_start(queue, delivery)
                return None
            except StoreError as error:  # no fault of the firing: it is retried without a limit
                self._log_failure(queue, firing, error)
            except AUTHOR_ERRORS as error:  # author code: the class of the params may raise anything
                if is_cancelled_here(error):
                    raise
                queue.failures += 1
                self._log_failure(queue, firing, error)
                if queue.failures >= START_ATTEMPT_LIMIT or queue.is_backlogged:
                    return self._give_up(queue, firing, error)
            attempts += 1
            await queue.retry_wakeup.wait(self._backoff.delay(attempts))
        return None

    async def _try_start(self, queue: _DeliveryQueue, delivery: _Delivery) -> None:
        try:
            await self._start_run(queue, delivery)
        except StartSuppressedError:
            self._metrics.increment("subscription_suppressed_total", 1, **queue.labels)
        except WorkflowPausedError:  # a firing during a pause starts no run, not even later
            return

    async def start(
        self, tenant: str, subscription: Subscription, firing: Firing, output: GraphNodeOutput | None
    ) -> Any:
        """Start the run of a firing that failed for good, now; return its handle, or None if it starts none.

        OperationError if it fails again; RequestError while its workflow is paused, suppressed or not subscribed.
        """
        queue = self._queues.get((subscription, (tenant, firing.reactor)))
        if queue is None:
            message = f"workflow '{subscription.workflow}' no longer subscribes to reactor '{firing.reactor}': load it"
            raise RequestError(message, code="not_subscribed", status=409, workflow=subscription.workflow)
        try:
            run = await self._start_run(queue, _Delivery(firing, output, lambda _: None))
        except AUTHOR_ERRORS as error:  # author code: the condition, or the class of the params
            if is_cancelled_here(error) or isinstance(error, StartSuppressedError | WorkflowPausedError):
                raise
            raise OperationError(_error_text(error)) from error
        return None if run is None else self._make_handle(run, tenant=subscription.tenant)

    async def _start_run(self, queue: _DeliveryQueue, delivery: _Delivery) -> str | None:
        """Start the run of a firing and return its id; None if it starts none, or has started it before."""
        tenant, name, *_ = queue.subscription
        version = self._versions.current.get((tenant, name))
        workflow = None if version is None else self._versions.find_workflow(version)
        start = queue.decide(_build_facts(delivery, tenant))
        if workflow is None or start is None:
            return None
        request = StartRequest(
            tenant=tenant,
            workflow=workflow,
            params=start.params,
            context=start.context,
            origin=RunOrigin.FIRING,
            cause=_cause_of(delivery.firing),
            key=start.key,
            once_per_key=True,
            at=delivery.firing.at,
            dedup=start.dedup,
            cooldown=start.cooldown,
            about=start.about,
            trace=TraceContext.new(delivery.trace) if self._spans.is_enabled else None,
        )
        run = await self._starter.start(request)
        if run is not None and request.trace is not None:
            self._spans.record(_firing_span(delivery, queue.labels, request.trace))
        self._metrics.increment("subscription_runs_total", run is not None, **queue.labels)
        return run

    # -- failures

    def _log_failure(self, queue: _DeliveryQueue, firing: Firing, error: BaseException) -> None:
        self._metrics.increment("subscription_errors_total", 1, **queue.labels)
        details = {**queue.labels, "firing": firing.id, "error": _error_text(error)}
        logger.warning(events.SUBSCRIPTION_FAILED, extra=details)

    def _give_up(self, queue: _DeliveryQueue, firing: Firing, error: BaseException) -> FailedDelivery:
        """Count and log a firing that failed for good."""
        self._metrics.increment("subscription_dead_letters_total", 1, **queue.labels)
        details = {**queue.labels, "firing": firing.id, "error": _error_text(error)}
        logger.error(events.SUBSCRIPTION_DEAD_LETTERED, extra=details)
        return FailedDelivery(_error_text(error), queue.failures)

    # -- state

    @property
    def is_busy(self) -> bool:
        """Whether a run is being started; queues that wait for a retry do not count."""
        return any(not queue.retry_wakeup.is_waiting for queue in self._active)

    async def drain(self, timeout: float) -> None:
        """Wait in real time, up to `timeout` seconds, until every firing has started its runs."""
        await wait_until(lambda: not self.is_busy, timeout)


def _subscription_of(trigger: FiringTrigger, tenant: str, workflow: Workflow) -> QueueKey:
    """Return a trigger's subscription, and the reactor: a graph may be bound to one of another tenant."""
    observed = trigger.observe(tenant)
    return Subscription(tenant, workflow.name, observed.graph, observed.node), observed.reactor


def _cause_of(firing: Firing) -> RunCause:
    return RunCause(firing.reactor, firing.id, None if firing.key is None else format_key(firing.key))


def _build_facts(delivery: _Delivery, tenant: str) -> FiringFacts:
    firing, output = delivery.firing, delivery.output
    return FiringFacts(
        id=firing.id,
        reactor=firing.reactor,
        tenant=tenant,
        inputs={source: to_jsonable(value) for source, value in firing.inputs.items()},
        variant="" if output is None else output.variant,
        output=b"" if output is None else output.value,
    )


def _error_text(error: BaseException) -> str:
    return str(error) if isinstance(error, TidemillError) else describe(error)


def _firing_span(delivery: _Delivery, labels: Mapping[str, str], context: TraceContext) -> Span:
    """Return the span of a firing that has started a run."""
    firing = delivery.firing
    attributes = {"tidemill.firing_id": firing.id, **{f"tidemill.{name}": value for name, value in labels.items()}}
    parent_id = None if delivery.trace is None else delivery.trace.span_id
    end = firing.at + timedelta(seconds=firing.duration)
    return Span(context, parent_id, f"firing {firing.reactor}", firing.at, end, attributes=attributes)
