"""Random workflows under random faults: nothing is lost, nothing runs twice at a time, every history is legal."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm
from tests.simulation.flows import Recipe, World
from tidemill.kernel.errors import StoreError, TidemillError
from tidemill.storage.committer import CommitFuture
from tidemill.workflows.lookup import WorkflowPausedError
from tidemill.workflows.records import RunRecord
from tidemill.workflows.states import RunState

Step = tuple[str, Any]
RULES = ["all_success", "all_done", "one_success", "one_failed", "none_failed", "all_failed", "one_done", "always"]
PATIENCE = 60  # minutes, of virtual time, in which everything ends once the faults have stopped

RECIPES = st.builds(
    Recipe,
    seconds=st.sampled_from([0.0, 0.0, 0.0, 3.0, 40.0]),
    failures=st.sampled_from([0, 0, 0, 1, 2, 99]),
    retries=st.sampled_from([0, 1, 2]),
    end=st.sampled_from(["value", "value", "value", "skip"]),
    defers=st.sampled_from([0.0, 0.0, 0.0, 30.0]),
    timeout=st.sampled_from([None, None, None, 10.0]),
    is_mapped=st.sampled_from([False, False, False, True]),
    after=st.sets(st.integers(0, 4), max_size=3).map(lambda found: tuple(sorted(found))),
    rule=st.sampled_from(RULES),
)
NOTHING = st.none()
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), NOTHING),
        st.tuples(st.just("advance"), st.sampled_from(["0ms", "100ms", "1s", "31s"])),
        st.tuples(st.just("advance"), st.sampled_from(["1s", "3s", "2m"])),
        st.tuples(st.just("fail_store"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["crash", "kill_worker", "pause", "resume", "turn"]), NOTHING),
        st.tuples(st.sampled_from(["cancel", "clear", "clear_failed", "pin_anew"]), st.integers(0, 4)),
        st.tuples(st.just("slow_executor"), st.sampled_from(["0ms", "500ms", "20s"])),
    ),
    max_size=14,
)


class Player:
    """Plays a story on one node after the other."""

    def __init__(self, world: World, node: tm.testing.TestNode) -> None:
        self.world = world
        self.node = node
        self.started: list[str] = []

    async def play(self, step: Step) -> None:
        kind, value = step
        if kind == "start":
            await self.start()
        elif kind == "advance":
            await self.node.advance(value)
        elif kind == "crash":
            self.node = await self.node.crash()
        elif kind == "kill_worker":
            await self.node.kill_worker()
        elif kind in ("fail_store", "slow_executor"):
            getattr(self.node, kind)(value)
        elif kind == "turn":
            await asyncio.sleep(0)
        else:
            with suppress(TidemillError):  # the store may fail, or the run may have ended: the caller gets the error
                await self._intervene(kind, value)

    async def start(self) -> None:
        with suppress(StoreError, WorkflowPausedError):
            self.started.append((await self.node.start(self.world.flow)).id)

    async def _intervene(self, kind: str, number: int | None) -> None:
        if kind in ("pause", "resume"):
            await getattr(self.node, kind)(self.world.flow)
        elif number is not None and self.started:
            run = self.node.run_handle(self.started[number % len(self.started)])
            if kind == "cancel":
                await run.cancel()
            else:
                await run.retry("t0" if kind == "clear" else None, latest=kind == "pin_anew")

    async def check(self) -> list[RunRecord]:
        """Check the invariants; a file is read in pieces, so only while nothing is written."""
        if self.node._parts.foundation.store is not None:
            await self.node.advance("0ms")
        return await self.world.check(self.node)

    async def finish(self) -> list[RunRecord]:
        """Let all faults stop, and time pass until everything has ended."""
        self.node.fail_store(0)
        self.node.slow_executor("0ms")
        await self.node.resume(self.world.flow)
        for _ in range(PATIENCE):
            records = await self.check()
            if all(record.run.state.is_terminal for record in records):
                return records
            await self.node.advance("1m")
        raise AssertionError([(record.run.id, record.tasks) for record in records if not record.run.state.is_terminal])


async def tell(recipes: list[Recipe], steps: list[Step], store: str | None = None) -> None:
    """Tell a story, and check after every step what must always hold, and at the end that all is done."""
    world = World(recipes)
    async with tm.testing.node(store, load=[world.flow], clock=world.clock) as node:
        player = Player(world, node)
        await player.start()
        for step in steps:
            await player.play(step)
            await player.check()
        records = await player.finish()
        assert set(player.started) <= {record.run.id for record in records}
        await player.node.advance("1s")
        assert not player.node.probe.workflows.attempts.claimed
        assert player.node.metrics()["run_errors_total"] == 0


@settings(max_examples=max(1, settings().max_examples // 3))
@given(recipes=st.lists(RECIPES, min_size=1, max_size=5), steps=STEPS)
def test_any_story_of_runs_and_faults_ends_well(recipes: list[Recipe], steps: list[Step]) -> None:
    """W-1, W-3, W-4, W-11, W-12, invariants I-3, I-4, I-5, I-10, I-11, I-17, I-20."""
    asyncio.run(tell(recipes, steps))


@settings(max_examples=max(1, settings().max_examples // 12))
@given(recipes=st.lists(RECIPES, min_size=1, max_size=5), steps=STEPS)
def test_any_story_ends_well_in_a_file(recipes: list[Recipe], steps: list[Step]) -> None:
    """As above, on SQLite: where reads and writes take their time, more comes in between."""
    with TemporaryDirectory() as folder:
        asyncio.run(tell(recipes, steps, f"sqlite:///{Path(folder)}/tidemill.db"))


# -- every single point

SMALL = [
    Recipe(failures=1, retries=2),
    Recipe(defers=30.0, after=(0,)),
    Recipe(is_mapped=True, seconds=1.0, after=(0,)),
]
OUTPUTS = {"items": [10, 20, 30], "t0": 0, "t1": 1, "t2": [10, 20, 30]}


class Fault:
    """Lets calls of the store through until one of them fails, or is the last before a death."""

    def __init__(self, node: tm.testing.TestNode, survive: int, kind: str) -> None:
        self._left = survive
        self._kind = kind
        self.has_struck = False
        self.is_dead = False
        self._replaced: list[tuple[Any, str]] = []
        store = node.probe.workflows.store
        for port in (store.runs, store.leases, store.owners, store.schedules, store.versions, store.backfills):
            for name in (name for name in dir(port) if not name.startswith("_")):
                self._stand_before(port, name)

    def _stand_before(self, port: Any, name: str) -> None:
        call: Callable[..., Any] = getattr(port, name)

        async def instead(*args: Any, **options: Any) -> Any:
            if self.is_dead:
                await asyncio.Event().wait()
            if self._left == 0 and not self.has_struck:
                return await self._strike(call, *args, **options)
            self._left -= 1
            return await call(*args, **options)

        setattr(port, name, instead if iscoroutinefunction(call) else partial(self._begin, call))
        self._replaced.append((port, name))

    def _begin(self, call: Callable[..., Any], *args: Any) -> CommitFuture[Any]:
        """Do the same with a call that gives its answer later."""
        answer: CommitFuture[Any] = CommitFuture()
        is_struck = self._left == 0 and not self.has_struck
        if not self.is_dead and not is_struck:
            self._left -= 1
            return call(*args)
        self.has_struck = True
        if is_struck and self._kind == "fails":
            asyncio.get_running_loop().call_soon(answer.set_error, StoreError("failed on purpose"))
        elif is_struck and self._kind == "dies after":
            call(*args).add_done_callback(lambda _: self._die())
        elif is_struck:
            self._die()
        return answer

    def _die(self) -> None:
        self.is_dead = True

    async def _strike(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self.has_struck = True
        if self._kind == "fails":
            raise StoreError("failed on purpose")
        if self._kind == "dies after":
            await call(*args, **options)
        self.is_dead = True
        await asyncio.Event().wait()  # no caller ever hears of it

    def lift(self) -> None:
        """Let every call through again."""
        for port, name in self._replaced:
            delattr(port, name)


async def live_through(survive: int, kind: str) -> bool:
    """Tell the small story with one fault in it; return whether it was reached."""
    world = World(SMALL)
    async with tm.testing.node(load=[world.flow], clock=world.clock) as node:
        fault = Fault(node, survive, kind)
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(small_story(node, world), name="story")
            while not telling.done() and not fault.is_dead:  # noqa: ASYNC110 - either may come first
                await asyncio.sleep(0)
            telling.cancel()
        fault.lift()
        if fault.is_dead:
            node = await node.crash()
        records = await world.check(node)
        if not records:  # no caller had heard of it
            await node.start(world.flow)
        player = Player(world, node)
        (record,) = await player.finish()
        result = await node.run_handle(record.run.id).state()
        assert (result.state, result.outputs) == (RunState.SUCCESS, OUTPUTS)
        assert not node.probe.workflows.attempts.claimed
    return fault.has_struck


async def small_story(node: tm.testing.TestNode, world: World) -> None:
    """Start a run and see it through."""
    with suppress(StoreError):
        await node.start(world.flow)
    await node.advance("40s")


@pytest.mark.parametrize("kind", ["fails", "dies before", "dies after"])
async def test_a_fault_at_any_call_of_the_store_changes_nothing(kind: str) -> None:
    """I-12, faults 1, 22, 26: whichever call fails, or is the last, before or after it took effect: the same end."""
    survive = 0
    while await live_through(survive, kind):
        survive += 1
    assert survive > 25
