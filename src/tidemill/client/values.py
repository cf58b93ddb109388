"""The values that the client returns, where the node has none of its own for them."""

from datetime import datetime
from typing import Any

import msgspec

from tidemill.access.principal import Role
from tidemill.graphs.result import Receipt


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


class FiringCounts(msgspec.Struct, frozen=True):
    """How often a reactor has fired in each of the last 60 minutes, oldest first."""

    per_minute: list[int]


# -- access


class PackageProblemInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of the definitions of a package."""

    message: str
    file: str | None = None
    line: int | None = None


class PackageInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A package, as the server that answers sees it."""

    name: str
    state: str
    """"published" if this server has not loaded it, and does not try to; else as in `tm.PackageStatus`."""
    since: datetime
    version: str | None = None
    """The loaded version."""
    wanted: str | None = None
    published: str | None = None
    """The version in the registry of the store."""
    digest: str | None = None
    source: str = ""
    reason: str = ""
    """Why the last attempt to load it failed."""
    problems: list[PackageProblemInfo] = []
    waiting_for: list[str] = []
    steps: list[dict[str, Any]] = []
    """The six steps of the last load, with their times."""
