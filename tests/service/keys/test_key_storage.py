"""Keys in the store: idle ones leave the memory, and all of them survive the process."""

import asyncio
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm
from tests.service.damage import change, copy
from tests.service.keyed_samples import keyed, order
from tests.service.keys.market import KEYS, Market, Tick
from tidemill.engine.graphs.audit.report import audit_store
from tidemill.engine.graphs.keys.keyed_reactor import KeyedReactor
from tidemill.kernel.clock import DEFAULT_START
from tidemill.kernel.errors import StoreError
from tidemill.storage.sqlite.store import SqliteStore

FEW = {"active_keys": 10}


async def total_of(node: tm.testing.TestNode, key: Any) -> int:
    value: int = (await node.reactor("market").state_of(key)).cache["totals"]["value"]
    return value


async def test_idle_keys_leave_the_memory_and_come_back(store: str) -> None:
    """At most `active_keys` stay; what a key has counted is there when its next event comes."""
    async with tm.testing.node(store=store, load=Market(keyed=True).load, settings=FEW) as node:
        for number in range(50):
            await node.push("totals", Tick(f"key {number}", number))
        await node.settle()
        counts = node.reactor("market").state().keys
        assert counts is not None
        assert (counts.total, counts.stored) == (50, 50)
        assert counts.active <= 10
        for number in range(50):
            await node.push("totals", Tick(f"key {number}", 1000))
        await node.settle()
        assert [await total_of(node, f"key {number}") for number in range(50)] == [1000 + n for n in range(50)]


async def test_a_push_that_waits_holds_its_keys_before_any_is_stored() -> None:
    """G-4: the first checkpoint comes meanwhile, and drops idle keys; the events of the push find theirs."""
    sample = keyed(partitions=1, durability="boundary", capacity=1)
    async with tm.testing.node("memory://", load=sample.load, settings={"active_keys": 1}) as node:
        await node.push("placed", order("idle", 1))
        await node.reactor("orders").pause()
        await node.push("placed", order("busy", 1))  # fills the queue
        async with asyncio.TaskGroup() as group:
            work = node.push_many("placed", [order("idle", 2)], position=tm.ProducerPosition("p", 1))
            waiting = group.create_task(work, name="push that waits")
            await node.settle()  # writes a checkpoint
            await node.reactor("orders").resume()
        assert [one.outcome for one in waiting.result().receipts] == ["emitted"]
        await node.settle()
    assert sample.seen == {"idle": [1, 2], "busy": [1]}


async def test_keys_that_have_done_their_work_stay_in_the_store_at_a_start(store: str) -> None:
    """A key that had to fire once, and has fired since, is read when it is needed; one that must fire is there."""
    async with tm.testing.node(store=store, load=Market(keyed=True).load) as node:
        market = node.reactor("market")
        await market.pause()
        for key in KEYS:
            await node.push("totals", Tick(key, 1))
        await node.settle()  # each of them has to fire, and is stored like that
        await market.resume()
        await node.settle()
        await market.pause()
        await node.push("totals", Tick(KEYS[2], 5))
        await node.settle()
        node = await node.crash()
        assert node.probe.graphs.active_keys("market") == {KEYS[2]}
        assert [await total_of(node, key) for key in KEYS] == [1, 1, 6]
        await node.reactor("market").resume()
        assert (await node.reactor("market").next_firing(timeout=5)).key == KEYS[2]


async def test_many_cold_keys_at_once_keep_their_order(store: str) -> None:
    async with tm.testing.node(store=store, load=Market(keyed=True).load, settings=FEW) as node:
        keys = [f"key {number}" for number in range(40)]
        for key in keys:
            await node.push("totals", Tick(key, 1))
        await node.settle()
        await asyncio.gather(*(node.push("totals", Tick(key, 10)) for key in keys for _ in range(3)))
        await node.settle()
        assert {await total_of(node, key) for key in keys} == {31}


async def test_a_new_key_needs_no_store_and_a_stored_one_waits_for_it(store: str) -> None:
    """G-26: while the store fails, reactors go on; only a key whose state is in the store is rejected."""
    async with tm.testing.node(store=store, load=Market(keyed=True).load, settings={"active_keys": 1}) as node:
        for key in KEYS:
            await node.push("totals", Tick(key, 1))
        await node.settle()
        cold = next(key for key in KEYS if key not in node.probe.graphs.active_keys("market"))
        with pytest.raises(tm.RequestError) as raised:
            node.handle("prices")(Tick(cold, 1))
        assert raised.value.code == "key_not_in_memory"
        (running,) = node._scheduler.loaded.reactors_of("public", "market")
        assert isinstance(running, KeyedReactor)
        read, running.firing_loop.memory.read = running.firing_loop.memory.read, _fail_to_read
        node.fail_store(1000)  # the writes
        assert (await node.push("totals", Tick("new", 1))).outcome == "emitted"
        assert (await node.push("totals", Tick(cold, 1))).outcome == "rejected"
        running.firing_loop.memory.read = read
        node.fail_store(0)
        assert (await node.push("totals", Tick(cold, 1))).outcome == "emitted"


async def _fail_to_read(keys: Any) -> None:
    raise StoreError(f"the states of {len(keys)} keys cannot be read")


@pytest.mark.parametrize("strategy", ["latest", "sequential"])
@settings(max_examples=15)
@given(
    script=st.lists(
        st.tuples(st.sampled_from(KEYS), st.integers(1, 9)) | st.sampled_from(["crash", "wait"]), max_size=25
    )
)
def test_no_acknowledged_event_of_any_key_is_lost_or_applied_twice(strategy: str, script: list[Any]) -> None:
    """G-24: with durability="boundary", kill -9 at any point."""
    asyncio.run(_count_through_crashes(strategy, script))


async def _count_through_crashes(strategy: str, script: list[Any]) -> None:
    market = Market(keyed=True, durability="boundary", strategy=strategy)
    expected: Counter[str] = Counter()
    async with tm.testing.node(store="memory://", load=market.load, settings={"active_keys": 1}) as node:
        for step in script:
            if step == "crash":
                node = await node.crash()
            elif step == "wait":
                await node.advance("100ms")
            else:
                key, value = step
                receipt = await node.push("totals", Tick(key, value))
                assert receipt.outcome == "emitted"
                expected[key] += value
        await node.settle()
        assert {key: await total_of(node, key) for key in expected} == expected


async def left_behind(path: Path) -> str:
    """Leave a store behind as a node does that dies of kill -9, and return its address; each total is 1, then 3."""
    living = path.with_suffix(".living")
    async with tm.testing.node(store=f"sqlite:///{living}", load=Market(keyed=True).load) as node:
        for value in (1, 2):
            for key in KEYS:
                await node.push("totals", Tick(key, value))
            await node.settle()
        copy(living, path)
    change(path, "UPDATE part_owners SET owner = NULL")
    return f"sqlite:///{path}"


async def test_a_damaged_key_falls_back_to_its_older_snapshot_and_says_so(tmp_path: Path) -> None:
    """G-23: never silently empty; other keys are not touched."""
    store = await left_behind(path := tmp_path / "keys.db")
    newest = "(SELECT max(moment) FROM key_snapshots)"
    assert await findings_of(path) == []
    change(path, f"UPDATE key_snapshots SET payload = x'00' WHERE moment = {newest} AND key = x'a161'")  # of "a"
    (finding,) = await findings_of(path)
    assert "1 key has a damaged snapshot, such as 'a'" in finding
    async with tm.testing.node(store=store, load=Market(keyed=True).load) as node:
        assert {key: await total_of(node, key) for key in KEYS} == {"a": 1, "b": 3, "c": 3}
        reasons = [one.reason for one in node.reactor("market").events()]
        assert reasons == ["the snapshot of key 'a' is damaged; the one before it is used"]


async def findings_of(path: Path) -> list[str]:
    """Return what `tidemill doctor` finds wrong."""
    store = SqliteStore(str(path))
    await store.open_read_only()
    try:
        return [str(one) for one in (await audit_store(store, DEFAULT_START)).findings if one.severity == "wrong"]
    finally:
        await store.close()


async def test_keys_go_back_with_their_reactor_and_stay_there(tmp_path: Path) -> None:
    """G-23: of one moment. Snapshots of keys that are newer than the reactor's own part never count again."""
    store = await left_behind(path := tmp_path / "keys.db")
    newest = "(SELECT max(moment) FROM parts)"
    change(path, f"UPDATE parts SET payload = x'00' WHERE moment = {newest} AND kind = 'reactor'")
    async with tm.testing.node(store=store, load=Market(keyed=True).load) as node:
        assert await total_of(node, "a") == 1
        await node.push("totals", Tick("a", 10))
    for _ in range(2):
        async with tm.testing.node(store=store, load=Market(keyed=True).load) as node:
            assert {key: await total_of(node, key) for key in KEYS} == {"a": 11, "b": 1, "c": 1}


async def test_another_contract_starts_with_empty_caches_also_of_keys_that_are_read_later(store: str) -> None:
    """G-27: running states stay, as without keys."""
    few = {"active_keys": 1}
    async with tm.testing.node(store=store, settings=few) as node:
        await node.load(_module(Market(keyed=True)))
        for key in KEYS:
            await node.push("totals", Tick(key, 1))
            await node.push("prices", Tick(key, 5))
        await node.settle()
        await node.load(_module(Market(keyed=True, strategy="sequential")))
        for key in KEYS:
            await node.push("totals", Tick(key, 10))
            assert (await node.reactor("market").state_of(key)).cache == {"totals": {"value": 11}, "seen": []}


async def test_a_failed_write_is_repeated_with_its_keys(store: str) -> None:
    """G-26: nothing is lost when the store fails for a while."""
    async with tm.testing.node(store=store, load=Market(keyed=True).load) as node:
        await node.push("totals", Tick("a", 1))
        node.fail_store(2)
        await node.advance("1s")
        await node.settle()
        node = await node.crash()
        assert await total_of(node, "a") == 1


async def test_unfinished_work_of_a_key_is_done_after_a_restart(store: str) -> None:
    """G-5, G-24: a paused queue, and a batch that waits for its time, without a new event."""
    market = Market(keyed=True, strategy="sequential")
    async with tm.testing.node(store=store, load=market.load) as node:
        await node.reactor("market").pause()
        await node.push("prices", Tick("a", 1))
        await node.push("fills", Tick("b", 2))
        await node.settle()
        node = await node.crash()
        await node.reactor("market").resume()
        await node.advance("1s")
        assert [(one.key, one.inputs.keys()) for one in node.reactor("market").firings()[::-1]] == [
            ("a", {"prices", "seen"}),
            ("b", {"fills", "seen"}),
        ]


def _module(market: Market) -> ModuleType:
    module = ModuleType("market_module")
    module.__dict__.update(reactor=market.reactor, graph=market.graph)
    return module


async def test_a_key_whose_batch_was_flushed_leaves_the_memory() -> None:
    """A batch that is flushed by its size holds nothing, however long its interval is."""

    @tm.batch(every="1h", max_size=2)
    def sizes(events: list[Tick]) -> int:
        return len(events)

    reactor = tm.Reactor("sizes", [sizes], key="key", partitions=1)
    limits = tm.Settings(active_keys=10)
    async with tm.testing.node("memory://", load=[reactor], settings=limits) as node:
        for number in range(60):
            await node.push_many("sizes", [Tick(f"key {number}", 1)] * 2)
        await node.push("sizes", Tick("waiting", 1))
        await node.advance("1s")
        counts = node.reactor("sizes").state().keys
        assert counts is not None
        assert (counts.total, counts.active) == (61, 10)
        assert node.reactor("sizes").state(key="waiting").accumulators["sizes"].buffered == 1
