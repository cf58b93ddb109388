"""Write health and durability policies: which failures degrade a reactor, and what follows a firing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import tidemill as tm
from tidemill.engine.graphs.durability.backend import DURABILITY_POLICIES, NoDurability, declared_policy
from tidemill.engine.graphs.durability.write_health import WRITE_STALL_TIMEOUT, StallWatch, WriteHealth
from tidemill.engine.tasks import TaskScope
from tidemill.kernel.clock import VirtualClock


class World:
    """One reactor's write health under a stall watch."""

    def __init__(self, tasks: TaskScope) -> None:
        self.clock = VirtualClock()
        self.changes: list[bool] = []
        self.health = WriteHealth("r", lambda: self.changes.append(self.health.is_ok))
        self.watch = StallWatch(self.clock, tasks)

    async def advance(self, seconds: float) -> None:
        """Move the time, and run what becomes due."""
        for _ in range(2):
            for _ in range(5):
                await asyncio.sleep(0)
            self.clock.advance_to(self.clock.monotonic() + seconds / 2)
        for _ in range(5):
            await asyncio.sleep(0)


@asynccontextmanager
async def watched() -> AsyncIterator[World]:
    """Yield a reactor's write health."""
    tasks = TaskScope()
    await tasks.open()
    try:
        yield World(tasks)
    finally:
        await tasks.close()


async def test_five_failures_in_a_row_degrade_and_one_success_recovers() -> None:
    """Fewer do not."""
    async with watched() as world:
        for _ in range(4):
            world.health.mark_failed("down")
        assert world.health.is_ok
        world.health.mark_failed("down")
        world.health.mark_written()
        assert world.changes == [False, True]
        assert (world.health.failures, world.health.total_failures) == (0, 5)


async def test_a_success_in_between_resets_the_count() -> None:
    """Only failures in a row count."""
    async with watched() as world:
        for _ in range(3):
            for _ in range(4):
                world.health.mark_failed("down")
            world.health.mark_written()
        assert (world.changes, world.health.total_failures) == ([], 12)


async def test_a_write_that_takes_too_long_degrades() -> None:
    """Until it succeeds."""
    async with watched() as world:
        world.watch.watch([world.health])
        await world.advance(WRITE_STALL_TIMEOUT * 0.9)
        assert world.changes == []
        await world.advance(WRITE_STALL_TIMEOUT * 0.4)
        assert world.changes == [False]
        world.health.mark_written()
        assert world.changes == [False, True]


async def test_a_write_in_time_ends_the_watch() -> None:
    """No timer is left."""
    async with watched() as world:
        world.watch.watch([world.health])
        await world.advance(0.1)
        world.health.mark_written()
        await world.advance(2 * WRITE_STALL_TIMEOUT)
        assert (world.changes, world.clock.next_wakeup()) == ([], None)


async def test_a_later_write_does_not_restart_the_time_of_a_pending_one() -> None:
    """The oldest write that has not succeeded counts."""
    async with watched() as world:
        world.watch.watch([world.health])
        for _ in range(3):
            await world.advance(WRITE_STALL_TIMEOUT / 2)
            world.watch.watch([world.health])
        assert world.changes == [False]


class Backend(NoDurability):
    """A backend that records what a policy asks of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def flush_soon(self) -> None:
        """Record the request."""
        self.calls.append("flush")

    def on_next_write(self, callback: Callable[[], None]) -> None:
        """Record the request, and write immediately."""
        self.calls.append("after write")
        callback()


@pytest.mark.parametrize(
    ("durability", "has_batches", "expected"),
    [
        ("none", True, ["batches"]),
        ("interval", True, ["batches"]),
        ("boundary", True, ["batches"]),
        ("fire", True, ["flush", "after write", "batches"]),
        ("fire", False, ["flush"]),
        ("interval", False, []),
    ],
)
def test_a_policy_decides_what_follows_a_firing(durability: Any, has_batches: bool, expected: list[str]) -> None:
    """Only "fire" writes a checkpoint, and flushes batches after it."""
    backend = Backend()
    flush = (lambda: backend.calls.append("batches")) if has_batches else None
    DURABILITY_POLICIES[durability].after_firing(backend, flush)
    assert backend.calls == expected


@pytest.mark.parametrize(
    ("declared", "is_durable", "is_journaled"),
    [
        (None, True, False),
        ("none", False, False),
        ("interval", True, False),
        ("fire", True, False),
        ("boundary", True, True),
    ],
)
def test_a_declaration_names_its_policy(declared: Any, is_durable: bool, is_journaled: bool) -> None:
    """Intervals are the default; without a store nothing is durable."""

    @tm.passthrough
    def a(event: int) -> int:
        return event

    reactor = tm.Reactor("r", [a], durability=declared)
    policy = declared_policy(reactor)
    assert (policy.is_durable, policy.is_journaled) == (is_durable, is_journaled)
    assert not NoDurability().policy_for(reactor).is_durable
