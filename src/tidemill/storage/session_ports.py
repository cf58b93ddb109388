"""Ports of people who sign in: accounts, sessions and tickets."""

from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

from tidemill.access.accounts import AccountRow
from tidemill.access.principal import Role
from tidemill.access.sessions import Session, Ticket


class StoredAccount(NamedTuple):
    """An account, and the hash of its password."""

    account: AccountRow
    password_hash: str


class LoginAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt to sign in. It counts as a failure until `Accounts.record_login` says otherwise."""

    tenant: str
    name: str
    at: datetime
    limit: int
    """The number of failures in a row that lock the account."""
    locked_until: datetime
    """Until when they lock it."""


class Accounts(Protocol):
    """Local accounts."""

    async def add(self, account: AccountRow, password_hash: str) -> bool:
        """Add an account; return False, with nothing changed, if the tenant has one with this name."""

    async def for_tenant(self, tenant: str) -> list[AccountRow]:
        """Return the accounts of a tenant, by name."""

    async def change(self, tenant: str, name: str, role: Role | None, password_hash: str | None) -> AccountRow | None:
        """Change what is not None, and return the account; None if it is unknown. A new password unlocks it."""

    async def delete(self, tenant: str, name: str) -> bool:
        """Delete an account; return whether it was there."""

    async def begin_login(self, attempt: LoginAttempt) -> StoredAccount | None:
        """Count an attempt to sign in, and return the account; None if it is unknown or locked.

        It is counted before the password is checked, so that attempts made at the same time are all counted.
        """

    async def record_login(self, tenant: str, name: str, at: datetime) -> None:
        """Record that an attempt has succeeded: its account has no failures."""


class Sessions(Protocol):
    """Sessions by the digest of their token. Other processes are notified of deletions, see `WorkflowStore.listen`."""

    async def add(self, session: Session, digest: bytes) -> None:
        """Add a session."""

    async def find(self, digest: bytes) -> Session | None:
        """Return the session of a token."""

    async def get(self, id: str) -> Session | None:
        """Return a session."""

    async def record_use(self, id: str, at: datetime) -> None:
        """Record when a session was last used."""

    async def delete(self, id: str) -> bool:
        """Delete a session; return whether it was there."""

    async def delete_of_actor(self, tenant: str, actor: str) -> int:
        """Delete every session of an actor; return their number."""

    async def prune(self, expired_before: datetime, unused_since: datetime) -> int:
        """Delete the sessions that have expired, or were not used for long; return their number."""


class Tickets(Protocol):
    """Tickets by the digest of their token."""

    async def add(self, ticket: Ticket, digest: bytes) -> None:
        """Add a ticket."""

    async def take(self, digest: bytes) -> Ticket | None:
        """Delete a ticket and return it; None if there is none. One of several callers gets it."""

    async def prune(self, expired_before: datetime) -> int:
        """Delete the tickets that have expired; return their number."""
