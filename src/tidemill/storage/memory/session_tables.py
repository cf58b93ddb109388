"""Tables of people who sign in, in memory: accounts, sessions, tickets."""

from collections.abc import Callable
from datetime import datetime

from msgspec.structs import replace

from tidemill.access.accounts import AccountRow
from tidemill.access.principal import Role
from tidemill.access.sessions import Session, Ticket
from tidemill.storage.memory.tables import MemoryTable, Tables, times_to_utc, to_utc
from tidemill.storage.session_ports import Accounts, LoginAttempt, Sessions, StoredAccount, Tickets


class MemoryAccounts(MemoryTable, Accounts):
    """Accounts by tenant and name."""

    async def add(self, account: AccountRow, password_hash: str) -> bool:
        row, key = StoredAccount(times_to_utc(account), password_hash), (account.tenant, account.name)

        def write(tables: Tables) -> bool:
            is_new = key not in tables.accounts
            if is_new:
                tables.put(tables.accounts, key, row)
            return is_new

        is_added: bool = await self._committer.commit(write)
        return is_added

    async def for_tenant(self, tenant: str) -> list[AccountRow]:
        accounts = [row.account for row in self._tables.accounts.values() if row.account.tenant == tenant]
        return sorted(accounts, key=lambda account: account.name)

    async def change(self, tenant: str, name: str, role: Role | None, password_hash: str | None) -> AccountRow | None:
        def write(tables: Tables) -> AccountRow | None:
            if (stored := tables.accounts.get((tenant, name))) is None:
                return None
            account = replace(stored.account, role=role or stored.account.role)
            if password_hash is not None:
                account = replace(account, failures=0, locked_until=None)
            tables.put(tables.accounts, (tenant, name), StoredAccount(account, password_hash or stored.password_hash))
            return account

        changed: AccountRow | None = await self._committer.commit(write)
        return changed

    async def delete(self, tenant: str, name: str) -> bool:
        def write(tables: Tables) -> bool:
            was_there = (tenant, name) in tables.accounts
            tables.delete(tables.accounts, (tenant, name))
            return was_there

        was_there: bool = await self._committer.commit(write)
        return was_there

    async def begin_login(self, attempt: LoginAttempt) -> StoredAccount | None:
        one = times_to_utc(attempt)

        def write(tables: Tables) -> StoredAccount | None:
            stored = tables.accounts.get((one.tenant, one.name))
            if stored is None or stored.account.is_locked(one.at):
                return None
            failures = stored.account.failures + 1
            locked_until = one.locked_until if failures >= one.limit else None
            changed = stored._replace(account=replace(stored.account, failures=failures, locked_until=locked_until))
            tables.put(tables.accounts, (one.tenant, one.name), changed)
            return changed

        begun: StoredAccount | None = await self._committer.commit(write)
        return begun

    async def record_login(self, tenant: str, name: str, at: datetime) -> None:
        login_at = to_utc(at)

        def write(tables: Tables) -> None:
            if (stored := tables.accounts.get((tenant, name))) is not None:
                account = replace(stored.account, failures=0, locked_until=None, last_login_at=login_at)
                tables.put(tables.accounts, (tenant, name), stored._replace(account=account))

        await self._committer.commit(write)


class MemorySessions(MemoryTable, Sessions):
    """Sessions by id."""

    async def add(self, session: Session, digest: bytes) -> None:
        row = times_to_utc(session)
        await self._committer.commit(lambda tables: tables.put(tables.sessions, row.id, (row, digest)))

    async def find(self, digest: bytes) -> Session | None:
        return next((row for row, known in self._tables.sessions.values() if known == digest), None)

    async def get(self, id: str) -> Session | None:
        row = self._tables.sessions.get(id)
        return None if row is None else row[0]

    async def record_use(self, id: str, at: datetime) -> None:
        seen_at = to_utc(at)

        def write(tables: Tables) -> None:
            if (row := tables.sessions.get(id)) is not None:
                session = replace(row[0], seen_at=max(row[0].seen_at, seen_at))
                tables.put(tables.sessions, id, (session, row[1]))

        await self._committer.commit(write)

    async def delete(self, id: str) -> bool:
        return await self._delete_where(lambda row: row.id == id) == 1

    async def delete_of_actor(self, tenant: str, actor: str) -> int:
        return await self._delete_where(lambda row: (row.tenant, row.actor) == (tenant, actor))

    async def prune(self, expired_before: datetime, unused_since: datetime) -> int:
        expired, unused = to_utc(expired_before), to_utc(unused_since)
        return await self._delete_where(lambda row: row.expires_at < expired or row.seen_at < unused)

    async def _delete_where(self, is_deleted: Callable[[Session], bool]) -> int:
        def write(tables: Tables) -> int:
            ids = [id_ for id_, (row, _) in tables.sessions.items() if is_deleted(row)]
            for id_ in ids:
                tables.delete(tables.sessions, id_)
            return len(ids)

        number: int = await self._committer.commit(write)
        return number


class MemoryTickets(MemoryTable, Tickets):
    """Tickets by the digest of their token."""

    async def add(self, ticket: Ticket, digest: bytes) -> None:
        row = times_to_utc(ticket)
        await self._committer.commit(lambda tables: tables.put(tables.tickets, digest, row))

    async def take(self, digest: bytes) -> Ticket | None:
        def write(tables: Tables) -> Ticket | None:
            ticket = tables.tickets.get(digest)
            tables.delete(tables.tickets, digest)
            return ticket

        taken: Ticket | None = await self._committer.commit(write)
        return taken

    async def prune(self, expired_before: datetime) -> int:
        expired = to_utc(expired_before)

        def write(tables: Tables) -> int:
            digests = [digest for digest, row in tables.tickets.items() if row.expires_at < expired]
            for digest in digests:
                tables.delete(tables.tickets, digest)
            return len(digests)

        number: int = await self._committer.commit(write)
        return number
