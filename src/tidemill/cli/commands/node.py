"""`tidemill node`: the servers, workers and other nodes on a store."""

from typing import Any

import typer

from tidemill.cli.opening import with_client
from tidemill.cli.output import Format, Output
from tidemill.cli.stores import TenantOption

app = typer.Typer(help="List servers and workers.", no_args_is_help=True)


@app.callback()
def node() -> None:
    """List servers and workers."""


@app.command("list")
def list_nodes(output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """List the servers, workers and other nodes: which one leads, their load, and their last beat."""
    from msgspec import to_builtins

    from tidemill.cli.item_list import show_items

    found: list[dict[str, Any]] = to_builtins(with_client(tenant, lambda client: client.nodes()))
    columns = {
        "name": "node",
        "kind": "kind",
        "state": "state",
        "leads": "leads",
        "running": "running",
        "concurrency": "of",
        "labels": "labels",
        "last_beat_at": "last beat",
    }
    items = found if output is Format.JSON else [{**one, "last_beat_at": one["last_beat"]} for one in found]
    show_items(items, columns, output, empty="no nodes", droppable=["labels", "last_beat_at"])
