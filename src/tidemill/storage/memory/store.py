"""The memory store: dictionaries behind the same group committer as any database."""

from collections.abc import Callable
from datetime import datetime

from tidemill.access.envelope import new_master_keys_text
from tidemill.access.principal import INSTANCE_TENANT
from tidemill.access.tenants import TenantRow
from tidemill.kernel.clock import SystemClock
from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.access_tables import MemoryApiKeys, MemoryAuditEntries, MemoryTenants
from tidemill.storage.memory.graph_tables import (
    MemoryCheckpoints,
    MemoryDeadLetters,
    MemoryPauses,
    MemoryProducers,
    MemoryRecoveries,
)
from tidemill.storage.memory.key_tables import MemoryKeySnapshots
from tidemill.storage.memory.leases import MemoryLeases, MemoryPartOwners
from tidemill.storage.memory.mailbox import MemoryMailbox
from tidemill.storage.memory.order_tables import MemoryAttemptOrders, MemoryCodeBundles
from tidemill.storage.memory.package_tables import MemoryPackages, MemoryPackageStates, MemoryTrustedKeys
from tidemill.storage.memory.request_tables import MemoryRequestRecords
from tidemill.storage.memory.runs import MemoryRuns
from tidemill.storage.memory.session_tables import MemoryAccounts, MemorySessions, MemoryTickets
from tidemill.storage.memory.tables import MemoryUnit, Tables
from tidemill.storage.memory.variable_tables import MemorySecrets, MemoryVariables
from tidemill.storage.memory.workflow_tables import (
    MemoryBackfills,
    MemoryLogs,
    MemoryNotes,
    MemoryOwners,
    MemoryPools,
    MemorySchedules,
    MemoryVersions,
)
from tidemill.storage.migrations import SchemaState
from tidemill.storage.store import Store
from tidemill.storage.store_size import COUNTED_TABLES, StoreSize, counted
from tidemill.storage.workflow_ports import ChangeTopic


class MemoryStore(Store):
    """A store that lasts as long as the object: its rows outlive `close`, and are there after `open`.

    Stores with the same `tables` share their rows; the leases of each expire by its own `now`.
    """

    def __init__(self, now: Callable[[], datetime] | None = None, tables: Tables | None = None) -> None:
        tables, now = tables or Tables(), now or SystemClock().now
        self._committer: GroupCommitter[MemoryUnit] = GroupCommitter(tables)
        self._tables = tables
        self._mail_listeners: list[Callable[[], None]] = []
        self.checkpoints = MemoryCheckpoints(tables, self._committer)
        self.key_snapshots = MemoryKeySnapshots(tables, self._committer)
        self.producers = MemoryProducers(tables, self._committer)
        self.mailbox = MemoryMailbox(tables, self._committer)
        self.part_owners = MemoryPartOwners(tables, self._committer)
        self.dead_letters = MemoryDeadLetters(tables, self._committer)
        self.recoveries = MemoryRecoveries(tables, self._committer)
        self.pauses = MemoryPauses(tables, self._committer)
        self.runs = MemoryRuns(tables, self._committer, now)
        self.leases = MemoryLeases(tables, self._committer, now)
        self.notes = MemoryNotes(tables, self._committer)
        self.versions = MemoryVersions(tables, self._committer)
        self.schedules = MemorySchedules(tables, self._committer)
        self.owners = MemoryOwners(tables, self._committer, now)
        self.logs = MemoryLogs(tables, self._committer)
        self.backfills = MemoryBackfills(tables, self._committer)
        self.pools = MemoryPools(tables, self._committer)
        self.packages = MemoryPackages(tables, self._committer)
        self.package_states = MemoryPackageStates(tables, self._committer)
        self.trusted_keys = MemoryTrustedKeys(tables, self._committer)
        self._local_keys: str | None = None
        self.tenants = MemoryTenants(tables, self._committer)
        self.api_keys = MemoryApiKeys(tables, self._committer)
        self.audit_entries = MemoryAuditEntries(tables, self._committer)
        self.accounts = MemoryAccounts(tables, self._committer)
        self.sessions = MemorySessions(tables, self._committer)
        self.tickets = MemoryTickets(tables, self._committer)
        self.variables = MemoryVariables(tables, self._committer)
        self.secrets = MemorySecrets(tables, self._committer)
        self.requests = MemoryRequestRecords(tables, self._committer)
        self.attempt_orders = MemoryAttemptOrders(tables, self._committer)
        self.code_bundles = MemoryCodeBundles(tables, self._committer)
        first = TenantRow(name=INSTANCE_TENANT, created_at=now(), created_by="migration")
        tables.tenants.setdefault(INSTANCE_TENANT, first)

    kind = "memory"

    @property
    def title(self) -> str:
        return "memory"

    async def open(self) -> None:
        await self._committer.open()

    async def open_read_only(self) -> None:
        """Do nothing: memory can always be read."""

    async def close(self) -> None:
        await self._committer.close()
        for one in self._mail_listeners:
            self._tables.mail_listeners.remove(one)
        self._mail_listeners = []

    async def read_schema_state(self) -> SchemaState:
        return SchemaState(found=0, known=0)

    async def check_writable(self) -> None:
        """Do nothing: it has no disk."""

    def read_local_keys(self) -> str | None:
        """Return keys that last as long as the object."""
        self._local_keys = self._local_keys or new_master_keys_text()
        return self._local_keys

    async def read_size(self) -> StoreSize:
        tables = self._tables
        nested = (tables.tasks, tables.attempts, tables.events, tables.logs)
        sizes = [len(tables.runs), *(sum(map(len, table.values())) for table in nested)]
        sizes += [len(tables.fired_slots), sum(map(len, tables.journals.values()))]
        sizes += [len(tables.key_snapshots), len(tables.dead_letters)]
        sizes += [len(tables.recoveries), len(tables.versions), len(tables.audit_entries)]
        return StoreSize(None, dict(zip(COUNTED_TABLES, map(counted, sizes), strict=True)))

    async def check_integrity(self) -> list[str]:
        return []

    async def find_write_blocker(self) -> str | None:
        """Return None: memory is never locked."""
        return None

    async def listen(self, on_change: Callable[[], None], topic: ChangeTopic | None = None) -> None:
        """Call `on_change` when mail comes. No other process sees this memory, only other nodes of this one."""
        if topic == "mail":
            self._mail_listeners.append(on_change)
            self._tables.mail_listeners.append(on_change)
