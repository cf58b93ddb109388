"""`tidemill db`: the schema of a store."""

import asyncio

import typer

from tidemill.cli.exits import refusing
from tidemill.cli.output import say
from tidemill.cli.stores import Address, describe, store_at
from tidemill.storage.ports import Store

app = typer.Typer(help="Look at the schema of a store, and bring it up to date.", no_args_is_help=True)


@app.command()
def upgrade(store: Address = None) -> None:
    """Bring the schema of a store up to date; creates what is not there yet."""
    with refusing():
        say(asyncio.run(_upgrade(store_at(store))))


async def _upgrade(store: Store) -> str:
    before = await store.schema()
    await store.open()
    await store.close()
    if before.found == before.known:
        return f"{store.title} is at version {before.known}: nothing to do"
    return f"{store.title} brought from version {before.found} to {before.known}"


@app.command()
def check(store: Address = None) -> None:
    """Say how far the schema of a store is; changes nothing. Exit code 1 if it is not as far as this Tidemill."""
    with refusing():
        chosen = store_at(store)
        state = asyncio.run(chosen.schema())
    say(describe(chosen.title, state))
    if state.found != state.known:
        raise typer.Exit(1)
