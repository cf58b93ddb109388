"""Access control as commands see it, on a server or on a store: tenants, keys, accounts, variables, secrets, audit log.

Everything is answered in JSON types, as the API shows it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from tidemill.access.principal import Role

Fields = dict[str, Any]


class KeyRequest(NamedTuple):
    """What a new key may do."""

    role: Role
    lifetime: float | None = None
    """Seconds; None: until it is revoked."""
    only: Sequence[str] | None = None
    """The endpoints that it is restricted to."""
    label: str = ""


class AuditQuery(NamedTuple):
    """Which entries of the audit log are listed."""

    actor: str | None = None
    action: str | None = None
    target: str | None = None


class AccessAdmin(Protocol):
    """Access control, variables and secrets of one tenant."""

    async def create_key(self, request: KeyRequest) -> Fields:
        """Create a key; the answer has it as `key`, which is shown once."""

    async def list_keys(self) -> list[Fields]:
        """Return the keys."""

    async def revoke_key(self, id: str) -> None:
        """Revoke a key."""

    async def create_tenant(self, name: str) -> Fields:
        """Create a tenant."""

    async def list_tenants(self) -> list[Fields]:
        """Return the tenants."""

    async def delete_tenant(self, name: str) -> None:
        """Delete a tenant with everything it owns."""

    async def create_account(self, name: str, role: Role, password: str) -> Fields:
        """Create an account."""

    async def list_accounts(self) -> list[Fields]:
        """Return the accounts."""

    async def delete_account(self, name: str) -> None:
        """Delete an account."""

    async def list_variables(self) -> list[Fields]:
        """Return the variables with their values."""

    async def get_variable(self, name: str) -> Fields:
        """Return a variable with its value."""

    async def set_variable(self, name: str, value: Any) -> Fields:
        """Set a variable."""

    async def delete_variable(self, name: str) -> None:
        """Delete a variable."""

    async def list_secrets(self) -> list[Fields]:
        """Return the secrets without their values."""

    async def set_secret(self, name: str, value: str) -> Fields:
        """Set a secret."""

    async def delete_secret(self, name: str) -> None:
        """Delete a secret."""

    async def rotate_secrets(self) -> int:
        """Wrap the keys of all secrets with the current master key; return how many had another one."""

    async def list_audit_entries(self, audit_filter: AuditQuery, limit: int) -> list[Fields]:
        """Return the newest entries of the audit log, newest first."""
