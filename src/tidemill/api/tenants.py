"""Tenants: the owners of everything, which admins of the instance create and delete."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from tidemill.access.principal import Permission, Principal
from tidemill.api.fields import Positional
from tidemill.api.operation import DELETE, GET, POST, CommandForm, Message, RequestKey, operation
from tidemill.api.paging import Page, PageRequest, page_of
from tidemill.api.services import Services

NewName = Annotated[str, Meta(description="The name of the tenant.", examples=["acme"]), Positional()]


class Tenant(Message, frozen=True, kw_only=True):
    """A tenant."""

    name: str
    created_at: datetime
    created_by: str


@operation(
    GET("/tenants"),
    Permission.READ,
    command=CommandForm("tenant list", columns=("name", "created_at", "created_by"), empty="no tenants"),
)
async def list_tenants(services: Services, caller: Principal, page: PageRequest) -> Page[Tenant]:
    """List the tenants: all of them for an admin of the instance, else the caller's own."""
    tenants = await services.access.tenants.list_for(caller)
    return page_of(tenants, page, key=lambda one: one.name, view=Tenant.of)


@operation(
    POST("/tenants", location="/tenants"),
    Permission.INSTANCE,
    audit="tenant.create",
    is_audited_by_service=True,
    command=CommandForm(
        "tenant create",
        done="tenant '{name}' is created; `tidemill key create --tenant {name} --role admin` creates its first key",
        creates_store=True,
    ),
)
async def create_tenant(
    services: Services, caller: Principal, name: NewName, request: RequestKey | None = None
) -> Tenant:
    """Create a tenant."""
    at = None if request is None else request.started_at
    return Tenant.of(await services.access.tenants.create(caller, name, at=at))


@operation(
    DELETE("/tenants/{name}"),
    Permission.INSTANCE,
    audit="tenant.delete",
    is_audited_by_service=True,
    command=CommandForm("tenant delete"),
)
async def delete_tenant(services: Services, caller: Principal, name: str) -> None:
    """Delete a tenant with everything it owns; refused while it has packages or active runs."""
    await services.access.tenants.delete(caller, name)
