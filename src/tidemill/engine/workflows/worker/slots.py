"""Places to run at: which of the task runs that wait gets the next one that is free.

Highest priority first, then older runs, so that what was begun is finished, then whoever has waited longest. A place
that was given is reserved until it is taken, so that no two are given the same.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from heapq import heappop, heappush
from itertools import count, islice
from typing import NamedTuple

from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.workflows.records import TaskRow
from tidemill.workflows.run_draft import TaskRef


class WaitingTask(NamedTuple):
    """A task run that waits for a place."""

    run: str
    ref: TaskRef


class ExecutorSlots:
    """The executors of a node, and who waits for them."""

    def __init__(self, attempts: LocalAttempts) -> None:
        self._attempts = attempts
        self._executors = attempts.executors
        self._reserved: Counter[str] = Counter()
        self._waiting: dict[str, list[tuple[int, str, float, int, WaitingTask]]] = {}
        self._queued: set[WaitingTask] = set()
        self._parked: dict[str, list[tuple[WaitingTask, TaskRow]]] = {}
        self._sequence = count()

    def has_executor(self, executor: str) -> bool:
        """Return whether there is an executor of that name here."""
        return executor in self._executors

    def is_immediate(self, executor: str) -> bool:
        """Return whether an executor begins as soon as it is handed an order."""
        return self._executors[executor].is_immediate

    def free_slots(self, executor: str) -> int:
        """Return how many more task runs an executor could be given now."""
        one = self._executors[executor]
        if self._attempts.is_closing:
            return 0
        dispatcher = self._attempts.dispatcher
        free = one.free_slots() - dispatcher.pending(executor)
        return (free if one.is_immediate else min(free, dispatcher.free_queue_slots)) - self._reserved[executor]

    def free_by_executor(self) -> dict[str, int]:
        """Return how many more each executor could be given now."""
        return {name: free for name in self._executors if (free := self.free_slots(name)) > 0}

    def enqueue(self, run: str, row: TaskRow) -> None:
        """Let a scheduled task run wait for a place, if it does not already."""
        since = row.since.timestamp() if row.since is not None else 0.0
        waiting = WaitingTask(run, (row.task, row.index))
        if waiting not in self._queued:
            self._queued.add(waiting)
            rank = -row.priority, run, since, next(self._sequence), waiting
            heappush(self._waiting.setdefault(row.executor, []), rank)

    def reserve(self, rows: Collection[TaskRow]) -> bool:
        """Reserve a place for each of some scheduled task runs, if nobody waits for one, and all get one."""
        for taken, row in enumerate(rows):
            executor = row.executor
            if self._waiting.get(executor) or executor not in self._executors or self.free_slots(executor) <= 0:
                for one in islice(rows, taken):
                    self.release(one.executor)
                return False
            self._reserved[executor] += 1
        return True

    def park(self, run: str, row: TaskRow) -> None:
        """Set a task run aside whose pool is full, until something leaves the pool."""
        if row.pool is not None:
            self._parked.setdefault(row.pool, []).append((WaitingTask(run, (row.task, row.index)), row))

    def unpark(self, pool: str | None = None) -> None:
        """Let those wait again whose pool may have room; None for all pools."""
        for name in [pool] if pool is not None else list(self._parked):
            for waiting, row in self._parked.pop(name, ()):
                self.enqueue(waiting.run, row)

    def reserve_for_waiting(
        self, is_still_wanted: Callable[[WaitingTask], bool], only_run: str | None = None
    ) -> Iterator[WaitingTask]:
        """Reserve free places for those that wait and are still wanted; `only` for one run while it is its turn."""
        for executor, waiting in self._waiting.items():
            if executor not in self._executors:
                continue
            while waiting and only_run in (None, waiting[0][-1].run) and self.free_slots(executor) > 0:
                found = heappop(waiting)[-1]
                self._queued.discard(found)
                if is_still_wanted(found):
                    self._reserved[executor] += 1
                    yield found

    def has_waiting(self) -> bool:
        """Return whether somebody waits."""
        return any(self._waiting.values())

    def has_waiting_for_dispatch(self) -> bool:
        """Return whether somebody waits at an executor that takes its time."""
        return any(
            waiting and name in self._executors and not self._executors[name].is_immediate
            for name, waiting in self._waiting.items()
        )

    def release(self, executor: str) -> None:
        """Give a reserved place back: it was taken, or is not needed."""
        self._reserved[executor] -= 1
