"""`tidemill audit`: who has changed what, on a server or directly on a store."""

from typing import Annotated

import typer

from tidemill.cli.access_admin import AuditQuery
from tidemill.cli.opening import with_access
from tidemill.cli.output import Format, Output
from tidemill.cli.stores import StoreOption, TenantOption


def audit(
    actor: Annotated[str | None, typer.Option(help="Only changes of this actor: key:4f2a91c0, account:ada.")] = None,
    action: Annotated[str | None, typer.Option(help="Only changes of this kind: run.cancel.")] = None,
    target: Annotated[str | None, typer.Option(help="Only changes of this name or id.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The number of changes.")] = 50,
    store: StoreOption = None,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """List the changes that were made through the API and by commands, the newest first."""
    from tidemill.cli.item_list import show_items

    query = AuditQuery(actor, action, target)
    entries = with_access(store, tenant, lambda access: access.list_audit_entries(query, limit))
    columns = {"at": "at", "actor": "by", "action": "action", "target": "target", "request_id": "request"}
    show_items(entries, columns, output, empty="no changes", droppable=["request_id"])
