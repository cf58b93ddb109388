"""Peers and links that cannot be opened, on every database."""

from datetime import timedelta
from typing import Any

from tests.contract.samples import NOON, NOON_ELSEWHERE
from tidemill.storage.store import Store
from tidemill.storage.tables.peers import Peer, UnreachedPeer
from tidemill.storage.workflow_ports import NodeRow


def peer(node: str = "one", **given: Any) -> Peer:
    """Return a peer."""
    return Peer(**{"node": node, "url": f"http://{node}:8080", "public_key": b"\x00key", "at": NOON} | given)


def unreached(node: str, other: str, reason: str = "refused") -> UnreachedPeer:
    """Return that a node cannot reach another one."""
    return UnreachedPeer(node=node, peer=other, url=f"http://{other}:8080", reason=reason, at=NOON)


async def test_a_peer_is_found_by_its_node(store: Store) -> None:
    """G-31: the newest address and key of a node, which may have no address."""
    await store.peers.put(peer(at=NOON_ELSEWHERE))
    await store.peers.put(peer("two", url=None))
    assert await store.peers.get("one") == peer()
    assert await store.peers.get("two") == peer("two", url=None)
    await store.peers.put(peer(public_key=b"next"))
    assert await store.peers.get("one") == peer(public_key=b"next")
    await store.peers.delete("one")
    assert await store.peers.get("one") is None


async def test_links_that_cannot_be_opened_are_kept_until_they_can(store: Store) -> None:
    """G-31: with the newest reason; those of a node that leaves go with it."""
    for one in (unreached("a", "b"), unreached("a", "c"), unreached("b", "c"), unreached("c", "a")):
        await store.peers.set_unreached(one)
    await store.peers.set_unreached(unreached("a", "b", "timeout"))
    await store.peers.set_reached("b", "c")
    assert await store.peers.list_unreached() == [
        unreached("c", "a"),
        unreached("a", "b", "timeout"),
        unreached("a", "c"),
    ]
    await store.peers.delete("c")
    assert await store.peers.list_unreached() == [unreached("a", "b", "timeout")]


async def test_peers_of_nodes_that_are_gone_are_pruned(store: Store) -> None:
    """G-31: the nodes of the store stay, and new peers, whose nodes may be about to be listed."""
    await store.owners.upsert(NodeRow(id="old", host="h", boot="b", pid=1, started="s", at=NOON))
    late = NOON + timedelta(hours=1)
    for one in (peer("old"), peer("gone"), peer("new", at=late)):
        await store.peers.put(one)
    await store.peers.set_unreached(unreached("old", "gone"))
    await store.peers.set_unreached(unreached("gone", "old"))
    await store.peers.prune(late)
    assert [await store.peers.get(name) is not None for name in ("old", "gone", "new")] == [True, False, True]
    assert await store.peers.list_unreached() == []
