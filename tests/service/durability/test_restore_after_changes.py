"""Coming back among others: onto accumulators that run, under another declaration, from a store that is not whole."""

import asyncio
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.damage import change, fill
from tests.service.samples import pair, single
from tests.service.workflows.faults import breaking
from tidemill.engine.graphs.accumulators.emit import resolve_receipt
from tidemill.engine.graphs.checkpoints.capture import checkpoint_groups

KEPT = ["interval", "fire", "boundary"]


class Total(tm.Boundary):
    """A running sum."""

    sum: int = 0
    count: int = 0


def totals(**options: Any) -> tm.Reactor:
    """Return reactor `r` over `total`, which keeps a running sum."""

    @tm.passthrough(state=Total)
    def total(event: int, state: Total) -> Total:
        return Total(state.sum + event, state.count + 1)

    return tm.Reactor("r", [total], **options)


def numbers(name: str) -> tm.Accumulator:
    """Return a passthrough of that name."""

    def accumulate(event: int) -> int:
        return event

    accumulate.__name__ = name
    return tm.passthrough(accumulate)


def package(**things: Any) -> types.ModuleType:
    """Return definitions as one package."""
    module = types.ModuleType("package")
    vars(module).update(things)
    return module


async def reborn(node: tm.testing.TestNode, *things: Any) -> tm.testing.TestNode:
    """Let a node die as of kill -9, and come up again with other definitions."""
    node.loaded_packages = {("public", str(index)): thing for index, thing in enumerate(things)}
    return await node.crash()


def fired(node: tm.Node, reactor: str, source: str = "a") -> list[Any]:
    """Return what a source had when a reactor fired, oldest first."""
    return [firing.inputs.get(source) for firing in reversed(node.reactor(reactor).firings())]


def complaints(node: tm.testing.TestNode, name: str) -> list[str]:
    """Return what could not be restored of something."""
    return [one.reason for one in node.probe.graphs.recoveries() if (one.action, one.name) == ("restored", name)]


def accumulator(node: tm.testing.TestNode, name: str) -> Any:
    """Return a running accumulator."""
    return node.probe.graphs.accumulator(name)


# -- another durability


async def test_the_journals_tail_is_in_the_state_whatever_the_durability_is_by_now(store: str) -> None:
    """G-24, behaviour 21: a reactor that is no longer journaled continues from its committed state."""
    async with tm.testing.node(store, load=[totals(durability="boundary")]) as node:
        await node.push("total", 1)
        await node.settle()
        await node.push("total", 1)
        await node.push("total", 1)
        node = await reborn(node, totals(durability="interval"))
        await node.push("total", 1)
        assert node.reactor("r").state().cache == {"total": {"sum": 4, "count": 4}}


async def test_what_is_not_kept_begins_anew(store: str) -> None:
    """Durability: "none" keeps all in memory; nothing of an earlier process is restored, not even from the journal."""
    async with tm.testing.node(store, load=[totals(durability="boundary")]) as node:
        await node.push("total", 1)
        await node.settle()
        await node.push("total", 1)
        node = await reborn(node, totals(durability="none"))
        assert (await node.push("total", 5)).sequence == 1
        assert node.reactor("r").state().cache == {"total": {"sum": 5, "count": 1}}


async def test_what_is_not_kept_need_not_be_storable(store: str) -> None:
    """Durability: the store may hold something of an earlier version of it."""

    class Odd:
        """Nothing that msgspec knows."""

    @tm.passthrough
    def a(event: int) -> Odd:
        return Odd()

    async with tm.testing.node(store, load=single(durability="boundary").load) as node:
        await node.push("a", 1)
        await node.settle()
        await node.push("a", 1)
        node = await reborn(node, tm.Reactor("r", [a], durability="none"))
        assert (await node.push("a", 1)).accepted
        assert node.reactor("r").state().fires == 1


async def test_what_was_not_kept_for_a_life_disowns_the_journal_of_the_one_before(store: str) -> None:
    """G-24: kept again, it does not go back behind what it did not keep."""
    a = numbers("a")
    loose, strict = tm.Reactor("loose", [a], durability="none"), tm.Reactor("strict", [a], durability="boundary")
    async with tm.testing.node(store, load=[strict]) as node:
        for value in (1, 2, 3):
            await node.push("a", value)
        node = await reborn(node, loose)
        await node.push("a", 10)
        await node.load(strict)
        await node.push("a", 11)
        node = await node.crash()
        assert (await node.push("a", 12)).sequence == 3
        await node.settle()
        assert 12 in fired(node, "strict")


@pytest.mark.parametrize("is_first", [True, False])
async def test_an_accumulator_is_restored_for_the_reactor_that_is_kept(store: str, is_first: bool) -> None:
    """G-23: also if a reactor that is not durable was loaded before."""
    a = numbers("a")
    load = [tm.Reactor("loose", [a], durability="none"), tm.Reactor("strict", [a], durability="interval")]
    async with tm.testing.node(store, load=load if is_first else load[::-1]) as node:
        await node.push("a", 1)
        await node.settle()
        node = await node.crash()
        assert (await node.push("a", 2)).sequence == 2


# -- accumulators that run already


@pytest.mark.parametrize("durability", KEPT)
async def test_a_newcomer_is_not_given_what_happened_before_it(store: str, durability: Any) -> None:
    """G-24: however much of the journal is still there; nor after a crash."""
    a = numbers("a")
    newcomer = tm.Reactor("new", [a], durability=durability, strategy="sequential")
    async with tm.testing.node(store, load=[tm.Reactor("old", [a], durability="boundary")]) as node:
        await node.push("a", 1)
        await node.settle()
        await node.push("a", 2)
        await node.load(newcomer)
        await node.settle()
        assert fired(node, "new") == []
        await node.push("a", 3)
        await node.settle()
        assert fired(node, "new") == [3]
        await node.push("a", 4)
        node = await node.crash()
        await node.settle()
        assert fired(node, "new") in ([4], [])  # with "fire" it may have been written already


async def test_a_source_that_is_new_to_a_reactor_brings_no_past(store: str) -> None:
    """G-24: what a running accumulator handed to others is not for a version that only now listens to it."""
    a, b = numbers("a"), numbers("b")

    def version(*sources: tm.Accumulator) -> types.ModuleType:
        return package(r=tm.Reactor("r", list(sources), durability="boundary", strategy="sequential"))

    others = [tm.Reactor("of_a", [a], durability="boundary"), tm.Reactor("of_b", [b], durability="boundary")]
    async with tm.testing.node(store, load=[*others, version(a)]) as node:
        await node.push("a", 1)
        await node.push("b", 2)
        await node.load(version(a, b))
        await node.push("b", 3)
        await node.settle()
        assert fired(node, "r", "b") == [3]


async def test_before_the_first_checkpoint_everything_is_in_the_journal(store: str) -> None:
    """G-24: reactors that come up together, and whose parts could not be written before they died, get all of it."""
    a = numbers("a")
    one, two = (tm.Reactor(name, [a], durability="boundary", strategy="sequential") for name in ("one", "two"))
    async with tm.testing.node(store) as node:
        with breaking(node.database.checkpoints, "save"):
            await node.load(one)
            await node.load(two)
        await node.push("a", 1)
        await node.push("a", 2)
        node = await node.crash()
        await node.settle()
        assert (fired(node, "one"), fired(node, "two")) == ([1, 2], [1, 2])


async def test_nothing_is_lost_while_a_reactor_is_exchanged(store: str) -> None:
    """G-24: what a shared accumulator takes in after the old version has left it goes to the new one."""
    gate = asyncio.Event()
    a, b = numbers("a"), numbers("b")

    def version(*sources: tm.Accumulator) -> types.ModuleType:
        reactor = tm.Reactor("r", list(sources), durability="boundary", strategy="sequential")
        graph = tm.Graph("g", reactor=reactor)

        @graph.node
        async def wait(a: int) -> None:
            await gate.wait()

        return package(r=reactor, g=graph)

    other = tm.Reactor("other", [a], durability="boundary")
    async with tm.testing.node(store, load=[other, version(a)]) as node:
        await node.push("a", 1)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(node.load(version(a, b)))
            async with asyncio.timeout(10):  # it is removed, and still busy with its last firing
                while node.probe.graphs.targets_of("a") != ["other"]:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            for value in (2, 3, 4):
                await node.push("a", value)
                await node.advance("250ms")  # a checkpoint each, which makes older entries dispensable
            gate.set()
        await node.push("a", 5)
        await node.settle()
        assert fired(node, "r") == [2, 3, 4, 5]
        assert accumulator(node, "a").emitter.departed_reactors == {}


@pytest.mark.parametrize("is_slow", [False, True])
async def test_what_is_committed_while_the_journal_is_read_comes_once(store: str, is_slow: bool) -> None:
    """G-24: also if it is in the store before it has happened, or happens when the journal was read."""
    a, b = numbers("a"), numbers("b")

    def version(*sources: tm.Accumulator) -> types.ModuleType:
        return package(r=tm.Reactor("r", list(sources), durability="boundary", strategy="sequential"))

    async with tm.testing.node(store, load=[tm.Reactor("other", [a], durability="boundary"), version(a)]) as node:
        await node.push("a", 1)
        await node.settle()
        checkpoints: Any = node.database.checkpoints
        entries, append = checkpoints.read_blocks, checkpoints.append
        stored, may_happen = asyncio.Event(), asyncio.Event()
        begun: list[asyncio.Future[Any]] = []

        async def slow_append(rows: Any, *rest: Any) -> None:
            await append(rows, *rest)
            stored.set()
            await may_happen.wait()

        async def read(journals: Any) -> Any:
            is_last = not node.probe.graphs.is_running("r")
            if begun or not is_last:
                return await entries(journals)
            found = await entries(journals)
            one = accumulator(node, "a")
            pending = one.kind.emit_or_journal(2, 2, one.emitter.held)
            begun.append(tasks.create_task(resolve_receipt(pending)))
            if is_slow:
                await stored.wait()
                return await entries(journals)
            may_happen.set()
            await begun[0]
            return found

        checkpoints.read_blocks, checkpoints.append = read, slow_append
        async with asyncio.TaskGroup() as tasks:
            await node.load(version(a, b))
            may_happen.set()
        await node.push("a", 3)
        await node.settle()
        assert fired(node, "r") == [2, 3]


# -- another kind


def held_and_boundary() -> dict[str, Callable[[], tm.Accumulator]]:
    """Return accumulators of one name and of three kinds."""

    def batch() -> tm.Accumulator:
        @tm.batch(max_size=100, every="60s")
        def a(events: list[int]) -> int:
            return sum(events)

        return a

    return {"passthrough": lambda: numbers("a"), "batch": batch, "window": lambda: tm.window("a", int, capacity=3)}


@pytest.mark.parametrize("durability", ["interval", "boundary"])
@pytest.mark.parametrize(
    ("before", "after"), [("batch", "passthrough"), ("window", "batch"), ("batch", "window"), ("window", "passthrough")]
)
async def test_what_another_kind_held_is_left_out_aloud(store: str, durability: Any, before: str, after: str) -> None:
    """G-23: raw events are no boundaries; nothing of it fires, and what comes then is kept as usual."""
    kinds = held_and_boundary()

    def load(kind: str) -> tm.Reactor:
        return tm.Reactor("r", [kinds[kind]()], durability=durability, strategy="sequential")

    async with tm.testing.node(store, load=[load(before)]) as node:
        await node.push("a", 1)
        await node.settle()
        await node.push("a", 2)
        node = await reborn(node, load(after))
        await node.settle()
        assert fired(node, "r") == []
        assert any(f"it was a {before} and is a {after} now" in reason for reason in complaints(node, "a"))
        assert list(accumulator(node, "a").emitter.held.events) == []
        await node.push("a", 7)
        await node.settle()
        node = await node.crash()
        assert len(complaints(node, "a")) == len({*complaints(node, "a")})  # it is not said again
        assert list(accumulator(node, "a").emitter.held.events) == ([] if after == "passthrough" else [7])


async def test_a_held_event_that_no_longer_fits_still_counts_among_those_let_go_of(store: str) -> None:
    """G-24: else the sum of a batch would take an event with it that came after it."""

    def load(event_type: Any) -> tm.Reactor:
        def a(events: list[Any]) -> int:
            return len(events)

        a.__annotations__ = {"events": list[event_type], "return": int}
        return tm.Reactor("r", [tm.batch(max_size=2, every="60s")(a)], durability="boundary", strategy="sequential")

    async with tm.testing.node(store, load=[load(int | str)], disconnected=["a"]) as node:
        await asyncio.gather(*(node.push("a", value) for value in ("odd", 1, 2)))
        await node.advance("1ms")
        assert list(accumulator(node, "a").emitter.held.events) == [2]
        node = await reborn(node, load(int))
        assert list(accumulator(node, "a").emitter.held.events) == [2]
        assert any("no longer fits" in reason for reason in complaints(node, "a"))


# -- damage


@pytest.mark.parametrize("column", ["moment", "generation", "payload"])
async def test_a_damaged_number_does_not_let_accumulators_run_ahead(tmp_path: Path, sqlite: str, column: str) -> None:
    """G-6, G-23: the newest part of a reactor is damaged, perhaps where it says how new it is; all step back."""
    path = tmp_path / "tidemill.db"
    await fill(path, "interval")
    (newest,) = ("(SELECT max(moment) FROM parts WHERE kind = 'reactor')",)
    new = "x''" if column == "payload" else "1"
    change(path, f"UPDATE parts SET {column} = {new} WHERE kind = 'reactor' AND moment = {newest}")
    sample = pair(durability="interval", strategy="sequential")
    async with tm.testing.node(sqlite, load=sample.load) as node:
        cache = node.reactor("r").state().cache
        sequences = {name: accumulator(node, name).emitter.sequence for name in "ab"}
    assert cache == {"a": 5, "b": 5}
    assert sequences == {"a": 6, "b": 6}


# -- many


async def test_a_circle_is_found_in_one_look_at_each_accumulator() -> None:
    """Capacity: a node with hundreds of reactors on one accumulator starts in no time."""

    class Counted(list[Any]):
        """A list that counts what is taken from it."""

        taken = 0

        def __iter__(self) -> Any:
            for one in super().__iter__():
                Counted.taken += 1
                yield one

    a = numbers("a")
    load = [tm.Reactor(f"r{number}", [a]) for number in range(100)]
    async with tm.testing.node("memory://", load=load) as node:
        one = accumulator(node, "a")
        one.emitter.targets = Counted(one.emitter.targets)
        (circle,) = checkpoint_groups(node.probe.graphs.reactors)
        assert (len(circle.reactors), Counted.taken) == (100, 100)


async def test_a_package_of_many_reactors_asks_the_store_a_few_times() -> None:
    """Capacity: what is stored of a thousand reactors is read at once."""
    load = {f"r{number}": tm.Reactor(f"r{number}", [numbers(f"a{number}")]) for number in range(100)}
    async with tm.testing.node("memory://") as node:
        store: Any = node.database
        asked: list[str] = []
        for port, name in (
            (store.dead_letters, "for_source"),
            (store.pauses, "is_paused"),
            (store.checkpoints, "read_parts"),
        ):
            setattr(port, name, _counted(getattr(port, name), name, asked))
        await node.load(package(**load))
        assert asked == ["read_parts"]


def _counted(call: Callable[..., Any], name: str, asked: list[str]) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        asked.append(name)
        return call(*arguments)

    return counted
