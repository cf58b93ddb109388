"""`tidemill db`: the schema of a store."""

import asyncio

import typer

from tidemill.cli.output import say
from tidemill.cli.stores import Address, reaching_a_store, store_at
from tidemill.storage.ports import SchemaState, Store

app = typer.Typer(help="Look at the schema of a store, and bring it up to date.", no_args_is_help=True)


@app.command()
def upgrade(store: Address = None) -> None:
    """Bring the schema of a store up to date; creates what is not there yet."""
    with reaching_a_store():
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
    with reaching_a_store():
        chosen = store_at(store)
        state = asyncio.run(chosen.schema())
    say(describe(chosen.title, state))
    if state.found != state.known:
        raise typer.Exit(1)


def describe(title: str, state: SchemaState) -> str:
    """Say how far a schema is, and what to do about it."""
    found, known = state
    if found == known:
        return f"{title} is at version {found}, which is what this Tidemill needs"
    if found > known:
        return (
            f"{title} is at version {found}, and this Tidemill knows versions up to {known}: "
            "run the newer Tidemill that made it, or another database"
        )
    if not found:
        return (
            f"{title} has no schema yet, and this Tidemill needs version {known}: see that the address is right, "
            "then run `tidemill db upgrade`, or start a node on it"
        )
    return (
        f"{title} is at version {found}, and this Tidemill needs version {known}: "
        "run `tidemill db upgrade`, or start a node on it"
    )
