"""`tidemill dead-letters`: inspect the events, firings and starts of runs in a store that failed for good."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import exit_on_error
from tidemill.cli.output import Format, Output, print_text, show, show_json, terminal_width
from tidemill.cli.stores import StoreOption, TenantOption

if TYPE_CHECKING:
    from rich.table import Table

    from tidemill.graphs.result import DeadLetter

app = typer.Typer(help="Inspect what failed for good.", no_args_is_help=True)


@app.command("list")
def list_dead_letters(
    store: StoreOption = None,
    source: Annotated[
        str | None, typer.Option(help="Only those of this reactor or accumulator.", show_default=False)
    ] = None,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """List dead letters, the newest first. The program of the node replays them: `await reactor.replay(ID)`."""
    from tidemill.cli.dead_letter_reader import read_dead_letters

    with exit_on_error():
        found = [one for one in run_async(read_dead_letters(store, tenant)) if source in (None, one.source)]
    if output is Format.JSON:
        show_json([_plain(one) for one in found])
    elif found:
        show(_build_table(found, terminal_width()))
    else:
        print_text("no dead letters")


@app.command("show")
def show_dead_letter(
    dead_letter: Annotated[
        str, typer.Argument(metavar="ID", help="The id of a dead letter, or its end.", show_default=False)
    ],
    store: StoreOption = None,
    tenant: TenantOption = None,
) -> None:
    """Show a dead letter as JSON: what failed, why, and the values that it failed on."""
    from tidemill.cli.dead_letter_reader import read_dead_letter

    with exit_on_error():
        found = run_async(read_dead_letter(store, tenant, dead_letter))
    show_json(_plain(found))


def _plain(one: "DeadLetter") -> dict[str, Any]:
    from msgspec.structs import asdict

    from tidemill.graphs.result import to_jsonable

    fields = asdict(one)
    if not one.omitted:
        del fields["omitted"]
    return {name: to_jsonable(value) for name, value in fields.items() if value is not None}


def _build_table(found: "list[DeadLetter]", width: int) -> "Table":
    from rich.table import Column
    from rich.text import Text

    from tidemill.cli.formatting import format_short_time, one_line, time_column_title
    from tidemill.cli.output import build_table

    at = time_column_title("at", (one.at for one in found))
    columns = [Column(title) for title in ("id", "kind", "source", "workflow", at, "error")]
    cells = [
        [one.id, one.kind, one.source, one.workflow or "", format_short_time(one.at), one_line(one.error)]
        for one in found
    ]
    rows = [[Text(cell) for cell in row] for row in cells]
    return build_table(columns, rows, width, droppable=["workflow", at], truncated="error", folded=["source"])
