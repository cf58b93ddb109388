"""The dispatch pool: a bounded queue and some workers between claiming and executors that take their time.

Planning never waits for an executor. A claimed attempt is put here, and a worker hands it over; while there is no
room, nothing more is claimed, and stays scheduled in the store. The queue itself is not stored: after a crash the
attempts in it are known to be nobody's.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping

from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.executors.interface import Executor, Order
from tidemill.kernel.errors import OperationError
from tidemill.telemetry import events
from tidemill.workflows.endings import Ending, Failed, Returned
from tidemill.workflows.records import AttemptKey, TaskError

logger = logging.getLogger(__name__)

Ended = Callable[[AttemptKey, Ending], None]


class Dispatcher:
    """Hands orders to executors."""

    def __init__(self, environment: Environment, executors: Mapping[str, Executor], ended: Ended) -> None:
        self._executors = executors
        self._ended = ended
        self._clock = environment.clock
        self._tasks = environment.tasks
        self._figures = environment.figures
        self._workers = max(1, environment.settings.dispatch_workers)
        self._size = max(1, environment.settings.dispatch_queue)
        self._queue: asyncio.Queue[tuple[Order, float]] = asyncio.Queue()
        self._keys: set[AttemptKey] = set()
        self._pending: Counter[str] = Counter()
        self._in_hand = 0
        self._moved: Callable[[], None] = lambda: None

    def open(self, moved: Callable[[], None]) -> None:
        """Start the workers; `moved` is called whenever there is room again."""
        self._moved = moved
        for number in range(self._workers):
            self._tasks.start(f"dispatcher: worker {number + 1}", self._serve())

    @property
    def room(self) -> int:
        """How many more orders it takes now."""
        return self._size - self._queue.qsize()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is being handed over."""
        return self._queue.empty() and not self._in_hand

    def pending(self, executor: str) -> int:
        """Return how many orders an executor is still to be handed."""
        return self._pending[executor]

    def has(self, key: AttemptKey) -> bool:
        """Return whether an attempt waits here, or is being handed over."""
        return key in self._keys

    def put(self, order: Order) -> None:
        """Hand an order over: at once if the executor takes it at once, else when a worker gets to it."""
        executor, now = self._executors[order.executor], self._clock.monotonic()
        if executor.is_immediate:
            self._hand_over_at_once(executor, order, now)
        else:
            self._keys.add(order.key)
            self._pending[order.executor] += 1
            self._queue.put_nowait((order, now))
            self._figures.read("dispatch_queue_depth", self._queue.qsize())

    def _hand_over_at_once(self, executor: Executor, order: Order, now: float) -> None:
        try:
            executor.take(order)
        except Exception as error:  # whatever it is, it costs this attempt, not the node
            self._refused(order, error)
        else:
            self._accepted(now)

    def drain(self) -> None:
        """Give back what waits: it was never begun."""
        while not self._queue.empty():
            order, _ = self._queue.get_nowait()
            self._forget(order)
            self._ended(order.key, Returned("the node is closing"))
        self._figures.read("dispatch_queue_depth", 0)

    async def _serve(self) -> None:
        while True:
            try:
                await self._serve_one()
            except Exception:  # a worker that died would leave the queue full for ever
                self._figures.count("dispatch_worker_restarts_total")
                logger.exception(events.DISPATCH_FAILED)

    async def _serve_one(self) -> None:
        order, since = await self._queue.get()
        self._in_hand += 1
        self._figures.read("dispatch_queue_depth", self._queue.qsize())
        self._moved()
        try:
            await self._hand_over(order, since)
        finally:
            self._forget(order)
            self._in_hand -= 1
            self._moved()

    def _forget(self, order: Order) -> None:
        self._keys.discard(order.key)
        self._pending[order.executor] -= 1

    async def _hand_over(self, order: Order, since: float) -> None:
        try:
            await self._executors[order.executor].submit(order)
        except Exception as error:  # whatever it is, it costs this attempt, not the node
            self._refused(order, error)
        else:
            self._accepted(since)

    def _accepted(self, since: float) -> None:
        self._figures.count("dispatch_latency_seconds", self._clock.monotonic() - since)
        self._figures.count("dispatch_latency_seconds_count")

    def _refused(self, order: Order, error: Exception) -> None:
        """Report an attempt that its executor did not take; what it did not mean to raise is its own bug."""
        if not isinstance(error, OperationError):
            logger.error(events.DISPATCH_FAILED, exc_info=error, extra={"attempt": str(order.key)})
        self._figures.count("dispatch_errors_total")
        message = f"{order.executor} did not take it: {error}"
        self._ended(order.key, Failed(error=TaskError("DispatchError", message), outcome="dispatch_failed"))
