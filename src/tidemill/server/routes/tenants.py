"""Tenants: the owners of everything, which admins of the instance create and delete."""

from datetime import datetime
from typing import Annotated

import msgspec
from litestar import Response
from litestar.params import FromPath, JSONBody

from tidemill.access.tenants import Tenant
from tidemill.server.injection import InjectedContext, InjectedPrincipal
from tidemill.server.paging import DEFAULT_LIMIT, Cursor, Limit, Page, page_of
from tidemill.server.responses import ApiResponse
from tidemill.server.routing import BASE_PATH


class NewTenant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tenant to create."""

    name: Annotated[str, msgspec.Meta(examples=["acme"])]


class TenantView(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant."""

    name: str
    created_at: datetime
    created_by: str


def _view(tenant: Tenant) -> TenantView:
    return TenantView(name=tenant.name, created_at=tenant.created_at, created_by=tenant.created_by)


async def list_tenants(
    context: InjectedContext, principal: InjectedPrincipal, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[TenantView]:
    """List the tenants: all of them for an admin of the instance, else the caller's own."""
    tenants = await context.node.access.tenants.list_for(principal)
    return page_of(tenants, limit=limit, cursor=cursor, key=lambda one: one.name, view=_view)


async def create_tenant(
    context: InjectedContext, principal: InjectedPrincipal, data: JSONBody[NewTenant]
) -> Response[TenantView]:
    """Create a tenant."""
    tenant = await context.node.access.tenants.create(principal, data.name)
    return ApiResponse(_view(tenant), status_code=201, headers={"location": f"{BASE_PATH}/tenants"})


async def delete_tenant(context: InjectedContext, principal: InjectedPrincipal, name: FromPath[str]) -> None:
    """Delete a tenant with everything it owns; refused while it has packages or active runs."""
    await context.node.access.tenants.delete(principal, name)
