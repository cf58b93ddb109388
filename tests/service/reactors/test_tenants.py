"""Tenants: the same names twice, and never a look across."""

import pytest

import tidemill as tm
from tests.service.samples import observer, single


async def test_the_same_names_in_two_tenants_are_two_reactors() -> None:
    """G-30, behaviour 87."""
    ours, theirs = single(), single()
    async with tm.testing.node(load=ours.load) as node:
        for thing in theirs.load:
            await node.load(thing, tenant="acme")
        await node.push("a", 1)
        receipts = [await node.push("a", value, tenant="acme") for value in (2, 3)]
        caches = [node.reactor("r").state().cache, node.reactor("r", tenant="acme").state().cache]
    assert [receipt.sequence for receipt in receipts] == [1, 2]
    assert caches == [{"a": 1}, {"a": 3}]
    assert (ours.seen, theirs.seen) == ([1], [2, 3])


async def test_a_reactor_of_another_tenant_is_not_found() -> None:
    """G-30: each command gets its own clear error."""
    async with tm.testing.node() as node:
        await node.load(single().reactor, tenant="acme")
        with pytest.raises(tm.RequestError, match="reactor 'r' not loaded"):
            node.reactor("r")
        with pytest.raises(tm.RequestError, match="accumulator 'a' not loaded"):
            await node.push("a", 1)
        with pytest.raises(tm.RequestError, match="accumulator 'a' not loaded"):
            node.handle("a")
        with pytest.raises(tm.RequestError, match="not loaded"):
            await node.unload("reactor:r")


async def test_a_reactor_that_is_not_shared_cannot_be_named_from_outside() -> None:
    """G-30: never resolves across tenants."""
    sample = single()
    spy = tm.Graph("spy", reactor="acme/r")

    @spy.node
    def out(a: int) -> None:
        return None

    async with tm.testing.node() as node:
        await node.load(sample.reactor, tenant="acme")
        with pytest.raises(tm.RequestError) as looked:
            node.reactor("acme/r")
        with pytest.raises(tm.RequestError) as bound:
            await node.load(spy)
        assert node.registry.graphs() == []
    assert {looked.value.status, bound.value.status} == {403}


async def test_a_graph_binds_to_the_reactor_of_its_own_tenant() -> None:
    """G-30."""
    ours, theirs = single(), single()
    async with tm.testing.node(load=[ours.reactor]) as node:
        await node.load(theirs.reactor, tenant="acme")
        await node.load(observer(theirs.reactor), tenant="acme")
        subscribers = [node.reactor("r", tenant=tenant).state().subscribers for tenant in ("public", "acme")]
    assert subscribers == [[], ["observer"]]


async def test_unloading_one_tenants_reactor_leaves_the_others() -> None:
    """G-30."""
    ours, theirs = single(), single()
    async with tm.testing.node(load=[ours.reactor]) as node:
        await node.load(theirs.reactor, tenant="acme")
        await node.unload("reactor:r", tenant="acme")
        assert (await node.push("a", 1)).outcome == "emitted"
        assert node.registry.reactors() == ["r"]


async def test_a_node_has_a_tenant_of_its_own() -> None:
    """API: `tenant=`."""
    async with tm.testing.node(load=[single().reactor], tenant="acme") as node:
        assert (await node.push("a", 1)).outcome == "emitted"
        assert node.registry.reactors() == ["r"]
        with pytest.raises(tm.RequestError):
            node.reactor("r", tenant="public")


async def test_crashes_are_told_apart_by_tenant() -> None:
    """G-30: recoveries and restarts."""
    async with tm.testing.node(load=[single().reactor]) as node:
        await node.load(single().reactor, tenant="acme")
        await node.break_accumulator("a", tenant="acme")
        assert (await node.push("a", 1)).outcome == "emitted"
        assert (await node.push("a", 1, tenant="acme")).outcome == "rejected"
        assert node.reactor("r").events() == []
        await node.restart_accumulator("a", tenant="acme")
        assert (await node.push("a", 1, tenant="acme")).outcome == "emitted"
