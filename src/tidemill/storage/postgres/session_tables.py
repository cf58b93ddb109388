"""Tables of people who sign in, in PostgreSQL: accounts, sessions, tickets."""

from datetime import datetime
from typing import Any

from tidemill.access.accounts import AccountRow
from tidemill.access.principal import Role
from tidemill.access.sessions import Session, Ticket
from tidemill.storage.postgres.database import NotifyingTable, PostgresTable
from tidemill.storage.postgres.errors import check_timezones
from tidemill.storage.postgres.row_codecs import make_codec, parameter
from tidemill.storage.postgres.writes import StatementRows
from tidemill.storage.queries import check_timezone
from tidemill.storage.row_codec import make_fragments
from tidemill.storage.session_ports import Accounts, LoginAttempt, Sessions, StoredAccount, Tickets

_ACCOUNT, _SESSION, _TICKET = make_codec(AccountRow), make_codec(Session), make_codec(Ticket)

SESSION_FRAGMENTS = make_fragments({"account": _ACCOUNT, "session": _SESSION, "ticket": _TICKET}, parameter)
"""What statements may name in braces."""


class PostgresAccounts(PostgresTable, Accounts):
    """The table `accounts`."""

    async def add(self, account: AccountRow, password_hash: str) -> bool:
        return bool(await self._write_returning(self._queries.add_account, *_ACCOUNT.encode(account), password_hash))

    async def for_tenant(self, tenant: str) -> list[AccountRow]:
        return [_ACCOUNT.decode(tuple(row)) for row in await self._read(self._queries.accounts, tenant)]

    async def change(self, tenant: str, name: str, role: Role | None, password_hash: str | None) -> AccountRow | None:
        for row in await self._write_returning(self._queries.change_account, tenant, name, role, password_hash):
            return _ACCOUNT.decode(tuple(row))
        return None

    async def delete(self, tenant: str, name: str) -> bool:
        return bool(await self._write_returning(self._queries.delete_account, tenant, name))

    async def begin_login(self, attempt: LoginAttempt) -> StoredAccount | None:
        check_timezones(attempt)
        one = attempt
        values: tuple[Any, ...] = (one.tenant, one.name, one.at, one.limit, one.locked_until)
        for *columns, password_hash in await self._write_returning(self._queries.begin_login, *values):
            return StoredAccount(_ACCOUNT.decode(columns), password_hash)
        return None

    async def record_login(self, tenant: str, name: str, at: datetime) -> None:
        check_timezone(at)
        await self._write(StatementRows(self._queries.record_login, [(tenant, name, at)]))


class PostgresSessions(NotifyingTable, Sessions):
    """The table `sessions`."""

    async def add(self, session: Session, digest: bytes) -> None:
        await self._write(StatementRows(self._queries.add_session, [(*_SESSION.encode(session), digest)]))

    async def find(self, digest: bytes) -> Session | None:
        rows = await self._read(self._queries.session_of_token, digest)
        return _SESSION.decode(tuple(rows[0])) if rows else None

    async def get(self, id: str) -> Session | None:
        rows = await self._read(self._queries.session, id)
        return _SESSION.decode(tuple(rows[0])) if rows else None

    async def record_use(self, id: str, at: datetime) -> None:
        check_timezone(at)
        await self._write(StatementRows(self._queries.record_session_use, [(id, at)]))

    async def delete(self, id: str) -> bool:
        return bool(await self._write_returning(self._queries.delete_session, id, self._sender_id))

    async def delete_of_actor(self, tenant: str, actor: str) -> int:
        statement = self._queries.delete_sessions_of_actor
        return len(await self._write_returning(statement, tenant, actor, self._sender_id))

    async def prune(self, expired_before: datetime, unused_since: datetime) -> int:
        check_timezone(expired_before)
        check_timezone(unused_since)
        return len(await self._write_returning(self._queries.prune_sessions, expired_before, unused_since))


class PostgresTickets(PostgresTable, Tickets):
    """The table `tickets`."""

    async def add(self, ticket: Ticket, digest: bytes) -> None:
        await self._write(StatementRows(self._queries.add_ticket, [(*_TICKET.encode(ticket), digest)]))

    async def take(self, digest: bytes) -> Ticket | None:
        rows = await self._write_returning(self._queries.take_ticket, digest)
        return _TICKET.decode(tuple(rows[0])) if rows else None

    async def prune(self, expired_before: datetime) -> int:
        check_timezone(expired_before)
        return len(await self._write_returning(self._queries.prune_tickets, expired_before))
