"""Tables of access control: tenants, API keys, and the audit log."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from msgspec.structs import asdict

from tidemill.access.accounts import TenantRow
from tidemill.access.audit import AuditRow
from tidemill.access.keys import ApiKey
from tidemill.storage.tables.database import PlainDatabase, RowCodec, Statement, Table, Transaction
from tidemill.storage.tables.declared import DeclaredTable, of_tenant

_TENANT, _API_KEY, AUDIT_ROWS = RowCodec(TenantRow), RowCodec(ApiKey), RowCodec(AuditRow)

_ADD_TENANT = Statement(
    "INSERT INTO {schema}tenants ({columns}) VALUES ({parameters}) ON CONFLICT (name) DO NOTHING RETURNING name",
    _TENANT,
)
_TENANT_OF = Statement("SELECT {columns} FROM {schema}tenants WHERE name = :name", _TENANT)
_ALL_TENANTS = Statement("SELECT {columns} FROM {schema}tenants ORDER BY name", _TENANT)
_DELETE_TENANT = Statement("DELETE FROM {schema}tenants WHERE name = :name RETURNING {notify:access}")


class Tenants(Table):
    """The tenants of a store. The tenant `public` exists from the beginning."""

    tables = (DeclaredTable("tenants", ends_with="nothing", tenant_column="name"),)

    def __init__(self, database: PlainDatabase, deletions: Sequence[Statement]) -> None:
        """`deletions` delete what tenant `:name` owns."""
        super().__init__(database)
        self._deletions = deletions

    async def add(self, tenant: TenantRow) -> bool:
        """Add a tenant; return False, with nothing changed, if there is one with this name."""
        return bool(await self._change(_ADD_TENANT, **_TENANT.values(tenant)))

    async def get(self, name: str) -> TenantRow | None:
        """Return a tenant."""
        return await self._first(_TENANT, _TENANT_OF, name=name)

    async def list_all(self) -> list[TenantRow]:
        """Return every tenant, by name."""
        return await self._list(_TENANT, _ALL_TENANTS)

    async def delete(self, name: str) -> bool:
        """Delete a tenant with every row that it owns, except runs and the audit log; return whether it was there.

        The caller has deleted the runs before, see `Runs.prune`.
        """

        async def write(transaction: Transaction) -> bool:
            for statement in self._deletions:
                await transaction.fetch(statement, name=name)
            return bool(await transaction.fetch(_DELETE_TENANT, name=name))

        return await self._database.transact(write)


class StoredKey(NamedTuple):
    """A key, and the digest of its token."""

    key: ApiKey
    digest: bytes


_ADD_KEY = Statement("INSERT INTO {schema}api_keys ({columns}, digest) VALUES ({parameters}, :digest)", _API_KEY)
_KEY_OF = Statement("SELECT {columns}, digest FROM {schema}api_keys WHERE id = :id", _API_KEY)
_KEYS_OF = Statement("SELECT {columns} FROM {schema}api_keys WHERE tenant = :tenant ORDER BY created_at, id", _API_KEY)
_REVOKE_KEY = Statement("""
    UPDATE {schema}api_keys SET revoked_at = coalesce(revoked_at, :at) WHERE tenant = :tenant AND id = :id
    RETURNING {notify:access}
""")
_RECORD_USE = Statement("""
    UPDATE {schema}api_keys SET last_used_at = {greatest}(coalesce(last_used_at, :at), :at) WHERE id = :id
""")


class ApiKeys(Table):
    """API keys. Other processes are notified of revocations, see `WorkflowStore.listen`."""

    tables = of_tenant("api_keys")

    async def add(self, key: ApiKey, digest: bytes) -> None:
        """Add a key; StoreError if its id is taken."""
        await self._put(_ADD_KEY, **_API_KEY.values(key), digest=digest)

    async def find(self, id: str) -> StoredKey | None:
        """Return a key of any tenant."""
        for *columns, digest in await self._database.fetch(_KEY_OF, id=id):
            return StoredKey(self._decode(_API_KEY, columns), digest)
        return None

    async def for_tenant(self, tenant: str) -> list[ApiKey]:
        """Return the keys of a tenant, oldest first, including those that are revoked or expired."""
        return await self._list(_API_KEY, _KEYS_OF, tenant=tenant)

    async def revoke(self, tenant: str, id: str, at: datetime) -> bool:
        """Revoke a key; return False if the tenant has no such key. A key that is revoked stays as it is."""
        return bool(await self._change(_REVOKE_KEY, tenant=tenant, id=id, at=at))

    async def record_uses(self, uses: Mapping[str, datetime]) -> None:
        """Record when keys were last used, by id."""
        await self._database.execute_many(_RECORD_USE, [{"id": id_, "at": at} for id_, at in sorted(uses.items())])


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects audit entries, newest first."""

    tenant: str
    actor: str | None = None
    action: str | None = None
    target: str | None = None
    before: str | None = None
    """Only entries older than the one with this id."""
    limit: int = 50


APPEND_AUDIT_ENTRY = Statement("INSERT INTO {schema}audit_entries ({columns}) VALUES ({parameters})", AUDIT_ROWS)
_SELECTED = """
    FROM {schema}audit_entries
    WHERE tenant = :tenant
        AND (CAST(:actor AS text) IS NULL OR actor = :actor)
        AND (CAST(:action AS text) IS NULL OR action = :action)
        AND (CAST(:target AS text) IS NULL OR target = :target)
"""
_ENTRIES_OF = Statement(
    f"SELECT {{columns}} {_SELECTED} AND (CAST(:before AS text) IS NULL OR id < :before) ORDER BY id DESC LIMIT :limit",
    AUDIT_ROWS,
)
_COUNT_ENTRIES = Statement(f"SELECT count(*) {_SELECTED}")
_TENANTS_WITH_ENTRIES = Statement("SELECT DISTINCT tenant FROM {schema}audit_entries ORDER BY tenant")
_PRUNE_ENTRIES = Statement("""
    DELETE FROM {schema}audit_entries WHERE id IN (
        SELECT id FROM {schema}audit_entries WHERE tenant = :tenant AND at < :before ORDER BY id LIMIT :limit
    ) RETURNING id
""")


class AuditEntries(Table):
    """The audit log: entries are added, read, and deleted only when they are older than the retention."""

    tables = (DeclaredTable("audit_entries", ends_with="retention"),)

    async def append(self, entry: AuditRow) -> None:
        """Add an entry."""
        await self._put(APPEND_AUDIT_ENTRY, **AUDIT_ROWS.values(entry))

    async def find(self, audit_filter: AuditFilter) -> list[AuditRow]:
        """Return entries, newest first."""
        return await self._list(AUDIT_ROWS, _ENTRIES_OF, **asdict(audit_filter))

    async def count(self, audit_filter: AuditFilter) -> int:
        """Return the number of entries, whatever `before` and `limit` are."""
        [(number,)] = await self._database.fetch(_COUNT_ENTRIES, **asdict(audit_filter))
        return int(number)

    async def list_tenants(self) -> list[str]:
        """Return the tenants that have entries, deleted tenants included."""
        return [tenant for (tenant,) in await self._database.fetch(_TENANTS_WITH_ENTRIES)]

    async def prune(self, tenant: str, before: datetime, limit: int) -> int:
        """Delete the oldest entries of a tenant from before a time, at most `limit`; return their number."""
        return len(await self._change(_PRUNE_ENTRIES, tenant=tenant, before=before, limit=limit))
