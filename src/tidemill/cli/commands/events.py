"""`tidemill events`: follow what happens on a server."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.opening import with_client
from tidemill.cli.output import StreamFormat, StreamOutput, print_json_line, print_text
from tidemill.cli.stores import TenantOption

if TYPE_CHECKING:
    from tidemill.client import AsyncClient


def events(
    types: Annotated[
        str | None, typer.Option(metavar="TYPES", help="Only these: run.*,reactor.health.", show_default=False)
    ] = None,
    after: Annotated[
        str, typer.Option(metavar="ID", help="Continue after the event with this id.", show_default=False)
    ] = "",
    output: StreamOutput = StreamFormat.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Print what happens on a server, until Ctrl-C: runs, tasks, reactors, accumulators, packages, leaders."""
    from tidemill.cli.exit_codes import EXIT_INTERRUPTED

    async def work(client: "AsyncClient") -> None:
        async for event in client.events(types, after=after):
            if output.is_for_programs:
                print_json_line(event)
            else:
                print_text(_format(event))

    try:
        with_client(tenant, work)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _format(event: dict[str, Any]) -> str:
    from datetime import datetime

    from tidemill.cli.formatting import format_with_fields

    fields = {name: value for name, value in event.items() if name not in ("id", "type", "at", "tenant")}
    at = datetime.fromisoformat(event["at"]).astimezone()
    return format_with_fields(f"{at:%H:%M:%S} {event['type']}", {k: v for k, v in fields.items() if v is not None})
