"""Ports of variables and secrets, which operators set and author code reads."""

from datetime import datetime
from typing import Any, NamedTuple, Protocol

import msgspec


class NamedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value that is not secret, and who has set it."""

    name: str
    value: Any
    """Anything that JSON can express."""
    updated_at: datetime
    updated_by: str


class VariableRow(NamedValue, frozen=True, kw_only=True):
    """A variable of a tenant."""

    tenant: str


class ListedVariable(NamedTuple):
    """A variable as lists show it."""

    variable: VariableRow
    large_value: int | None
    """The bytes of a value that is too large for a list: the variable has None instead."""


class Variables(Protocol):
    """Variables by tenant and name."""

    async def upsert(self, variable: VariableRow) -> None:
        """Write a variable in place of the previous one."""

    async def get(self, tenant: str, name: str) -> VariableRow | None:
        """Return a variable."""

    async def for_tenant(self, tenant: str) -> list[ListedVariable]:
        """Return the variables of a tenant, by name, without large values."""

    async def delete(self, tenant: str, name: str) -> bool:
        """Delete a variable; return whether it was there."""


class StoredSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret, encrypted with a key of its own, which is wrapped by a master key."""

    tenant: str
    name: str
    version: int
    """Grows with each new value."""
    key_id: str
    """The master key that wraps the secret's own key."""
    wrapped_key: bytes
    ciphertext: bytes
    updated_at: datetime
    updated_by: str


class Secrets(Protocol):
    """Secrets by tenant and name."""

    async def put(self, secret: StoredSecret) -> bool:
        """Write a secret in place of the previous version; False if that is not the one before (0: none)."""

    async def get(self, tenant: str, name: str) -> StoredSecret | None:
        """Return a secret."""

    async def for_tenant(self, tenant: str) -> list[StoredSecret]:
        """Return the secrets of a tenant, by name."""

    async def delete(self, tenant: str, name: str) -> bool:
        """Delete a secret; return whether it was there."""

    async def list_not_wrapped_by(self, key_id: str, limit: int) -> list[StoredSecret]:
        """Return secrets of all tenants whose keys another master key wraps, by tenant and name."""

    async def rewrap(self, secret: StoredSecret, before: str) -> bool:
        """Replace the wrapped key of a secret if its version and its master key `before` are still the same."""
