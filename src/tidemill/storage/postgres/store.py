"""The PostgreSQL store: all ports over one database."""

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.migrations import check_current
from tidemill.storage.ports import Checkpoints, DeadLetters, Pauses, Recoveries, SchemaState
from tidemill.storage.postgres import schema
from tidemill.storage.postgres.address import Address
from tidemill.storage.postgres.checkpoints import PostgresCheckpoints
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.dead_letters import PostgresDeadLetters
from tidemill.storage.postgres.pauses import PostgresPauses
from tidemill.storage.postgres.recoveries import PostgresRecoveries
from tidemill.storage.postgres.writes import Unit
from tidemill.storage.queries import Queries


class PostgresStore:
    """A PostgreSQL database behind the ports; its tables are in a schema of their own, `tidemill`."""

    def __init__(self, url: str) -> None:
        self._address = Address.of(url)
        self._queries = Queries.of("tidemill.storage.postgres")
        self._database = Database(self._address, self._queries)
        self._committer: GroupCommitter[Unit] = GroupCommitter(self._database)
        parts = (self._database, self._committer, self._queries)
        self.checkpoints: Checkpoints = PostgresCheckpoints(*parts)
        self.dead_letters: DeadLetters = PostgresDeadLetters(*parts)
        self.recoveries: Recoveries = PostgresRecoveries(*parts)
        self.pauses: Pauses = PostgresPauses(*parts)

    @property
    def title(self) -> str:
        """What and where it is, for messages; never a password."""
        return self._address.title

    async def open(self) -> None:
        """Connect, and bring the schema up to date under a lock; StoreError says what stands against it."""
        await schema.migrate(self._address, self._queries)
        self._database.open()
        await self._committer.open()

    async def look(self) -> None:
        """Connect to read only, as of this one moment; creates nothing, changes nothing, and takes no writes."""
        check_current(await self.schema(), self.title)
        await self._database.look()

    async def close(self) -> None:
        """Let go of the database. Writes that were not answered yet may or may not happen."""
        await self._committer.close()
        await self._database.close()

    async def schema(self) -> SchemaState:
        """Return how far the schema is, without changing anything; works on a store that is not open."""
        return await schema.state(self._address, self._queries)

    async def problems(self) -> list[str]:
        """Return what the database itself finds damaged, one sentence each; works while open."""
        broken = await self._database.read(self._queries.invalid_indexes)
        [(failures,)] = await self._database.read(self._queries.checksum_failures)
        found = [f"index {name} is not valid; run REINDEX INDEX {name}" for (name,) in broken]
        if failures:
            found.append(f"{failures} pages of {self.title} failed their checksums; restore it from a backup")
        return found

    def fail_next(self, times: int) -> None:
        """Let the next `times` transactions fail before they begin; for tests."""
        self._committer.fail_next(times)
