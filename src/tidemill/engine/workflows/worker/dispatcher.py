"""The dispatch pool: a bounded queue and workers between claiming and executors that take time to accept an attempt.

Planning never waits for an executor. A claimed attempt is queued here, and a worker submits it to its executor. While
the queue is full, no further task is claimed for such an executor; it stays scheduled in the store. The queue itself is
not stored: after a crash its attempts are known to have no owner.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping

from tidemill.engine.workflows.executors.interface import AttemptListener, AttemptRequest, Executor
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.kernel.errors import OperationError
from tidemill.telemetry import events
from tidemill.workflows.attempt_results import Failed, HandedBack
from tidemill.workflows.records import AttemptKey, TaskError

logger = logging.getLogger(__name__)


class Dispatcher:
    """Submits queued attempts to executors."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        executors: Mapping[str, Executor],
        listener: AttemptListener,
        on_slot_freed: Callable[[], None],
    ) -> None:
        self.pending: Counter[str] = Counter()
        """By executor: the number of attempts that it has yet to accept."""
        self._executors = executors
        self._listener = listener
        self._on_slot_freed = on_slot_freed
        self._clock = runtime.clock
        self._tasks = runtime.tasks
        self._metrics = runtime.metrics
        self._workers = max(1, runtime.settings.dispatch_workers)
        self._queue_size = max(1, runtime.settings.dispatch_queue)
        self._queue: asyncio.Queue[tuple[AttemptRequest, float]] = asyncio.Queue()
        self._keys: set[AttemptKey] = set()
        self._submitting = 0

    def open(self) -> None:
        """Start the workers."""
        for number in range(self._workers):
            self._tasks.start(f"dispatcher: worker {number + 1}", self._run_worker())

    @property
    def free_queue_slots(self) -> int:
        """The number of attempts that the queue can still take."""
        return self._queue_size - self._queue.qsize()

    @property
    def is_idle(self) -> bool:
        """Whether no attempt is queued or being submitted."""
        return self._queue.empty() and not self._submitting

    def has_attempt(self, key: AttemptKey) -> bool:
        """Return whether an attempt is queued or being submitted."""
        return key in self._keys

    def enqueue(self, request: AttemptRequest) -> None:
        """Queue an attempt until a worker submits it."""
        self._keys.add(request.key)
        self.pending[request.executor] += 1
        self._queue.put_nowait((request, self._clock.monotonic()))
        self._metrics.set_gauge("dispatch_queue_depth", self._queue.qsize())

    def drain(self) -> None:
        """Hand back the queued attempts: none of them has started."""
        while not self._queue.empty():
            request, _ = self._queue.get_nowait()
            self._remove(request)
            self._listener.on_ended(request.key, HandedBack("the node is closing"))
        self._metrics.set_gauge("dispatch_queue_depth", 0)

    async def _run_worker(self) -> None:
        while True:
            try:
                await self._process_one()
            except Exception:  # without a worker the queue would stay full
                self._metrics.increment("dispatch_worker_restarts_total")
                logger.exception(events.DISPATCH_FAILED)

    async def _process_one(self) -> None:
        request, queued_at = await self._queue.get()
        self._submitting += 1
        self._metrics.set_gauge("dispatch_queue_depth", self._queue.qsize())
        self._on_slot_freed()
        try:
            await self._submit(request, queued_at)
        finally:
            self._remove(request)
            self._submitting -= 1
            self._on_slot_freed()

    def _remove(self, request: AttemptRequest) -> None:
        self._keys.discard(request.key)
        self.pending[request.executor] -= 1

    async def _submit(self, request: AttemptRequest, queued_at: float) -> None:
        try:
            await self._executors[request.executor].submit(request)
        except Exception as error:  # the error concerns this attempt only
            self.report_refused(request, error)
        else:
            self._metrics.dispatch_latency.observe(self._clock.monotonic() - queued_at)

    def report_refused(self, request: AttemptRequest, error: Exception) -> None:
        """Report an attempt that its executor refused. An error other than OperationError is a bug, and logged."""
        if not isinstance(error, OperationError):
            logger.error(events.DISPATCH_FAILED, exc_info=error, extra={"attempt": str(request.key)})
        self._metrics.increment("dispatch_errors_total")
        message = f"{request.executor} did not take it: {error}"
        failure = Failed(error=TaskError("DispatchError", message), outcome="dispatch_failed")
        self._listener.on_ended(request.key, failure)
