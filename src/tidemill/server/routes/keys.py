"""API keys: for programs, with a role, an expiry, and optionally the only endpoints that they reach."""

from datetime import datetime
from typing import Annotated

import msgspec
from litestar import Response
from litestar.params import FromPath, JSONBody

from tidemill.access.keys import ApiKey
from tidemill.access.principal import Role
from tidemill.server.injection import InjectedContext, InjectedPrincipal
from tidemill.server.paging import DEFAULT_LIMIT, Cursor, Limit, Page, page_of
from tidemill.server.responses import ApiResponse

MAX_LIFETIME = 100 * 365 * 86400.0
"""Seconds; a key that shall last longer has no expiry."""


class NewApiKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A key to create."""

    role: Role
    tenant: Annotated[str | None, msgspec.Meta(examples=["acme"])] = None
    """The caller's tenant by default; only an admin of the instance names another one."""
    expires: Annotated[float, msgspec.Meta(gt=0, le=MAX_LIFETIME, examples=[7776000])] | None = None
    """Seconds until it expires; null for a key that does not."""
    only: Annotated[list[str] | None, msgspec.Meta(examples=[["accumulators:orderbook", "reactors:market"]])] = None
    """The only endpoints that it reaches; null for all."""
    label: str = ""
    """What it is for."""


class ApiKeyView(msgspec.Struct, frozen=True, kw_only=True):
    """A key, without its secret."""

    id: str
    tenant: str
    role: Role
    label: str
    only: list[str] | None
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class CreatedApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A new key with its secret, which is shown only here."""

    id: str
    key: str
    """The whole key, for `Authorization: Bearer`."""
    tenant: str
    role: Role
    label: str
    only: list[str] | None
    expires_at: datetime | None


def _only(key: ApiKey) -> list[str] | None:
    return None if key.only is None else sorted(map(str, key.only))


def _view(key: ApiKey) -> ApiKeyView:
    return ApiKeyView(
        id=key.id,
        tenant=key.tenant,
        role=key.role,
        label=key.label,
        only=_only(key),
        created_at=key.created_at,
        created_by=key.created_by,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        last_used_at=key.last_used_at,
    )


async def list_keys(
    context: InjectedContext, principal: InjectedPrincipal, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[ApiKeyView]:
    """List the keys of the tenant, without their secrets, including those that are revoked or expired."""
    keys = await context.node.access.keys.list_for(principal)
    return page_of(keys, limit=limit, cursor=cursor, key=_sort_key, view=_view)


def _sort_key(key: ApiKey) -> str:
    return f"{key.created_at.isoformat()} {key.id}"


async def create_key(
    context: InjectedContext, principal: InjectedPrincipal, data: JSONBody[NewApiKey]
) -> Response[CreatedApiKey]:
    """Create a key; the answer is the only one that has it."""
    key, token = await context.node.access.keys.create(
        principal, data.role, tenant=data.tenant, lifetime=data.expires, only=data.only, label=data.label
    )
    created = CreatedApiKey(
        id=key.id,
        key=token,
        tenant=key.tenant,
        role=key.role,
        label=key.label,
        only=_only(key),
        expires_at=key.expires_at,
    )
    return ApiResponse(created, status_code=201, headers={"cache-control": "no-store"})


async def revoke_key(context: InjectedContext, principal: InjectedPrincipal, key: FromPath[str]) -> None:
    """Revoke a key: it is refused from now on, and its open connections are closed."""
    await context.node.access.keys.revoke(principal, key)
