"""Simulates the busiest hour of task runs: a burst on the hour, one leader that plans, slots of workers that run.

Time passes in seconds. Within one, the leader plans the oldest task runs first, as many as its core allows, and free
slots take them in that order.
"""

import math
from collections import deque
from random import Random

import msgspec

from benchmarks.capacity.arithmetic import TaskLoad, TaskPlan
from benchmarks.capacity.costs import UnitCosts
from benchmarks.capacity.random_numbers import poisson

HOUR = 3600
DURATION_STEPS = 8  # an exponential duration, as so many equally likely ones


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in the hour."""

    leader_share: float
    """The share of a core that the leader used."""
    burst_seconds: float
    """Seconds after the hour until the leader had planned the burst."""
    latest_start: float
    """Seconds that a task run waited for the leader and a slot, at most."""
    most_running: int
    most_planned: float
    """Task runs that the leader planned in its busiest second."""


def simulate_tasks(load: TaskLoad, plan: TaskPlan, costs: UnitCosts, *, seed: int = 1) -> TaskOutcome:
    """Let the busiest hour pass."""
    rng = Random(seed)
    unplanned, planned, workers = _Line(), _Line(), _Workers(plan.slots, load.duration)
    unplanned.add(0, load.burst)
    used = latest = most_planned = 0.0
    burst_seconds = float(HOUR)
    for second in range(HOUR):
        unplanned.add(second, poisson(rng, load.peak_rate * (1 - load.on_the_hour)))
        ready = unplanned.take(1 / costs.task_leader)
        for born, number in ready:
            planned.add(born, number)
        now_planned = sum(number for _, number in ready)
        used += now_planned * costs.task_leader
        most_planned = max(most_planned, now_planned)
        if unplanned.oldest != 0:
            burst_seconds = min(burst_seconds, second + 1.0)
        for born, number in planned.take(workers.free(second)):
            workers.begin(second, number)
            latest = max(latest, second - born)
    return TaskOutcome(
        leader_share=used / HOUR,
        burst_seconds=burst_seconds,
        latest_start=latest,
        most_running=workers.most,
        most_planned=most_planned,
    )


class _Line:
    """Task runs that wait, oldest first: how many were born in each second."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, float]] = deque()

    @property
    def oldest(self) -> int | None:
        """The second in which the oldest was born."""
        return self._waiting[0][0] if self._waiting else None

    def add(self, born: int, number: float) -> None:
        """Add task runs."""
        if number:
            self._waiting.append((born, number))

    def take(self, limit: float) -> list[tuple[int, float]]:
        """Take the oldest ones, at most so many."""
        taken = []
        while self._waiting and limit > 0:
            born, number = self._waiting.popleft()
            if number > limit:
                self._waiting.appendleft((born, number - limit))
            taken.append((born, min(number, limit)))
            limit -= number
        return taken


class _Workers:
    """The slots of all workers."""

    def __init__(self, slots: int, duration: float) -> None:
        self._slots = slots
        self._durations = [
            max(1, round(-duration * math.log(1 - (step + 0.5) / DURATION_STEPS))) for step in range(DURATION_STEPS)
        ]
        self._occupied = self._most = 0.0
        self._ends: dict[int, float] = {}

    @property
    def most(self) -> int:
        """The highest number of task runs at the same time."""
        return round(self._most)

    def free(self, second: int) -> float:
        """Return the free slots, after those that have ended by now."""
        self._occupied -= self._ends.pop(second, 0.0)
        return self._slots - self._occupied

    def begin(self, second: int, number: float) -> None:
        """Occupy slots."""
        self._occupied += number
        self._most = max(self._most, self._occupied)
        for duration in self._durations:
            end = second + duration
            self._ends[end] = self._ends.get(end, 0.0) + number / DURATION_STEPS
