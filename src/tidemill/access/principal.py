"""Principals: the callers of the server, each with its tenant and its role.

A role includes the roles below it. An admin of the tenant `public` administers the whole instance: it creates tenants,
acts for any of them, and uploads packages, whose code runs with the rights of the server. A principal can be
restricted to single endpoints, for a producer that pushes to one accumulator; it then has no access to anything else.
"""

from enum import StrEnum
from typing import Literal

import msgspec

INSTANCE_TENANT = "public"
"""The tenant whose admins administer the instance."""


class Role(StrEnum):
    """What a principal may do in its tenant; each role includes those before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


class Permission(StrEnum):
    """What a route requires."""

    NONE = "none"
    """Nothing: also answers requests without a key."""
    KNOWN = "known"
    """Any principal, restricted ones included."""
    READ = "read"
    WRITE = "write"
    ADMIN = "admin"
    INSTANCE = "instance"
    """An admin of the instance."""
    UPLOAD = "upload"
    """An admin of the instance; an admin of a tenant too, if the settings of the server trust its uploads."""
    ATTEMPT = "attempt"
    """A remote attempt, by its own token."""


ResourceKind = Literal["accumulators", "reactors"]


class Resource(msgspec.Struct, frozen=True, order=True):
    """An endpoint that a principal can be restricted to."""

    kind: ResourceKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


_ROLE_PERMISSIONS = {
    Role.READ: frozenset([Permission.READ]),
    Role.WRITE: frozenset([Permission.READ, Permission.WRITE]),
    Role.ADMIN: frozenset([Permission.READ, Permission.WRITE, Permission.ADMIN]),
}


class Caller(msgspec.Struct, frozen=True):
    """The identity behind a request: it sees only what belongs to its tenant, and its actions are recorded."""

    tenant: str
    actor: str
    """The name in audit records: "key:4f2a91c0", "account:ada", "local" without authentication."""


class Principal(Caller, frozen=True, kw_only=True):
    """A caller that was authenticated, with what it may do."""

    role: Role
    only: frozenset[Resource] | None = None
    """The endpoints that the principal is restricted to; None: not restricted."""
    credential: str | None = None
    """The key or session behind it, which may end while a connection is open; None without authentication."""
    attempt: tuple[str, str, int, int] | None = None
    """The remote attempt that it is: its run, task, element and number. It may do nothing but its own calls."""
    is_acting: bool = False
    """Whether it is an admin of the instance that acts for the tenant."""

    @property
    def is_instance_admin(self) -> bool:
        """Whether the principal administers the instance: it may act for every tenant."""
        is_unrestricted = self.only is None and self.attempt is None
        return self.tenant == INSTANCE_TENANT and self.role is Role.ADMIN and is_unrestricted

    def has(self, permission: Permission, resource: Resource | None = None) -> bool:
        """Return whether the principal has a permission, on a resource if the route is about one."""
        if self.attempt is not None or permission is Permission.ATTEMPT:
            return self.attempt is not None and permission in (Permission.NONE, Permission.ATTEMPT)
        if permission in (Permission.NONE, Permission.KNOWN):
            return True
        if self.only is not None and resource not in self.only:
            return False
        if permission is Permission.INSTANCE:
            return self.is_instance_admin
        if permission is Permission.UPLOAD:
            return self.is_instance_admin or self.is_acting
        return permission in _ROLE_PERMISSIONS[self.role]
