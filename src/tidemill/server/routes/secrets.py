"""Secrets: encrypted values that author code reads with `ctx.secret`. No answer ever has one."""

from typing import Annotated

import msgspec
from litestar.params import FromPath, JSONBody

from tidemill.engine.access.secrets import SecretStatus
from tidemill.server.injection import InjectedContext, InjectedPrincipal
from tidemill.server.paging import DEFAULT_LIMIT, Cursor, Limit, Page, page_of


class SecretValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The value of a secret."""

    value: Annotated[str, msgspec.Meta(examples=["a password"])]


class RotatedSecrets(msgspec.Struct, frozen=True):
    """The number of secrets whose keys the current master key wraps now, and another one wrapped before."""

    rotated: int


def _unchanged(status: SecretStatus) -> SecretStatus:
    return status


async def list_secrets(
    context: InjectedContext, principal: InjectedPrincipal, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[SecretStatus]:
    """List the secrets of the tenant, without their values."""
    secrets = await context.node.access.secrets.list_for(principal)
    return page_of(secrets, limit=limit, cursor=cursor, key=lambda one: one.name, view=_unchanged)


async def get_secret(context: InjectedContext, principal: InjectedPrincipal, name: FromPath[str]) -> SecretStatus:
    """Return everything about a secret but its value."""
    return await context.node.access.secrets.get(principal.tenant, name)


async def put_secret(
    context: InjectedContext, principal: InjectedPrincipal, name: FromPath[str], data: JSONBody[SecretValue]
) -> SecretStatus:
    """Set a secret."""
    return await context.node.access.secrets.set(principal, name, data.value)


async def delete_secret(context: InjectedContext, principal: InjectedPrincipal, name: FromPath[str]) -> None:
    """Delete a secret."""
    await context.node.access.secrets.delete(principal, name)


async def rotate_secrets(context: InjectedContext, principal: InjectedPrincipal) -> RotatedSecrets:
    """Rotate the master key: wrap the keys of all secrets of all tenants with the current one."""
    return RotatedSecrets(await context.node.access.secrets.rotate(principal))
