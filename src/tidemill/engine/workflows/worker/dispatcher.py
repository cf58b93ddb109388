"""The dispatch pool: a bounded queue and some workers between claiming and executors that take their time.

Planning never waits for an executor. A claimed attempt is put here, and a worker hands it over; while there is no
room, nothing more is claimed, and stays scheduled in the store. The queue itself is not stored: after a crash the
attempts in it are known to be nobody's.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping

from tidemill.engine.workflows.executors.interface import AttemptRequest, Executor
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.kernel.errors import OperationError
from tidemill.telemetry import events
from tidemill.workflows.attempt_results import AttemptResult, Failed, HandedBack
from tidemill.workflows.records import AttemptKey, TaskError

logger = logging.getLogger(__name__)

OnEnded = Callable[[AttemptKey, AttemptResult], None]


class Dispatcher:
    """Hands orders to executors."""

    def __init__(self, runtime: WorkflowRuntime, executors: Mapping[str, Executor], on_ended: OnEnded) -> None:
        self._executors = executors
        self._on_ended = on_ended
        self._clock = runtime.clock
        self._tasks = runtime.tasks
        self._metrics = runtime.metrics
        self._workers = max(1, runtime.settings.dispatch_workers)
        self._queue_size = max(1, runtime.settings.dispatch_queue)
        self._queue: asyncio.Queue[tuple[AttemptRequest, float]] = asyncio.Queue()
        self._keys: set[AttemptKey] = set()
        self._pending: Counter[str] = Counter()
        self._submitting = 0
        self._on_slot_freed: Callable[[], None] = lambda: None

    def open(self, on_slot_freed: Callable[[], None]) -> None:
        """Start the workers; `moved` is called whenever there is room again."""
        self._on_slot_freed = on_slot_freed
        for number in range(self._workers):
            self._tasks.start(f"dispatcher: worker {number + 1}", self._run_worker())

    @property
    def free_queue_slots(self) -> int:
        """How many more orders it takes now."""
        return self._queue_size - self._queue.qsize()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is being handed over."""
        return self._queue.empty() and not self._submitting

    def pending(self, executor: str) -> int:
        """Return how many orders an executor is still to be handed."""
        return self._pending[executor]

    def has_attempt(self, key: AttemptKey) -> bool:
        """Return whether an attempt waits here, or is being handed over."""
        return key in self._keys

    def dispatch(self, request: AttemptRequest) -> None:
        """Hand an order over: at once if the executor takes it at once, else when a worker gets to it."""
        executor, now = self._executors[request.executor], self._clock.monotonic()
        if executor.is_immediate:
            self._submit_now(executor, request, now)
        else:
            self._keys.add(request.key)
            self._pending[request.executor] += 1
            self._queue.put_nowait((request, now))
            self._metrics.set_gauge("dispatch_queue_depth", self._queue.qsize())

    def _submit_now(self, executor: Executor, request: AttemptRequest, since: float) -> None:
        try:
            executor.submit_now(request)
        except Exception as error:  # whatever it is, it costs this attempt, not the node
            self._report_refused(request, error)
        else:
            self._record_accepted(since)

    def drain(self) -> None:
        """Give back what waits: it was never begun."""
        while not self._queue.empty():
            order, _ = self._queue.get_nowait()
            self._remove(order)
            self._on_ended(order.key, HandedBack("the node is closing"))
        self._metrics.set_gauge("dispatch_queue_depth", 0)

    async def _run_worker(self) -> None:
        while True:
            try:
                await self._process_one()
            except Exception:  # a worker that died would leave the queue full for ever
                self._metrics.increment("dispatch_worker_restarts_total")
                logger.exception(events.DISPATCH_FAILED)

    async def _process_one(self) -> None:
        order, since = await self._queue.get()
        self._submitting += 1
        self._metrics.set_gauge("dispatch_queue_depth", self._queue.qsize())
        self._on_slot_freed()
        try:
            await self._submit(order, since)
        finally:
            self._remove(order)
            self._submitting -= 1
            self._on_slot_freed()

    def _remove(self, request: AttemptRequest) -> None:
        self._keys.discard(request.key)
        self._pending[request.executor] -= 1

    async def _submit(self, request: AttemptRequest, since: float) -> None:
        try:
            await self._executors[request.executor].submit(request)
        except Exception as error:  # whatever it is, it costs this attempt, not the node
            self._report_refused(request, error)
        else:
            self._record_accepted(since)

    def _record_accepted(self, since: float) -> None:
        self._metrics.increment("dispatch_latency_seconds", self._clock.monotonic() - since)
        self._metrics.increment("dispatch_latency_seconds_count")

    def _report_refused(self, request: AttemptRequest, error: Exception) -> None:
        """Report an attempt that its executor did not take; what it did not mean to raise is its own bug."""
        if not isinstance(error, OperationError):
            logger.error(events.DISPATCH_FAILED, exc_info=error, extra={"attempt": str(request.key)})
        self._metrics.increment("dispatch_errors_total")
        message = f"{request.executor} did not take it: {error}"
        self._on_ended(request.key, Failed(error=TaskError("DispatchError", message), outcome="dispatch_failed"))
