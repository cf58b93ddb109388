"""`tidemill trigger`: what starts workflows besides the clock."""

from typing import Annotated, Any

import typer

from tidemill.cli.opening import with_client
from tidemill.cli.output import Format, Output, print_text, show_json
from tidemill.cli.stores import TenantOption

app = typer.Typer(help="List, pause and resume triggers.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of a trigger.", show_default=False)]


@app.command("list")
def list_triggers(output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """List the triggers of the loaded workflows."""
    from msgspec import to_builtins

    from tidemill.cli.item_list import show_items

    found: list[dict[str, Any]] = to_builtins(with_client(tenant, lambda client: client.triggers()))
    columns = {"name": "trigger", "kind": "kind", "workflows": "workflows", "paused": "paused", "when": "when"}
    show_items(found, columns, output, empty="no triggers", droppable=["when"])


@app.command()
def pause(name: NameArgument, output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """Pause a trigger: it starts nothing until it is resumed."""
    _show(name, with_client(tenant, lambda client: client.pause_trigger(name)), "is paused", output)


@app.command()
def resume(name: NameArgument, output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """Resume a trigger."""
    _show(name, with_client(tenant, lambda client: client.resume_trigger(name)), "is resumed", output)


def _show(name: str, trigger: Any, what: str, output: Format) -> None:
    from msgspec import to_builtins

    if output is Format.JSON:
        show_json(to_builtins(trigger))
    else:
        print_text(f"trigger '{name}' {what}")
