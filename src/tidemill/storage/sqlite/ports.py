"""The ports of a SQLite database, in a file or in memory."""

from collections.abc import Callable
from datetime import datetime

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.graph_ports import Checkpoints, KeySnapshots, PartOwners, Producers
from tidemill.storage.mailbox_port import Mailbox
from tidemill.storage.plain_ports import PlainPorts
from tidemill.storage.queries import Queries
from tidemill.storage.sqlite.database import Database, SqliteUnit
from tidemill.storage.sqlite.graph_tables import SqliteCheckpoints, SqliteKeySnapshots, SqliteProducers
from tidemill.storage.sqlite.leases import SqliteLeases, SqlitePartOwners
from tidemill.storage.sqlite.mailbox import SqliteMailbox
from tidemill.storage.sqlite.plain_tables import PlainTables
from tidemill.storage.sqlite.run_rows import COLUMN_FRAGMENTS
from tidemill.storage.sqlite.runs import SqliteRuns
from tidemill.storage.sqlite.workflow_tables import SqliteNotes, SqliteOwners
from tidemill.storage.state_sets import STATE_FRAGMENTS
from tidemill.storage.unresolved import unresolved_fragments
from tidemill.storage.workflow_ports import Leases, Notes, Owners, Runs

QUERIES = Queries.from_package(__package__, STATE_FRAGMENTS | COLUMN_FRAGMENTS | unresolved_fragments("runs"))


class SqlitePorts(PlainPorts):
    """A store with all ports of a SQLite database, which write through a committer. Leases expire by `now`."""

    def __init__(self, database: Database, committer: GroupCommitter[SqliteUnit], now: Callable[[], datetime]) -> None:
        super().__init__(PlainTables(database, committer))
        parts = (database, committer, QUERIES)
        self.checkpoints: Checkpoints = SqliteCheckpoints(*parts)
        self.key_snapshots: KeySnapshots = SqliteKeySnapshots(*parts)
        self.producers: Producers = SqliteProducers(*parts)
        self.mailbox: Mailbox = SqliteMailbox(*parts)
        self.part_owners: PartOwners = SqlitePartOwners(*parts)
        self.runs: Runs = SqliteRuns(*parts, now)
        self.leases: Leases = SqliteLeases(*parts, now)
        self.notes: Notes = SqliteNotes(*parts)
        self.owners: Owners = SqliteOwners(*parts, now)
