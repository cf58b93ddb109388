"""Tables of access control in memory: tenants, API keys, the audit log."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from tidemill.access.audit import AuditRow
from tidemill.access.keys import ApiKey
from tidemill.access.tenants import TenantRow
from tidemill.kernel.errors import StoreError
from tidemill.storage.access_ports import ApiKeys, AuditEntries, AuditFilter, StoredKey, Tenants
from tidemill.storage.memory.tables import MemoryTable, Tables, times_to_utc, to_utc


class MemoryTenants(MemoryTable, Tenants):
    """Tenants by name."""

    async def add(self, tenant: TenantRow) -> bool:
        row = times_to_utc(tenant)

        def write(tables: Tables) -> bool:
            is_new = row.name not in tables.tenants
            if is_new:
                tables.put(tables.tenants, row.name, row)
            return is_new

        is_added: bool = await self._committer.commit(write)
        return is_added

    async def get(self, name: str) -> TenantRow | None:
        return self._tables.tenants.get(name)

    async def list_all(self) -> list[TenantRow]:
        return [self._tables.tenants[name] for name in sorted(self._tables.tenants)]

    async def delete(self, name: str) -> bool:
        def write(tables: Tables) -> bool:
            was_there = name in tables.tenants
            tables.delete(tables.tenants, name)
            for table, key in list(_rows_of(tables, name)):
                tables.delete(table, key)
            return was_there

        was_there: bool = await self._committer.commit(write)
        return was_there


def _rows_of(tables: Tables, tenant: str) -> Iterator[tuple[dict[Any, Any], Any]]:
    """Yield the rows of a tenant, each with its table: those of TENANT_TABLES."""
    with_tenant: list[dict[Any, Any]] = [tables.dead_letters, tables.recoveries, tables.backfills, tables.orders]
    yield from ((table, key) for table in with_tenant for key, row in table.items() if row.tenant == tenant)
    yield from ((tables.api_keys, key) for key, row in tables.api_keys.items() if row.key.tenant == tenant)
    yield from ((tables.parts, key) for key in tables.parts if key[0].tenant == tenant)
    yield from ((tables.key_snapshots, key) for key in tables.key_snapshots if key[0].tenant == tenant)
    yield from ((tables.pushes, key) for key in tables.pushes if key[0].tenant == tenant)
    mail = [key for key, row in tables.mail.items() if row.target.tenant == tenant]
    yield from ((table, key) for table in (tables.mail, tables.mail_answers) for key in mail)
    yield from ((tables.loaded_versions, key) for key in tables.loaded_versions if key[1].tenant == tenant)
    yield from ((tables.sessions, key) for key, (row, _) in tables.sessions.items() if row.tenant == tenant)
    yield from ((tables.tickets, key) for key, row in tables.tickets.items() if row.tenant == tenant)
    by_tenant: list[dict[Any, Any]] = [
        tables.accounts,
        tables.variables,
        tables.secrets,
        tables.requests,
        tables.code_bundles,
        tables.journals,
        tables.part_owners,
        tables.pauses,
        tables.fired_slots,
        tables.fire_times,
        tables.versions,
        tables.cursors,
        tables.paused_triggers,
        tables.paused_workflows,
        tables.packages,
        tables.archives,
        tables.recorded_versions,
        tables.trusted_keys,
        tables.package_states,
    ]
    yield from ((table, key) for table in by_tenant for key in table if key[0] == tenant)


class MemoryApiKeys(MemoryTable, ApiKeys):
    """Keys by id."""

    async def add(self, key: ApiKey, digest: bytes) -> None:
        row = StoredKey(times_to_utc(key), digest)

        def write(tables: Tables) -> None:
            if key.id in tables.api_keys:
                raise StoreError(f"there is a key with the id {key.id}")
            tables.put(tables.api_keys, key.id, row)

        await self._committer.commit(write)

    async def find(self, id: str) -> StoredKey | None:
        return self._tables.api_keys.get(id)

    async def for_tenant(self, tenant: str) -> list[ApiKey]:
        keys = [row.key for row in self._tables.api_keys.values() if row.key.tenant == tenant]
        return sorted(keys, key=lambda key: (key.created_at, key.id))

    async def revoke(self, tenant: str, id: str, at: datetime) -> bool:
        revoked_at = to_utc(at)

        def write(tables: Tables) -> bool:
            row = tables.api_keys.get(id)
            if row is None or row.key.tenant != tenant:
                return False
            key = replace(row.key, revoked_at=row.key.revoked_at or revoked_at)
            tables.put(tables.api_keys, id, StoredKey(key, row.digest))
            return True

        is_known: bool = await self._committer.commit(write)
        return is_known

    async def record_uses(self, uses: Mapping[str, datetime]) -> None:
        times = {id_: to_utc(at) for id_, at in uses.items()}

        def write(tables: Tables) -> None:
            for id_, at in times.items():
                if (row := tables.api_keys.get(id_)) is not None:
                    key = replace(row.key, last_used_at=max(row.key.last_used_at or at, at))
                    tables.put(tables.api_keys, id_, StoredKey(key, row.digest))

        await self._committer.commit(write)


class MemoryAuditEntries(MemoryTable, AuditEntries):
    """Audit entries by id."""

    async def append(self, entry: AuditRow) -> None:
        row = times_to_utc(entry)
        await self._committer.commit(lambda tables: tables.put(tables.audit_entries, row.id, row))

    async def find(self, audit_filter: AuditFilter) -> list[AuditRow]:
        before = audit_filter.before
        found = (row for row in self._matching(audit_filter) if before is None or row.id < before)
        return sorted(found, key=lambda row: row.id, reverse=True)[: audit_filter.limit]

    async def count(self, audit_filter: AuditFilter) -> int:
        return sum(1 for _ in self._matching(audit_filter))

    def _matching(self, one: AuditFilter) -> Iterator[AuditRow]:
        wanted = (one.actor, one.action, one.target)
        for row in self._tables.audit_entries.values():
            found = (row.actor, row.action, row.target)
            if row.tenant == one.tenant and all(a in (None, b) for a, b in zip(wanted, found, strict=True)):
                yield row

    async def list_tenants(self) -> list[str]:
        return sorted({row.tenant for row in self._tables.audit_entries.values()})

    async def prune(self, tenant: str, before: datetime, limit: int) -> int:
        until = to_utc(before)

        def write(tables: Tables) -> int:
            old = [row.id for row in tables.audit_entries.values() if row.tenant == tenant and row.at < until]
            for id_ in sorted(old)[:limit]:
                tables.delete(tables.audit_entries, id_)
            return min(len(old), limit)

        number: int = await self._committer.commit(write)
        return number
