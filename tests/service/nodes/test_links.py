"""Operations over links between nodes: the answers, the order and the guarantees are those of the mailbox."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import tidemill as tm
from tests.service.nodes.network import LinkedNode, Network, linked_nodes, until
from tests.service.samples import single
from tests.simulation.test_forwarding import Dying
from tidemill.access.principal import Caller
from tidemill.engine.forwarding import links
from tidemill.engine.forwarding.links import audit_links
from tidemill.engine.forwarding.wire import LinkIdentity
from tidemill.engine.workflows.process_identity import HostLiveness
from tidemill.storage.graph_ports import JournalKey
from tidemill.storage.mailbox_port import StoredRequest
from tidemill.storage.workflow_ports import NodeRow

PUBLIC = Caller("public", "test")


@pytest.fixture
def address(tmp_path: Path) -> str:
    """A store that several nodes can use."""
    return f"memory://{tmp_path.name}"


def boundary(**options: Any) -> Any:
    """Return a reactor whose events are committed before they are acknowledged."""
    return single(durability="boundary", strategy="sequential", **options)


def push_soon(group: asyncio.TaskGroup, node: LinkedNode, *events: Any) -> "asyncio.Task[tm.PushSummary]":
    """Begin a push."""
    return group.create_task(node.push_many("a", events), name="push")


@pytest.mark.parametrize("durability", ["interval", "fire", "boundary"])
async def test_pushes_over_a_link_get_the_receipts_of_the_owner(address: str, durability: Any) -> None:
    """G-31, G-4: as over the mailbox: in one order, numbered by one node; events that do not fit are dead letters."""
    sample = single(durability=durability, strategy="sequential")
    async with linked_nodes(address, sample, None) as (_, (owner, stranger)):
        assert (await stranger.push("a", 1)).sequence == 1
        assert stranger.sent == {"mailbox": 1}  # the link is opened meanwhile
        await stranger.link_to()
        assert await stranger.push("a", 2) == tm.Receipt(True, 2, "emitted")
        assert (await stranger.push("a", -1)).outcome == "suppressed"
        assert (await stranger.push("a", b"\x03", format="msgpack")).sequence == 3
        assert (await stranger.push("a", "x")).outcome == "dead_lettered"
        summary = await stranger.push_many("a", [4, "y", 5])
        assert (summary.counts, summary.last_sequence) == ({"emitted": 2, "dead_lettered": 1}, 5)
        assert stranger.sent == {"link": 5}
        assert [one.event for one in (await owner.reactor("r").dead_letters())[::-1]] == ["x", "y"]
        await owner.settle()
    assert sample.seen == [1, 2, 3, 4, 5]


async def test_reads_take_the_link_and_commands_the_mailbox(address: str) -> None:
    """G-31: a command that is repeated has another effect; its errors are those of the owner on both ways."""
    async with linked_nodes(address, boundary(), None) as (_, (_, stranger)):
        await stranger.push("a", 1)
        await stranger.link_to()
        client = stranger.graph_client
        assert (await client.reactor_state(PUBLIC, "r")).cache == {"a": 1}
        stranger.router._sender.sent.clear()
        assert (await client.reactor_state(PUBLIC, "r")).cache == {"a": 1}
        assert stranger.sent == {"link": 1}
        assert (await client.command(PUBLIC, "r", "force_fire")).firing is not None
        assert stranger.sent == {"link": 1, "mailbox": 1}
        with pytest.raises(tm.RequestError) as raised:
            await client.reactor_state(PUBLIC, "r", key="one")
        assert raised.value.status == 400
        assert stranger.sent == {"link": 2, "mailbox": 1}


async def test_concurrent_pushes_are_applied_in_the_order_in_which_they_were_sent(address: str) -> None:
    """G-31, G-4."""
    sample = boundary()
    async with linked_nodes(address, sample, None) as (_, (owner, stranger)):
        await stranger.link_to()
        receipts = await asyncio.gather(*(stranger.push("a", number) for number in range(1, 101)))
        assert [one.sequence for one in receipts] == list(range(1, 101))
        await owner.settle()
        assert stranger.sent == {"link": 100}
    assert sample.seen == list(range(1, 101))


async def test_nothing_is_left_of_pushes_over_a_link(address: str) -> None:
    """The numbers of answered pushes are deleted together."""
    async with linked_nodes(address, boundary(), None) as (_, (owner, stranger)):
        await stranger.link_to()
        await asyncio.gather(*(stranger.push("a", number) for number in range(20)))
        link = next(iter(stranger.router.links._nodes.values())).link
        assert link is not None
        ids = [f"{link.id}.{number:08x}" for number in range(1, 40)]
        journal = JournalKey("public", "a")

        async def stored() -> int:
            found = [await owner.database.producers.newest_push(journal, name) for name in ids]
            return sum(one is not None for one in found)

        assert await stored() == 20
        await stranger.advance("2s")
        await until(lambda: not stranger.router._sender._is_deleting)
        assert await stored() == 0


# -- links that are lost


async def test_a_push_whose_answer_was_lost_is_applied_once(address: str) -> None:
    """G-24, G-31: the link ends between the commit and the answer; the copy in the mailbox gets the same receipts."""
    sample = boundary()
    async with linked_nodes(address, sample, None) as (network, (owner, stranger)):
        await stranger.link_to()
        near, _ = network.newest
        near.is_held = True
        async with asyncio.TaskGroup() as group:
            pushing = push_soon(group, stranger, 1, 2)
            await until(lambda: owner.reactor("r").state().accumulators["a"].emitted == 2)
            near.cut()
            near.is_held = False
            near._take(None)
        assert pushing.result().receipts == (tm.Receipt(True, 1, "emitted"), tm.Receipt(True, 2, "emitted"))
        assert stranger.sent == {"mailbox": 1}
        await owner.settle()
    assert sample.seen == [1, 2]


async def test_a_request_that_a_lost_link_brings_late_is_not_served(address: str) -> None:
    """G-24, G-31: its copy was served, answered and forgotten; the owner ended the link before."""
    sample = boundary()
    async with linked_nodes(address, sample, None) as (network, (owner, stranger)):
        await stranger.link_to()
        near, far = network.newest
        far.is_held = True  # the owner's process has not read it yet
        async with asyncio.TaskGroup() as group:
            pushing = push_soon(group, stranger, 1)
            await until(lambda: len(far._held) > 0)
            near._take(None)  # the sender has given the link up
        assert pushing.result().receipts == (tm.Receipt(True, 1, "emitted"),)
        await stranger.advance("2s")  # and has deleted the number of the push
        far.release()
        await owner.advance("2s")
        await owner.settle()
    assert sample.seen == [1]


@pytest.mark.parametrize("is_done", [False, True])
async def test_a_request_that_comes_while_its_copy_is_read_is_served_once(
    address: str, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    """G-24, G-31: the owner has read the copy before the link brings the request, and acts on it afterwards."""
    sample, may_go_on = boundary(capacity=1), asyncio.Event()
    async with linked_nodes(address, sample, None) as (network, (owner, stranger)):
        await stranger.link_to()
        if not is_done:
            await owner.reactor("r").pause()
            await owner.push("a", 1)
        near, far = network.newest
        far.is_held = True
        read, has_read = owner.database.mailbox.read_requests, asyncio.Event()

        async def read_slowly(*given: Any) -> list[StoredRequest]:
            found = await read(*given)
            if found:
                has_read.set()
                await may_go_on.wait()
            return found

        monkeypatch.setattr(owner.database.mailbox, "read_requests", read_slowly)
        async with asyncio.TaskGroup() as group:
            pushing = push_soon(group, stranger, 2)
            await until(lambda: len(far._held) > 0)
            near._take(None)
            await has_read.wait()
            far.release()
            await until(lambda: bool(owner.router._receiver._in_progress))
            await until(lambda: owner.router.is_idle is is_done)
            may_go_on.set()
            await owner.advance("1s")
            if not is_done:
                await owner.reactor("r").resume()
            await owner.advance("2s")
            await stranger.advance("1s")
        assert pushing.result().counts == {"emitted": 1}
        await owner.settle()
    assert sample.seen == ([2] if is_done else [1, 2])


async def test_a_request_in_progress_is_not_served_again_from_the_mailbox(address: str) -> None:
    """G-24, G-31: it waits for queue space at the owner while its link is lost."""
    sample = boundary(capacity=1)
    async with linked_nodes(address, sample, None) as (network, (owner, stranger)):
        await stranger.link_to()
        await owner.reactor("r").pause()
        await owner.push("a", 1)
        async with asyncio.TaskGroup() as group:
            pushing = push_soon(group, stranger, 2)
            await until(lambda: not owner.router.is_idle)
            network.newest[0].cut()
            await stranger.advance("1s")
            await owner.advance("1s")
            await owner.reactor("r").resume()
            await until(lambda: bool(owner.router.is_idle))
            await owner.advance("1s")
            await stranger.advance("1s")
        assert pushing.result().counts == {"emitted": 1}
        await owner.settle()
    assert sample.seen == [1, 2]


async def test_a_silent_link_is_given_up(address: str) -> None:
    """G-31: the owner may be frozen, or its host gone; the next owner serves the copy in the mailbox."""
    sample = boundary()
    async with linked_nodes(address, sample, None) as (network, (owner, stranger)):
        await stranger.link_to()
        _, far = network.newest
        far.is_mute = True
        async with asyncio.TaskGroup() as group:
            pushing = push_soon(group, stranger, 1)
            await stranger.advance("2s")
            assert not pushing.done()
            await stranger.advance("3s")
        assert pushing.result().counts == {"emitted": 1}
        assert stranger.sent == {"mailbox": 1}
        await stranger.link_to()  # it is opened again
        assert (await stranger.push("a", 2)).sequence == 2
        assert stranger.sent == {"link": 1}
        await owner.settle()
    assert sample.seen == [1, 2]


async def test_a_link_that_waits_long_for_queue_space_is_not_given_up(address: str) -> None:
    """G-12, G-31: back-pressure reaches the caller, which gets `owner_silent` after 30 s as over the mailbox."""
    sample = boundary(capacity=1)
    async with linked_nodes(address, sample, None) as (_, (owner, stranger)):
        await stranger.link_to()
        await owner.reactor("r").pause()
        await owner.push("a", 1)
        async with asyncio.TaskGroup() as group:
            pushing = group.create_task(code_of(stranger.push("a", 2)), name="push")
            for _ in range(31):
                await stranger.advance("1s")
            assert await pushing == "owner_silent"
        assert stranger.sent == {}
        await owner.reactor("r").resume()


async def code_of(push: Any) -> str | None:
    """Return the code of the error that a push raises."""
    with pytest.raises(tm.RequestError) as raised:
        await push
    return raised.value.code


# -- owners that change


async def unload_all(node: LinkedNode) -> None:
    """Unload what a node has loaded, the newest first."""
    for _, name in list(node.loaded_packages)[::-1]:
        await node.unload(name)


async def test_pushes_follow_the_reactor_to_its_next_owner(address: str) -> None:
    """G-31: the old owner refuses them, and the node finds the link to the new one."""
    sample = boundary()
    async with linked_nodes(address, sample, sample, None) as (_, (owner, waiting, stranger)):
        await stranger.link_to()
        assert (await stranger.push("a", 1)).sequence == 1
        await unload_all(owner)
        async with asyncio.TaskGroup() as group:
            pushing = push_soon(group, stranger, 2)
            await waiting.advance("3s")
        assert pushing.result().last_sequence == 2
        while stranger.router.links.open_count < 2:
            assert await stranger.graph_client.reactor_state(PUBLIC, "r")
            await stranger.advance("1s")
        stranger.router._sender.sent.clear()
        assert (await stranger.push("a", 3)).sequence == 3
        assert stranger.sent == {"link": 1}
        await waiting.settle()
    assert sample.seen == [1, 2, 3]


async def test_an_owner_with_another_epoch_refuses_a_request(address: str) -> None:
    """G-31: what has waited in a socket while the reactor had another owner must not be applied now."""
    sample = boundary()
    async with linked_nodes(address, sample, sample, None) as (network, (owner, waiting, stranger)):
        await stranger.link_to()
        near, far = network.newest
        far.is_held = True
        async with asyncio.TaskGroup() as group:
            pushing = push_soon(group, stranger, 1)
            await until(lambda: len(far._held) > 0)
            await unload_all(owner)
            near._take(None)
            await waiting.advance("3s")  # it serves the copy
        assert pushing.result().counts == {"emitted": 1}
        await stranger.advance("2s")
        await unload_all(waiting)
        for one in sample.load:
            await owner.load(one)
        far.release()
        await owner.advance("2s")
        await owner.settle()
    assert sample.seen == [1]


@pytest.mark.parametrize("durability", ["interval", "boundary"])
async def test_an_owner_that_is_cut_off_from_the_store_is_left(address: str, durability: Any) -> None:
    """G-31: it does not know that it was replaced; pushes go to the next owner, and so do those that it has begun."""
    sample = single(durability=durability, strategy="sequential")
    async with linked_nodes(address, sample, sample, None) as (_, (owner, waiting, stranger)):
        await stranger.link_to()
        assert (await stranger.push("a", 1)).accepted
        await owner.settle()
        killer = Dying(owner, 0, takes_effect=False)
        try:
            async with asyncio.TaskGroup() as group:
                if durability == "boundary":
                    pushing = push_soon(group, stranger, 2)
                for _ in range(8):
                    await waiting.advance("1s")
                    await stranger.advance("1s")
                if durability == "interval":
                    pushing = push_soon(group, stranger, 2)
            assert pushing.result().counts == {"emitted": 1}
            if durability == "interval":
                assert owner.reactor("r").state().accumulators["a"].events == 1
        finally:
            killer.lift()


async def test_a_reactor_that_is_gone_is_not_found_over_a_link(address: str) -> None:
    """G-31: at once, as without a link."""
    async with linked_nodes(address, boundary(), None) as (_, (owner, stranger)):
        await stranger.link_to()
        await unload_all(owner)
        with pytest.raises(tm.RequestError, match="accumulator 'a' not loaded"):
            await stranger.push("a", 1)


async def test_a_killed_owner_is_replaced_and_loses_nothing(address: str) -> None:
    """G-24, G-31: requests over its link go to the mailbox, and the next owner knows what was committed."""
    sample = boundary()
    async with linked_nodes(address, sample, sample, None) as (network, (owner, waiting, stranger)):
        await stranger.link_to()
        network.newest[0].is_held = True
        async with asyncio.TaskGroup() as group:
            first = push_soon(group, stranger, 1, 2)
            await until(lambda: owner.reactor("r").state().accumulators["a"].emitted == 2)
            await owner.kill()
            network.newest[0].release()
            network.newest[0].cut()
            second = push_soon(group, stranger, 3)
            await waiting.advance("8s")
        assert first.result().receipts == (tm.Receipt(True, 1, "emitted"), tm.Receipt(True, 2, "emitted"))
        assert second.result().last_sequence == 3
        await waiting.settle()
    assert list(dict.fromkeys(sample.seen)) == [1, 2, 3]


# -- nodes that cannot be reached


async def test_a_node_without_an_address_is_reached_through_the_mailbox(address: str) -> None:
    """G-31: embedded nodes, hosts of partitions, and servers of an older version."""
    sample = boundary()
    async with linked_nodes(address, sample, None) as (network, (owner, stranger)):
        await owner.database.peers.delete(owner.router.node.id)
        for number in (1, 2):
            assert (await stranger.push("a", number)).sequence == number
            await stranger.advance("6s")
        assert (stranger.sent, network.wires) == ({"mailbox": 2}, [])


async def test_a_node_that_cannot_be_reached_is_reported_and_costs_no_push_any_time(address: str) -> None:
    """G-31: pushes take the mailbox; the store says who cannot reach whom until that changes."""
    async with linked_nodes(address, boundary(), None) as (network, (owner, stranger)):
        network.is_down = True
        for number in (1, 2, 3):
            assert (await stranger.push("a", number)).sequence == number
            await stranger.advance("1s")
        (unreached,) = await owner.database.peers.list_unreached()
        assert (unreached.peer, unreached.reason) == (owner.router.node.id, "connection refused")
        found = stranger.metrics()
        assert (found["links_unreached"], found["links_open"], found["forwarded_requests_total"]) == (1, 0, 3)
        (finding,) = await audit_links(owner.database, DeadNodes())
        assert finding.severity == "note"
        assert finding.sentence.startswith("cannot reach ")
        assert "connection refused" in finding.sentence
        assert await audit_links(owner.database, DeadNodes(owner.router.node.id)) == []
        network.is_down = False
        await stranger.link_to()
        assert await owner.database.peers.list_unreached() == []
        assert (await stranger.push("a", 4)).sequence == 4
        assert stranger.sent == {"link": 1}
        found = stranger.metrics()
        assert (found["links_unreached"], found["links_open"], found["forwarded_requests_total"]) == (0, 1, 1)
        assert await audit_links(owner.database, DeadNodes()) == []


async def test_an_address_is_written_until_the_store_takes_it(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-31: a store that fails for a moment keeps no server from its start, and rows of killed nodes are deleted."""
    async with linked_nodes(address, boundary(), None) as (_, (owner, stranger)):
        peers, gone = owner.database.peers, stranger.router.node.id
        await peers.delete(owner.router.node.id)
        owner.fail_store(1)
        await owner.router.take_links_at("memory://again")
        assert await peers.get(owner.router.node.id) is None
        await owner.advance("6s")
        listed = await peers.get(owner.router.node.id)
        assert listed is not None
        assert listed.url == "memory://again"
        monkeypatch.setattr(links, "LISTING_INTERVAL", 5.0)
        monkeypatch.setattr(links, "GONE_AGE", timedelta())
        await stranger.kill()
        await owner.database.owners.delete([gone])
        await owner.router.take_links_at("memory://again")
        await owner.advance("6s")
        assert await peers.get(gone) is None


class DeadNodes(HostLiveness):
    """Reports some nodes of this process as dead."""

    def __init__(self, *dead: str) -> None:
        self._dead = dead

    def is_dead(self, owner: NodeRow) -> bool:
        return owner.id in self._dead


async def test_a_large_push_takes_the_mailbox(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-31: a server takes frames up to a size."""
    monkeypatch.setattr("tidemill.engine.forwarding.sender.MAX_LINK_BYTES", 100)
    async with linked_nodes(address, boundary(), None) as (_, (_, stranger)):
        await stranger.link_to()
        assert (await stranger.push_many("a", range(1, 200))).counts == {"emitted": 199}
        assert stranger.sent == {"mailbox": 1}


# -- who may open a link


class Impostor(Network):
    """A network in which another node answers at each address."""

    async def open(self, url: str) -> Any:
        return await super().open(next(one for one in self._nodes if one != url))


async def test_only_the_wanted_node_is_talked_to(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-4: an address may lead to another node by now, or to a load balancer."""
    monkeypatch.setattr("tests.service.nodes.network.Network", Impostor)
    async with linked_nodes(address, boundary(), None, None) as (_, (owner, stranger, _)):
        for number in (1, 2, 3):
            assert (await stranger.push("a", number)).sequence == number
            await stranger.advance("2s")
        (unreached,) = await owner.database.peers.list_unreached()
        assert unreached.reason == "another node answers at this address"
        assert owner.router.gate.count == 0


@pytest.mark.parametrize("wrong", ["opener", "taker"])
async def test_a_link_needs_the_keys_of_both_nodes(address: str, wrong: str) -> None:
    """S-4: who knows addresses and has overheard links can open none, and cannot answer for a node."""
    async with linked_nodes(address, boundary(), None) as (_, (owner, stranger)):
        await stranger.router.links.list_self()
        node = stranger if wrong == "opener" else owner
        other = LinkIdentity(node.router.node.id)  # the process at the end has another key than the store
        listed = await owner.database.peers.get(other.node)
        assert listed is not None
        await owner.database.peers.put(replace(listed, public_key=other.public_key))
        await stranger.push("a", 1)
        await stranger.advance("1s")
        assert (stranger.router.links.open_count, owner.router.gate.count) == (0, 0)
        await owner.database.peers.put(listed)
        await stranger.link_to()
