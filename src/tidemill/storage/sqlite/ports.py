"""The ports of a SQLite database, in a file or in memory."""

from collections.abc import Callable
from datetime import datetime

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.queries import Queries
from tidemill.storage.sqlite.access_tables import (
    ACCESS_FRAGMENTS,
    SqliteApiKeys,
    SqliteAuditEntries,
    SqliteTenants,
)
from tidemill.storage.sqlite.database import Database, SqliteUnit
from tidemill.storage.sqlite.graph_tables import (
    SqliteCheckpoints,
    SqliteDeadLetters,
    SqlitePauses,
    SqliteProducers,
    SqliteRecoveries,
)
from tidemill.storage.sqlite.key_tables import SqliteKeySnapshots
from tidemill.storage.sqlite.leases import SqliteLeases, SqlitePartOwners
from tidemill.storage.sqlite.mailbox import SqliteMailbox
from tidemill.storage.sqlite.order_tables import ORDER_FRAGMENTS, SqliteAttemptOrders, SqliteCodeBundles
from tidemill.storage.sqlite.package_tables import SqlitePackages, SqlitePackageStates, SqliteTrustedKeys
from tidemill.storage.sqlite.request_tables import REQUEST_FRAGMENTS, SqliteRequestRecords
from tidemill.storage.sqlite.run_rows import COLUMN_FRAGMENTS
from tidemill.storage.sqlite.runs import SqliteRuns
from tidemill.storage.sqlite.session_tables import SESSION_FRAGMENTS, SqliteAccounts, SqliteSessions, SqliteTickets
from tidemill.storage.sqlite.variable_tables import VARIABLE_FRAGMENTS, SqliteSecrets, SqliteVariables
from tidemill.storage.sqlite.workflow_tables import (
    SqliteBackfills,
    SqliteLogs,
    SqliteNotes,
    SqliteOwners,
    SqlitePools,
    SqliteSchedules,
    SqliteVersions,
)
from tidemill.storage.state_sets import STATE_FRAGMENTS
from tidemill.storage.store import Store

QUERIES = Queries.from_package(
    __package__,
    STATE_FRAGMENTS
    | COLUMN_FRAGMENTS
    | ACCESS_FRAGMENTS
    | SESSION_FRAGMENTS
    | VARIABLE_FRAGMENTS
    | REQUEST_FRAGMENTS
    | ORDER_FRAGMENTS,
)


# long: one line for each port
def add_ports(
    store: Store, database: Database, committer: GroupCommitter[SqliteUnit], now: Callable[[], datetime]
) -> None:
    """Give a store all ports of a database, which write through a committer. Leases expire by `now`."""
    parts = (database, committer, QUERIES)
    store.checkpoints = SqliteCheckpoints(*parts)
    store.key_snapshots = SqliteKeySnapshots(*parts)
    store.producers = SqliteProducers(*parts)
    store.mailbox = SqliteMailbox(*parts)
    store.part_owners = SqlitePartOwners(*parts)
    store.dead_letters = SqliteDeadLetters(*parts)
    store.recoveries = SqliteRecoveries(*parts)
    store.pauses = SqlitePauses(*parts)
    store.runs = SqliteRuns(*parts, now)
    store.leases = SqliteLeases(*parts, now)
    store.notes = SqliteNotes(*parts)
    store.versions = SqliteVersions(*parts)
    store.schedules = SqliteSchedules(*parts)
    store.owners = SqliteOwners(*parts, now)
    store.logs = SqliteLogs(*parts)
    store.backfills = SqliteBackfills(*parts)
    store.pools = SqlitePools(*parts)
    store.packages = SqlitePackages(*parts)
    store.package_states = SqlitePackageStates(*parts)
    store.trusted_keys = SqliteTrustedKeys(*parts)
    store.tenants = SqliteTenants(*parts)
    store.api_keys = SqliteApiKeys(*parts)
    store.audit_entries = SqliteAuditEntries(*parts)
    store.accounts = SqliteAccounts(*parts)
    store.sessions = SqliteSessions(*parts)
    store.tickets = SqliteTickets(*parts)
    store.variables = SqliteVariables(*parts)
    store.secrets = SqliteSecrets(*parts)
    store.requests = SqliteRequestRecords(*parts)
    store.attempt_orders = SqliteAttemptOrders(*parts)
    store.code_bundles = SqliteCodeBundles(*parts)
