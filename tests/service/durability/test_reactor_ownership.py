"""Two nodes with the same durable reactor on one store: one of them owns it, and the other one waits."""

import asyncio
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tidemill as tm
from tests.service.samples import pair, single, slow
from tidemill.engine.graphs.checkpoints.restore import StateRestorer
from tidemill.engine.graphs.reclaim import reclaim_reactor
from tidemill.kernel.errors import StoreError
from tidemill.storage.graph_ports import PartKey

OWNED = r"'(a|r)' is owned by node \w+ \(process \d+ on .*\); a durable reactor runs on one node of a store"


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that several nodes can use."""
    if getattr(request, "param", "sqlite") == "memory":
        return f"memory://{tmp_path.name}"
    return f"sqlite:///{tmp_path}/tidemill.db"


def cache(node: tm.testing.TestNode) -> dict[str, Any]:
    """Return the inputs of the reactor."""
    return dict(node.reactor("r").state().cache)


@pytest.mark.parametrize("durability", ["interval", "fire", "boundary"])
async def test_the_second_node_waits_and_takes_over(address: str, durability: Any) -> None:
    """G-31: it forwards pushes meanwhile, and names the owner; nothing that was acknowledged is lost."""
    sample = single(durability=durability)
    async with (
        tm.testing.node(address, load=sample.load) as first,
        tm.testing.node(address, load=sample.load) as second,
    ):
        assert (await first.push("a", 1)).accepted
        assert (await second.push("a", 2)).sequence == 2
        with pytest.raises(tm.RequestError, match=OWNED) as raised:
            await second.load(sample.reactor)
        assert (raised.value.code, raised.value.status) == ("reactor_owned", 409)
        with pytest.raises(tm.RequestError, match="^reactor " + OWNED):
            second.reactor("r")
        for node in (first, second) * 10:  # the first one renews its ownership
            await node.advance("1s")
        assert (await second.push("a", 5)).sequence == 3
        assert cache(first) == {"a": 5}
        await first._close()
        await second.advance("2s")
        assert cache(second) == {"a": 5}
        assert (await second.push("a", 3)).accepted
        await second.settle()
        assert cache(second) == {"a": 3}


@pytest.mark.parametrize("durability", ["interval", "boundary"])
async def test_an_owner_that_was_replaced_stops_and_overwrites_nothing(address: str, durability: Any) -> None:
    """G-31, W-8: it was frozen for longer than its ownership lasts; when it wakes up, its writes are refused."""
    sample = single(durability=durability)
    async with (
        tm.testing.node(address, load=sample.load) as frozen,
        tm.testing.node(address, load=sample.load) as second,
    ):
        await frozen.push("a", 1)
        await frozen.settle()
        await second.advance("8s")
        assert cache(second) == {"a": 1}
        await second.push("a", 2)
        await second.settle()
        assert (await frozen.push("a", 100)).accepted
        assert cache(second) == {"a": 2 if durability == "interval" else 100}
        await frozen.advance("2s")
        assert frozen.reactor("r").state().health == "failed"
        assert [event.action for event in frozen.reactor("r").events()] == ["fenced"]
        assert (await frozen.push("a", 101)).accepted
        assert cache(second) == {"a": 101}
        await frozen.restart_accumulator("a")  # at the owner
        for command in (frozen.reactor("r").force_fire, frozen.reactor("r").pause):
            with pytest.raises(tm.RequestError, match="reactor 'r' is owned by another node now"):
                await command()
        with pytest.raises(tm.RequestError, match=OWNED):
            await frozen.reactor("r").restart()
        await second.settle()
        second = await second.crash()
        assert cache(second) == {"a": 101}


async def test_a_reactor_that_is_not_durable_runs_on_every_node(address: str) -> None:
    """G-31: there is nothing in the store that they could overwrite."""
    sample = single(durability="none")
    async with (
        tm.testing.node(address, load=sample.load) as first,
        tm.testing.node(address, load=sample.load) as second,
    ):
        for node in (first, second):
            assert (await node.push("a", 1)).accepted


async def test_a_graph_waits_with_its_reactor(address: str) -> None:
    """G-31: what is bound to a reactor that waits is loaded after it."""
    fired: list[int] = []
    sample = single(fired.append, durability="interval")
    async with (
        tm.testing.node(address, load=[sample.reactor]) as first,
        tm.testing.node(address, load=sample.load) as second,
    ):
        await first._close()
        await second.advance("3s")
        await second.push("a", 1)
        await second.settle()
        assert fired == [1]


async def test_an_unloaded_reactor_is_free_at_once(address: str) -> None:
    """G-31: for any other node, without waiting for an expiry."""
    sample = single(durability="boundary")
    async with tm.testing.node(address, load=[sample.reactor]) as first, tm.testing.node(address) as second:
        await first.push("a", 1)
        await first.unload("reactor:r")
        await second.load(sample.reactor)
        assert cache(second) == {"a": 1}


@pytest.mark.parametrize("address", ["sqlite", "memory"], indirect=True)
@pytest.mark.parametrize("step", ["2h", "-1h"])
async def test_a_stepped_wall_clock_takes_nothing_from_an_owner_that_lives(address: str, step: str) -> None:
    """G-31: whichever clock is stepped; the owner renews its ownership as before."""
    sample = single(durability="interval")
    async with (
        tm.testing.node(address, load=sample.load) as first,
        tm.testing.node(address, load=sample.load) as second,
    ):
        for stepped in (second, first):
            stepped.clock.step(step)
            for node in (first, second) * 10:
                await node.advance("1s")
            assert second.registry.reactors() == []
        assert first.reactor("r").state().health == "live"
        assert (await first.push("a", 1)).accepted


@pytest.mark.parametrize("address", ["sqlite", "memory"], indirect=True)
@pytest.mark.parametrize("step", ["2h", "-1h"])
async def test_a_stepped_wall_clock_delays_no_take_over(address: str, step: str) -> None:
    """G-31: from an owner that is frozen, `lease_ttl` and a third of it at most."""
    sample = single(durability="interval")
    async with (
        tm.testing.node(address, load=sample.load) as frozen,
        tm.testing.node(address, load=sample.load) as second,
    ):
        await frozen.push("a", 1)
        await frozen.settle()
        await frozen.advance("1s")
        await second.advance("1s")
        second.clock.step(step)
        await second.advance("1s")
        assert second.registry.reactors() == []
        await second.advance("3s")
        assert cache(second) == {"a": 1}


@pytest.mark.parametrize("durability", ["interval", "fire", "boundary"])
async def test_a_former_owner_takes_its_reactor_back(address: str, durability: Any) -> None:
    """G-31, G-23: an operator restarts it when the other node is gone; it continues from the stored state."""
    sample = pair(durability=durability)
    async with (
        tm.testing.node(address, load=sample.load) as former,
        tm.testing.node(address, load=sample.load) as second,
    ):
        await former.push("a", 1)
        await former.settle()
        await former.advance("1s")
        await second.advance("8s")
        await second.push("b", 2)
        await second.settle()
        await former.push("a", 100)
        await former.advance("2s")
        with pytest.raises(tm.RequestError, match=OWNED) as raised:
            await former.reactor("r").restart()
        assert raised.value.code == "reactor_owned"
        assert former.reactor("r").state().health == "failed"
        await second._close()
        await former.reactor("r").restart()
        forwarded = durability == "boundary"  # the others noticed later that another node owns the reactor
        assert cache(former) == {"a": 100 if forwarded else 1, "b": 2}
        state = former.reactor("r").state()
        assert (state.health, state.subscribers) == ("live", ["g"])
        assert [event.action for event in former.reactor("r").events()[::-1]] == ["fenced", "restarted"]
        sample.seen.clear()
        assert (await former.push("a", 4)).accepted
        await former.settle()
        assert sample.seen[-1] == (4, 2)
        former = await former.crash()
        assert cache(former) == {"a": 4, "b": 2}


async def test_a_former_owner_waits_for_its_reactor_like_any_other_node(address: str) -> None:
    """G-31: when the new owner is gone too, it takes over without an operator, from the stored state."""
    sample = single(durability="boundary")
    async with (
        tm.testing.node(address, load=sample.load) as former,
        tm.testing.node(address, load=sample.load) as second,
    ):
        await former.push("a", 1)
        await second.advance("8s")
        await former.advance("2s")
        assert former.reactor("r").state().health == "failed"
        assert (await former.push("a", 2)).sequence == 2
        await second._close()
        await former.advance("2s")
        await former.settle()
        state = former.reactor("r").state()
        assert (state.health, state.cache, state.subscribers) == ("live", {"a": 2}, ["g"])
        assert (await former.push("a", 3)).sequence == 3
        await former.advance("10s")
        assert former.reactor("r").state().cache == {"a": 3}
        assert [event.action for event in former.reactor("r").events()[::-1]] == ["fenced", "restarted"]


async def test_a_reactor_is_found_while_it_is_taken_back(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-31: an event that comes during the load waits for its end; it is not refused as for an unknown reactor."""
    sample, awaited = single(durability="boundary"), list[bool]()
    async with (
        tm.testing.node(address, load=sample.load) as former,
        tm.testing.node(address, load=sample.load) as second,
    ):

        async def observe(*arguments: Any) -> None:
            awaited.append(PartKey("public", "reactor", "r") in former._scheduler.loaded.standby)
            await reclaim_reactor(*arguments)
            awaited.append(PartKey("public", "reactor", "r") in former._scheduler.loaded.standby)

        monkeypatch.setattr("tidemill.packages.deploy.installer.reclaim_reactor", observe)
        await second.advance("8s")
        await former.advance("2s")
        await second._close()
        await former.advance("2s")
        assert awaited == [True, True]
        assert not former._scheduler.loaded.standby
        assert former.reactor("r").state().health == "live"


async def test_reactors_that_share_an_accumulator_are_taken_back_together(address: str) -> None:
    """G-31: also one that is not durable; graphs that feed the reactor stay bound to theirs."""

    @tm.passthrough
    def a(event: int) -> int:
        return event

    @tm.passthrough
    def other(event: int) -> int:
        return event

    kept, beside = tm.Reactor("r", [a], durability="interval"), tm.Reactor("beside", [a], durability="none")
    feeder = tm.Reactor("feeder", [other], durability="none")
    graph, second_graph = tm.Graph("feeds", reactor=feeder), tm.Graph("watches", reactor=beside)
    seen: list[int] = []

    @graph.node(feeds=a)
    def double(other: int) -> int:
        return 2 * other

    @second_graph.node
    def watch(a: int) -> None:
        seen.append(a)

    things = [kept, beside, feeder, graph, second_graph]
    async with tm.testing.node(address, load=things) as former, tm.testing.node(address, load=things) as second:
        push = former.handle("a")
        await second.advance("8s")
        await former.advance("2s")
        assert former.reactor("r").state().health == "failed"
        await second._close()
        await former.reactor("r").restart()
        assert (await former.push("other", 4)).accepted
        await former.settle()
        assert cache(former) == {"a": 8}
        push(9)
        await former.settle()
        assert seen == [8, 9]
        assert former.reactor("feeder").state().subscribers == ["feeds"]


async def test_a_load_that_fails_leaves_the_reactor_to_other_nodes(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-31, P-5: the store fails after the node has acquired the reactor."""
    sample = single(durability="interval")
    async with tm.testing.node(address) as first, tm.testing.node(address) as second:
        monkeypatch.setattr(first.database.checkpoints, "read_blocks", refuse)
        with pytest.raises(tm.TidemillError, match="refused on purpose"):
            await first.load(sample.reactor)
        await second.load(sample.reactor)
        assert (await second.push("a", 1)).accepted


async def test_a_restart_that_fails_leaves_the_reactor_to_other_nodes(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-31: the store fails after the former owner has acquired its reactor again; it may try again later."""
    sample = single(durability="interval")
    async with tm.testing.node(address, load=sample.load) as former, tm.testing.node(address) as other:
        async with tm.testing.node(address, load=sample.load) as second:
            await second.advance("8s")
            await former.advance("2s")
        with monkeypatch.context() as patch:
            patch.setattr(former.database.checkpoints, "read_blocks", refuse)
            with pytest.raises(StoreError, match="refused on purpose"):
                await former.reactor("r").restart()
        assert former.reactor("r").state().health == "failed"
        await other.load(sample.reactor)
        with pytest.raises(tm.RequestError, match=OWNED):
            await former.reactor("r").restart()
        await other.unload("reactor:r")
        await former.reactor("r").restart()
        assert (await former.push("a", 1)).accepted


async def refuse(*_: Any) -> Any:
    """Fail as a store does."""
    raise StoreError("refused on purpose")


async def test_an_unload_releases_nothing_that_is_being_loaded(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-31: a slow unload ends between the acquisition of another reactor and the read of its state."""
    may_end, is_reading, may_read = asyncio.Event(), asyncio.Event(), asyncio.Event()
    leaving = slow(lambda _: may_end.wait(), durability="interval")

    @tm.passthrough
    def b(event: int) -> int:
        return event

    async with tm.testing.node(address) as node:
        module = ModuleType("leaving")
        module.reactor, module.graph = leaving.load  # type: ignore[attr-defined]
        await node.load(module)
        read = node.database.checkpoints.read_blocks

        async def read_slowly(journals: Any) -> Any:
            is_reading.set()
            await may_read.wait()
            return await read(journals)

        await node.push("a", 1)
        async with asyncio.TaskGroup() as group:
            unload = group.create_task(node.unload("leaving"))
            await asyncio.sleep(0)
            monkeypatch.setattr(node.database.checkpoints, "read_blocks", read_slowly)
            load = group.create_task(node.load(tm.Reactor("arriving", [b], durability="boundary")))
            await is_reading.wait()
            may_end.set()
            await unload
            may_read.set()
            await load
        assert (await node.push("b", 1)).accepted


async def test_a_release_that_fails_is_tried_again(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-31: the node goes on renewing until then, or another one would take what it acquires next."""
    sample, other = single(durability="interval"), single(durability="interval")
    async with tm.testing.node(address, load=[sample.reactor]) as first, tm.testing.node(address) as second:
        with monkeypatch.context() as patch:
            patch.setattr(first.database.part_owners, "release", refuse)
            await first.unload("reactor:r")
            for node in (first, second) * 10:
                await node.advance("1s")
            with pytest.raises(tm.RequestError, match=OWNED):
                await second.load(other.reactor)
        await first.advance("2s")
        await second.load(other.reactor)
        await first.advance("2s")
        assert (await second.push("a", 1)).accepted


async def test_a_reactor_that_ends_before_it_is_activated_fires_what_it_has_taken() -> None:
    """G-23: it was loaded and unloaded while the node takes over reactors of another one."""
    sample, package = single(), ModuleType("p")
    vars(package).update(r=sample.reactor, g=sample.graph)
    async with tm.testing.node() as node:
        node._scheduler.activation.is_held = True
        await node.load(package)
        assert (await node.push("a", 1)).accepted
        assert sample.seen == []
        await node.unload("p")
    assert sample.seen == [1]


async def test_a_load_that_cannot_be_restored_leaves_nothing(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-5: nor a reactor that waits for the end of its change."""

    def fail(self: StateRestorer) -> None:
        raise StoreError("refused on purpose")

    async with tm.testing.node(address) as node:
        monkeypatch.setattr(StateRestorer, "run", fail)
        with pytest.raises(StoreError):
            await node.load(single(durability="interval").reactor)
        assert not node._scheduler.activation.unfinished
