"""The ports whose tables are plain: the same classes on each database; and the list of all tables."""

from typing import get_type_hints

from tidemill.storage.tables.access import ApiKeys, AuditEntries, Tenants
from tidemill.storage.tables.backfills import Backfills
from tidemill.storage.tables.database import PlainDatabase, Statement, Table
from tidemill.storage.tables.declared import HAND_TUNED
from tidemill.storage.tables.graphs import DeadLetters, Pauses, Recoveries
from tidemill.storage.tables.logs import Logs
from tidemill.storage.tables.orders import AttemptOrders, CodeBundles
from tidemill.storage.tables.packages import Packages, PackageStates, TrustedKeys
from tidemill.storage.tables.peers import Peers
from tidemill.storage.tables.pools import Pools
from tidemill.storage.tables.requests import RequestRecords
from tidemill.storage.tables.schedules import Schedules
from tidemill.storage.tables.sessions import Accounts, Sessions, Tickets
from tidemill.storage.tables.steps import Steps
from tidemill.storage.tables.variables import Secrets, Variables
from tidemill.storage.tables.versions import Versions
from tidemill.storage.tables.waits import Waits


class PlainPorts:
    """A store with the ports of its plain tables."""

    dead_letters: DeadLetters
    recoveries: Recoveries
    pauses: Pauses
    versions: Versions
    schedules: Schedules
    logs: Logs
    steps: Steps
    waits: Waits
    backfills: Backfills
    pools: Pools
    peers: Peers
    packages: Packages
    package_states: PackageStates
    trusted_keys: TrustedKeys
    tenants: Tenants
    api_keys: ApiKeys
    audit_entries: AuditEntries
    accounts: Accounts
    sessions: Sessions
    tickets: Tickets
    variables: Variables
    secrets: Secrets
    requests: RequestRecords
    attempt_orders: AttemptOrders
    code_bundles: CodeBundles

    def __init__(self, plain: PlainDatabase) -> None:
        for name, kind in PORTS.items():
            setattr(self, name, kind(plain))
        self.tenants = Tenants(plain, DELETIONS)


PORTS: dict[str, type[Table]] = {name: kind for name, kind in get_type_hints(PlainPorts).items() if kind is not Tenants}

TABLES = (*HAND_TUNED, *Tenants.tables, *(table for kind in PORTS.values() for table in kind.tables))
"""Every table of a store."""

DELETIONS = [
    Statement(f"DELETE FROM {{schema}}{one.name} WHERE tenant = :name")
    for one in sorted(TABLES)
    if one.ends_with == "tenant"
]
"""Delete what a tenant owns."""
