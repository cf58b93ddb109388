"""The ports of a SQLite database, in a file or in memory."""

from collections.abc import Callable
from datetime import datetime

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.plain_ports import add_plain_ports
from tidemill.storage.queries import Queries
from tidemill.storage.sqlite.database import Database, SqliteUnit
from tidemill.storage.sqlite.graph_tables import (
    SqliteCheckpoints,
    SqliteKeySnapshots,
    SqliteProducers,
)
from tidemill.storage.sqlite.leases import SqliteLeases, SqlitePartOwners
from tidemill.storage.sqlite.mailbox import SqliteMailbox
from tidemill.storage.sqlite.plain_tables import PlainTables
from tidemill.storage.sqlite.run_rows import COLUMN_FRAGMENTS
from tidemill.storage.sqlite.runs import SqliteRuns
from tidemill.storage.sqlite.workflow_tables import (
    SqliteNotes,
    SqliteOwners,
)
from tidemill.storage.state_sets import STATE_FRAGMENTS
from tidemill.storage.store import Store
from tidemill.storage.unresolved import unresolved_fragments

QUERIES = Queries.from_package(
    __package__,
    STATE_FRAGMENTS | COLUMN_FRAGMENTS | unresolved_fragments("runs"),
)


def add_ports(
    store: Store, database: Database, committer: GroupCommitter[SqliteUnit], now: Callable[[], datetime]
) -> None:
    """Give a store all ports of a database, which write through a committer. Leases expire by `now`."""
    parts = (database, committer, QUERIES)
    add_plain_ports(store, PlainTables(database, committer))
    store.checkpoints = SqliteCheckpoints(*parts)
    store.key_snapshots = SqliteKeySnapshots(*parts)
    store.producers = SqliteProducers(*parts)
    store.mailbox = SqliteMailbox(*parts)
    store.part_owners = SqlitePartOwners(*parts)
    store.runs = SqliteRuns(*parts, now)
    store.leases = SqliteLeases(*parts, now)
    store.notes = SqliteNotes(*parts)
    store.owners = SqliteOwners(*parts, now)
