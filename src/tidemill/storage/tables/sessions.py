"""Tables of people who sign in: accounts, sessions and tickets."""

from datetime import datetime
from typing import NamedTuple

import msgspec
from msgspec.structs import asdict

from tidemill.access.accounts import AccountRow
from tidemill.access.audit import AuditRow
from tidemill.access.principal import Role
from tidemill.access.tokens import Session, Ticket
from tidemill.storage.tables.access import APPEND_AUDIT_ENTRY, AUDIT_ROWS
from tidemill.storage.tables.database import RowCodec, Statement, Table, Transaction
from tidemill.storage.tables.declared import of_tenant

_ACCOUNT, _SESSION, _TICKET = RowCodec(AccountRow), RowCodec(Session), RowCodec(Ticket)


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


_ADD_ACCOUNT = Statement(
    """
    INSERT INTO {schema}accounts ({columns}, password_hash) VALUES ({parameters}, :password_hash)
    ON CONFLICT (tenant, name) DO NOTHING RETURNING name
    """,
    _ACCOUNT,
)
_ACCOUNTS_OF = Statement("SELECT {columns} FROM {schema}accounts WHERE tenant = :tenant ORDER BY name", _ACCOUNT)
_CHANGE_ACCOUNT = Statement(
    """
    UPDATE {schema}accounts SET
        role = coalesce(CAST(:role AS text), role),
        password_hash = coalesce(CAST(:password_hash AS text), password_hash),
        failures = CASE WHEN CAST(:password_hash AS text) IS NULL THEN failures ELSE 0 END,
        locked_until = CASE WHEN CAST(:password_hash AS text) IS NULL THEN locked_until END
    WHERE tenant = :tenant AND name = :name
    RETURNING {columns}
    """,
    _ACCOUNT,
)
_DELETE_ACCOUNT = Statement("DELETE FROM {schema}accounts WHERE tenant = :tenant AND name = :name RETURNING name")
_BEGIN_LOGIN = Statement(
    """
    UPDATE {schema}accounts SET
        failures = failures + 1,
        locked_until = CASE
            WHEN failures + 1 >= CAST(:limit AS integer) THEN CAST(:locked_until AS timestamptz)
        END
    WHERE tenant = :tenant AND name = :name AND (locked_until IS NULL OR locked_until <= :at)
    RETURNING {columns}, password_hash
    """,
    _ACCOUNT,
)
_RECORD_LOGIN = Statement("""
    UPDATE {schema}accounts SET failures = 0, locked_until = NULL, last_login_at = :at
    WHERE tenant = :tenant AND name = :name
""")


class Accounts(Table):
    """Local accounts."""

    tables = of_tenant("accounts")

    async def add(self, account: AccountRow, password_hash: str, audit: AuditRow | None = None) -> bool:
        """Add an account, and the entry of the audit log on it.

        Return False, with nothing changed, if the tenant has one with this name.
        """

        async def write(transaction: Transaction) -> bool:
            values = _ACCOUNT.values(account)
            is_added = bool(await transaction.fetch(_ADD_ACCOUNT, **values, password_hash=password_hash))
            if is_added and audit is not None:
                await transaction.fetch(APPEND_AUDIT_ENTRY, **AUDIT_ROWS.values(audit))
            return is_added

        return await self._database.transact(write)

    async def for_tenant(self, tenant: str) -> list[AccountRow]:
        """Return the accounts of a tenant, by name."""
        return await self._list(_ACCOUNT, _ACCOUNTS_OF, tenant=tenant)

    async def change(self, tenant: str, name: str, role: Role | None, password_hash: str | None) -> AccountRow | None:
        """Change what is not None, and return the account; None if it is unknown. A new password unlocks it."""
        changed = {"role": role, "password_hash": password_hash}
        for columns in await self._change(_CHANGE_ACCOUNT, tenant=tenant, name=name, **changed):
            return self._decode(_ACCOUNT, columns)
        return None

    async def delete(self, tenant: str, name: str) -> bool:
        """Delete an account; return whether it was there."""
        return bool(await self._change(_DELETE_ACCOUNT, tenant=tenant, name=name))

    async def begin_login(self, attempt: LoginAttempt) -> StoredAccount | None:
        """Count an attempt to sign in, and return the account; None if it is unknown or locked.

        It is counted before the password is checked, so that attempts made at the same time are all counted.
        """
        for *columns, password_hash in await self._change(_BEGIN_LOGIN, **asdict(attempt)):
            return StoredAccount(self._decode(_ACCOUNT, columns), password_hash)
        return None

    async def record_login(self, tenant: str, name: str, at: datetime) -> None:
        """Record that an attempt has succeeded: its account has no failures."""
        await self._put(_RECORD_LOGIN, tenant=tenant, name=name, at=at)


_ADD_SESSION = Statement("INSERT INTO {schema}sessions ({columns}, digest) VALUES ({parameters}, :digest)", _SESSION)
_SESSION_OF_TOKEN = Statement("SELECT {columns} FROM {schema}sessions WHERE digest = :digest", _SESSION)
_SESSION_OF = Statement("SELECT {columns} FROM {schema}sessions WHERE id = :id", _SESSION)
_RECORD_USE = Statement("UPDATE {schema}sessions SET seen_at = {greatest}(seen_at, :at) WHERE id = :id")
_DELETE_SESSION = Statement("DELETE FROM {schema}sessions WHERE id = :id RETURNING {notify:access}")
_DELETE_SESSIONS = Statement("""
    DELETE FROM {schema}sessions WHERE tenant = :tenant AND actor = :actor RETURNING {notify:access}
""")
_PRUNE_SESSIONS = Statement("""
    DELETE FROM {schema}sessions WHERE expires_at < :expired_before OR seen_at < :unused_since RETURNING id
""")


class Sessions(Table):
    """Sessions by the digest of their token. Other processes are notified of deletions, see `WorkflowStore.listen`."""

    tables = of_tenant("sessions")

    async def add(self, session: Session, digest: bytes) -> None:
        """Add a session."""
        await self._put(_ADD_SESSION, **_SESSION.values(session), digest=digest)

    async def find(self, digest: bytes) -> Session | None:
        """Return the session of a token."""
        return await self._first(_SESSION, _SESSION_OF_TOKEN, digest=digest)

    async def get(self, id: str) -> Session | None:
        """Return a session."""
        return await self._first(_SESSION, _SESSION_OF, id=id)

    async def record_use(self, id: str, at: datetime) -> None:
        """Record when a session was last used."""
        await self._put(_RECORD_USE, id=id, at=at)

    async def delete(self, id: str) -> bool:
        """Delete a session; return whether it was there."""
        return bool(await self._change(_DELETE_SESSION, id=id))

    async def delete_of_actor(self, tenant: str, actor: str) -> int:
        """Delete every session of an actor; return their number."""
        return len(await self._change(_DELETE_SESSIONS, tenant=tenant, actor=actor))

    async def prune(self, expired_before: datetime, unused_since: datetime) -> int:
        """Delete the sessions that have expired, or were not used for long; return their number."""
        values = {"expired_before": expired_before, "unused_since": unused_since}
        return len(await self._change(_PRUNE_SESSIONS, **values))


_ADD_TICKET = Statement("INSERT INTO {schema}tickets ({columns}, digest) VALUES ({parameters}, :digest)", _TICKET)
_TAKE_TICKET = Statement("DELETE FROM {schema}tickets WHERE digest = :digest RETURNING {columns}", _TICKET)
_PRUNE_TICKETS = Statement("DELETE FROM {schema}tickets WHERE expires_at < :expired_before RETURNING tenant")


class Tickets(Table):
    """Tickets by the digest of their token."""

    tables = of_tenant("tickets")

    async def add(self, ticket: Ticket, digest: bytes) -> None:
        """Add a ticket."""
        await self._put(_ADD_TICKET, **_TICKET.values(ticket), digest=digest)

    async def take(self, digest: bytes) -> Ticket | None:
        """Delete a ticket and return it; None if there is none. One of several callers gets it."""
        for columns in await self._change(_TAKE_TICKET, digest=digest):
            return self._decode(_TICKET, columns)
        return None

    async def prune(self, expired_before: datetime) -> int:
        """Delete the tickets that have expired; return their number."""
        return len(await self._change(_PRUNE_TICKETS, expired_before=expired_before))
