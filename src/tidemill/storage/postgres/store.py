"""The PostgreSQL store: all ports over one database."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime

from tidemill.kernel.ids import new_instance_id
from tidemill.storage.backup import Replacement, Snapshot
from tidemill.storage.committer import GroupCommitter
from tidemill.storage.migrations import SchemaState, check_schema_current
from tidemill.storage.plain_ports import PlainPorts
from tidemill.storage.postgres.backup import open_replacement, open_snapshot
from tidemill.storage.postgres.connection import PostgresUrl, migrate, read_schema_state
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.graph_tables import (
    PostgresCheckpoints,
    PostgresKeySnapshots,
    PostgresProducers,
)
from tidemill.storage.postgres.leases import PostgresLeases, PostgresPartOwners
from tidemill.storage.postgres.locked_rows import LeaseClock
from tidemill.storage.postgres.mailbox import PostgresMailbox
from tidemill.storage.postgres.notifications import NotificationListener
from tidemill.storage.postgres.plain_tables import PlainTables
from tidemill.storage.postgres.run_rows import COLUMN_FRAGMENTS
from tidemill.storage.postgres.runs import PostgresRuns
from tidemill.storage.postgres.workflow_tables import (
    PostgresNotes,
    PostgresOwners,
)
from tidemill.storage.postgres.writes import PostgresUnit
from tidemill.storage.queries import Queries
from tidemill.storage.state_sets import STATE_FRAGMENTS
from tidemill.storage.store import Store
from tidemill.storage.store_size import COUNT_LIMIT, COUNTED_TABLES, ESTIMATE_LIMIT, RowCount, StoreSize, counted
from tidemill.storage.tables.access import AUDIT_ROWS
from tidemill.storage.unresolved import unresolved_fragments
from tidemill.storage.workflow_ports import ChangeTopic
from tidemill.storage.write_check import check_writable

QUERIES = Queries.from_package(
    __package__,
    STATE_FRAGMENTS | COLUMN_FRAGMENTS | {"audit_columns": AUDIT_ROWS.columns} | unresolved_fragments("tidemill.runs"),
)


class PostgresStore(PlainPorts, Store):
    """A PostgreSQL database behind the ports; its tables are in the schema `tidemill`.

    Leases expire by `now`, the server's clock by default.
    """

    def __init__(self, url: str, now: Callable[[], datetime] | None = None) -> None:
        self._address = address = PostgresUrl.parse(url)
        self._database = Database(address, QUERIES)
        self._claim_database = Database(address, QUERIES)
        self._committer: GroupCommitter[PostgresUnit] = GroupCommitter(self._database)
        self._claim_committer: GroupCommitter[PostgresUnit] = GroupCommitter(self._claim_database)
        sender = new_instance_id()
        lease_clock: LeaseClock = now or (lambda: None)
        self._listener = NotificationListener(address, sender)
        self._leases = PostgresLeases(address, self._database, QUERIES, lease_clock)
        parts = (self._database, self._committer, QUERIES)
        super().__init__(PlainTables(self._database, self._committer, sender))
        self.checkpoints = PostgresCheckpoints(*parts)
        self.key_snapshots = PostgresKeySnapshots(*parts)
        self.producers = PostgresProducers(*parts)
        self.mailbox = PostgresMailbox(*parts, sender)
        self.part_owners = PostgresPartOwners(*parts)
        self.runs = PostgresRuns(self._database, self._committer, self._claim_committer, QUERIES, sender, lease_clock)
        self.notes = PostgresNotes(*parts)
        self.leases = self._leases
        self.owners = PostgresOwners(*parts, lease_clock)

    kind = "postgresql"

    @property
    def title(self) -> str:
        return self._address.title

    async def open(self) -> None:
        await migrate(self._address, QUERIES)
        self._database.open()
        self._claim_database.open()
        self._leases.open()
        await self._listener.open()
        await self._claim_committer.open()
        await self._committer.open()

    async def open_read_only(self) -> None:
        check_schema_current(await self.read_schema_state(), self.title)
        await self._database.open_read_only()

    async def close(self) -> None:
        await self._committer.close()
        await self._claim_committer.close()
        await self._listener.close()
        await self._leases.close()
        await self._claim_database.close()
        await self._database.close()

    async def find_write_blocker(self) -> str | None:
        """Return None: the server locks rows, never all of them."""
        return None

    async def listen(self, on_change: Callable[[], None], topic: ChangeTopic | None = None) -> None:
        """Call `on_change` when another process notifies of a change."""
        await self._listener.listen(on_change, topic)

    async def read_schema_state(self) -> SchemaState:
        return await read_schema_state(self._address, QUERIES)

    async def check_writable(self) -> None:
        await check_writable(self.notes, [self._committer, self._claim_committer])

    def read_local_keys(self) -> str | None:
        """Return None: keys in the database would protect nothing."""
        return None

    async def read_size(self) -> StoreSize:
        """Return the sizes; a large table has the estimate of its last analysis."""
        rows: dict[str, RowCount] = {}
        [(size,)] = await self._database.read(QUERIES.schema_size)
        estimates = dict(await self._database.read(QUERIES.row_estimates, list(COUNTED_TABLES.values())))
        for what, table in COUNTED_TABLES.items():
            if (estimate := estimates[table]) >= ESTIMATE_LIMIT:
                rows[what] = RowCount(estimate, False)
            else:
                [(number,)] = await self._database.read(
                    f"SELECT count(*) FROM (SELECT 1 FROM tidemill.{table} LIMIT {COUNT_LIMIT}) AS counted"
                )
                rows[what] = counted(number)
        return StoreSize(size, rows)

    async def check_integrity(self) -> list[str]:
        invalid = await self._database.read(QUERIES.invalid_indexes)
        [(failures,)] = await self._database.read(QUERIES.checksum_failures)
        damage = [f"index {name} is not valid; run REINDEX INDEX {name}" for (name,) in invalid]
        if failures:
            damage.append(f"{failures} pages of {self.title} failed their checksums; restore it from a backup")
        return damage

    def open_snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        return open_snapshot(self._address, QUERIES)

    def open_replacement(self, schema_version: int, *, replace: bool) -> AbstractAsyncContextManager[Replacement]:
        return open_replacement(self._address, QUERIES, schema_version, replace=replace)
