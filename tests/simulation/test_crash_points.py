"""kill -9 at every transaction, before and after it took effect; and random stories of pushes, faults and crashes."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm
from tidemill.kernel.errors import StoreError
from tidemill.storage.committer import Ambiguous
from tidemill.testing.faults.stores import intercept_transactions

Told = list[tuple[str, tuple[Any, ...], list[tuple[str, Any]]]]
TURNS = 400  # of the loop: more than any step needs
LAST = 100  # values from here on end a story: each source gets one, so that every earlier boundary is consumed
WORLDS: dict[str, dict[str, Any]] = {"any": {}, "all": {"when": "all"}, "followed": {"is_followed": True}}


class World:
    """Reactor `r` over `a`, `b` and batch `c`; a graph that tells what it saw; and who pushed what with what answer."""

    def __init__(self, *, is_followed: bool = False, **options: Any) -> None:
        self.told: Told = []
        self.delivered: set[str] | None = set() if is_followed else None
        self.accepted: dict[str, list[int]] = {"a": [], "b": [], "c": []}
        self.tried: dict[str, set[int]] = {"a": set(), "b": set(), "c": set()}

        @tm.passthrough
        def a(event: int) -> int:
            return event

        @tm.passthrough
        def b(event: int) -> int:
            return event

        @tm.batch(every="1s", max_size=3)
        def c(events: list[int]) -> list[int]:
            return events

        self.reactor = tm.Reactor("r", [a, b, c], **options)
        graph = tm.Graph("g", reactor=self.reactor)

        @graph.node
        def tell(a: int | None, b: int | None, c: list[int] | None, ctx: tm.Context) -> None:
            self.told.append((ctx.firing_id, (a, b, tuple(c or ())), ctx.consumed))

        self.load = [self.reactor, graph, *([self._follower()] if is_followed else [])]

    def _follower(self) -> tm.Workflow:
        following = tm.Workflow("following", triggers=[tm.on_firing("r")])

        @following.task
        def note(ctx: tm.Context) -> None:
            assert self.delivered is not None
            self.delivered.add(ctx["firing_id"])

        return following

    async def push(self, node: tm.testing.TestNode, name: str, value: int) -> None:
        """Push a value and note whether it was acknowledged."""
        self.tried[name].add(value)
        if (await node.push(name, value)).accepted:
            self.accepted[name].append(value)

    async def push_many(self, node: tm.testing.TestNode, name: str, values: list[int]) -> None:
        """Push values at once and note which were acknowledged."""
        self.tried[name].update(values)
        receipts = (await node.push_many(name, values)).receipts
        self.accepted[name] += [value for value, one in zip(values, receipts, strict=True) if one.accepted]

    async def end(self, node: tm.testing.TestNode) -> None:
        """Push a last value to each source, and let everything happen that is due."""
        for name in "abc":
            await self.push(node, name, LAST)
        await node.advance("2s")
        await node.settle()

    def first_sights(self, name: str) -> list[int]:
        """Return what firings consumed of a source: each firing id once, in the order in which they first ran."""
        by_id = {firing_id: consumed for firing_id, _, consumed in reversed(self.told)}
        entries = [entry for firing_id in dict.fromkeys(one[0] for one in self.told) for entry in by_id[firing_id]]
        found = [value for source, value in entries if source == name]
        return [one for value in found for one in (value if name == "c" else [value])]

    def check_sequential(self) -> None:
        """G-24: nothing acknowledged is lost, order is kept, an id is one set of inputs, nothing is there twice."""
        known: dict[str, Any] = {}
        for firing_id, *rest in self.told:
            assert known.setdefault(firing_id, rest) == rest, firing_id
        for name in "abc":
            seen = self.first_sights(name)
            assert len(set(seen)) == len(seen), (name, seen)
            accepted = {value for value in self.accepted[name] if value < LAST}
            assert accepted <= set(seen) <= self.tried[name], (name, seen, self.accepted)
            assert seen == sorted(seen), (name, seen)
        assert self.delivered is None or self.delivered == set(known)


class Killer:
    """Lets transactions of a memory store through until one of them is the last, before or after it took effect."""

    def __init__(self, node: tm.testing.TestNode, survive: int, *, takes_effect: bool) -> None:
        self._left = survive
        self._takes_effect = takes_effect
        self.is_dead = False
        self._undo = intercept_transactions(node.database, self._transact)

    async def _transact(self, transact: Any, units: Any) -> Any:
        if self._left == 0:
            if self._takes_effect and not self.is_dead:
                await transact(units)
            self.is_dead = True
            await asyncio.Event().wait()  # no caller ever gets an answer
        self._left -= 1
        return await transact(units)

    def lift(self) -> None:
        """Let the next life write again."""
        self._undo()


async def story(node: tm.testing.TestNode, world: World) -> None:
    """Push a known sequence, alone and at once, over a flush by size, one by time, and a checkpoint."""
    await world.push(node, "a", 1)
    await world.push(node, "b", 2)
    await world.push(node, "c", 3)
    await asyncio.gather(*(world.push(node, name, value) for name, value in (("a", 4), ("c", 5), ("b", 6), ("a", 7))))
    await node.settle()
    await asyncio.gather(*(world.push(node, "c", value) for value in (8, 9, 10, 11)))
    await node.advance("300ms")
    await world.push(node, "b", 12)
    await node.advance("1s")
    await world.push_many(node, "a", [13, 14, 15])
    await world.push_many(node, "c", [16, 17])


async def live_and_die(survive: int, *, takes_effect: bool, **options: Any) -> bool:
    """Tell the story with one death in it; return whether it was reached."""
    world = World(strategy="sequential", durability="boundary", **options)
    async with tm.testing.node(store="memory://", load=world.load) as node:
        killer = Killer(node, survive, takes_effect=takes_effect)
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(story(node, world), name="story")
            while not telling.done() and not killer.is_dead:  # noqa: ASYNC110 - either may come first
                await asyncio.sleep(0)
            for _ in range(TURNS if killer.is_dead else 0):
                await asyncio.sleep(0)
            telling.cancel()
        killer.lift()
        node = await node.crash()
        await node.advance("2s")
        await node.settle()
        await world.end(node)
    world.check_sequential()
    return killer.is_dead


@pytest.mark.parametrize("options", WORLDS.values(), ids=WORLDS.keys())
@pytest.mark.parametrize("takes_effect", [False, True])
async def test_a_death_at_any_transaction_loses_nothing(takes_effect: bool, options: dict[str, Any]) -> None:
    """G-24, fault 51: every transaction of the story is once the last, before and after it took effect."""
    survive = 0
    while await live_and_die(survive, takes_effect=takes_effect, **options):
        survive += 1
    assert survive > 8


class Fault:
    """Lets transactions of a memory store through, except one: it is refused, or its outcome is not known at first."""

    def __init__(self, node: tm.testing.TestNode, survive: int, outcome: str) -> None:
        self._left = survive
        self._outcome = outcome
        self.has_come = False
        self.lift = intercept_transactions(node.database, self._transact, self._was_committed)

    async def _transact(self, transact: Any, units: Any) -> Any:
        self._left -= 1
        if self._left != -1:
            return await transact(units)
        self.has_come = True
        if self._outcome == "refused":
            raise StoreError("refused on purpose")
        results = (await transact(units)).results if self._outcome == "committed" else []
        return Ambiguous(token=None, results=results, cause="the connection was lost")

    async def _was_committed(self, token: None) -> bool:
        assert token is None
        return self._outcome == "committed"


async def live_with_a_fault(survive: int, outcome: str) -> bool:
    """Tell the story with one transaction refused or ambiguous, then crash; return whether it came."""
    world = World(strategy="sequential", durability="boundary")
    async with tm.testing.node(store="memory://", load=world.load) as node:
        fault = Fault(node, survive, outcome)
        await story(node, world)
        await node.settle()
        fault.lift()
        node = await node.crash()
        await world.push(node, "a", 100)
        await node.advance("2s")
        await node.settle()
    world.check_sequential()
    for name in "abc":
        assert world.first_sights(name) == world.accepted[name], name
    return fault.has_come


@pytest.mark.parametrize("outcome", ["refused", "committed", "lost"])
async def test_a_fault_of_any_transaction_is_answered_truthfully(outcome: str) -> None:
    """G-24, 0009, 0010: exactly what was acknowledged happens, also for the commits that many events share."""
    survive = 0
    while await live_with_a_fault(survive, outcome):
        survive += 1
    assert survive > 8


# -- random stories

Step = tuple[str, Any]
NAMES = st.sampled_from("abc")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), NAMES),
        st.tuples(st.just("push"), NAMES),
        st.tuples(st.just("push_at_once"), st.lists(NAMES, min_size=2, max_size=6)),
        st.tuples(st.just("push_many"), st.tuples(NAMES, st.integers(2, 6))),
        st.tuples(st.just("fail_store"), st.integers(1, 3)),
        st.tuples(st.just("advance"), st.sampled_from(["0ms", "50ms", "200ms", "1s"])),
        st.tuples(st.sampled_from(["pause", "resume", "force_fire", "settle", "crash"]), st.none()),
    ),
    max_size=25,
)


class Player:
    """Plays a story, life after life."""

    def __init__(self, world: World, node: tm.testing.TestNode) -> None:
        self.world = world
        self.node = node
        self.number = 0
        self.lives = 1

    async def push(self, names: list[str]) -> None:
        values = [(name, self.number + index) for index, name in enumerate(names, 1)]
        self.number += len(names)
        await asyncio.gather(*(self.world.push(self.node, name, value) for name, value in values))

    async def play(self, step: Step) -> None:
        kind, value = step
        reactor = self.node.reactor("r")
        if kind in ("push", "push_at_once"):
            await self.push([value] if kind == "push" else value)
        elif kind == "push_many":
            name, count = value
            await self.world.push_many(self.node, name, [self.number + index for index in range(1, count + 1)])
            self.number += count
        elif kind == "fail_store":
            self.node.fail_store(value)
        elif kind == "advance":
            await self.node.advance(value)
        elif kind == "crash":
            self.node.fail_store(0)
            self.node = await self.node.crash()
            self.lives += 1
        elif kind == "settle":
            await self.node.settle()
        else:
            command: Callable[[], Any] = getattr(reactor, kind)
            with suppress(tm.OperationError):  # a pause that could not be stored, which says so
                await command()

    async def finish(self) -> tm.ReactorState:
        self.node.fail_store(0)
        await self.node.reactor("r").resume()
        await self.node.advance("3s")
        await self.node.settle()
        return self.node.reactor("r").state()


async def tell(world: World, steps: list[Step]) -> tuple[tm.ReactorState, int]:
    """Play a story to its end; return the state then and how many lives it took."""
    async with asyncio.timeout(20), tm.testing.node(store="memory://", load=world.load) as node:
        player = Player(world, node)
        for step in steps:
            await player.play(step)
        return await player.finish(), player.lives


@settings(max_examples=max(1, settings().max_examples // 2))
@given(steps=STEPS)
def test_sequential_under_boundary_loses_doubles_and_reorders_nothing(steps: list[Step]) -> None:
    """G-11, G-24: whatever happens; only a firing by hand shows no boundary of its own."""
    world = World(strategy="sequential", durability="boundary")
    state, _ = asyncio.run(tell(world, steps))
    known: dict[str, Any] = {}
    for firing_id, *rest in world.told:
        assert known.setdefault(firing_id, rest) == rest, firing_id
    order = [value for _, _, consumed in world.told for source, value in consumed if source in "ab"]
    for name in "ab":
        values = [value for value in dict.fromkeys(order) if value in world.tried[name]]
        assert set(world.accepted[name]) <= set(values)
        assert values == sorted(values)
    sums = {tuple(value) for _, _, consumed in world.told for source, value in consumed if source == "c"}
    summed = sorted(value for one in sums for value in one)
    assert set(world.accepted["c"]) <= set(summed)
    assert len(set(summed)) == len(summed)
    assert (state.queued, any(state.dirty.values())) == (0, False)


@settings(max_examples=max(1, settings().max_examples // 2))
@given(steps=STEPS)
def test_latest_under_boundary_ends_with_the_newest_acknowledged_values(steps: list[Step]) -> None:
    """G-2, G-24: the last acknowledged value of each source is in the cache and was seen; ids are one set of inputs."""
    world = World(strategy="latest", durability="boundary")
    state, _ = asyncio.run(tell(world, steps))
    known: dict[str, Any] = {}
    for firing_id, inputs, _ in world.told:
        assert known.setdefault(firing_id, inputs) == inputs, firing_id
    for name in "ab":
        if world.accepted[name]:
            assert state.cache[name] == world.accepted[name][-1]
    if world.accepted["a"] or world.accepted["b"]:
        seen = world.told[-1][1]
        assert (seen[0], seen[1]) == (state.cache.get("a"), state.cache.get("b"))
    assert not any(state.dirty.values())


@settings(max_examples=max(1, settings().max_examples // 2))
@given(
    steps=STEPS, strategy=st.sampled_from(["latest", "sequential"]), durability=st.sampled_from(["interval", "fire"])
)
def test_snapshots_lose_at_most_what_came_since_the_last_one(steps: list[Step], strategy: Any, durability: Any) -> None:
    """G-23: order is kept, nothing appears that was not pushed, ids never collide; without a crash nothing is lost."""
    world = World(strategy=strategy, durability=durability)
    state, lives = asyncio.run(tell(world, steps))
    known: dict[str, Any] = {}
    for firing_id, *rest in world.told:
        assert known.setdefault(firing_id, rest) == rest, firing_id
    for name in "ab":
        seen = {value for _, _, consumed in world.told for source, value in consumed if source == name}
        assert seen <= world.tried[name]
        if lives == 1 and world.accepted[name]:
            assert state.cache[name] == world.accepted[name][-1]
    assert (state.queued, any(state.dirty.values())) == (0, False)
