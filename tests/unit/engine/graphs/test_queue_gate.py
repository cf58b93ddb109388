"""The queue gate: every overflow policy, reservations for pending commits, and waiting pushers."""

import asyncio
from collections import Counter
from typing import Any

import pytest

import tidemill as tm
from tidemill.engine.graphs.firing.queue_gate import OVERFLOW_POLICIES, QueueGate
from tidemill.graphs.inputs import Inputs


@tm.passthrough
def a(event: int) -> int:
    """Emit the event."""
    return event


class Gated:
    """Inputs of capacity 2 behind a gate."""

    def __init__(self, overflow: Any, strategy: Any = "sequential") -> None:
        self.inputs = Inputs(tm.Reactor("r", [a], strategy=strategy, capacity=2, overflow=overflow))
        self.dropped: Counter[str] = Counter()
        self.gate = QueueGate("r", self.inputs, overflow, self.dropped)

    def fill(self, count: int = 2) -> None:
        """Put boundaries into the queue."""
        for value in range(count):
            self.inputs.put(0, value)

    @property
    def queued(self) -> list[Any]:
        """The queued values, oldest first."""
        return [value for _, value, _ in self.inputs.queue]


@pytest.mark.parametrize("overflow", list(OVERFLOW_POLICIES))
def test_a_queue_with_space_accepts_under_every_policy(overflow: Any) -> None:
    """No policy applies below the capacity."""
    gated = Gated(overflow)
    gated.fill(1)
    assert (gated.gate.is_blocked(), gated.gate.is_rejecting()) == (False, False)


@pytest.mark.parametrize("overflow", list(OVERFLOW_POLICIES))
def test_the_latest_strategy_is_never_full(overflow: Any) -> None:
    """A boundary replaces the one before it."""
    gated = Gated(overflow, strategy="latest")
    gated.fill(5)
    assert (gated.gate.is_blocked(), gated.gate.is_rejecting()) == (False, False)


@pytest.mark.parametrize(
    ("overflow", "is_blocked", "is_rejecting"),
    [("block", True, False), ("reject", False, True), ("drop_oldest", False, False)],
)
def test_a_full_queue_blocks_or_rejects_as_its_policy_says(overflow: Any, is_blocked: bool, is_rejecting: bool) -> None:
    """Each policy does one thing."""
    gated = Gated(overflow)
    gated.fill()
    assert (gated.gate.is_blocked(), gated.gate.is_rejecting()) == (is_blocked, is_rejecting)


@pytest.mark.parametrize(
    ("overflow", "may_come", "queued", "dropped"),
    [
        ("block", True, [0, 1], {}),  # it exceeds the capacity: it cannot wait
        ("reject", False, [0, 1], {"full": 1}),
        ("drop_oldest", True, [1], {"overflow": 1}),
    ],
)
def test_a_boundary_that_cannot_wait_meets_a_full_queue(
    overflow: Any, may_come: bool, queued: list[int], dropped: dict[str, int]
) -> None:
    """Windows and batches deliver without waiting."""
    gated = Gated(overflow)
    gated.fill()
    assert gated.gate.make_room() is may_come
    assert (gated.queued, gated.dropped) == (queued, dropped)


def test_a_rejected_push_is_counted_and_names_the_reactor() -> None:
    """The reason goes into the receipt."""
    gated = Gated("reject")
    assert gated.gate.reject() == "the queue of reactor 'r' is full"
    assert gated.dropped == {"full": 1}


@pytest.mark.parametrize(("overflow", "verdict"), [("block", "is_blocked"), ("reject", "is_rejecting")])
def test_reserved_space_counts_as_taken(overflow: Any, verdict: str) -> None:
    """A boundary that is being committed will need its place."""
    gated = Gated(overflow)
    gated.fill(1)
    gated.gate.reserve()
    assert getattr(gated.gate, verdict)()
    gated.gate.release()
    assert not getattr(gated.gate, verdict)()


async def test_waiters_continue_when_space_is_freed() -> None:
    """A waiter that is woken without space waits on."""
    gated = Gated("block")
    gated.fill()
    async with asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(gated.gate.wait())
        await asyncio.sleep(0)
        gated.gate.wake_waiters()
        await asyncio.sleep(0)
        assert not waiter.done()
        gated.inputs.apply_next()
        gated.gate.wake_waiters()


async def test_waiters_continue_when_a_reservation_is_released() -> None:
    """A refused commit frees its place."""
    gated = Gated("block")
    gated.fill(1)
    gated.gate.reserve()
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(gated.gate.wait())
        await asyncio.sleep(0)
        gated.gate.release()


async def test_a_closed_gate_blocks_no_one() -> None:
    """The reactor is about to stop, and waiters must not keep it."""
    gated = Gated("block")
    gated.fill()
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(gated.gate.wait())
        await asyncio.sleep(0)
        gated.gate.close()
    assert not gated.gate.is_blocked()


async def test_a_new_policy_applies_to_those_who_wait() -> None:
    """A newer version of the reactor may drop what the older one blocked."""
    gated = Gated("block")
    gated.fill()
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(gated.gate.wait())
        await asyncio.sleep(0)
        gated.gate.set_overflow("drop_oldest")
    assert gated.gate.make_room()
    assert gated.queued == [1]
