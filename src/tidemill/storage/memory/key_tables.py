"""The table of key snapshots in memory."""

from collections.abc import Sequence

from tidemill.storage.graph_ports import KeySnapshot, PartKey
from tidemill.storage.key_ports import KeySnapshots
from tidemill.storage.memory.tables import MemoryTable


class MemoryKeySnapshots(MemoryTable, KeySnapshots):
    """Snapshots by reactor, key and slot."""

    async def read(self, reactor: PartKey, keys: Sequence[bytes]) -> list[KeySnapshot]:
        rows = self._tables.key_snapshots
        slots = ((reactor, key, slot) for key in dict.fromkeys(keys) for slot in (0, 1))
        return [rows[one] for one in slots if one in rows]

    async def read_pending(self, reactor: PartKey) -> list[KeySnapshot]:
        rows = [row for row in self._tables.key_snapshots.values() if row.reactor == reactor and row.is_pending]
        return await self.read(reactor, [row.key for row in rows])

    async def list_keys(self, reactor: PartKey, after: bytes, limit: int) -> list[bytes]:
        found = {key for owner, key, _ in self._tables.key_snapshots if owner == reactor and key > after}
        return sorted(found)[:limit]
