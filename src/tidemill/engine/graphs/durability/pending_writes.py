"""Dead letters and recoveries that are waiting to be written to the store.

New dead letters are written before the snapshots that no longer hold their events and firings, and those that were
replayed are deleted after the snapshots that hold what came of them: a crash in between loses neither.
"""

import asyncio

from tidemill.storage.store import Store
from tidemill.storage.tables.graphs import StoredDeadLetter, StoredRecovery


class PendingWrites:
    """Dead letters and recoveries that are not in the store yet."""

    def __init__(self) -> None:
        self.dead_letters: dict[str, StoredDeadLetter] = {}
        self.removed_dead_letters: dict[str, None] = {}
        self.recoveries: list[StoredRecovery] = []
        self._write_lock = asyncio.Lock()  # a caller never overtakes rows that another caller is still writing

    def __bool__(self) -> bool:
        """Return whether some row is not in the store yet; rows that are being written count."""
        return bool(self.dead_letters or self.recoveries or self._write_lock.locked())

    async def write(self, store: Store) -> None:
        """Write everything; rows that cannot be written stay pending."""
        async with self._write_lock:
            await self._write(store)

    async def write_removals(self, store: Store) -> None:
        """Delete the removed dead letters; those that cannot be deleted stay pending."""
        async with self._write_lock:
            removed, self.removed_dead_letters = self.removed_dead_letters, {}
            try:
                if removed:
                    await store.dead_letters.delete(list(removed))
            except BaseException:
                self.removed_dead_letters = removed | self.removed_dead_letters
                raise

    async def _write(self, store: Store) -> None:
        dead_letters, self.dead_letters = self.dead_letters, {}
        recoveries, self.recoveries = self.recoveries, []
        try:
            if dead_letters:
                await store.dead_letters.upsert(list(dead_letters.values()))
            dead_letters = {}
            if recoveries:
                await store.recoveries.add(recoveries)
        except BaseException:
            self.dead_letters = {**dead_letters, **self.dead_letters}
            self.recoveries = [*recoveries, *self.recoveries]
            raise
