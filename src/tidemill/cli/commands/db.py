"""`tidemill db`: check and upgrade the schema of a store."""

from typing import TYPE_CHECKING

import typer

from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import exit_on_error
from tidemill.cli.output import Format, Output, print_text, show_json
from tidemill.cli.stores import StoreOption, describe_schema, resolve_store

if TYPE_CHECKING:
    from tidemill.storage.migrations import SchemaState
    from tidemill.storage.store import Store

app = typer.Typer(help="Check and upgrade the schema of a store.", no_args_is_help=True)


@app.command()
def upgrade(store: StoreOption = None, output: Output = Format.TABLE) -> None:
    """Upgrade the schema of a store to the newest version; creates missing tables, and the file of a SQLite store."""
    with exit_on_error():
        chosen = resolve_store(store)
        found, known = run_async(_upgrade(chosen))
    if output is Format.JSON:
        show_json({"store": chosen.title, "before": found, "now": known})
    elif found == known:
        print_text(f"{chosen.title} is at schema version {known}: nothing to do")
    else:
        print_text(f"{chosen.title} upgraded from schema version {found} to {known}")


async def _upgrade(store: "Store") -> "SchemaState":
    before = await store.read_schema_state()
    await store.open()
    await store.close()
    return before


@app.command()
def check(store: StoreOption = None, output: Output = Format.TABLE) -> None:
    """Show the schema version of a store; changes nothing. Exit code 1 if this Tidemill needs another one."""
    with exit_on_error():
        chosen = resolve_store(store)
        state = run_async(chosen.read_schema_state())
    if output is Format.JSON:
        show_json({"store": chosen.title, **state._asdict(), "current": state.found == state.known})
    else:
        print_text(describe_schema(chosen.title, state))
    if state.found != state.known:
        raise typer.Exit(1)
