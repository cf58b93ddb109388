"""The port of key snapshots: the state of single keys of keyed reactors. `Checkpoints.save` writes them."""

from collections.abc import Sequence
from typing import Protocol

from tidemill.storage.graph_ports import KeySnapshot, PartKey


class KeySnapshots(Protocol):
    """The snapshots of the keys of reactors."""

    async def read(self, reactor: PartKey, keys: Sequence[bytes]) -> list[KeySnapshot]:
        """Return both snapshots of each of these keys that has any."""

    async def read_pending(self, reactor: PartKey) -> list[KeySnapshot]:
        """Return both snapshots of each key of a reactor of which one is pending."""

    async def list_keys(self, reactor: PartKey, after: bytes, limit: int) -> list[bytes]:
        """Return the stored keys of a reactor that sort after one, sorted, at most `limit`; `b""` sorts first."""
