"""The audit log: who has changed what."""

from typing import Annotated

from litestar.params import QueryParameter

from tidemill.access.audit import AuditEntry
from tidemill.server.injection import InjectedContext, InjectedPrincipal
from tidemill.server.paging import DEFAULT_LIMIT, Cursor, Limit, Page, decode_cursor, encode_cursor
from tidemill.storage.access_ports import AuditFilter

_Actor = Annotated[str | None, QueryParameter(description="Only changes of this actor, such as `key:4f2a91c0`.")]
_Action = Annotated[str | None, QueryParameter(description="Only changes of this kind, such as `run.cancel`.")]
_Target = Annotated[str | None, QueryParameter(description="Only changes of this name or id.")]


async def list_audit_entries(
    context: InjectedContext,
    principal: InjectedPrincipal,
    actor: _Actor = None,
    action: _Action = None,
    target: _Target = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[AuditEntry]:
    """List the changes of the tenant, newest first."""
    before = decode_cursor(cursor)
    wanted = AuditFilter(
        tenant=principal.tenant, actor=actor, action=action, target=target, before=before, limit=limit + 1
    )
    entries, total = await context.node.access.audit.find(wanted)
    shown = entries[:limit]
    return Page(items=shown, total=total, next=encode_cursor(shown[-1].id) if len(entries) > limit else None)
