"""The supervisor's restart policy, with a virtual clock and components that only record."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tidemill.engine.graphs.durability.backend import NoDurability
from tidemill.engine.graphs.supervisor import RestartState, Supervised, Supervisor
from tidemill.engine.tasks import TaskScope
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.settings import Settings
from tidemill.storage.graph_ports import PartKind
from tidemill.telemetry.node_events import NodeEvents

ERROR = RuntimeError("broken")


class Component(Supervised):
    """A component that records its restarts."""

    component: PartKind = "accumulator"

    def __init__(self, clock: VirtualClock) -> None:
        self.name = "a"
        self.tenant = "public"
        self.restart_state = RestartState()
        self.restarted_at: list[float] = []
        self.has_failed = False
        self._clock = clock

    def restart(self) -> None:
        """Record the time of the restart."""
        self.restarted_at.append(self._clock.monotonic())
        self.restart_state.record_start(self._clock.monotonic())

    def mark_failed(self) -> None:
        """Record that the supervisor gave up."""
        self.has_failed = True


class World:
    """A supervisor, one component, and the time."""

    def __init__(self, tasks: TaskScope) -> None:
        self.clock = VirtualClock()
        self.supervisor = Supervisor(self.clock, Settings.read(None), tasks, NoDurability(), NodeEvents(self.clock))
        self.component = Component(self.clock)

    async def crash(self) -> None:
        """Crash the component and let the supervisor plan its restart."""
        self.supervisor.on_crash(self.component, ERROR)
        await turns()

    async def advance(self, seconds: float) -> None:
        """Move the time, and run what becomes due."""
        self.clock.advance_to(self.clock.monotonic() + seconds)
        await turns()

    @property
    def actions(self) -> list[str]:
        """The recorded actions, oldest first."""
        return [recovery.action for _, recovery in self.supervisor.recoveries]


async def turns() -> None:
    """Give tasks a few turns of the event loop."""
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def supervised() -> AsyncIterator[World]:
    """Yield a supervisor with one component."""
    tasks = TaskScope()
    await tasks.open()
    try:
        yield World(tasks)
    finally:
        await tasks.close()


async def test_delays_double_with_each_failure_in_a_row() -> None:
    """1, 2, 4 and 8 seconds."""
    async with supervised() as world:
        for delay in (1, 2, 4, 8):
            before = len(world.component.restarted_at)
            await world.crash()
            await world.advance(delay - 0.01)
            assert len(world.component.restarted_at) == before
            await world.advance(0.01)
            assert len(world.component.restarted_at) == before + 1
        assert world.actions == ["crashed", "restarted"] * 4


async def test_the_fifth_failure_in_a_row_is_final() -> None:
    """The component stays down, and no restart is planned."""
    async with supervised() as world:
        for _ in range(4):
            await world.crash()
            await world.advance(60)  # the delay, without a minute of health
            world.component.restart_state.started_at = world.clock.monotonic()
        assert not world.component.has_failed
        await world.crash()
        assert world.component.has_failed
        assert world.clock.next_wakeup() is None
        assert world.supervisor.recoveries[-1][1].reason == "5 failures in a row, the last: RuntimeError('broken')"


async def test_a_minute_of_health_resets_the_failures() -> None:
    """The next delay is the first one again."""
    async with supervised() as world:
        for _ in range(3):
            await world.crash()
            await world.advance(10)
        await world.advance(60)
        await world.crash()
        assert world.component.restart_state.failures == 1
        restarts = len(world.component.restarted_at)
        await world.advance(1)
        assert len(world.component.restarted_at) == restarts + 1


async def test_the_twenty_first_restart_within_an_hour_is_refused() -> None:
    """Even if each failure comes after a minute of health."""
    async with supervised() as world:
        for _ in range(20):
            await world.crash()
            await world.advance(1)
            await world.advance(60)
        assert not world.component.has_failed
        await world.crash()
        assert world.component.has_failed
        assert world.supervisor.recoveries[-1][1].reason.startswith("20 restarts within an hour")


async def test_restarts_of_more_than_an_hour_ago_do_not_count() -> None:
    """The window slides."""
    async with supervised() as world:
        for _ in range(20):
            await world.crash()
            await world.advance(1)
            await world.advance(60)
        await world.advance(3600)
        await world.crash()
        assert not world.component.has_failed


async def test_an_operator_restarts_at_once_and_clears_the_record() -> None:
    """Also a component that was given up; a planned restart is void."""
    async with supervised() as world:
        await world.crash()
        world.supervisor.restart(world.component)
        assert len(world.component.restarted_at) == 1
        assert world.component.restart_state.failures == 0
        await world.advance(10)
        assert len(world.component.restarted_at) == 1
        assert world.actions == ["crashed", "restarted"]


@pytest.mark.parametrize("is_planned", [False, True])
async def test_a_component_that_has_ended_is_not_restarted(is_planned: bool) -> None:
    """Whether it ends before its crash is reported, or while it waits for its restart."""
    async with supervised() as world:
        if is_planned:
            await world.crash()
        world.component.restart_state.record_end()
        if not is_planned:
            await world.crash()
        await world.advance(10)
        assert world.component.restarted_at == []


async def test_a_second_crash_replaces_the_planned_restart() -> None:
    """One restart, after the longer delay."""
    async with supervised() as world:
        await world.crash()
        await world.crash()
        await world.advance(1)
        assert world.component.restarted_at == []
        await world.advance(1)
        assert len(world.component.restarted_at) == 1


async def test_the_history_of_earlier_processes_comes_first() -> None:
    """Oldest first, as recorded."""
    async with supervised() as world:
        await world.crash()
        ((_, recorded),) = world.supervisor.recoveries
        world.supervisor.load_history("public", [recorded, recorded])
        await world.advance(1)
        assert world.actions == ["crashed", "crashed", "crashed", "restarted"]
