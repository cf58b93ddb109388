"""The work of workflow contestants: tasks that do nothing but count, so that the engines are measured."""

from time import perf_counter

from benchmarks.peers.orders import Figures

LENGTH = 50
"""Tasks of the chain."""
WIDTH = 200
"""Tasks in the middle of 1 -> 200 -> 1."""
IDLE = 0.02
"""Seconds between two starts that are measured."""


class Counter:
    """Counts the tasks that ran, and remembers when the last one began."""

    def __init__(self) -> None:
        self.tasks = 0
        self.began = 0.0

    def record(self) -> None:
        """Record that a task runs now."""
        self.tasks += 1
        self.began = perf_counter()


counter = Counter()


class Stopwatch:
    """Measures a piece of work, and how many tasks ran in it."""

    def __enter__(self) -> "Stopwatch":
        counter.tasks = 0
        self._began = perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._seconds = perf_counter() - self._began

    def figures(self) -> Figures:
        """Return seconds and tasks."""
        return {"seconds": self._seconds, "tasks": counter.tasks}


def summarise_starts(seconds: list[float]) -> Figures:
    """Return the percentiles, in milliseconds, of the times from a start to the first line of its task."""
    ordered = sorted(seconds)
    return {"p50": ordered[len(ordered) // 2] * 1e3, "p99": ordered[int(len(ordered) * 0.99)] * 1e3}
