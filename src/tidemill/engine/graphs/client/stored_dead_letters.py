"""The dead letters in a store, for those who look at it without a node."""

from tidemill.access.principal import Caller
from tidemill.engine.graphs.checkpoints.dead_letter_store import to_plain_dead_letter
from tidemill.engine.graphs.client.listed_values import to_listed_dead_letter
from tidemill.engine.graphs.dead_letters import find_by_end
from tidemill.graphs.outcomes import DeadLetter
from tidemill.storage.store import Store


class StoredDeadLetters:
    """Reads the dead letters of a caller's tenant from a store, newest first."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all_dead_letters(self, caller: Caller) -> list[DeadLetter]:
        """Return all dead letters, without large values."""
        return [to_listed_dead_letter(one) for one in await self._read(caller)]

    async def whole_dead_letter(self, caller: Caller, end: str) -> DeadLetter:
        """Return the dead letter whose id ends so, with all its values."""
        return find_by_end(await self._read(caller), end)

    async def _read(self, caller: Caller) -> list[DeadLetter]:
        rows = await self._store.dead_letters.list_all()
        return [to_plain_dead_letter(row) for row in reversed(rows) if row.tenant == caller.tenant]
