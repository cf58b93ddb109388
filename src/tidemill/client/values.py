"""The values that the client returns, where the node has none of its own for them."""

import msgspec

from tidemill.access.principal import Role
from tidemill.graphs.outcomes import Receipt


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The version of a server."""

    version: str
    api: str


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The principal that the server takes the client for."""

    actor: str
    tenant: str
    role: Role
    is_instance_admin: bool = False
    may_upload: bool = False
    only: list[str] | None = None
    """The endpoints that its key is restricted to."""


# -- graphs


class PushAnswer(msgspec.Struct, frozen=True):
    """The receipts of a push of many events, in their order."""

    receipts: list[Receipt]


# -- access
