"""Loading, binding, unbinding, unloading; hot swap; and nothing left behind."""

import asyncio
import gc
import linecache
from types import ModuleType
from typing import Any

import pytest

import tidemill as tm
from tests.service.samples import observer, pair, raising, single, slow


def module(name: str, *definitions: Any) -> ModuleType:
    """Return a module that holds these definitions."""
    made = ModuleType(name)
    for number, definition in enumerate(definitions):
        setattr(made, f"definition_{number}", definition)
    return made


def names(node: tm.Node) -> dict[str, list[str]]:
    """Return everything the registry lists."""
    registry = node.registry
    return {
        "reactors": registry.reactors(),
        "graphs": registry.graphs(),
        "accumulators": registry.accumulators(),
        "packages": registry.packages(),
        "endpoints": registry.endpoints(),
    }


NOTHING: dict[str, list[str]] = {"reactors": [], "graphs": [], "accumulators": [], "packages": [], "endpoints": []}


async def test_loading_registers_everything_and_unloading_forgets_it() -> None:
    """G-27, behaviours 83 and 85."""
    sample = pair()
    async with tm.testing.node() as node:
        assert names(node) == NOTHING
        package = await node.load(module("market", *sample.load))
        loaded = names(node)
        await node.unload(package)
        assert names(node) == NOTHING
    assert loaded == {
        "reactors": ["r"],
        "graphs": ["g"],
        "accumulators": ["a", "b"],
        "packages": ["market"],
        "endpoints": loaded["endpoints"],
    }
    assert len(loaded["endpoints"]) == 3


async def test_packages_are_named_after_modules_and_definitions() -> None:
    """API: what `load` returns."""
    sample = single()
    async with tm.testing.node() as node:
        assert [await node.load(thing) for thing in sample.load] == ["reactor:r", "graph:g"]
        assert await node.load(module("other", observer(sample.reactor))) == "other"


async def test_load_accepts_definitions_in_any_order() -> None:
    """API: `load=` takes modules and definitions."""
    sample = single()
    async with tm.testing.node(load=[sample.graph, sample.reactor]) as node:
        await node.push("a", 1)
    assert sample.seen == [1]


async def test_a_graph_binds_by_name_across_packages() -> None:
    """G-14, G-27."""
    sample = single()
    subscriber = tm.Graph("subscriber", reactor="r")
    seen = []

    @subscriber.node
    def out(a: int) -> None:
        seen.append(a)

    async with tm.testing.node(load=[module("publisher", *sample.load)]) as node:
        await node.load(module("subscriber", subscriber))
        await node.push("a", 1)
        assert node.reactor("r").state().subscribers == ["g", "subscriber"]
    assert seen == [1]


async def test_binding_to_a_reactor_that_is_not_loaded_fails() -> None:
    """API, behaviour 79: and leaves nothing."""
    async with tm.testing.node() as node:
        with pytest.raises(tm.RequestError, match="reactor 'r' not loaded"):
            await node.load(single().graph)
        assert names(node) == NOTHING


async def test_a_reactor_in_use_is_not_unloaded_and_nothing_changes() -> None:
    """G-28, behaviour 82: word for word."""
    sample = single()
    foo = tm.Reactor("foo", sample.reactor.accumulators)
    bar = observer(foo, "bar")
    async with tm.testing.node(load=[module("owner", foo), module("user", bar)]) as node:
        before = names(node)
        with pytest.raises(tm.RequestError) as caught:
            await node.unload("owner")
        assert names(node) == before
        assert (await node.push("a", 1)).outcome == "emitted"
        assert node.reactor("foo").state().fires == 1
    assert str(caught.value) == "reactor 'foo' has 1 bound subscriber(s): ['bar']; unbind them first"
    assert (caught.value.code, caught.value.status) == ("reactor_in_use", 409)


async def test_once_unbound_the_reactor_can_be_unloaded() -> None:
    """G-28, behaviour 83."""
    sample = single()
    async with tm.testing.node(load=sample.load) as node:
        await node.unload("graph:g")
        await node.unload("reactor:r")
        assert names(node) == NOTHING


async def test_graphs_of_the_same_package_do_not_stand_in_the_way() -> None:
    """G-28: only graphs of other packages count."""
    sample = single()
    async with tm.testing.node(load=[module("m", *sample.load)]) as node:
        await node.load(module("user", observer(sample.reactor)))
        with pytest.raises(tm.RequestError, match=r"1 bound subscriber\(s\): \['observer'\]"):
            await node.unload("m")
        assert node.reactor("r").state().subscribers == ["g", "observer"]
        await node.unload("user")
        await node.unload("m")
        assert names(node) == NOTHING


async def test_an_unknown_package_is_an_error() -> None:
    """G-4."""
    async with tm.testing.node() as node:
        with pytest.raises(tm.RequestError) as caught:
            await node.unload("nothing")
    assert caught.value.status == 404


async def test_what_cannot_be_loaded_is_an_error() -> None:
    """G-4."""
    async with tm.testing.node() as node:
        with pytest.raises(tm.RequestError, match="cannot load 42: pass the path of a package"):
            await node.load(42)


async def test_another_reactor_of_the_same_name_is_refused() -> None:
    """API: another definition of the same name in a tenant is refused, nothing half-started."""
    sample = single()
    async with tm.testing.node(load=sample.load) as node:
        before = names(node)
        with pytest.raises(tm.RequestError, match="'r' is already defined") as caught:
            await node.load(module("other", pair().reactor))
        assert names(node) == before
    assert caught.value.status == 409


async def test_another_accumulator_of_the_same_name_is_refused() -> None:
    """API: one definition may feed several reactors, two definitions may not share a name."""
    async with tm.testing.node(load=[single().reactor]) as node:
        with pytest.raises(tm.RequestError, match="accumulator 'a' is already defined"):
            await node.load(tm.Reactor("other", pair().reactor.accumulators))
        assert node.registry.reactors() == ["r"]
        assert node.registry.accumulators() == ["a"]


async def test_a_broken_graph_takes_its_whole_package_with_it() -> None:
    """G-27: all or none."""
    sample = single()
    broken = tm.Graph("broken", reactor=sample.reactor)

    @broken.node
    def out(absent: int) -> int:
        return absent

    async with tm.testing.node() as node:
        with pytest.raises(tm.DefinitionError):
            await node.load(module("m", *sample.load, broken))
        assert names(node) == NOTHING


async def test_a_broken_new_version_leaves_the_old_one_running() -> None:
    """G-27, P-6."""
    sample = single()
    newer = single()
    broken = tm.Graph("g", reactor=newer.reactor)

    @broken.node
    def out(absent: int) -> int:
        return absent

    async with tm.testing.node(load=[module("m", *sample.load)]) as node:
        with pytest.raises(tm.DefinitionError):
            await node.load(module("m", newer.reactor, broken))
        await node.push("a", 1)
    assert sample.seen == [1]


async def test_a_hot_swap_keeps_cache_flags_counters_and_pause() -> None:
    """P-6: same contract, other code."""
    old, new = pair(when="all"), pair(when="all")
    async with tm.testing.node(load=[module("m", *old.load)]) as node:
        await node.push("a", 1)
        await node.reactor("r").pause()
        await node.load(module("m", *new.load))
        state = node.reactor("r").state()
        await node.reactor("r").resume()
        receipt = await node.push("b", 2)
    assert (state.paused, state.cache, state.dirty) == (True, {"a": 1}, {"a": True, "b": False})
    assert (receipt.sequence, old.seen, new.seen) == (1, [], [(1, 2)])


async def test_a_hot_swap_keeps_the_queue() -> None:
    """P-6."""
    old, new = single(strategy="sequential"), single(strategy="sequential")
    async with tm.testing.node(load=[module("m", *old.load)]) as node:
        await node.reactor("r").pause()
        for value in range(3):
            await node.push("a", value)
        await node.load(module("m", *new.load))
        await node.reactor("r").resume()
    assert (old.seen, new.seen) == ([], [0, 1, 2])


async def test_a_firing_that_runs_during_a_hot_swap_finishes_on_the_old_code() -> None:
    """P-6."""
    gate = asyncio.Event()
    old, new = slow(lambda value: gate.wait()), slow(lambda value: asyncio.sleep(0))
    async with tm.testing.node(load=[module("m", *old.load)]) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.advance(0)
        await node.load(module("m", *new.load))
        await node.push("a", 2)
        gate.set()
        await node.settle()
        assert [firing.ok for firing in node.reactor("r").firings()] == [True, True]
    assert (old.seen, new.seen) == ([1], [2])


async def test_a_hot_swap_applies_a_windows_new_capacity() -> None:
    """P-6: content stays, the newest of it."""

    def version(capacity: int) -> ModuleType:
        return module("m", tm.Reactor("r", [tm.window("w", int, capacity=capacity)]))

    async with tm.testing.node(load=[version(5)]) as node:
        for value in range(5):
            await node.push("w", value)
        await node.load(version(2))
        await node.push("w", 5)
        assert node.reactor("r").state().cache == {"w": [4, 5]}


async def test_a_hot_swap_with_another_contract_is_refused_while_others_are_bound() -> None:
    """P-4: refused like an unload, and the old version stays."""
    old, new = single(), single(strategy="sequential")
    async with tm.testing.node(load=[module("m", old.reactor), module("user", observer(old.reactor))]) as node:
        with pytest.raises(tm.RequestError) as caught:
            await node.load(module("m", new.reactor))
        await node.push("a", 1)
        assert node.reactor("r").state().fires == 1
    assert caught.value.code == "reactor_in_use"


async def test_loading_the_same_thing_again_changes_nothing() -> None:
    """P-6: a swap with itself."""
    sample = single()
    async with tm.testing.node(load=sample.load) as node:
        await node.push("a", 1)
        before = names(node)
        for thing in sample.load:
            await node.load(thing)
        assert names(node) == before
        await node.push("a", 2)
        assert node.reactor("r").state().fires == 2
    assert sample.seen == [1, 2]


async def test_many_cycles_leave_everything_as_before() -> None:
    """G-27, behaviour 85: registry, tasks, generated code and collectors."""
    sample = pair()

    @tm.polling(every="1s")
    def polled() -> int:
        return 1

    def version() -> ModuleType:
        reactor = tm.Reactor("s", [*sample.reactor.accumulators, polled])
        graph = observer(reactor)
        return module("m", reactor, graph, *sample.load)

    def sizes(node: tm.testing.TestNode) -> tuple[Any, ...]:
        gc.collect()
        generated = sum(name.startswith("<graph") for name in linecache.cache)
        return names(node), len(asyncio.all_tasks()), generated, node.probe.graphs.collector_count()

    async with tm.testing.node() as node:
        await node.settle()
        before = sizes(node)
        for _ in range(20):
            await node.load(version())
            node.handle("a")(1)
            await node.load(version())
            node.handle("a")(2)
            await node.unload("m")
            await node.advance("10s")
        assert sizes(node) == before


async def test_scheduler_and_registry_agree_after_every_step() -> None:
    """G-27: tests compare the name sets."""
    sample = single()
    steps = ["load r", "load g", "unload g", "unload r", "load r", "load g"]
    things = {"r": sample.reactor, "g": sample.graph}
    packages = {"r": "reactor:r", "g": "graph:g"}
    async with tm.testing.node() as node:
        for step in steps:
            verb, name = step.split()
            await (node.load(things[name]) if verb == "load" else node.unload(packages[name]))
            reactors, accumulators = node.probe.graphs.reactor_keys(), node.probe.graphs.accumulator_keys()
            assert sorted(name for _, name in reactors) == node.registry.reactors()
            assert sorted(name for _, name in accumulators) == node.registry.accumulators()
            assert len(node.registry.endpoints()) == len(reactors) + len(accumulators)


async def test_a_shared_accumulator_stays_until_its_last_reactor_goes() -> None:
    """G-29: accumulators that others use are not stopped."""
    sample = single()
    other = tm.Reactor("other", sample.reactor.accumulators)
    async with tm.testing.node(load=[sample.reactor, other]) as node:
        push = node.handle("a")
        await node.unload("reactor:r")
        assert push(1) == 1
        assert node.registry.accumulators() == ["a"]
        assert node.reactor("other").state().fires == 1
        await node.unload("reactor:other")
        assert names(node) == NOTHING


async def test_a_hanging_graph_is_cancelled_after_five_seconds_and_recorded() -> None:
    """G-29, behaviour 84."""
    cancelled = []

    async def hang(value: int) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(value)
            raise

    sample = slow(hang)
    async with tm.testing.node(load=[module("m", *sample.load)]) as node, asyncio.timeout(5):
        async with asyncio.TaskGroup() as group:
            await node.push("a", 1)
            await node.advance(0)
            unloading = group.create_task(node.unload("m"))
            await node.advance("4.9s")
            assert not unloading.done()
            assert cancelled == []
            await node.advance("1s")
        assert (cancelled, names(node)) == ([1], NOTHING)
        await node.load(module("m", *sample.load))
        assert "cancelled" in [event.action for event in node.reactor("r").events()]


async def test_a_hanging_accumulator_is_cancelled_after_five_seconds() -> None:
    """G-29: its event is accounted for."""

    @tm.passthrough
    async def a(event: int) -> int:
        await asyncio.Event().wait()
        return event

    async with tm.testing.node(load=[tm.Reactor("r", [a])]) as node, asyncio.timeout(5):
        async with asyncio.TaskGroup() as group:
            pushing = group.create_task(node.push("a", 1))
            await node.advance(0)
            unloading = group.create_task(node.unload("reactor:r"))
            await node.advance("6s")
            assert unloading.done()
        assert names(node) == NOTHING
    assert pushing.result().outcome == "dead_lettered"


async def test_unloading_lets_a_running_firing_and_event_finish() -> None:
    """G-29: signal, then wait."""
    gate = asyncio.Event()

    @tm.passthrough
    async def a(event: int) -> int:
        await gate.wait()
        return event

    reactor = tm.Reactor("r", [a])
    async with tm.testing.node(load=[reactor]) as node, asyncio.timeout(5), asyncio.TaskGroup() as group:
        pushing = group.create_task(node.push("a", 1))
        await node.advance(0)
        group.create_task(node.unload("reactor:r"))
        await node.advance("1s")
        late = await node.push("a", 2)
        gate.set()
        assert (await pushing).outcome == "emitted"
    assert late.outcome == "rejected"


async def test_unloading_turns_blocked_pushers_away() -> None:
    """G-12, G-29: they get their receipt."""
    sample = single(strategy="sequential", capacity=1)
    async with tm.testing.node(load=[sample.reactor]) as node, asyncio.timeout(5), asyncio.TaskGroup() as group:
        await node.reactor("r").pause()
        await node.push("a", 1)
        blocked = [group.create_task(node.push("a", value)) for value in (2, 3)]
        await node.settle()
        await node.unload("reactor:r")
        assert {(await task).outcome for task in blocked} == {"rejected"}


async def test_unloading_twice_at_once_is_an_error_for_one() -> None:
    """G-27: one change at a time."""
    async with tm.testing.node(load=[single().reactor]) as node:
        outcomes = await asyncio.gather(node.unload("reactor:r"), node.unload("reactor:r"), return_exceptions=True)
    assert outcomes[0] is None
    assert isinstance(outcomes[1], tm.RequestError)


async def test_a_manual_firing_that_hangs_ends_with_its_reactor() -> None:
    """G-29: the caller gets the error."""
    sample = slow(lambda value: asyncio.Event().wait())
    async with tm.testing.node(load=[module("m", *sample.load)]) as node, asyncio.timeout(5):
        async with asyncio.TaskGroup() as group:
            firing = group.create_task(_error(node.reactor("r").fire_with({"a": 1})))
            await node.advance(0)
            group.create_task(node.unload("m"))
            await node.advance("20s")
        assert isinstance(firing.result(), tm.OperationError)


async def _error(work: Any) -> BaseException | None:
    try:
        await work
    except tm.TidemillError as error:
        return error
    return None


@pytest.mark.parametrize("kind", ["graph", "accumulator", "poll"])
async def test_a_node_with_hanging_code_still_closes(kind: str) -> None:
    """G-29: on every kind of author code."""

    async def hang(*_: Any) -> int:
        await asyncio.Event().wait()
        return 1

    @tm.passthrough
    async def a(event: int) -> int:
        return await hang() if kind == "accumulator" else event

    @tm.polling(every="1s")
    async def polled() -> int | None:
        return await hang() if kind == "poll" else None

    reactor = tm.Reactor("r", [a, polled])
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    async def out(a: int) -> int:
        return await hang() if kind == "graph" else a

    async with asyncio.timeout(5), asyncio.TaskGroup() as group, tm.testing.node(load=[reactor, graph]) as node:
        group.create_task(_error(node.push("a", 1)))
        await node.advance("2s")


async def test_a_node_closes_although_code_swallows_its_cancellation() -> None:
    """G-29: the error is raised again."""
    swallowed = []

    async def stubborn(value: int) -> None:
        for _ in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append(value)
        await asyncio.Event().wait()

    sample = slow(stubborn)
    async with asyncio.timeout(10), tm.testing.node(load=sample.load, settings={"unload_timeout": "10ms"}) as node:
        await node.push("a", 1)
        await node.advance(0)
    assert swallowed == [1, 1]


async def test_closing_a_node_skips_the_guard() -> None:
    """G-28: node shutdown."""
    sample = single()
    async with tm.testing.node(load=[sample.reactor, module("user", observer(sample.reactor))]) as node:
        pass
    assert names(node)["reactors"] == []


async def test_a_load_that_fails_at_the_start_leaves_no_node() -> None:
    """G-27: the error is the caller's."""
    tasks = len(asyncio.all_tasks())
    node = tm.testing.node(load=[single().reactor, tm.Graph("lost", reactor="absent")])
    with pytest.raises(tm.RequestError, match="reactor 'absent' not loaded"):
        async with node:
            pass
    assert (len(asyncio.all_tasks()), names(node)["reactors"]) == (tasks, [])


async def test_a_node_is_used_inside_its_block_only() -> None:
    """G-4: a clear error before and after."""
    node = tm.testing.node(load=single().load)
    calls = [lambda: node.push("a", 1), lambda: node.load(single().reactor), lambda: node.unload("reactor:r")]
    for was_opened in (False, True):
        for call in calls:
            with pytest.raises(tm.RequestError, match="not running"):
                await call()
        for look in (node.handle, node.reactor):
            with pytest.raises(tm.RequestError, match="not running"):
                look("a")
        if not was_opened:
            async with node:
                await node.push("a", 1)


async def test_a_node_runs_once() -> None:
    """G-4: a clear error instead of a half-open node."""
    node = tm.testing.node()
    async with node:
        pass
    with pytest.raises(tm.RequestError, match="runs once"):
        await node.__aenter__()


async def test_two_nodes_in_one_process_do_not_see_each_other() -> None:
    """P-11: the same definitions on both."""
    sample = single()
    async with tm.testing.node(load=sample.load) as one, tm.testing.node(load=[sample.reactor]) as other:
        await one.push("a", 1)
        await other.push("a", 2)
        await other.push("a", 3)
        assert [node.reactor("r").state().cache for node in (one, other)] == [{"a": 1}, {"a": 3}]
        assert [node.metrics()["reactor_fires_total"] for node in (one, other)] == [1, 2]
        await other.unload("reactor:r")
        assert one.registry.reactors() == ["r"]
    assert sample.seen == [1]


async def test_definitions_can_be_loaded_again_on_another_node() -> None:
    """G-25: without a store everything starts fresh."""
    sample = single(raising(when=lambda value: value == 1))
    for _ in range(2):
        async with tm.testing.node(load=sample.load) as node:
            assert node.reactor("r").state().cache == {}
            assert (await node.push("a", 1)).sequence == 1
            assert len(await node.reactor("r").dead_letters()) == 1
