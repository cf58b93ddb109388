"""The PostgreSQL store: all ports over one database."""

from collections.abc import Callable
from datetime import datetime

from tidemill.kernel.ids import incarnation
from tidemill.storage.committer import GroupCommitter
from tidemill.storage.migrations import check_current
from tidemill.storage.ports import SchemaState, Store
from tidemill.storage.postgres import schema
from tidemill.storage.postgres.address import Address
from tidemill.storage.postgres.applying import Now
from tidemill.storage.postgres.backfills import PostgresBackfills
from tidemill.storage.postgres.checkpoints import PostgresCheckpoints
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.dead_letters import PostgresDeadLetters
from tidemill.storage.postgres.leases import PostgresLeases
from tidemill.storage.postgres.listening import Listener
from tidemill.storage.postgres.logs import PostgresLogs
from tidemill.storage.postgres.notes import PostgresNotes
from tidemill.storage.postgres.owners import PostgresOwners
from tidemill.storage.postgres.package_states import PostgresPackageStates
from tidemill.storage.postgres.packages import PostgresPackages
from tidemill.storage.postgres.pauses import PostgresPauses
from tidemill.storage.postgres.recoveries import PostgresRecoveries
from tidemill.storage.postgres.runs import PostgresRuns
from tidemill.storage.postgres.schedules import PostgresSchedules
from tidemill.storage.postgres.trusted_keys import PostgresTrustedKeys
from tidemill.storage.postgres.versions import PostgresVersions
from tidemill.storage.postgres.writes import Unit
from tidemill.storage.queries import Queries
from tidemill.storage.run_ports import News


class PostgresStore(Store):
    """A PostgreSQL database behind the ports; its tables are in a schema of their own, `tidemill`.

    `now` is a clock for tests, which leases then go by; without it they go by the server's.
    """

    def __init__(self, url: str, now: Callable[[], datetime] | None = None) -> None:
        self._address = address = Address.of(url)
        self._queries = queries = Queries.of("tidemill.storage.postgres")
        self._database = Database(address, queries)
        self._claiming = Database(address, queries)
        self._committer: GroupCommitter[Unit] = GroupCommitter(self._database)
        self._claims: GroupCommitter[Unit] = GroupCommitter(self._claiming)
        sender = incarnation()
        time: Now = now or (lambda: None)
        self._listener = Listener(address, sender)
        self._leases = PostgresLeases(address, self._database, queries, time, self._committer.fail_if_told)
        parts = (self._database, self._committer, queries)
        self.checkpoints = PostgresCheckpoints(*parts)
        self.dead_letters = PostgresDeadLetters(*parts)
        self.recoveries = PostgresRecoveries(*parts)
        self.pauses = PostgresPauses(*parts)
        self.runs = PostgresRuns(self._database, self._committer, self._claims, queries, sender, time)
        self.notes = PostgresNotes(*parts)
        self.versions = PostgresVersions(*parts)
        self.schedules = PostgresSchedules(*parts)
        self.leases = self._leases
        self.owners = PostgresOwners(*parts)
        self.logs = PostgresLogs(*parts)
        self.backfills = PostgresBackfills(*parts)
        self.packages = PostgresPackages(*parts, sender)
        self.package_states = PostgresPackageStates(*parts)
        self.trusted_keys = PostgresTrustedKeys(*parts)

    @property
    def title(self) -> str:
        return self._address.title

    async def open(self) -> None:
        await schema.migrate(self._address, self._queries)
        self._database.open()
        self._claiming.open()
        self._leases.open()
        await self._listener.open()
        await self._claims.open()
        await self._committer.open()

    async def look(self) -> None:
        check_current(await self.schema(), self.title)
        await self._database.look()

    async def close(self) -> None:
        await self._committer.close()
        await self._claims.close()
        await self._listener.close()
        await self._leases.close()
        await self._claiming.close()
        await self._database.close()

    async def listen(self, heard: Callable[[], None], about: News | None = None) -> None:
        """Call back when another process says that it has changed something."""
        await self._listener.listen(heard, about)

    async def schema(self) -> SchemaState:
        return await schema.state(self._address, self._queries)

    async def problems(self) -> list[str]:
        broken = await self._database.read(self._queries.invalid_indexes)
        [(failures,)] = await self._database.read(self._queries.checksum_failures)
        found = [f"index {name} is not valid; run REINDEX INDEX {name}" for (name,) in broken]
        if failures:
            found.append(f"{failures} pages of {self.title} failed their checksums; restore it from a backup")
        return found

    def fail_next(self, times: int) -> None:
        self._committer.fail_next(times)
