"""The ports of a SQLite database, in a file or in memory."""

from collections.abc import Callable
from datetime import datetime

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.queries import Queries
from tidemill.storage.sqlite.database import Database, SqliteUnit
from tidemill.storage.sqlite.graph_tables import (
    SqliteCheckpoints,
    SqliteProducers,
)
from tidemill.storage.sqlite.key_tables import SqliteKeySnapshots
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
from tidemill.storage.tables.access import ApiKeys, AuditEntries, Tenants
from tidemill.storage.tables.backfills import Backfills
from tidemill.storage.tables.graphs import DeadLetters, Pauses, Recoveries
from tidemill.storage.tables.logs import Logs
from tidemill.storage.tables.orders import AttemptOrders, CodeBundles
from tidemill.storage.tables.packages import Packages, PackageStates, TrustedKeys
from tidemill.storage.tables.pools import Pools
from tidemill.storage.tables.requests import RequestRecords
from tidemill.storage.tables.schedules import Schedules
from tidemill.storage.tables.sessions import Accounts, Sessions, Tickets
from tidemill.storage.tables.variables import Secrets, Variables
from tidemill.storage.tables.versions import Versions

QUERIES = Queries.from_package(
    __package__,
    STATE_FRAGMENTS | COLUMN_FRAGMENTS,
)


# long: one line for each port
def add_ports(
    store: Store, database: Database, committer: GroupCommitter[SqliteUnit], now: Callable[[], datetime]
) -> None:
    """Give a store all ports of a database, which write through a committer. Leases expire by `now`."""
    parts, plain = (database, committer, QUERIES), PlainTables(database, committer)
    store.checkpoints = SqliteCheckpoints(*parts)
    store.key_snapshots = SqliteKeySnapshots(*parts)
    store.producers = SqliteProducers(*parts)
    store.mailbox = SqliteMailbox(*parts)
    store.part_owners = SqlitePartOwners(*parts)
    store.dead_letters = DeadLetters(plain)
    store.recoveries = Recoveries(plain)
    store.pauses = Pauses(plain)
    store.runs = SqliteRuns(*parts, now)
    store.leases = SqliteLeases(*parts, now)
    store.notes = SqliteNotes(*parts)
    store.versions = Versions(plain)
    store.schedules = Schedules(plain)
    store.owners = SqliteOwners(*parts, now)
    store.logs = Logs(plain)
    store.backfills = Backfills(plain)
    store.pools = Pools(plain)
    store.packages = Packages(plain)
    store.package_states = PackageStates(plain)
    store.trusted_keys = TrustedKeys(plain)
    store.tenants = Tenants(plain)
    store.api_keys = ApiKeys(plain)
    store.audit_entries = AuditEntries(plain)
    store.accounts = Accounts(plain)
    store.sessions = Sessions(plain)
    store.tickets = Tickets(plain)
    store.variables = Variables(plain)
    store.secrets = Secrets(plain)
    store.requests = RequestRecords(plain)
    store.attempt_orders = AttemptOrders(plain)
    store.code_bundles = CodeBundles(plain)
