"""Opens what a command works on, a server or a store, as the interface that the command uses."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import exit_on_error
from tidemill.cli.targets import ServerTarget, find_target, missing_server_error, require_server
from tidemill.kernel.errors import RequestError

if TYPE_CHECKING:
    from tidemill.api.port import AsyncApi
    from tidemill.cli.package_publishing import PackageRegistry
    from tidemill.cli.workflow_service import WorkflowService
    from tidemill.client import AsyncClient

Result = TypeVar("Result")


@asynccontextmanager
async def open_workflows(
    store: str | None, tenant: str | None, *, read_only: bool = False
) -> "AsyncIterator[WorkflowService]":
    """Open the workflows that a command is about; read-only, a store shows one snapshot and cannot be changed."""
    target = find_target(store)
    if isinstance(target, ServerTarget):
        from tidemill.cli.server_workflows import ServerWorkflows

        async with target.client(tenant) as client:
            yield ServerWorkflows(client)
    else:
        from tidemill.cli.store_workflows import StoreWorkflows
        from tidemill.cli.stores import cli_caller, open_client

        async with open_client(target.address, read_only=read_only) as opened:
            yield StoreWorkflows(opened, cli_caller(tenant))


@asynccontextmanager
async def open_packages(
    store: str | None, tenant: str | None, *, read_only: bool = False
) -> "AsyncIterator[PackageRegistry]":
    """Open the registry of packages that a command is about; read-only as in `open_workflows`."""
    target = find_target(store)
    if isinstance(target, ServerTarget):
        from tidemill.cli.server_packages import ServerPackages

        async with target.client(tenant) as client:
            yield ServerPackages(client, tenant)
    else:
        from tidemill.cli.store_packages import StorePackages
        from tidemill.cli.stores import DEFAULT_TENANT, open_store

        async with open_store(target.address, read_only=read_only) as opened:
            yield StorePackages(opened, tenant or DEFAULT_TENANT)


@asynccontextmanager
async def open_api(
    store: str | None, tenant: str | None, *, read_only: bool = False, creates: bool = False
) -> "AsyncIterator[AsyncApi]":
    """Open what carries operations out; read-only as in `open_workflows`, `creates` makes a store that is missing."""
    target = find_target(store)
    if isinstance(target, ServerTarget):
        async with target.client(tenant) as client:
            yield client.api
    else:
        from tidemill.api.local import LocalApi
        from tidemill.api.services import open_services
        from tidemill.cli.stores import open_store
        from tidemill.engine.access.services import LOCAL_PRINCIPAL
        from tidemill.kernel.settings import Settings

        async with open_store(target.address, read_only=read_only, creates=creates) as opened:
            services = open_services(opened, Settings.read())
            tenant = LOCAL_PRINCIPAL.tenant if tenant is None else tenant
            try:
                yield LocalApi(services, await services.access.tenants.act_for(LOCAL_PRINCIPAL, tenant))
            except RequestError as error:
                raise (missing_server_error() if error.code == "no_server" else error) from None


def with_client(tenant: str | None, work: "Callable[[AsyncClient], Awaitable[Result]]") -> Result:
    """Open the client of a command that works only with a server, and return what `work` returns."""

    async def do() -> Result:
        async with require_server().client(tenant) as client:
            return await work(client)

    with exit_on_error():
        return run_async(do())
