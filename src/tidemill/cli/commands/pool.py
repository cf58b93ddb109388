"""`tidemill pool`: named limits of slots over all nodes."""

from typing import Annotated, Any

import typer

from tidemill.cli.opening import with_client
from tidemill.cli.output import Format, Output, print_text, show_json
from tidemill.cli.stores import TenantOption

app = typer.Typer(help="List, set and delete pools.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of a pool.", show_default=False)]


@app.command("list")
def list_pools(output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """List the pools: slots, how many are used, and how many tasks wait for one."""
    from msgspec import to_builtins

    from tidemill.cli.item_list import show_items

    found: list[dict[str, Any]] = to_builtins(with_client(tenant, lambda client: client.pools()))
    columns = {"name": "pool", "slots": "slots", "used": "used", "waiting": "waiting"}
    show_items(found, columns, output, empty="no pools; make one with `tidemill pool set`")


@app.command("set")
def set_pool(
    name: NameArgument,
    slots: Annotated[int, typer.Argument(min=1, metavar="SLOTS", help="The number of slots.", show_default=False)],
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Make a pool, or change its size. Tasks that have a slot keep it."""
    from msgspec import to_builtins

    from tidemill.cli.formatting import format_count

    pool = with_client(tenant, lambda client: client.set_pool(name, slots))
    if output is Format.JSON:
        show_json(to_builtins(pool))
    else:
        print_text(f"pool '{name}' has {format_count(pool.slots, 'slot')}")


@app.command()
def delete(name: NameArgument, output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """Delete a pool that neither a loaded workflow nor a task of an active run needs."""
    with_client(tenant, lambda client: client.delete_pool(name))
    if output is Format.JSON:
        show_json({"pool": name, "deleted": True})
    else:
        print_text(f"pool '{name}' is deleted")
