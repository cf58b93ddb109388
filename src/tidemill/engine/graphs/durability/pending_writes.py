"""Dead letters and recoveries that are waiting to be written to the store."""

import asyncio

from tidemill.storage.graph_ports import StoredDeadLetter, StoredRecovery
from tidemill.storage.store import Store


class PendingWrites:
    """Dead letters and recoveries that are not in the store yet."""

    def __init__(self) -> None:
        self.dead_letters: dict[str, StoredDeadLetter | None] = {}  # None: to be deleted
        self.recoveries: list[StoredRecovery] = []
        self._write_lock = asyncio.Lock()  # a caller never overtakes rows that another caller is still writing

    def __bool__(self) -> bool:
        """Return whether some row is not in the store yet; rows that are being written count."""
        return bool(self.dead_letters or self.recoveries or self._write_lock.locked())

    async def write(self, store: Store) -> None:
        """Write everything; rows that cannot be written stay pending."""
        async with self._write_lock:
            await self._write(store)

    async def _write(self, store: Store) -> None:
        dead_letters, self.dead_letters = self.dead_letters, {}
        recoveries, self.recoveries = self.recoveries, []
        try:
            await _write_dead_letters(store, dead_letters)
            dead_letters = {}
            if recoveries:
                await store.recoveries.add(recoveries)
        except BaseException:
            self.dead_letters = {**dead_letters, **self.dead_letters}
            self.recoveries = [*recoveries, *self.recoveries]
            raise


async def _write_dead_letters(store: Store, dead_letters: dict[str, StoredDeadLetter | None]) -> None:
    if kept := [dead_letter for dead_letter in dead_letters.values() if dead_letter is not None]:
        await store.dead_letters.upsert(kept)
    if removed := [dead_letter_id for dead_letter_id, row in dead_letters.items() if row is None]:
        await store.dead_letters.delete(removed)
