"""The names and keys of partitions are internal: callers use and see the declared names, and keys are read once."""

from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.keyed_samples import PARTITIONS, Order, keyed, order
from tidemill.access.principal import Caller
from tidemill.graphs.keys import partition_of

PUBLIC = Caller("public", "test")
KEYS = [f"key {number}" for number in range(20)]


async def test_no_event_reaches_a_partition_by_its_name(tmp_path: Path) -> None:
    """G-31: it could be that of another key. Also a node that has not loaded the reactor refuses it."""
    sample, address = keyed(durability="fire"), f"memory://{tmp_path.name}"
    wrong = (partition_of("a", PARTITIONS) + 1) % PARTITIONS
    name, event = f"placed[{wrong}]", order("a", 1)
    async with tm.testing.node(address, load=sample.load) as node, tm.testing.node(address) as stranger:
        for one in (node, stranger):
            for push in (one.push(name, event), one.push_many(name, [event]), one.restart_accumulator(name)):
                with pytest.raises(tm.RequestError, match="use 'placed', which finds the partition"):
                    await push
        with pytest.raises(tm.RequestError, match="use 'placed'"):
            node.handle(name)
        with pytest.raises(tm.RequestError, match="use 'orders'"):
            node.reactor(f"orders[{wrong}]")
        with pytest.raises(tm.RequestError, match="use 'orders'"):
            await node.graph_client.command(PUBLIC, f"orders[{wrong}]", "force_fire", key="a")
        with pytest.raises(tm.RequestError, match="belongs to another partition"):
            await stranger.graph_client.command(PUBLIC, f"orders[{wrong}]", "fire_with", {"placed": event}, "a")
    assert sample.seen == {}


async def test_dead_letters_and_errors_have_declared_names() -> None:
    """G-7, G-15: also those that a node reads from its store, with the id of their firing."""

    def refuse(_: Order) -> None:
        raise ValueError("no")

    sample = keyed(refuse, durability="boundary")
    async with tm.testing.node("memory://", load=sample.load) as node:
        await node.push("placed", order("a", 1))
        await node.push("placed", {"no": "key"})
        await node.settle()
        before = await node.reactor("orders").dead_letters()
        assert sorted((one.source, one.kind) for one in before) == [("orders", "firing"), ("placed", "event")]
        with pytest.raises(tm.RequestError, match="reactor 'orders' has no accumulator 'place'"):
            await node.reactor("orders").fire_with({"place": order("a", 1)}, key="a")
        with pytest.raises(tm.RequestError, match="reactor 'orders' has no active key"):
            node.reactor("orders").state(key="unknown")
        after = await (await node.crash()).reactor("orders").dead_letters()
        assert [(one.id, one.source, one.firing_id) for one in after] == [
            (one.id, one.source, one.firing_id) for one in before
        ]


@pytest.mark.parametrize("durability", ["none", "boundary"])
async def test_the_key_function_of_a_pushed_event_runs_once(durability: Any) -> None:
    """It may be slow, and what it counts must be right."""
    calls: list[int] = []

    def read_key(event: Order) -> str:
        calls.append(event.number)
        return event.key

    sample = keyed(key=read_key, durability=durability)
    async with tm.testing.node("memory://", load=sample.load) as node:
        await node.push("placed", order("a", 1))
        await node.push("placed", b'{"key": "a", "number": 2}')
        await node.push_many("placed", [order("a", 3), order("b", 4)])
        await node.settle()
    assert calls == [1, 2, 3, 4]
    assert sample.seen == {"a": [1, 2, 3], "b": [4]}


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
async def test_a_handle_says_how_many_events_it_took_before_a_cold_key(partitions: int) -> None:
    """G-4: as FullError does, so that the caller can continue behind them."""
    sample = keyed(partitions=partitions)
    async with tm.testing.node("memory://", load=sample.load, settings={"active_keys": partitions}) as node:
        for key in KEYS:
            await node.push("placed", order(key, 1))
        await node.advance("1s")
        await node.settle()
        stored = [key for key in KEYS if not is_active(node, key)]
        events = [Order("new", 1), Order("new", 2), Order(stored[0], 2), Order("new", 3)]
        with pytest.raises(tm.PushStoppedError) as raised:
            node.handle("placed").many(events)
        assert (raised.value.code, raised.value.taken) == ("key_not_in_memory", 2)
        await node.push_many("placed", events[raised.value.taken :])
        await node.settle()
        assert (sample.seen["new"], sample.seen[stored[0]]) == ([1, 2, 3], [1, 2])


def is_active(node: tm.testing.TestNode, key: str) -> bool:
    """Return whether a key is in memory."""
    try:
        node.reactor("orders").state(key=key)
    except tm.RequestError:
        return False
    return True


async def test_a_field_that_events_do_not_have_is_refused_when_the_reactor_is_loaded() -> None:
    """Q-1: the author learns of it, and not the pusher."""
    sample = keyed(key="kye")
    with pytest.raises(tm.DefinitionError, match="did you mean 'key'"):
        async with tm.testing.node(load=sample.load):
            pass
