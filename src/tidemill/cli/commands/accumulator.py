"""`tidemill accumulator`: pushes to accumulators; operations list, show and restart them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.completions import complete_accumulator
from tidemill.cli.opening import with_client
from tidemill.cli.output import Format, Output, print_text, show_json
from tidemill.cli.stores import TenantOption

if TYPE_CHECKING:
    from tidemill.client import AsyncClient

app = typer.Typer(help="Inspect and feed accumulators.", no_args_is_help=True)

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The name of an accumulator.", show_default=False, autocompletion=complete_accumulator
    ),
]


@app.command()
def push(
    name: NameArgument,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help='Events as JSON, one per line. Default, and "-": standard input.'),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="The number of events of a frame.")] = 256,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Push events from a file or from standard input, in order; with a progress bar on a terminal.

    Exit code 1 if events were not accepted: they are dead letters, or were rejected.
    """
    from tidemill.cli.exit_codes import EXIT_FAILED
    from tidemill.cli.push_progress import PushReport, push_lines

    async def work(client: "AsyncClient") -> PushReport:
        return await push_lines(client, name, None if str(file) == "-" else file, batch)

    report = with_client(tenant, work)
    if output is Format.JSON:
        show_json(report.to_json())
    else:
        for sentence in report.sentences():
            print_text(sentence)
    if report.problems:
        raise typer.Exit(EXIT_FAILED)
