"""A few threads for code that blocks."""

import threading
from collections.abc import Callable
from contextvars import Context
from queue import SimpleQueue
from time import monotonic


class Threads:
    """Threads that are started when there is work for them. As daemons: code that hangs does not hold up the exit."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0

    def start(self, job: Callable[[], None]) -> None:
        """Let a thread do a job that never raises; tell `done` when it has."""
        self._busy += 1
        self._jobs.put(job)
        if self._busy > len(self._threads) < self._size:
            name = f"{self._name} {len(self._threads) + 1}"
            self._threads.append(threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True))
            self._threads[-1].start()

    def done(self) -> None:
        """Take note that a job is done, on the thread that started it."""
        self._busy -= 1

    def dismiss(self) -> None:
        """Let every thread end when its job has."""
        for _ in self._threads:
            self._jobs.put(None)

    def join(self, patience: float) -> bool:
        """Wait for the end of all threads, and return whether it came within so many seconds."""
        deadline = monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in self._threads)


def _work(jobs: "SimpleQueue[Callable[[], None] | None]") -> None:
    while (job := jobs.get()) is not None:
        Context().run(job)  # what a task sets in its context variables ends with it
        del job  # while it waits, a thread holds no value of the last task
