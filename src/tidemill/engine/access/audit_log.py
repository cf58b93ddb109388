"""The audit log: one entry for every change that a principal makes."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

from tidemill.access.audit import AuditRow, PendingEntry
from tidemill.access.principal import Principal
from tidemill.kernel.clock import Clock
from tidemill.kernel.ids import new_sortable_id
from tidemill.kernel.limits import make_storable
from tidemill.kernel.settings import Settings
from tidemill.storage.access_ports import AuditEntries, AuditFilter

PRUNE_BATCH = 1000  # entries in one transaction

current_request_id: ContextVar[str | None] = ContextVar("current_request_id", default=None)
"""The id of the request that is being handled; the server sets it."""


class AuditLog:
    """Writes audit entries, reads them, and deletes those that are older than the retention."""

    on_recorded: Callable[[AuditRow], None] | None = None
    """Called after each entry."""

    def __init__(self, entries: AuditEntries, clock: Clock, settings: Settings) -> None:
        self._entries = entries
        self._clock = clock
        self._settings = settings

    async def record(
        self,
        principal: Principal,
        action: str,
        target: str,
        details: Mapping[str, Any] = MappingProxyType({}),
        *,
        tenant: str | None = None,
    ) -> None:
        """Write an entry on a change that a principal has made, in its own tenant unless another one is named."""
        entry = self._make_entry(principal, action, target, details, tenant=tenant)
        await self._entries.append(entry)
        self._publish(entry)

    def prepare(self, principal: Principal, action: str, target: str) -> PendingEntry:
        """Return the entry on a change with which the store writes it."""
        return PendingEntry(partial(self._make_entry, principal, action, target), self._publish)

    def _make_entry(
        self,
        principal: Principal,
        action: str,
        target: str,
        details: Mapping[str, Any],
        *,
        tenant: str | None = None,
    ) -> AuditRow:
        now = self._clock.now()
        return AuditRow(
            id=new_sortable_id(now),
            at=now,
            tenant=principal.tenant if tenant is None else tenant,
            actor=principal.actor,
            action=action,
            target=make_storable(target),
            details=dict(details),
            request_id=current_request_id.get(),
        )

    def _publish(self, entry: AuditRow) -> None:
        if self.on_recorded is not None:
            self.on_recorded(entry)

    async def find(self, audit_filter: AuditFilter) -> tuple[list[AuditRow], int]:
        """Return entries, newest first, and the number of all that match."""
        return await self._entries.find(audit_filter), await self._entries.count(audit_filter)

    async def prune(self) -> int:
        """Delete the entries that are older than `audit_retention`, of all tenants; return their number."""
        number, before = 0, self._clock.now() - timedelta(seconds=self._settings.audit_retention)
        for tenant in await self._entries.list_tenants():
            while pruned := await self._entries.prune(tenant, before, PRUNE_BATCH):
                number += pruned
        return number
