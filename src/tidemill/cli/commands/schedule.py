"""`tidemill schedule`: when the clock starts workflows."""

from typing import Annotated, Any

import typer

from tidemill.cli.completions import complete_workflow
from tidemill.cli.opening import with_client
from tidemill.cli.output import Format, Output
from tidemill.cli.stores import TenantOption

app = typer.Typer(help="List schedules, and preview their next slots.", no_args_is_help=True)


@app.command("list")
def list_schedules(output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """List the schedules of the loaded workflows, with their next slot."""
    from msgspec import to_builtins

    from tidemill.cli.item_list import show_items

    found: list[dict[str, Any]] = to_builtins(with_client(tenant, lambda client: client.schedules()))
    columns = {"workflow": "workflow", "rule": "schedule", "catchup": "catch-up", "paused": "paused", "next_at": "next"}
    items = found if output is Format.JSON else [{**one, "next_at": next(iter(one["next"]), None)} for one in found]
    show_items(items, columns, output, empty="no schedules", droppable=["catchup", "paused"])


@app.command()
def preview(
    workflow: Annotated[
        str,
        typer.Argument(
            metavar="WORKFLOW", help="The name of a workflow.", show_default=False, autocompletion=complete_workflow
        ),
    ],
    count: Annotated[int, typer.Option(min=1, max=500, help="The number of slots.")] = 10,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """List the next slots of a workflow, in local time and in the time zone of the schedule."""
    from msgspec import to_builtins

    from tidemill.cli.item_list import show_items

    slots: list[dict[str, Any]] = to_builtins(
        with_client(tenant, lambda client: client.preview_schedule(workflow, count))
    )
    columns = {"slot_at": "slot", "local": "in the schedule's time zone", "key": "schedule"}
    items = slots if output is Format.JSON else [{**one, "slot_at": one["slot"]} for one in slots]
    show_items(items, columns, output, empty=f"workflow '{workflow}' has no schedule", droppable=["key"])
