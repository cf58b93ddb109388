"""The firing loop without a node: deciding, reentrancy, pauses, retries, and interrupted firings."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

import tidemill as tm
from tidemill.annotations.codec import Codec
from tidemill.engine.graphs.durability.backend import NOT_DURABLE
from tidemill.engine.graphs.durability.write_health import WriteHealth
from tidemill.engine.graphs.firing.commands import FiringCommands
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.firing.graph_caller import PendingFiring
from tidemill.engine.graphs.host import FiringHost
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.tasks import TaskScope
from tidemill.graphs.inputs import FiringInputs
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.errors import RequestError
from tidemill.kernel.settings import Settings


@tm.passthrough
def a(event: int) -> int:
    """Emit the event."""
    return event


@tm.passthrough
def b(event: int) -> int:
    """Emit the event."""
    return event


class Host(FiringHost):
    """A reactor that records what its firing loop asks of it."""

    requires_journal = False
    batches = ()

    def __init__(self, definition: tm.Reactor) -> None:
        self.definition = definition
        self.tenant = "public"
        self.durability = NOT_DURABLE
        self.write_health = WriteHealth(definition.name, self.update_health)
        self.outcomes: list[bool] = []
        self.crashes: list[BaseException] = []

    def codec_for(self, source: str) -> Codec | None:
        """Return no codec: nothing is stored."""

    def check_ready(self) -> None:
        """Accept every command."""

    def window_feed(self, window: str, key: Any = None) -> Callable[[Any], None]:
        """Have no windows."""
        raise LookupError(window)

    def replace_windows(self, values: Sequence[Any], key_state: Any) -> None:
        """Have no windows."""

    def update_health(self) -> None:
        """Have no accumulators."""

    def after_firing(self, key_state: Any = None, *, ok: bool) -> None:
        """Record the outcome of a firing."""
        self.outcomes.append(ok)

    def crash(self, error: BaseException) -> None:
        """Record an engine error."""
        self.crashes.append(error)


class World:
    """A firing loop with one graph."""

    def __init__(self, tasks: TaskScope, node: Callable[..., Any] | None, **options: Any) -> None:
        self.clock = VirtualClock()
        self.runtime = GraphRuntime(clock=self.clock, settings=Settings.read(None), tasks=tasks)
        definition = tm.Reactor("r", [a, b], **options)
        self.host = Host(definition)
        self.loop = FiringLoop(self.host, self.runtime)
        self.commands = FiringCommands(self.loop, self.runtime)
        self.loop.health_allows_firing = True
        if node is not None:
            self.bind(node)

    def bind(self, node: Callable[..., Any]) -> None:
        """Bind a graph with one node."""
        graph = tm.Graph("g", reactor=self.host.definition)
        graph.node(node)
        self.loop.set_graphs({"g": graph.compile_for(self.host.definition)})
        self.loop.driver.ensure()

    def push(self, value: int, index: int = 0) -> None:
        """Deliver a boundary as an accumulator does."""
        self.loop.put(index, value)
        self.loop.fire_due()

    async def advance(self, seconds: float) -> None:
        """Move the time, and run what becomes due."""
        await turns()
        self.clock.advance_to(self.clock.monotonic() + seconds)
        await turns()

    @property
    def fired(self) -> list[Any]:
        """The value of `a` in each logged attempt, oldest first."""
        return [firing.inputs.get("a") for firing in reversed(self.loop.log.newest(100))]


async def turns(count: int = 10) -> None:
    """Give tasks a few turns of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)


@asynccontextmanager
async def running(node: Callable[..., Any] | None = None, **options: Any) -> AsyncIterator[World]:
    """Yield a firing loop that may fire."""
    tasks = TaskScope()
    await tasks.open()
    world = World(tasks, node, **options)
    try:
        yield world
    finally:
        await world.loop.stop()
        await tasks.close()


# -- deciding


async def test_any_fires_on_each_boundary() -> None:
    """Criteria "any" need one changed input."""

    def out(a: int) -> int:
        return a

    async with running(out) as world:
        world.push(1)
        world.push(2)
        assert world.fired == [1, 2]


async def test_all_waits_for_every_input() -> None:
    """Criteria "all" need every input to change, each time."""

    def out(a: int, b: int) -> int:
        return a + b

    async with running(out, when="all") as world:
        world.push(1)
        assert world.fired == []
        world.push(10, index=1)
        world.push(2)
        assert world.fired == [1]
        world.push(20, index=1)
        assert world.fired == [1, 2]


async def test_nothing_fires_while_a_required_input_is_missing() -> None:
    """It is counted, and the next boundary decides again."""

    def out(a: int, b: int) -> int:
        return a + b

    async with running(out) as world:
        world.push(1)
        assert (world.fired, world.loop.incomplete) == ([], 1)
        world.push(10, index=1)
        assert world.fired == [1]


async def test_latest_fires_once_for_boundaries_that_came_together() -> None:
    """Only the newest value is seen."""

    def out(a: int) -> int:
        return a

    async with running(out) as world:
        for value in (1, 2, 3):
            world.loop.put(0, value)
        world.loop.fire_due()
        assert world.fired == [3]


async def test_sequential_fires_once_per_boundary() -> None:
    """Each value is seen, in order."""

    def out(a: int) -> int:
        return a

    async with running(out, strategy="sequential") as world:
        for value in (1, 2, 3):
            world.loop.put(0, value)
        world.loop.fire_due()
        assert world.fired == [1, 2, 3]


async def test_health_decides_whether_anything_fires() -> None:
    """Boundaries wait until the reactor is up."""

    def out(a: int) -> int:
        return a

    async with running(out, strategy="sequential") as world:
        world.loop.health_allows_firing = False
        world.push(1)
        assert (world.fired, world.loop.is_idle) == ([], True)
        world.loop.health_allows_firing = True
        world.loop.reevaluate()
        assert world.fired == [1]


# -- reentrancy


@pytest.mark.parametrize("strategy", ["latest", "sequential"])
async def test_a_push_from_inside_a_firing_fires_after_it(strategy: Any) -> None:
    """One firing at a time: the inner push does not nest."""
    depth: list[str] = []
    worlds: list[World] = []

    def out(a: int) -> int:
        depth.append(f"begin {a}")
        if a < 3:
            worlds[0].push(a + 1)
        depth.append(f"end {a}")
        return a

    async with running(out, strategy=strategy) as world:
        worlds.append(world)
        world.push(1)
        assert depth == ["begin 1", "end 1", "begin 2", "end 2", "begin 3", "end 3"]


async def test_a_node_cannot_wait_for_a_firing_of_its_own_reactor() -> None:
    """It would wait for itself."""
    errors: list[RequestError] = []
    worlds: list[World] = []

    async def out(a: int) -> int:
        try:
            await worlds[0].commands.fire_manually()
        except RequestError as error:
            errors.append(error)
        return a

    async with running(out) as world:
        worlds.append(world)
        world.push(1)
        await turns()
        assert [error.code for error in errors] == ["inside_firing"]


# -- pausing


@pytest.mark.parametrize(("strategy", "expected"), [("latest", [3]), ("sequential", [1, 2, 3])])
async def test_a_paused_loop_takes_boundaries_and_fires_them_later(strategy: Any, expected: list[int]) -> None:
    """A pause loses nothing that the strategy keeps."""

    def out(a: int) -> int:
        return a

    async with running(out, strategy=strategy) as world:
        world.loop.paused = True
        for value in (1, 2, 3):
            world.push(value)
        assert world.fired == []
        world.loop.paused = False
        world.loop.reevaluate()
        assert world.fired == expected


async def test_a_manual_firing_ignores_the_pause() -> None:
    """An operator may fire by hand."""

    def out(a: int) -> int:
        return a

    async with running(out) as world:
        world.loop.paused = True
        world.push(1)
        firing = await world.commands.fire_manually()
        assert (firing.manual, world.fired) == (True, [1])


@pytest.mark.parametrize(
    ("strategy", "always", "expected"), [("latest", False, [1]), ("latest", True, []), ("sequential", False, [])]
)
async def test_a_queue_pause_holds_sequential_queues_and_others_on_request(
    strategy: Any, always: bool, expected: list[int]
) -> None:
    """Retries pause sequential queues, a full outbox pauses both."""

    def out(a: int) -> int:
        return a

    async with running(out, strategy=strategy) as world:
        world.loop.pause_queue(+1, always=always)
        world.push(1)
        assert world.fired == expected
        world.loop.pause_queue(-1, always=always)
        assert world.fired == [1]


# -- retries


def failing(times: int, seen: list[int]) -> Callable[..., Any]:
    """Return a node that fails so many times, and records its inputs."""

    def out(a: int) -> int:
        seen.append(a)
        if len(seen) <= times:
            raise ValueError("not yet")
        return a

    return out


async def test_a_failed_firing_is_retried_under_its_id() -> None:
    """One log entry per attempt, with growing delays."""
    seen: list[int] = []
    async with running(failing(2, seen), on_error=tm.Retry(3, delay="1s", jitter=0)) as world:
        world.push(1)
        await world.advance(1)
        await world.advance(1)
        assert seen == [1, 1]
        await world.advance(1)
        assert seen == [1, 1, 1]
        firings = world.loop.log.newest(10)
        assert [firing.attempt for firing in firings] == [3, 2, 1]
        assert len({firing.id for firing in firings}) == 1
        assert (world.loop.results.failures, world.host.outcomes) == (1, [False, False, True])


@pytest.mark.parametrize(("strategy", "expected"), [("sequential", [1, 1, 2]), ("latest", [1, 2, 1])])
async def test_only_a_sequential_queue_waits_for_a_retry(strategy: Any, expected: list[int]) -> None:
    """The latest strategy continues with newer values."""
    seen: list[int] = []
    retry = tm.Retry(1, delay="1s", jitter=0)
    async with running(failing(1, seen), strategy=strategy, on_error=retry) as world:
        world.push(1)
        world.push(2)
        await world.advance(1)
        assert seen == expected


async def test_a_firing_without_attempts_left_is_a_dead_letter() -> None:
    """With its exact inputs; a replay that succeeds removes it."""
    seen: list[int] = []
    async with running(failing(2, seen), on_error=tm.Retry(1, delay="1s", jitter=0)) as world:
        world.push(7)
        await world.advance(1)
        (dead_letter,) = world.loop.results.dead_letters.entries()
        assert (dead_letter.inputs, dead_letter.attempts) == ({"a": 7}, 2)
        world.push(8)
        await world.commands.replay(dead_letter.id)
        assert seen == [7, 7, 8, 7]
        assert world.loop.results.dead_letters.entries() == []


async def test_a_retry_of_an_unbound_graph_is_a_dead_letter() -> None:
    """There is nothing left to call."""
    async with running(failing(9, []), on_error=tm.Retry(3, delay="1s", jitter=0)) as world:
        world.push(1)
        await turns()
        world.loop.set_graphs({})
        await world.advance(1)
        (dead_letter,) = world.loop.results.dead_letters.entries()
        assert dead_letter.error == "['g'] unbound before the next try"


async def test_stopping_drops_retries_of_a_reactor_that_is_not_durable() -> None:
    """They are counted, and callers that wait for a firing fail."""
    async with running(failing(9, []), strategy="sequential", on_error=tm.Retry(3, delay="1s")) as world:
        world.push(1)
        world.push(2)
        await turns()
        async with asyncio.TaskGroup() as tasks:
            world.loop.log.next_unread()
            waiter = tasks.create_task(_error_of(world.commands.next_firing(None)))
            await turns()
            world.loop.health_allows_firing = False  # as a reactor that stops
            await world.loop.stop()
        assert waiter.result() == "reactor_not_found"
        assert world.loop.dropped == {"unloaded": 2}


async def _error_of(call: Any) -> str | None:
    try:
        await call
    except RequestError as error:
        return error.code
    return None


# -- interrupted firings


async def test_an_interrupted_firing_is_fired_again_whole() -> None:
    """With its inputs and under its number, before newer ones."""
    gate = asyncio.Event()
    began: list[int] = []

    async def out(a: int) -> int:
        began.append(a)
        await gate.wait()
        return a

    async with running(out, strategy="sequential") as world:
        world.push(1)
        world.push(2)
        await turns()
        (unfinished,) = world.loop.unfinished_firings()
        world.loop.interrupt()
        await turns()
        assert world.loop.unfinished_firings() == [unfinished]
        gate.set()
        world.loop.driver.ensure()
        world.loop.fire_due()
        await turns(20)
        assert began == [1, 1, 2]
        assert world.fired == [1, 2]
        assert world.loop.log.newest(2)[1].id.endswith(f"-{unfinished.number}")


async def test_a_firing_that_a_shutdown_interrupts_comes_first_again() -> None:
    """An exception that is not the author's leaves the loop, and loses nothing."""
    seen: list[int] = []

    def out(a: int) -> int:
        seen.append(a)
        if len(seen) == 1:
            raise KeyboardInterrupt
        return a

    async with running(out, strategy="sequential") as world:
        world.loop.put(0, 1)
        world.loop.put(0, 2)
        with pytest.raises(KeyboardInterrupt):
            world.loop.fire_due()
        await turns()
        assert seen == [1, 1, 2]
        assert world.host.crashes == []


async def test_restored_firings_come_before_new_ones() -> None:
    """An earlier process took their inputs and did not finish them."""

    def out(a: int) -> int:
        return a

    firing = PendingFiring("earlier", 7, FiringInputs([1, None], [(0, 1)], 1), [])
    async with running(out, strategy="sequential") as world:
        world.loop.restore_firings([firing])
        world.push(2)
        assert world.fired == [1, 2]
        assert world.loop.log.newest(2)[1].id == "r-earlier-7"


async def test_a_manual_firing_whose_caller_is_cancelled_does_not_start() -> None:
    """It waited for its turn; the caller is gone."""
    gate = asyncio.Event()

    async def out(a: int) -> int:
        await gate.wait()
        return a

    async with running(out) as world:
        world.push(1)
        await turns()
        async with asyncio.TaskGroup() as tasks:
            manual = tasks.create_task(world.commands.fire_manually())
            await turns()
            manual.cancel()
        gate.set()
        await turns()
        assert [firing.manual for firing in world.loop.log.newest(10)] == [False]
