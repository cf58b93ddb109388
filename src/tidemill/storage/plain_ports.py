"""The ports whose tables are plain: the same classes on each database."""

from tidemill.storage.store import Store
from tidemill.storage.tables.access import ApiKeys, AuditEntries, Tenants
from tidemill.storage.tables.backfills import Backfills
from tidemill.storage.tables.database import PlainDatabase
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


def add_plain_ports(store: Store, plain: PlainDatabase) -> None:
    """Give a store the ports of its plain tables."""
    store.dead_letters = DeadLetters(plain)
    store.recoveries = Recoveries(plain)
    store.pauses = Pauses(plain)
    store.versions = Versions(plain)
    store.schedules = Schedules(plain)
    store.logs = Logs(plain)
    store.steps = Steps(plain)
    store.backfills = Backfills(plain)
    store.pools = Pools(plain)
    store.peers = Peers(plain)
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
