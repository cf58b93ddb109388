"""Tables of access control in SQLite: tenants, API keys, the audit log."""

import sqlite3
from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import asdict

from tidemill.access.audit import AuditRow
from tidemill.access.keys import ApiKey
from tidemill.access.tenants import TenantRow
from tidemill.storage.access_ports import ApiKeys, AuditEntries, AuditFilter, StoredKey, Tenants
from tidemill.storage.row_codec import RowCodec, make_fragments
from tidemill.storage.sqlite.database import SqliteTable
from tidemill.storage.sqlite.run_rows import from_micros, to_micros
from tidemill.storage.tenant_tables import TENANT_TABLES

_TENANT = RowCodec(TenantRow, to_micros, from_micros)
_API_KEY = RowCodec(ApiKey, to_micros, from_micros)
AUDIT_ROWS = RowCodec(AuditRow, to_micros, from_micros)

ACCESS_FRAGMENTS = make_fragments({"tenant": _TENANT, "api_key": _API_KEY, "audit": AUDIT_ROWS}, lambda _: "?")
"""What statements may name in braces."""


class SqliteTenants(SqliteTable, Tenants):
    """The table `tenants`."""

    async def add(self, tenant: TenantRow) -> bool:
        row = _TENANT.encode(tenant)
        return await self._write(lambda connection: connection.execute(self._queries.add_tenant, row).rowcount == 1)

    async def get(self, name: str) -> TenantRow | None:
        rows = await self._fetch_all(self._queries.tenant_of, (name,))
        return _TENANT.decode(rows[0]) if rows else None

    async def list_all(self) -> list[TenantRow]:
        return [_TENANT.decode(row) for row in await self._fetch_all(self._queries.all_tenants)]

    async def delete(self, name: str) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            for table in TENANT_TABLES:
                connection.execute(f"DELETE FROM {table} WHERE tenant = ?", (name,))
            return connection.execute(self._queries.delete_tenant, (name,)).rowcount == 1

        return await self._write(write)


class SqliteApiKeys(SqliteTable, ApiKeys):
    """The table `api_keys`."""

    async def add(self, key: ApiKey, digest: bytes) -> None:
        await self._execute_many(self._queries.add_api_key, [(*_API_KEY.encode(key), digest)])

    async def find(self, id: str) -> StoredKey | None:
        for *columns, digest in await self._fetch_all(self._queries.api_key_of, (id,)):
            return StoredKey(_API_KEY.decode(columns), digest)
        return None

    async def for_tenant(self, tenant: str) -> list[ApiKey]:
        return [_API_KEY.decode(row) for row in await self._fetch_all(self._queries.api_keys_of, (tenant,))]

    async def revoke(self, tenant: str, id: str, at: datetime) -> bool:
        values = (to_micros(at), tenant, id)
        statement = self._queries.revoke_api_key
        return await self._write(lambda connection: connection.execute(statement, values).rowcount == 1)

    async def record_uses(self, uses: Mapping[str, datetime]) -> None:
        rows = [(to_micros(at), id_) for id_, at in uses.items()]
        await self._execute_many(self._queries.record_api_key_use, rows)


class SqliteAuditEntries(SqliteTable, AuditEntries):
    """The table `audit_entries`."""

    async def append(self, entry: AuditRow) -> None:
        await self._execute_many(self._queries.append_audit_entry, [AUDIT_ROWS.encode(entry)])

    async def find(self, audit_filter: AuditFilter) -> list[AuditRow]:
        statement, values = self._queries.audit_entries_of, asdict(audit_filter)
        rows = await self._database.read(lambda connection: connection.execute(statement, values).fetchall())
        return [AUDIT_ROWS.decode(row) for row in rows]

    async def count(self, audit_filter: AuditFilter) -> int:
        statement, values = self._queries.count_audit_entries, asdict(audit_filter)
        [(number,)] = await self._database.read(lambda connection: connection.execute(statement, values).fetchall())
        return int(number)

    async def list_tenants(self) -> list[str]:
        return [tenant for (tenant,) in await self._fetch_all(self._queries.tenants_with_audit_entries)]

    async def prune(self, tenant: str, before: datetime, limit: int) -> int:
        values = (tenant, to_micros(before), limit)
        statement = self._queries.prune_audit_entries
        return await self._write(lambda connection: connection.execute(statement, values).rowcount)
