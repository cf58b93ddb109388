"""The memory store: dictionaries behind the same group committer as any database."""

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.checkpoints import MemoryCheckpoints
from tidemill.storage.memory.dead_letters import MemoryDeadLetters
from tidemill.storage.memory.pauses import MemoryPauses
from tidemill.storage.memory.recoveries import MemoryRecoveries
from tidemill.storage.memory.tables import Tables, Unit
from tidemill.storage.ports import SchemaState, Store


class MemoryStore(Store):
    """A store that lasts as long as the object does: what it holds outlives `close`, and is there after `open`."""

    def __init__(self) -> None:
        tables = Tables()
        self._committer: GroupCommitter[Unit] = GroupCommitter(tables)
        self.checkpoints = MemoryCheckpoints(tables, self._committer)
        self.dead_letters = MemoryDeadLetters(tables, self._committer)
        self.recoveries = MemoryRecoveries(tables, self._committer)
        self.pauses = MemoryPauses(tables, self._committer)

    @property
    def title(self) -> str:
        return "memory"

    async def open(self) -> None:
        await self._committer.open()

    async def look(self) -> None:
        """Do nothing: what is in memory can always be read."""

    async def close(self) -> None:
        await self._committer.close()

    async def schema(self) -> SchemaState:
        return SchemaState(found=0, known=0)

    async def problems(self) -> list[str]:
        return []

    def fail_next(self, times: int) -> None:
        self._committer.fail_next(times)
