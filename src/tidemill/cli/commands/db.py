"""`tidemill db`: the schema of a store."""

import asyncio

import typer

from tidemill.cli.exits import refusing
from tidemill.cli.output import Format, Output, say, show_json
from tidemill.cli.stores import Address, describe, store_at
from tidemill.storage.ports import SchemaState, Store

app = typer.Typer(help="Look at the schema of a store, and bring it up to date.", no_args_is_help=True)


@app.command()
def upgrade(store: Address = None, output: Output = Format.TABLE) -> None:
    """Bring the schema of a store up to date; creates what is not there yet."""
    with refusing():
        chosen = store_at(store)
        found, known = asyncio.run(_upgrade(chosen))
    if output is Format.JSON:
        show_json({"store": chosen.title, "before": found, "now": known})
    elif found == known:
        say(f"{chosen.title} is at version {known}: nothing to do")
    else:
        say(f"{chosen.title} brought from version {found} to {known}")


async def _upgrade(store: Store) -> SchemaState:
    before = await store.schema()
    await store.open()
    await store.close()
    return before


@app.command()
def check(store: Address = None, output: Output = Format.TABLE) -> None:
    """Say how far the schema of a store is; changes nothing. Exit code 1 if it is not as far as this Tidemill."""
    with refusing():
        chosen = store_at(store)
        state = asyncio.run(chosen.schema())
    if output is Format.JSON:
        show_json({"store": chosen.title, **state._asdict(), "current": state.found == state.known})
    else:
        say(describe(chosen.title, state))
    if state.found != state.known:
        raise typer.Exit(1)
