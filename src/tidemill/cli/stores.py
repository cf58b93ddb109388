"""Finds and opens the store of a command.

Engine and storage are imported when a store is opened: commands use this module for their options too, and `--help`
opens none.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.kernel.errors import OperationError, RequestError
from tidemill.kernel.limits import validate_tenant
from tidemill.kernel.settings import Settings

if TYPE_CHECKING:
    from tidemill.access.principal import Caller
    from tidemill.engine.workflows.client.backfills import BackfillRunner
    from tidemill.storage.migrations import SchemaState
    from tidemill.storage.store import Store

DEFAULT_TENANT = "public"
"""The tenant of a command on a store that names none."""

STORE_FOLDER = ".tidemill"
"""The folder of the store of `tidemill dev` and `demo`; hidden, so that it is not part of a package."""

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="ADDRESS",
        help="sqlite:///FILE or postgresql://USER@HOST:PORT/DATABASE. Default: $TIDEMILL_STORE.",
        show_default=False,
    ),
]


def _check_tenant(name: str | None) -> str | None:
    try:
        return None if name is None else validate_tenant(name)
    except RequestError as error:
        raise typer.BadParameter(str(error)) from error


StoreTenantOption = Annotated[str, typer.Option("--tenant", metavar="NAME", help="The tenant.", callback=_check_tenant)]
"""The option of commands that only work on a store."""
TenantOption = Annotated[
    str | None,
    typer.Option(
        "--tenant",
        metavar="NAME",
        help="The tenant. Default: that of the key on a server, 'public' on a store.",
        callback=_check_tenant,
        show_default=False,
    ),
]


def resolve_store(address: str | None, *, or_server: bool = False) -> "Store":
    """Return the store that an option or the settings name; not opened. `or_server` as in `resolve_address`."""
    from tidemill.storage.addresses import make_store

    return make_store(resolve_address(address, or_server=or_server))


def resolve_address(address: str | None, *, or_server: bool = False) -> str:
    """Return the address of the database that an option or the settings name; RequestError if they name none.

    `or_server` says that the command could work with a server as well, for the message.
    """
    address = address or Settings.read().store
    if not address:
        server = "; or name a server: --server URL, or set TIDEMILL_SERVER" if or_server else ""
        message = f"name a store: --store sqlite:///tidemill.db, or set TIDEMILL_STORE{server}{_dev_store_hint(Path())}"
        raise RequestError(message, code="no_address")
    if address.startswith("memory:"):
        raise RequestError("a store in memory ends with its process: name a database", code="no_address")
    if "://" not in address:
        hint = f"; did you mean sqlite:///{address}?" if Path(address).is_file() else _dev_store_hint(Path(address))
        message = f"'{address}' is not an address: write sqlite:///FILE or postgresql://USER@HOST:PORT/DATABASE{hint}"
        raise RequestError(message, code="no_address")
    return address


@asynccontextmanager
async def open_store(address: str | None, *, read_only: bool = False, creates: bool = False) -> "AsyncIterator[Store]":
    """Open an existing store; read-only, it shows one consistent snapshot and cannot be changed.

    With `creates` a store that does not exist is created, as the first start of a server would.
    """
    store = resolve_store(address, or_server=True)
    state = await store.read_schema_state()
    is_new = creates and not state.found
    if not is_new and not state.found and (missing := _missing_file(address or Settings.read().store)):
        advice = f"check the address, or create it with `tidemill db upgrade`{_dev_store_hint(Path(missing).parent)}"
        message = f"there is no file {missing}: {advice}"
        raise RequestError(message, code="no_file", status=404)
    if not is_new and state.found != state.known:
        raise OperationError(describe_schema(store.title, state))
    await (store.open_read_only() if read_only else store.open())
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def open_backfills(
    address: str | None, *, read_only: bool = False, executor: str = "in_process"
) -> "AsyncIterator[BackfillRunner]":
    """Open an existing store for backfills; read-only as in `open_store`."""
    from tidemill.engine.workflows.client.store_client import make_store_client
    from tidemill.kernel.clock import SystemClock

    async with open_store(address, read_only=read_only) as store:
        yield make_store_client(store, SystemClock(), Settings.read(), executor=executor).backfills


def cli_caller(tenant: str | None) -> "Caller":
    """Return the caller of all commands on a store, for a tenant."""
    from tidemill.access.principal import Caller

    return Caller(tenant or DEFAULT_TENANT, "cli")


def default_store_address(root: Path) -> str:
    """Return the address of the store that `tidemill dev` and `demo` use by default; create its folder.

    Git ignores the folder.
    """
    home = (root if root.is_dir() else root.parent) / STORE_FOLDER
    try:
        home.mkdir(exist_ok=True)
        (home / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        message = f"{home} cannot be created ({error.strerror}): name a store with --store sqlite:///FILE"
        raise OperationError(message) from error
    return f"sqlite:///{home / 'dev.db'}"


def _dev_store_hint(folder: Path) -> str:
    """Return a hint at the store of `tidemill dev`, if there is one in the folder, here, or in a folder here."""
    homes = [folder, Path(), *(one.parent for one in sorted(Path().glob(f"*/{STORE_FOLDER}")))]
    stores = [home / STORE_FOLDER / "dev.db" for home in homes]
    store = next((store for store in stores if store.exists()), None)
    return f"; `tidemill dev` has one: sqlite:///{store}" if store else ""


def _missing_file(address: str | None) -> str | None:
    """Return the file of a SQLite store that does not exist; None otherwise."""
    scheme, _, path = (address or "").partition(":///")
    return path if scheme == "sqlite" and not Path(path).exists() else None


def describe_schema(title: str, state: "SchemaState") -> str:
    """Describe the version of a schema, and what to do about it."""
    found, known = state
    if found == known:
        return f"{title} is at schema version {found}, which this Tidemill needs"
    if found > known:
        return (
            f"{title} is at schema version {found}, and this Tidemill knows versions up to {known}: "
            "use the newer Tidemill that created it, or another database"
        )
    if not found:
        return (
            f"{title} has no schema yet, and this Tidemill needs version {known}: check the address, "
            "then run `tidemill db upgrade`, or start a node on it"
        )
    return (
        f"{title} is at schema version {found}, and this Tidemill needs version {known}: "
        "run `tidemill db upgrade`, or start a node on it"
    )
