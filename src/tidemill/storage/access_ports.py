"""Ports of access control: tenants, API keys, and the audit log."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

from tidemill.access.audit import AuditRow
from tidemill.access.keys import ApiKey
from tidemill.access.tenants import TenantRow


class Tenants(Protocol):
    """The tenants of a store. The tenant `public` exists from the beginning."""

    async def add(self, tenant: TenantRow) -> bool:
        """Add a tenant; return False, with nothing changed, if there is one with this name."""

    async def get(self, name: str) -> TenantRow | None:
        """Return a tenant."""

    async def list_all(self) -> list[TenantRow]:
        """Return every tenant, by name."""

    async def delete(self, name: str) -> bool:
        """Delete a tenant with every row that it owns, except runs and the audit log; return whether it was there.

        The caller has deleted the runs before, see `Runs.prune`.
        """


class StoredKey(NamedTuple):
    """A key, and the digest of its token."""

    key: ApiKey
    digest: bytes


class ApiKeys(Protocol):
    """API keys. Other processes are notified of revocations, see `WorkflowStore.listen`."""

    async def add(self, key: ApiKey, digest: bytes) -> None:
        """Add a key; StoreError if its id is taken."""

    async def find(self, id: str) -> StoredKey | None:
        """Return a key of any tenant."""

    async def for_tenant(self, tenant: str) -> list[ApiKey]:
        """Return the keys of a tenant, oldest first, including those that are revoked or expired."""

    async def revoke(self, tenant: str, id: str, at: datetime) -> bool:
        """Revoke a key; return False if the tenant has no such key. A key that is revoked stays as it is."""

    async def record_uses(self, uses: Mapping[str, datetime]) -> None:
        """Record when keys were last used, by id."""


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects audit entries, newest first."""

    tenant: str
    actor: str | None = None
    action: str | None = None
    target: str | None = None
    before: str | None = None
    """Only entries older than the one with this id."""
    limit: int = 50


class AuditEntries(Protocol):
    """The audit log: entries are added, read, and deleted only when they are older than the retention."""

    async def append(self, entry: AuditRow) -> None:
        """Add an entry."""

    async def find(self, audit_filter: AuditFilter) -> list[AuditRow]:
        """Return entries, newest first."""

    async def count(self, audit_filter: AuditFilter) -> int:
        """Return the number of entries, whatever `before` and `limit` are."""

    async def list_tenants(self) -> list[str]:
        """Return the tenants that have entries, also those that are deleted."""

    async def prune(self, tenant: str, before: datetime, limit: int) -> int:
        """Delete the oldest entries of a tenant from before a time, at most `limit`; return their number."""
