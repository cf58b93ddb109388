"""Waits for space in the queues of an accumulator's reactors, with limited patience."""

import asyncio
from collections.abc import Callable

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.graphs.outcomes import Receipt


async def wait_for_space(
    accumulator: RunningAccumulator, patience: float, select: Callable[[], None] | None = None
) -> Receipt | None:
    """Wait until an event need not wait for queue space; return its rejection if that takes longer than `patience`.

    The event itself is not involved, so that a caller who gave up can be sure that it had no effect. `select` selects
    its key, if there are keys: each has a queue of its own.
    """
    select = select or (lambda: None)
    select()
    if not accumulator.is_blocked():
        return None
    async with asyncio.TaskGroup() as group:
        space = group.create_task(_wait_for_gates(accumulator, select), name=f"accumulator {accumulator.name}: space")
        timer = group.create_task(accumulator.clock.sleep(patience), name=f"accumulator {accumulator.name}: patience")
        await asyncio.wait((space, timer), return_when=asyncio.FIRST_COMPLETED)
        space.cancel()
        timer.cancel()
    select()
    return _reject_full(accumulator) if accumulator.is_waiting_for_space else None


async def _wait_for_gates(accumulator: RunningAccumulator, select: Callable[[], None]) -> None:
    select()
    while blocked := [gate for gate in accumulator.queue_gates if gate.is_blocked]:
        await blocked[0].wait()


def _reject_full(accumulator: RunningAccumulator) -> Receipt:
    """Return the rejection of an event that no queue has space for, with what keeps the queue from moving."""
    for target, _ in accumulator.targets:
        if target.queue_gate.is_blocked and target.paused:
            reason = f"the queue of reactor '{target.name}' is full, and the reactor is paused; resume it first"
            return accumulator.reject("paused", reason)
    full = next(gate.reactor for gate in accumulator.queue_gates if gate.is_blocked)
    return accumulator.reject("queue_full", f"the queue of reactor '{full}' is full; push again later")


def free_space(accumulator: RunningAccumulator) -> int | None:
    """Return how many events can be pushed without waiting; None if there is no limit, at least 1."""
    return max(1, min(gate.space for gate in accumulator.queue_gates)) if accumulator.queue_gates else None
