"""The memory store: dictionaries behind the same group committer as any database."""

from collections.abc import Callable
from datetime import datetime

from tidemill.kernel.clock import SystemClock
from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.backfills import MemoryBackfills
from tidemill.storage.memory.checkpoints import MemoryCheckpoints
from tidemill.storage.memory.dead_letters import MemoryDeadLetters
from tidemill.storage.memory.leases import MemoryLeases
from tidemill.storage.memory.logs import MemoryLogs
from tidemill.storage.memory.notes import MemoryNotes
from tidemill.storage.memory.owners import MemoryOwners
from tidemill.storage.memory.package_states import MemoryPackageStates
from tidemill.storage.memory.packages import MemoryPackages
from tidemill.storage.memory.pauses import MemoryPauses
from tidemill.storage.memory.recoveries import MemoryRecoveries
from tidemill.storage.memory.runs import MemoryRuns
from tidemill.storage.memory.schedules import MemorySchedules
from tidemill.storage.memory.tables import Tables, Unit
from tidemill.storage.memory.trusted_keys import MemoryTrustedKeys
from tidemill.storage.memory.versions import MemoryVersions
from tidemill.storage.ports import SchemaState, Store
from tidemill.storage.run_ports import News


class MemoryStore(Store):
    """A store that lasts as long as the object does: what it holds outlives `close`, and is there after `open`."""

    def __init__(self, now: Callable[[], datetime] | None = None) -> None:
        tables, now = Tables(), now or SystemClock().now
        self._committer: GroupCommitter[Unit] = GroupCommitter(tables)
        self.checkpoints = MemoryCheckpoints(tables, self._committer)
        self.dead_letters = MemoryDeadLetters(tables, self._committer)
        self.recoveries = MemoryRecoveries(tables, self._committer)
        self.pauses = MemoryPauses(tables, self._committer)
        self.runs = MemoryRuns(tables, self._committer, now)
        self.leases = MemoryLeases(tables, self._committer, now)
        self.notes = MemoryNotes(tables, self._committer)
        self.versions = MemoryVersions(tables, self._committer)
        self.schedules = MemorySchedules(tables, self._committer)
        self.owners = MemoryOwners(tables, self._committer)
        self.logs = MemoryLogs(tables, self._committer)
        self.backfills = MemoryBackfills(tables, self._committer)
        self.packages = MemoryPackages(tables, self._committer)
        self.package_states = MemoryPackageStates(tables, self._committer)
        self.trusted_keys = MemoryTrustedKeys(tables, self._committer)

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

    async def listen(self, heard: Callable[[], None], about: News | None = None) -> None:
        """Do nothing: no other process sees this memory."""

    def fail_next(self, times: int) -> None:
        self._committer.fail_next(times)
