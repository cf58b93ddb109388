"""The audit log: one entry for every change that a principal makes."""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from tidemill.access.audit import AuditRow
from tidemill.access.principal import Principal
from tidemill.kernel.clock import Clock
from tidemill.kernel.ids import new_sortable_id
from tidemill.kernel.limits import make_storable
from tidemill.kernel.settings import Settings
from tidemill.storage.tables.access import AuditEntries, AuditFilter
from tidemill.telemetry import events
from tidemill.telemetry.log_context import REQUEST_ID
from tidemill.telemetry.node_events import NodeEvents

UNPUBLISHED = frozenset(["graph.call", "run.start", "session.open", "session.close"])
"""Actions that can be frequent, and whose effects are other events or on no page."""
OF_ALL_TENANTS = frozenset(["pool"])
"""What belongs to the instance, and every tenant sees."""
PRUNE_BATCH = 1000  # entries in one transaction


class AuditLog:
    """Writes audit entries, reads them, and deletes those that are older than the retention.

    On a node, a page that shows what an entry is about learns of the change as an event.
    """

    def __init__(
        self, entries: AuditEntries, clock: Clock, settings: Settings, node_events: NodeEvents | None = None
    ) -> None:
        self._entries = entries
        self._clock = clock
        self._settings = settings
        self._node_events = node_events

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
        entry = self.make_entry(principal, action, target, details, tenant=tenant)
        await self._entries.append(entry)
        self.publish(entry)

    async def record_selection(
        self, principal: Principal, action: str, target: str, filters: Mapping[str, Any], number: int
    ) -> None:
        """Write one entry on a change of all that some filters select, with the filters that were given."""
        given = {name: str(value) for name, value in filters.items() if value}
        await self.record(principal, action, target, {**given, "number": number})

    def make_entry(
        self,
        principal: Principal,
        action: str,
        target: str,
        details: Mapping[str, Any],
        *,
        tenant: str | None = None,
    ) -> AuditRow:
        """Return an entry as `record` writes it, for a store that writes it together with the change."""
        now = self._clock.now()
        return AuditRow(
            id=new_sortable_id(now),
            at=now,
            tenant=principal.tenant if tenant is None else tenant,
            actor=principal.actor,
            action=action,
            target=make_storable(target),
            details=dict(details),
            request_id=REQUEST_ID.get(),
        )

    def publish(self, entry: AuditRow) -> None:
        """Publish the change of an entry after it, without who has made it: the audit log is for admins."""
        if self._node_events is None or entry.action in UNPUBLISHED:
            return
        noun, _, _ = entry.action.partition(".")
        tenant = None if noun in OF_ALL_TENANTS else entry.tenant
        self._node_events.publish(events.CHANGE_MADE, tenant, action=entry.action, target=entry.target)

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
