"""`tidemill tenant`: the tenants of an instance, on a server or directly on a store."""

from typing import Annotated

import typer

from tidemill.cli.opening import with_access
from tidemill.cli.output import Format, Output, print_text, show_json
from tidemill.cli.stores import StoreOption

app = typer.Typer(help="Create, list and delete tenants.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of a tenant.", show_default=False)]


@app.command()
def create(name: NameArgument, store: StoreOption = None, output: Output = Format.TABLE) -> None:
    """Create a tenant."""
    made = with_access(store, None, lambda access: access.create_tenant(name), creates=True)
    if output is Format.JSON:
        show_json(made)
    else:
        print_text(
            f"tenant '{name}' is created; `tidemill key create --tenant {name} --role admin` makes its first key"
        )


@app.command("list")
def list_tenants(store: StoreOption = None, output: Output = Format.TABLE) -> None:
    """List the tenants."""
    from tidemill.cli.item_list import show_items

    tenants = with_access(store, None, lambda access: access.list_tenants())
    columns = {"name": "tenant", "created_at": "created", "created_by": "by"}
    show_items(tenants, columns, output, empty="no tenants", droppable=["created_by", "created_at"])


@app.command()
def delete(name: NameArgument, store: StoreOption = None, output: Output = Format.TABLE) -> None:
    """Delete a tenant with its ended runs, keys and settings. Refused while it has packages or active runs."""
    with_access(store, None, lambda access: access.delete_tenant(name))
    if output is Format.JSON:
        show_json({"tenant": name, "deleted": True})
    else:
        print_text(f"tenant '{name}' is deleted")
