"""Tables of peers: how nodes reach each other without the mailbox, and which of them cannot."""

from datetime import datetime

import msgspec

from tidemill.storage.tables.database import RowCodec, Statement, Table
from tidemill.storage.tables.declared import of_instance


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A node that opens links to others, or takes theirs."""

    node: str
    url: str | None
    """Where it takes links; None if it serves no address."""
    public_key: bytes
    """Of this process: a link proves that it has the private one."""
    at: datetime


class UnreachedPeer(msgspec.Struct, frozen=True, kw_only=True):
    """A peer to which a node cannot open a link; its requests go through the mailbox."""

    node: str
    peer: str
    url: str
    reason: str
    at: datetime


_PEER, _UNREACHED = RowCodec(Peer), RowCodec(UnreachedPeer)
_PUT = Statement(
    "INSERT INTO {schema}peers ({columns}) VALUES ({parameters}) ON CONFLICT (node) DO UPDATE SET {updates}", _PEER
)
_PEER_OF = Statement("SELECT {columns} FROM {schema}peers WHERE node = :node", _PEER)
_DELETE = Statement("DELETE FROM {schema}peers WHERE node = :node")
_DELETE_UNREACHED = Statement("DELETE FROM {schema}unreached_peers WHERE node = :node OR peer = :node")
_PUT_UNREACHED = Statement(
    """
    INSERT INTO {schema}unreached_peers ({columns}) VALUES ({parameters})
    ON CONFLICT (node, peer) DO UPDATE SET {updates}
    """,
    _UNREACHED,
)
_DELETE_REACHED = Statement("DELETE FROM {schema}unreached_peers WHERE node = :node AND peer = :peer")
_ALL_UNREACHED = Statement("SELECT {columns} FROM {schema}unreached_peers ORDER BY peer, node", _UNREACHED)
_PRUNE = Statement("""
    DELETE FROM {schema}peers WHERE at < :before AND node NOT IN (SELECT id FROM {schema}owners)
""")
_PRUNE_UNREACHED = Statement("""
    DELETE FROM {schema}unreached_peers WHERE node NOT IN (SELECT id FROM {schema}owners)
        OR peer NOT IN (SELECT id FROM {schema}owners)
""")


class Peers(Table):
    """Nodes by their ids, and the peers that they cannot reach."""

    tables = of_instance("peers", "unreached_peers")

    async def put(self, peer: Peer) -> None:
        """Write a peer, in place of the one with its id."""
        await self._put(_PUT, **_PEER.values(peer))

    async def get(self, node: str) -> Peer | None:
        """Return a peer."""
        return await self._first(_PEER, _PEER_OF, node=node)

    async def delete(self, node: str) -> None:
        """Delete a peer, and what is known about links from it and to it."""
        await self._put(_DELETE, node=node)
        await self._put(_DELETE_UNREACHED, node=node)

    async def set_unreached(self, unreached: UnreachedPeer) -> None:
        """Record that a node cannot reach a peer, and why."""
        await self._put(_PUT_UNREACHED, **_UNREACHED.values(unreached))

    async def set_reached(self, node: str, peer: str) -> None:
        """Record that a node reaches a peer."""
        await self._put(_DELETE_REACHED, node=node, peer=peer)

    async def list_unreached(self) -> list[UnreachedPeer]:
        """Return the peers that some node cannot reach, by peer."""
        return await self._list(_UNREACHED, _ALL_UNREACHED)

    async def prune(self, before: datetime) -> None:
        """Delete peers from before a time that are gone, and what is known about links of nodes that are gone."""
        await self._put(_PRUNE, before=before)
        await self._put(_PRUNE_UNREACHED)
