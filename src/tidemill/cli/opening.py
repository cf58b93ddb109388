"""Opens what a command works on, a server or a store, as the interface that the command uses."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import exit_on_error
from tidemill.cli.targets import ServerTarget, StoreTarget, find_target, missing_server_error, require_server
from tidemill.kernel.errors import RequestError

if TYPE_CHECKING:
    from tidemill.access.principal import Principal
    from tidemill.api.handles import AsyncRun
    from tidemill.api.port import AsyncApi
    from tidemill.api.services import Services
    from tidemill.client import AsyncClient

Result = TypeVar("Result")
SEARCH_LIMIT = 10_000  # runs searched for a part of an id


@asynccontextmanager
async def open_api(
    store: str | None,
    tenant: str | None,
    *,
    read_only: bool = False,
    creates: bool = False,
    may_be_loaded: bool = False,
) -> "AsyncIterator[AsyncApi]":
    """Open what carries operations out.

    Read-only, a store shows one snapshot and cannot be changed. `creates` makes a store that is missing. A tenant of a
    store has to exist, unless a program on the store may have loaded something for it.
    """
    target = find_target(store)
    if isinstance(target, ServerTarget):
        async with target.client(tenant) as client:
            yield client.api
    else:
        from tidemill.api.local import LocalApi

        opened = open_store_services(target, tenant, read_only=read_only, creates=creates, may_be_loaded=may_be_loaded)
        async with opened as (services, caller):
            try:
                yield LocalApi(services, caller)
            except RequestError as error:
                raise (missing_server_error(store) if error.code == "no_server" else error) from None


@asynccontextmanager
async def open_run(
    store: str | None, tenant: str | None, part: str, *, read_only: bool = False
) -> "AsyncIterator[AsyncRun]":
    """Open a run by its id, or by a beginning or end of it that only one run has; read-only as in `open_api`."""
    from tidemill.api.handles import AsyncRun

    async with open_api(store, tenant, read_only=read_only, may_be_loaded=True) as api:
        yield AsyncRun(api, await find_run(api, part))


async def find_run(api: "AsyncApi", part: str) -> str:
    """Return the id of a run from its id, or from a beginning or end of it that only one run has."""
    from tidemill.api.runs import list_runs
    from tidemill.workflows.lookup import unknown_run

    found = await api.collect(list_runs, {"text": part}, SEARCH_LIMIT) if part else []
    matching = [one.id for one in found if one.id.startswith(part) or one.id.endswith(part)]
    if part in matching or len(matching) == 1:
        return part if part in matching else matching[0]
    if not matching:
        raise unknown_run(part)
    message = f"{len(matching)} runs have an id that begins or ends with '{part}': give more of it"
    raise RequestError(message, code="ambiguous_run", status=409, run=part)


@asynccontextmanager
async def open_store_services(
    target: StoreTarget,
    tenant: str | None,
    *,
    read_only: bool = False,
    creates: bool = False,
    may_be_loaded: bool = False,
) -> "AsyncIterator[tuple[Services, Principal]]":
    """Open a store without a node; the caller is an admin of the instance, who acts for the tenant."""
    from tidemill.api.services import open_services
    from tidemill.cli.stores import open_store
    from tidemill.engine.access.services import LOCAL_PRINCIPAL
    from tidemill.kernel.settings import Settings

    async with open_store(target.address, read_only=read_only, creates=creates) as opened:
        services = open_services(opened, Settings.read())
        tenant = LOCAL_PRINCIPAL.tenant if tenant is None else tenant
        yield services, await services.access.tenants.act_for(LOCAL_PRINCIPAL, tenant, lambda _: may_be_loaded)


def with_client(tenant: str | None, work: "Callable[[AsyncClient], Awaitable[Result]]") -> Result:
    """Open the client of a command that works only with a server, and return what `work` returns."""

    async def do() -> Result:
        async with require_server().client(tenant) as client:
            return await work(client)

    with exit_on_error():
        return run_async(do())
