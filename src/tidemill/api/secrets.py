"""Secrets: encrypted values that author code reads with `ctx.secret`. No answer ever has one."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from tidemill.access.principal import Permission, Principal
from tidemill.api.fields import Prompt
from tidemill.api.operation import DELETE, GET, POST, PUT, CommandForm, Message, operation
from tidemill.api.paging import Page, PageRequest, page_of
from tidemill.api.services import Services

SecretValue = Annotated[str, Meta(description="The value.", examples=["a password"]), Prompt("Value")]


class Secret(Message, frozen=True, kw_only=True):
    """Everything about a secret but its value."""

    name: str
    version: int
    key_id: str
    """The master key that protects it."""
    updated_at: datetime
    updated_by: str


class RotatedSecrets(Message, frozen=True, kw_only=True):
    """The number of secrets that another master key protected before."""

    rotated: int


@operation(
    GET("/secrets"),
    Permission.READ,
    command=CommandForm(
        "secret list", columns=("name", "version", "updated_at", "key_id", "updated_by"), empty="no secrets"
    ),
)
async def list_secrets(services: Services, caller: Principal, page: PageRequest) -> Page[Secret]:
    """List the secrets of the tenant, without their values."""
    secrets = await services.access.secrets.list_for(caller)
    return page_of(secrets, page, key=lambda one: one.name, view=Secret.of)


@operation(GET("/secrets/{name}"), Permission.READ, command=CommandForm("secret show"))
async def get_secret(services: Services, caller: Principal, name: str) -> Secret:
    """Return everything about a secret but its value."""
    return Secret.of(await services.access.secrets.get(caller.tenant, name))


@operation(
    PUT("/secrets/{name}"),
    Permission.ADMIN,
    audit="secret.set",
    is_audited_by_service=True,
    command=CommandForm("secret set", done="secret '{name}' is set, version {version}"),
)
async def set_secret(services: Services, caller: Principal, name: str, value: SecretValue) -> Secret:
    """Set a secret."""
    return Secret.of(await services.access.secrets.set(caller, name, value))


@operation(
    DELETE("/secrets/{name}"),
    Permission.ADMIN,
    audit="secret.delete",
    is_audited_by_service=True,
    command=CommandForm("secret delete"),
)
async def delete_secret(services: Services, caller: Principal, name: str) -> None:
    """Delete a secret."""
    await services.access.secrets.delete(caller, name)


@operation(
    POST("/secrets/rotate", is_idempotent=True),
    Permission.INSTANCE,
    audit="secret.rotate",
    is_audited_by_service=True,
    command=CommandForm("secret rotate", done="secrets rotated to the current master key: {rotated}"),
)
async def rotate_secrets(services: Services, caller: Principal) -> RotatedSecrets:
    """Protect all secrets of all tenants with the current master key, the first of the setting secret_keys.

    Afterwards the older keys can be removed from the setting. An interrupted rotation continues where it was.
    """
    return RotatedSecrets(rotated=await services.access.secrets.rotate(caller))
