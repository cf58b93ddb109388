"""The store that a command is about: where it is, and what becomes of a command that cannot reach it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from tidemill.cli.output import complain
from tidemill.kernel.errors import RequestError, TidemillError
from tidemill.kernel.settings import Settings
from tidemill.node import make_store
from tidemill.storage.ports import Store

COULD_NOT = 2
"""The exit code of a command that was called wrongly, or could not reach its store: it says nothing about the store."""

Address = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="ADDRESS",
        help="sqlite:///FILE or postgresql://USER@HOST:PORT/DATABASE; without it, TIDEMILL_STORE.",
        show_default=False,
    ),
]


def store_at(address: str | None) -> Store:
    """Return the store that a command was given, or that the settings name; not opened."""
    address = address or Settings.read().store
    if not address:
        raise RequestError("name a store: --store sqlite:///tidemill.db, or set TIDEMILL_STORE", code="no_address")
    if address.startswith("memory:"):
        raise RequestError("a store in memory ends with its process: name a database", code="no_address")
    return make_store(address)


@contextmanager
def reaching_a_store() -> Iterator[None]:
    """End a command that cannot find or reach its store with one line, and with its own exit code."""
    try:
        yield
    except TidemillError as error:
        complain(str(error))
        raise typer.Exit(COULD_NOT) from error
