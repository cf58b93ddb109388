"""The audit log: who has changed what."""

from typing import Annotated

from msgspec import Meta

from tidemill.access.audit import AuditRow
from tidemill.access.principal import Permission, Principal
from tidemill.api.operation import GET, CommandForm, Message, operation
from tidemill.api.paging import Page, PageRequest, decode_cursor, encode_cursor
from tidemill.api.services import Services
from tidemill.storage.tables.access import AuditFilter

Actor = Annotated[str | None, Meta(description="Only changes of this actor, such as key:4f2a91c0 or account:ada.")]
Action = Annotated[str | None, Meta(description="Only changes of this kind, such as run.cancel.")]
Target = Annotated[str | None, Meta(description="Only changes of this name or id.")]


class AuditEntry(AuditRow, Message, frozen=True, kw_only=True):
    """One change that a principal has made."""


@operation(
    GET("/audit"),
    Permission.ADMIN,
    command=CommandForm("audit", columns=("at", "actor", "action", "target", "request_id"), empty="no changes"),
    default_limit=50,
)
async def list_audit(
    services: Services,
    caller: Principal,
    page: PageRequest,
    actor: Actor = None,
    action: Action = None,
    target: Target = None,
) -> Page[AuditEntry]:
    """List who has changed what, newest first."""
    before = decode_cursor(page.cursor)
    wanted = AuditFilter(
        tenant=caller.tenant, actor=actor, action=action, target=target, before=before, limit=page.limit + 1
    )
    entries, total = await services.access.audit.find(wanted)
    shown = [AuditEntry.of(one) for one in entries[: page.limit]]
    return Page(items=shown, total=total, next=encode_cursor(shown[-1].id) if len(entries) > page.limit else None)
