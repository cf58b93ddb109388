"""Tables of access control in PostgreSQL: tenants, API keys, the audit log."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tidemill.access.audit import AuditRow
from tidemill.access.keys import ApiKey
from tidemill.access.tenants import TenantRow
from tidemill.storage.access_ports import ApiKeys, AuditEntries, AuditFilter, StoredKey, Tenants
from tidemill.storage.postgres.database import NotifyingTable, PostgresTable
from tidemill.storage.postgres.row_codecs import make_codec, parameter
from tidemill.storage.postgres.writes import StatementRows
from tidemill.storage.queries import check_timezone
from tidemill.storage.row_codec import make_fragments
from tidemill.storage.tenant_tables import TENANT_TABLES

_TENANT, _API_KEY, AUDIT_ROWS = make_codec(TenantRow), make_codec(ApiKey), make_codec(AuditRow)

ACCESS_FRAGMENTS = make_fragments({"tenant": _TENANT, "api_key": _API_KEY, "audit": AUDIT_ROWS}, parameter)
"""What statements may name in braces."""


class PostgresTenants(NotifyingTable, Tenants):
    """The table `tenants`."""

    async def add(self, tenant: TenantRow) -> bool:
        return bool(await self._write_returning(self._queries.add_tenant, *_TENANT.encode(tenant)))

    async def get(self, name: str) -> TenantRow | None:
        rows = await self._read(self._queries.tenant, name)
        return _TENANT.decode(tuple(rows[0])) if rows else None

    async def list_all(self) -> list[TenantRow]:
        return [_TENANT.decode(tuple(row)) for row in await self._read(self._queries.all_tenants)]

    async def delete(self, name: str) -> bool:
        async def write(connection: Any) -> bool:
            for table in TENANT_TABLES:
                await connection.execute(f"DELETE FROM tidemill.{table} WHERE tenant = $1", name)
            return bool(await connection.fetch(self._queries.delete_tenant, name, self._sender_id))

        was_there: bool = await self._committer.commit(write)
        return was_there


class PostgresApiKeys(NotifyingTable, ApiKeys):
    """The table `api_keys`."""

    async def add(self, key: ApiKey, digest: bytes) -> None:
        await self._write(StatementRows(self._queries.add_api_key, [(*_API_KEY.encode(key), digest)]))

    async def find(self, id: str) -> StoredKey | None:
        for *columns, digest in await self._read(self._queries.api_key, id):
            return StoredKey(_API_KEY.decode(columns), digest)
        return None

    async def for_tenant(self, tenant: str) -> list[ApiKey]:
        return [_API_KEY.decode(tuple(row)) for row in await self._read(self._queries.api_keys, tenant)]

    async def revoke(self, tenant: str, id: str, at: datetime) -> bool:
        check_timezone(at)
        return bool(await self._write_returning(self._queries.revoke_api_key, tenant, id, at, self._sender_id))

    async def record_uses(self, uses: Mapping[str, datetime]) -> None:
        for at in uses.values():
            check_timezone(at)
        rows = sorted(uses.items())
        await self._write(StatementRows(self._queries.record_api_key_use, rows))


class PostgresAuditEntries(PostgresTable, AuditEntries):
    """The table `audit_entries`."""

    async def append(self, entry: AuditRow) -> None:
        await self._write(StatementRows(self._queries.add_audit_entries, [AUDIT_ROWS.encode(entry)], as_arrays=True))

    async def find(self, audit_filter: AuditFilter) -> list[AuditRow]:
        one = audit_filter
        values = (one.tenant, one.actor, one.action, one.target, one.before, one.limit)
        return [AUDIT_ROWS.decode(tuple(row)) for row in await self._read(self._queries.audit_entries, *values)]

    async def count(self, audit_filter: AuditFilter) -> int:
        one = audit_filter
        [(number,)] = await self._read(self._queries.count_audit_entries, one.tenant, one.actor, one.action, one.target)
        return int(number)

    async def list_tenants(self) -> list[str]:
        return [tenant for (tenant,) in await self._read(self._queries.tenants_with_audit_entries)]

    async def prune(self, tenant: str, before: datetime, limit: int) -> int:
        check_timezone(before)
        return len(await self._write_returning(self._queries.prune_audit_entries, tenant, before, limit))
