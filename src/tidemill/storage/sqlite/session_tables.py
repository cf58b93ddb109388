"""Tables of people who sign in, in SQLite: accounts, sessions, tickets."""

import sqlite3
from datetime import datetime

from tidemill.access.accounts import AccountRow
from tidemill.access.principal import Role
from tidemill.access.sessions import Session, Ticket
from tidemill.storage.row_codec import RowCodec, make_fragments
from tidemill.storage.session_ports import Accounts, LoginAttempt, Sessions, StoredAccount, Tickets
from tidemill.storage.sqlite.database import SqliteTable
from tidemill.storage.sqlite.run_rows import from_micros, to_micros

_ACCOUNT = RowCodec(AccountRow, to_micros, from_micros)
_SESSION = RowCodec(Session, to_micros, from_micros)
_TICKET = RowCodec(Ticket, to_micros, from_micros)

SESSION_FRAGMENTS = make_fragments({"account": _ACCOUNT, "session": _SESSION, "ticket": _TICKET}, lambda _: "?")
"""What statements may name in braces."""


class SqliteAccounts(SqliteTable, Accounts):
    """The table `accounts`."""

    async def add(self, account: AccountRow, password_hash: str) -> bool:
        row = (*_ACCOUNT.encode(account), password_hash)
        return await self._write(lambda connection: connection.execute(self._queries.add_account, row).rowcount == 1)

    async def for_tenant(self, tenant: str) -> list[AccountRow]:
        return [_ACCOUNT.decode(row) for row in await self._fetch_all(self._queries.accounts_of, (tenant,))]

    async def change(self, tenant: str, name: str, role: Role | None, password_hash: str | None) -> AccountRow | None:
        values = {"tenant": tenant, "name": name, "role": role, "password_hash": password_hash}

        def write(connection: sqlite3.Connection) -> AccountRow | None:
            row = connection.execute(self._queries.change_account, values).fetchone()
            return None if row is None else _ACCOUNT.decode(row)

        return await self._write(write)

    async def delete(self, tenant: str, name: str) -> bool:
        statement = self._queries.delete_account
        return await self._write(lambda connection: connection.execute(statement, (tenant, name)).rowcount == 1)

    async def begin_login(self, attempt: LoginAttempt) -> StoredAccount | None:
        values = {
            "tenant": attempt.tenant,
            "name": attempt.name,
            "at": to_micros(attempt.at),
            "limit": attempt.limit,
            "locked_until": to_micros(attempt.locked_until),
        }

        def write(connection: sqlite3.Connection) -> StoredAccount | None:
            row = connection.execute(self._queries.begin_login, values).fetchone()
            return None if row is None else StoredAccount(_ACCOUNT.decode(row[:-1]), row[-1])

        return await self._write(write)

    async def record_login(self, tenant: str, name: str, at: datetime) -> None:
        await self._execute_many(self._queries.record_login, [(to_micros(at), tenant, name)])


class SqliteSessions(SqliteTable, Sessions):
    """The table `sessions`."""

    async def add(self, session: Session, digest: bytes) -> None:
        await self._execute_many(self._queries.add_session, [(*_SESSION.encode(session), digest)])

    async def find(self, digest: bytes) -> Session | None:
        rows = await self._fetch_all(self._queries.session_of_token, (digest,))
        return _SESSION.decode(rows[0]) if rows else None

    async def get(self, id: str) -> Session | None:
        rows = await self._fetch_all(self._queries.session_of, (id,))
        return _SESSION.decode(rows[0]) if rows else None

    async def record_use(self, id: str, at: datetime) -> None:
        await self._execute_many(self._queries.record_session_use, [(to_micros(at), id)])

    async def delete(self, id: str) -> bool:
        statement = self._queries.delete_session
        return await self._write(lambda connection: connection.execute(statement, (id,)).rowcount == 1)

    async def delete_of_actor(self, tenant: str, actor: str) -> int:
        statement = self._queries.delete_sessions_of_actor
        return await self._write(lambda connection: connection.execute(statement, (tenant, actor)).rowcount)

    async def prune(self, expired_before: datetime, unused_since: datetime) -> int:
        values = (to_micros(expired_before), to_micros(unused_since))
        return await self._write(lambda connection: connection.execute(self._queries.prune_sessions, values).rowcount)


class SqliteTickets(SqliteTable, Tickets):
    """The table `tickets`."""

    async def add(self, ticket: Ticket, digest: bytes) -> None:
        await self._execute_many(self._queries.add_ticket, [(*_TICKET.encode(ticket), digest)])

    async def take(self, digest: bytes) -> Ticket | None:
        def write(connection: sqlite3.Connection) -> Ticket | None:
            row = connection.execute(self._queries.take_ticket, (digest,)).fetchone()
            return None if row is None else _TICKET.decode(row)

        return await self._write(write)

    async def prune(self, expired_before: datetime) -> int:
        values = (to_micros(expired_before),)
        return await self._write(lambda connection: connection.execute(self._queries.prune_tickets, values).rowcount)
