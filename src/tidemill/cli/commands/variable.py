"""`tidemill variable`: values that operators set and author code reads, on a server or directly on a store."""

from typing import Annotated, Any

import typer

from tidemill.cli.opening import with_access
from tidemill.cli.output import Format, Output, print_text, show_json
from tidemill.cli.stores import StoreOption, TenantOption

app = typer.Typer(help="List, show, set and delete variables.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of a variable.", show_default=False)]


@app.command("list")
def list_variables(store: StoreOption = None, output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """List the variables of a tenant."""
    from tidemill.cli.item_list import show_items

    variables = with_access(store, tenant, lambda access: access.list_variables())
    columns = {"name": "variable", "value": "value", "updated_at": "updated", "updated_by": "by"}
    show_items(variables, columns, output, empty="no variables", droppable=["updated_by", "updated_at"])


@app.command("show")
def show_variable(
    name: NameArgument, store: StoreOption = None, output: Output = Format.TABLE, tenant: TenantOption = None
) -> None:
    """Print the value of a variable: a text as it is, everything else as JSON."""
    variable = with_access(store, tenant, lambda access: access.get_variable(name))
    value = variable["value"]
    if output is Format.JSON:
        show_json(variable)
    elif isinstance(value, str):
        print_text(value)
    else:
        show_json(value)


@app.command("set")
def set_variable(
    name: NameArgument,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The value: JSON, or else a text.", show_default=False)],
    store: StoreOption = None,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Set a variable. A value that is not JSON is a text: 3 is a number, '"3"' and eu are texts."""
    parsed = _parse(value)
    variable = with_access(store, tenant, lambda access: access.set_variable(name, parsed))
    if output is Format.JSON:
        show_json(variable)
    else:
        print_text(f"variable '{name}' is set")


@app.command()
def delete(
    name: NameArgument, store: StoreOption = None, output: Output = Format.TABLE, tenant: TenantOption = None
) -> None:
    """Delete a variable."""
    with_access(store, tenant, lambda access: access.delete_variable(name))
    if output is Format.JSON:
        show_json({"variable": name, "deleted": True})
    else:
        print_text(f"variable '{name}' is deleted")


def _parse(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except ValueError:
        return text
