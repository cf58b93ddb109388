"""Local accounts: people who sign in with a password."""

from datetime import datetime

import msgspec

from tidemill.access.principal import Principal, Role


class AccountRow(msgspec.Struct, frozen=True, kw_only=True):
    """An account as it is stored and listed: everything but the password."""

    tenant: str
    name: str
    role: Role
    created_at: datetime
    created_by: str
    failures: int = 0
    """Failed attempts to sign in since the last success."""
    locked_until: datetime | None = None
    last_login_at: datetime | None = None

    @property
    def principal(self) -> Principal:
        """The principal whom the account authenticates."""
        return Principal(tenant=self.tenant, role=self.role, actor=f"account:{self.name}")

    def is_locked(self, now: datetime) -> bool:
        """Return whether no attempt to sign in is made at the moment."""
        return self.locked_until is not None and self.locked_until > now
