"""`tidemill accumulator`: the accumulators of a server, pushes to them, and their dead letters."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.completions import complete_accumulator
from tidemill.cli.opening import with_client
from tidemill.cli.output import Format, Output, print_text, show_json
from tidemill.cli.stores import TenantOption

if TYPE_CHECKING:
    from tidemill.client import AsyncClient
    from tidemill.graphs.result import DeadLetter

app = typer.Typer(help="Inspect and feed accumulators.", no_args_is_help=True)
dead_letters = typer.Typer(help="List, show, replay and drop dead letters.", no_args_is_help=True)
app.add_typer(dead_letters, name="dead-letters")

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The name of an accumulator.", show_default=False, autocompletion=complete_accumulator
    ),
]
DeadLetterArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The id of a dead letter, or its end.", show_default=False)
]


@app.command("list")
def list_accumulators(output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """List the accumulators: kind, health, events, dead letters."""
    from msgspec import to_builtins

    from tidemill.cli.item_list import show_items

    found: list[dict[str, Any]] = to_builtins(with_client(tenant, lambda client: client.accumulators()))
    columns = {
        "name": "accumulator",
        "kind": "kind",
        "health": "health",
        "events": "events",
        "emitted": "emitted",
        "dead_letters": "dead letters",
        "last_event_at": "last event",
    }
    show_items(found, columns, output, empty="no accumulators", droppable=["last_event_at", "emitted", "kind"])


@app.command("show")
def show_accumulator(name: NameArgument, output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """Show an accumulator: its state, and the JSON Schema of its events."""
    from msgspec import to_builtins

    from tidemill.cli.item_list import show_fields

    show_fields(to_builtins(with_client(tenant, lambda client: client.accumulator(name))), output)


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


@app.command()
def restart(name: NameArgument, output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """Restart an accumulator that the supervisor gave up, or one that hangs."""
    from msgspec import to_builtins

    state = with_client(tenant, lambda client: client.restart_accumulator(name))
    if output is Format.JSON:
        show_json(to_builtins(state))
    else:
        print_text(f"accumulator '{name}' is restarted: {state.health}")


# -- dead letters


@dead_letters.command("list")
def list_dead_letters(name: NameArgument, output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """List the dead letters of an accumulator, the newest first."""
    from tidemill.cli.item_list import show_items

    found = [_plain(one) for one in with_client(tenant, lambda client: client.dead_letters(name))]
    columns = {"id": "id", "at": "at", "error": "error"}
    show_items(found, columns, output, empty="no dead letters", droppable=["at"])


@dead_letters.command("show")
def show_dead_letter(
    name: NameArgument, dead_letter: DeadLetterArgument, output: Output = Format.TABLE, tenant: TenantOption = None
) -> None:
    """Show a dead letter: the event, and why it was not processed."""
    from tidemill.cli.item_list import show_fields

    async def work(client: "AsyncClient") -> "DeadLetter":
        return await _find(client, name, dead_letter)

    show_fields(_plain(with_client(tenant, work)), output)


@dead_letters.command()
def replay(
    name: NameArgument, dead_letter: DeadLetterArgument, output: Output = Format.TABLE, tenant: TenantOption = None
) -> None:
    """Process a dead letter again. Exit code 1 if it fails again: then it stays one."""
    from msgspec import to_builtins

    from tidemill.cli.exit_codes import EXIT_FAILED

    async def work(client: "AsyncClient") -> Any:
        return await client.replay(name, (await _find(client, name, dead_letter)).id)

    result = with_client(tenant, work)
    receipt = result.receipt
    if output is Format.JSON:
        show_json(to_builtins(result))
    elif receipt is not None:
        print_text(f"{receipt.outcome}{f': {receipt.reason}' if receipt.reason else ''}")
    if receipt is not None and not receipt.accepted:
        raise typer.Exit(EXIT_FAILED)


@dead_letters.command()
def drop(
    name: NameArgument, dead_letter: DeadLetterArgument, output: Output = Format.TABLE, tenant: TenantOption = None
) -> None:
    """Delete a dead letter."""

    async def work(client: "AsyncClient") -> str:
        found = await _find(client, name, dead_letter)
        await client.drop(name, found.id)
        return found.id

    id_ = with_client(tenant, work)
    if output is Format.JSON:
        show_json({"id": id_, "dropped": True})
    else:
        print_text(f"dead letter {id_} is dropped")


async def _find(client: "AsyncClient", name: str, end: str) -> "DeadLetter":
    """Return the dead letter with an id, or with an id that ends so."""
    from tidemill.kernel.errors import RequestError

    found = [one for one in await client.dead_letters(name) if one.id.endswith(end)]
    if len(found) != 1:
        problem = "several dead letters have" if found else "there is no dead letter with"
        advice = f"`tidemill accumulator dead-letters list {name}` shows the ids"
        message = f"{problem} an id that ends in '{end}': {advice}"
        raise RequestError(message, code="dead_letter_not_found", status=404)
    return found[0]


def _plain(one: "DeadLetter") -> dict[str, Any]:
    from msgspec import to_builtins

    fields: dict[str, Any] = to_builtins(one)
    return fields
