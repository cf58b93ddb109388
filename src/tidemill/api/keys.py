"""API keys: for programs, with a role, an expiry, and optionally the only endpoints that they reach."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from tidemill.access.principal import Permission, Principal, Role
from tidemill.api.fields import Seconds
from tidemill.api.operation import DELETE, GET, POST, CommandForm, Message, operation
from tidemill.api.paging import Page, PageRequest, page_of
from tidemill.api.services import Services

if TYPE_CHECKING:
    from tidemill.access.keys import ApiKey
    from tidemill.engine.access.keys import NewKey

KeyRole = Annotated[Role, Meta(description="What the key may do in its tenant.")]
Expiry = Annotated[
    Seconds | None,
    Meta(description="How long the key is valid. Default: until it is revoked.", examples=[7776000]),
]
Endpoints = Annotated[
    list[str] | None,
    Meta(
        description="The only endpoints that the key reaches: accumulators:orderbook,reactors:market.",
        examples=[["accumulators:orderbook", "reactors:market"]],
    ),
]
KeyTenant = Annotated[
    str | None,
    Meta(
        description="The caller's tenant by default; only an admin of the instance names another one.",
        examples=["acme"],
    ),
]
Label = Annotated[str, Meta(description="What the key is for.")]
KeyId = Annotated[str, Meta(description="The id of a key, as `tidemill key list` shows it.")]


class Key(Message, frozen=True, kw_only=True):
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

    @classmethod
    def of_stored(cls, key: "ApiKey") -> "Key":
        """Return the message about a stored key."""
        return cls(
            id=key.id,
            tenant=key.tenant,
            role=key.role,
            label=key.label,
            only=_texts(key),
            created_at=key.created_at,
            created_by=key.created_by,
            expires_at=key.expires_at,
            revoked_at=key.revoked_at,
            last_used_at=key.last_used_at,
        )


class CreatedKey(Message, frozen=True, kw_only=True):
    """A new key with its secret, which is shown only here."""

    id: str
    key: str
    """The whole key, for `Authorization: Bearer`."""
    tenant: str
    role: Role
    label: str
    only: list[str] | None
    expires_at: datetime | None

    @classmethod
    def of_new(cls, new: "NewKey") -> "CreatedKey":
        """Return the message about a new key."""
        key, token = new
        return cls(
            id=key.id,
            key=token,
            tenant=key.tenant,
            role=key.role,
            label=key.label,
            only=_texts(key),
            expires_at=key.expires_at,
        )


def _texts(key: "ApiKey") -> list[str] | None:
    return None if key.only is None else sorted(map(str, key.only))


def _sort_key(key: "ApiKey") -> str:
    return f"{key.created_at.isoformat()} {key.id}"


@operation(
    GET("/keys"),
    Permission.ADMIN,
    command=CommandForm(
        "key list",
        columns=("id", "role", "expires_at", "revoked_at", "only", "last_used_at", "created_at", "label"),
        empty="no keys; create one with `tidemill key create`",
    ),
)
async def list_keys(services: Services, caller: Principal, page: PageRequest) -> Page[Key]:
    """List the API keys of the tenant, newest first, without their secrets; revoked and expired ones too."""
    keys = await services.access.keys.list_for(caller)
    return page_of(keys, page, key=_sort_key, view=Key.of_stored, descending=True)


@operation(
    POST("/keys", location="/keys", is_private=True),
    Permission.ADMIN,
    audit="key.create",
    is_audited_by_service=True,
    command=CommandForm(
        "key create",
        shows="key",
        more="On a store it creates the first key, before the first start of a server: tidemill key create "
        "--role admin --store ADDRESS",
        creates_store=True,
    ),
)
async def create_key(
    services: Services,
    caller: Principal,
    role: KeyRole,
    tenant: KeyTenant = None,
    expires: Expiry = None,
    only: Endpoints = None,
    label: Label = "",
) -> CreatedKey:
    """Create an API key. It is shown only once; Tidemill stores a hash."""
    new = await services.access.keys.create(caller, role, tenant=tenant, lifetime=expires, only=only, label=label)
    return CreatedKey.of_new(new)


@operation(
    DELETE("/keys/{key}"),
    Permission.ADMIN,
    audit="key.revoke",
    is_audited_by_service=True,
    command=CommandForm("key revoke", done="key '{key}' is revoked"),
)
async def revoke_key(services: Services, caller: Principal, key: KeyId) -> None:
    """Revoke an API key: requests with it are refused from now on, and its open connections are closed."""
    await services.access.keys.revoke(caller, key)
